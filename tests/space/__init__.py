"""Tests of `autotune.space`."""
