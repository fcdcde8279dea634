"""Ray: slots, placement, supervision. The only package that imports Ray."""
