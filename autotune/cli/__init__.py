"""The command line: one file per command, which parses, calls one function and prints."""
