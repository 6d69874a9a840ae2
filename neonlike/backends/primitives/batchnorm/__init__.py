"""Batch normalisation: the family and its definition in NumPy."""
