"""The job: what is trained, where it runs and how it is launched."""
