"""Rules about a ds_config: one small rule per fault."""
