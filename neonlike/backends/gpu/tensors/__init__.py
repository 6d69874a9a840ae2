"""Tensors in a GPU's memory, and memory shared with other libraries."""
