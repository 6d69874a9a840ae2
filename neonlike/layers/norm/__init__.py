"""Normalisation of batches and of samples, with scale and shift."""
