"""Tests of `autotune.lint`."""
