"""Compound primitives as nodes of expressions, with their gradient rules."""
