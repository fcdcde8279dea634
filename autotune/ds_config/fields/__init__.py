"""Every field of a ds_config, read from DeepSpeed's source."""
