"""Pooling: the family and its definition in NumPy."""
