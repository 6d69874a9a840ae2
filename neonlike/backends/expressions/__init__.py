"""Families of methods that build expressions: elementwise, reductions, rearranging, random numbers, gradients."""
