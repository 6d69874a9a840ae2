"""Bench mode: kernels and their times, compared with the machine's rates."""
