"""Convolution as compiled C: ``hooks.py`` chooses, the other modules divide the work of one kind of kernel each."""
