"""Compares a config with the record of a study, and measures it again."""
