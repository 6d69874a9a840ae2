"""Convolution on a GPU: ``hooks.py`` makes a program of products and kernels by the plan of a layer."""
