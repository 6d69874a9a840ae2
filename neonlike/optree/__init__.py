"""The language: what an expression is. Knows NumPy only; no device, no template, no layer."""

from neonlike.optree import methods as methods  # without which expressions have no methods
