"""Matrix products by cuBLAS."""
