"""A GPU as this process uses it: contexts, launches, graphs, errors that kernels report, clocks."""
