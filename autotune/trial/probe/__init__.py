"""A rank of `autotune probe`: times the parts of a step that ranks share."""
