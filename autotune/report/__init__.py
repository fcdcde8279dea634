"""Prints results: of a study, a plan, a job, a probe and the gate."""
