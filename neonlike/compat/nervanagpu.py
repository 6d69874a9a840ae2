"""Module ``nervanagpu`` for programs written for neon's GPU library before ``gen_backend``.

:mod:`neonlike.compat.neon` maps the name to this module; ``NEONLIKE_BACKEND=cpu`` runs such programs without a GPU.
"""

from __future__ import annotations

from typing import Any

from neonlike import settings

__all__ = ["GPUTensor", "NervanaGPU"]  # noqa: F822  (what __getattr__ gives)
__path__: list[str] = []  # a package whose submodules are modules of this folder


def __getattr__(name: str) -> Any:
    """Resolve ``NervanaGPU`` and ``GPUTensor``: neon's, or the CPU's with ``NEONLIKE_BACKEND=cpu``."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if settings.BACKEND.get() == "cpu":
        from neonlike.backends import NervanaCPU

        return NervanaCPU if name == "NervanaGPU" else NervanaCPU.tensor_cls
    from neonlike.backends import nervanagpu

    return getattr(nervanagpu, name)
