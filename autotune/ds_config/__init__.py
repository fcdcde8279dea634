"""The ds_config: read, built from a proposal, and told apart from its equals."""
