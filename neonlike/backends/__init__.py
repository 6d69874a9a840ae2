"""Backends hold tensors and run expressions; ``be = gen_backend('cpu')`` creates one."""

from neonlike.backends.backend import Backend
from neonlike.backends.cpu.backend import NervanaCPU
from neonlike.backends.registry import cleanup_backend, gen_backend
from neonlike.optree.autodiff import Autodiff

__all__ = ["Autodiff", "Backend", "NervanaCPU", "cleanup_backend", "gen_backend"]
