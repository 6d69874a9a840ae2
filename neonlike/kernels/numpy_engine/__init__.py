"""Stages as NumPy calls on cache-sized blocks: the reference, and the engine without a compiler."""
