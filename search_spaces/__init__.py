"""Search spaces that come with autotune, one YAML file each."""
