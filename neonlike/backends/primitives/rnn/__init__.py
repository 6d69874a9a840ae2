"""Recurrent unrolls: simple and gated families, their steps, and activations as C or CUDA functions."""
