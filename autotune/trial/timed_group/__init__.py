"""A process group of one rank that takes the time of N: collectives wait instead of sending."""
