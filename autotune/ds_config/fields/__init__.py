"""What DeepSpeed knows: every field of a ds_config, read off its source."""
