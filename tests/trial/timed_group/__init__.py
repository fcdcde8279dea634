"""Tests of `autotune.trial.timed_group`."""
