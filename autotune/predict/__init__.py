"""Predictions without hardware: what a training job needs before anything is launched.

Pure arithmetic; importing this package loads neither torch nor DeepSpeed.
"""
