"""Normalisation: of batches, of samples, and scale and shift after it."""
