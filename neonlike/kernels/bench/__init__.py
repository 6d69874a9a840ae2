"""Bench mode: what ran, for how long, set against what the machine can do."""
