"""neon's module path of the CPU backend."""

import numpy as CustomNumpy  # noqa: N812  (neon's name for its patched NumPy)

from neonlike.backends.cpu.backend import NervanaCPU
from neonlike.backends.cpu.tensor import CPUTensor

__all__ = ["CPUTensor", "CustomNumpy", "NervanaCPU"]
