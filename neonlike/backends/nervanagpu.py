"""neon's module path of the GPU backend. Its names need PyCUDA: they are resolved on first use."""

from __future__ import annotations

from typing import Any

from neonlike.backends.gpu import load
from neonlike.errors import BackendUnavailable, MissingExtra

__all__ = ["GPUTensor", "NervanaGPU"]  # noqa: F822  (what __getattr__ gives)


def __getattr__(name: str) -> Any:
    """Resolve ``NervanaGPU`` and ``GPUTensor``.

    Raises
    ------
    MissingExtra
        If PyCUDA or the GPU's driver is missing.
    """
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        backend = load()
    except BackendUnavailable as error:
        raise MissingExtra(str(error)) from error
    return backend if name == "NervanaGPU" else backend.tensor_cls
