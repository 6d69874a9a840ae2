"""Layers based on matrix products: fully connected layers, compound layers, lookup tables, attention."""
