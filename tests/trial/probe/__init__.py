"""Tests of `autotune.trial.probe`."""
