"""Geometries: precomputed sizes of compound primitives, returned by ``be.conv_layer``, ``be.pool_layer`` and
similar."""
