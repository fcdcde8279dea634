"""A process group of one rank with the timing of N: collectives wait instead of sending."""
