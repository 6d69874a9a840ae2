"""The language: what an expression is. Knows NumPy only; no device, no template, no layer."""
