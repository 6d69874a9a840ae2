"""Compound primitives as compiled C: each module overrides hooks of one family of ``backends/primitives``."""
