"""Tensors in GPU memory, and memory shared with other libraries."""
