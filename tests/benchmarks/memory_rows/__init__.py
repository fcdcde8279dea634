"""Measures the memory of jobs that no row of `tests/data` has, on one CUDA device.

``python -m tests.benchmarks.memory_rows --out rows.csv`` runs every row, each in a process of its
own that plays rank 0 of N under torch's fake process group, and writes one CSV line a row: the
columns of `h200_memory.csv` first, then what is needed to rebuild the job. It ends with the memory
model's error on each row and by topic, which ``--table rows.csv`` prints again without a device.

``--caps`` runs a few rows under a limit of the allocator a little above and a little below what
the model predicts, and prints whether they fitted; ``--with-caps`` does so after the rows.

``--device cpu`` runs the same rows with tiny models, to debug this script: sizes mean nothing then.

A row's job is in three columns, from which `read_job` rebuilds everything the model reads:
``ds_config`` and ``hf_config`` (JSON) and ``frozen`` with ``trainable_parameters``; the numbers in
the other columns say the same for people and for the older rows' reader.
"""
