"""What runs in a rank of `autotune probe`: it times the parts of a step that ranks share."""
