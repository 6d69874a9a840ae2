"""The expression language. It depends on NumPy only; it knows no device, template or layer."""

from neonlike.optree import methods as methods  # attaches the methods of expressions
