"""Code generation shared by C and CUDA: one line per value, reductions, layouts of arrays, templates."""
