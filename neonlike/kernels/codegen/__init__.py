"""Stages to text, for C and CUDA alike: one line a value, reductions, how arrays lie, templates filled in."""
