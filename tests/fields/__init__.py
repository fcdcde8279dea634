"""Tests of `autotune.fields`."""
