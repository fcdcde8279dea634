"""Findings about a job on its devices: memory, precision, needless cost."""
