"""The CPU backend: tensors are NumPy arrays, expressions run on the NumPy engine."""

from neonlike.backends.cpu.backend import NervanaCPU
from neonlike.backends.cpu.tensor import CPUTensor

__all__ = ["CPUTensor", "NervanaCPU"]
