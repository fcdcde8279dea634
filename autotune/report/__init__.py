"""A study for readers."""
