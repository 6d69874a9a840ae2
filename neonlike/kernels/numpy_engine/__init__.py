"""Stages as NumPy calls on blocks that fit the cache: the reference, and the way without a compiler."""
