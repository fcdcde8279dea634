"""Tests of `autotune.tune`."""
