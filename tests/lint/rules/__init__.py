"""Tests of the rules, by module."""
