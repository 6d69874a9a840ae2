"""Stages as CUDA kernels, for a device that ``backends/gpu`` provides."""
