"""Sizes of compound primitives, worked out once: what ``be.conv_layer``, ``be.pool_layer`` and the like return."""
