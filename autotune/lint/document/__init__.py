"""Readers of config files (JSON, Hjson, YAML) that keep the line and column of every key."""
