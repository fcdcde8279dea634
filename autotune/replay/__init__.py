"""Searches over recorded outcomes, without a device."""
