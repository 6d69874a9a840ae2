"""Compilation of kernels: the driver shared by both compilers, the disk cache, and waiting messages."""
