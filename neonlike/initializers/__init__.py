"""Weight initializers."""

from neonlike.initializers.initializer import (
    Array,
    Constant,
    Gaussian,
    GlorotUniform,
    IdentityInit,
    Initializer,
    Kaiming,
    Orthonormal,
    Uniform,
    Xavier,
)

__all__ = [
    "Array",
    "Constant",
    "Gaussian",
    "GlorotUniform",
    "IdentityInit",
    "Initializer",
    "Kaiming",
    "Orthonormal",
    "Uniform",
    "Xavier",
]
