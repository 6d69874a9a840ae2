"""Convolution as compiled C: ``hooks.py`` selects the kernel, and each other module plans one kind of kernel."""
