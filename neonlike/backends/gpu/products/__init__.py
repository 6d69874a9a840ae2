"""Matrix products through cuBLAS."""
