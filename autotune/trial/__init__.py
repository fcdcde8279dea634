"""What runs in a rank: a preloaded parent, a fork of it per trial, the engine, the measurement.

The only package that imports DeepSpeed. Its processes are started by `autotune.pool`; they exchange
JSON lines (`autotune.trial.wire`).
"""
