"""The ds_config: reading, building from a proposal, identity of equal runs."""
