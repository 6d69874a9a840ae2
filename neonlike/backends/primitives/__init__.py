"""Compound primitives: one module or folder each, with its public methods, requests and definition."""
