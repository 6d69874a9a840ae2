"""Products in int8, for inference of quantized layers."""
