"""Runs a plan, on every engine alike: runs and their arrays, threads, memory, calls that were made before."""
