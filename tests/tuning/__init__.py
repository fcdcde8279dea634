"""Tests of `autotune.tuning`."""
