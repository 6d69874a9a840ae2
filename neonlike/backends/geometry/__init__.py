"""Geometries: precomputed sizes of compound primitives, returned by ``be.conv_layer`` and similar."""
