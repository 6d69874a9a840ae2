"""Stages as compiled C, and what hand-written C kernels need: compiler, worker threads, matrix products."""
