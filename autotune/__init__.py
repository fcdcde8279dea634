"""autotune finds, reviews and gates the DeepSpeed config of a long training run.

Importing this package loads none of torch, ray, deepspeed and optuna.
"""

__version__ = "0.1.0"
