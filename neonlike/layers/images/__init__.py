"""Layers of images: convolution, pooling, local response normalisation, regions, and blocks of these."""
