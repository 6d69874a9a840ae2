"""Stages as compiled C, and what hand-written C kernels need: compiler, pool of threads, matrix products."""
