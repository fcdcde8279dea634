"""What is wrong with a ds_config: one small rule per fault."""
