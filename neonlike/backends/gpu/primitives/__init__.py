"""Compound primitives on a GPU: each module overrides hooks of one family of ``backends/primitives``."""
