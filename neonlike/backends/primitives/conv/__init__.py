"""Convolution: the family, its requests, and its definition in NumPy."""
