"""The CPU backend: tensors are NumPy arrays; expressions run as compiled C or, without a compiler, in NumPy blocks."""

from neonlike.backends.cpu.backend import NervanaCPU
from neonlike.backends.cpu.tensor import CPUTensor

__all__ = ["CPUTensor", "NervanaCPU"]
