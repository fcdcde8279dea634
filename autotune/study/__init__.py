"""The data of a study: its Optuna storage, folder, lock and outcomes."""
