"""Kernels as they go to a compiler and come back: sources, the cache on disk, what is said while one compiles."""
