"""What is wrong with a ds_config, and what DeepSpeed knows."""
