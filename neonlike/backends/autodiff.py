"""neon's module path of automatic differentiation, which is implemented in :mod:`neonlike.optree.autodiff`."""

from neonlike.optree.autodiff import Autodiff, GradNode, GradUtil, grad_map

__all__ = ["Autodiff", "GradNode", "GradUtil", "grad_map"]
