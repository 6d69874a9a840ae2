"""Stages as CUDA kernels, for a device from ``backends/gpu``."""
