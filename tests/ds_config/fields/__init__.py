"""Tests of `autotune.ds_config.fields`."""
