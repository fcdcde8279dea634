"""What one micro step of a model runs, as a list of events."""
