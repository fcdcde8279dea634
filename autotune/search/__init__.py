"""The search: first trials, proposals, confirmation. Optuna is imported in `sampler` only."""
