"""Device and host memory of one DeepSpeed rank, predicted from a config.

Two speeds, one vocabulary (`items`):

- `closed_form` adds up formulas, for screening thousands of proposals;
- `replay` runs the rank's tensors, in order, through a model of torch's caching allocator; verdicts
depend on it.

Data flow::

    Training (the config's settings)
      -> parameters + program   one micro step as a list of events: allocate, free, gradient ready
      -> engine                 how ZeRO holds weights, gradients and states: unsharded (stage 0),
                                flat (1, 2), bf16_accumulation (1 with fp32 sums), sharded (3)
      -> allocator              blocks, segments, caches, peaks
      -> estimate                   items at the peak, host memory, verdict
"""
