"""From the text that users have (JSON, Hjson, YAML) to a config with its places in the text."""
