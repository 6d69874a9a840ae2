"""neon's module path of the MKL backend, here the CPU backend under another name."""

from neonlike.backends.cpu.backend import MKLTensor, NervanaMKL

__all__ = ["MKLTensor", "NervanaMKL"]
