"""Applies safe fixes to the text of a config."""
