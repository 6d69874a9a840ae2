"""The GPU backend, based on PyCUDA's driver layer. Importing this package imports no PyCUDA: :func:`load` does."""

from __future__ import annotations

from typing import Any

from neonlike.errors import BackendUnavailable

DOCTOR = "run `python -m neonlike doctor`, which says what is missing and how to get it"


def load() -> Any:
    """Import the class ``NervanaGPU``, which registers it as "gpu".

    Raises
    ------
    BackendUnavailable
        If PyCUDA is not installed, or does not load (no driver).
    """
    try:
        import pycuda
    except ImportError:
        raise BackendUnavailable(
            f"the backend 'gpu' needs PyCUDA, which is not installed: pip install neonlike[gpu]; {DOCTOR}"
        ) from None
    if getattr(pycuda, "STANDS_IN", False):
        raise BackendUnavailable("the backend 'gpu' is switched off by NEONLIKE_BACKEND=cpu: unset it to use a GPU")
    try:
        import pycuda.driver
    except (ImportError, OSError) as error:
        raise BackendUnavailable(
            f"the backend 'gpu' cannot use PyCUDA {pycuda.VERSION_TEXT}: {error}; is the GPU's driver there? {DOCTOR}"
        ) from error
    from neonlike.backends.gpu.backend import NervanaGPU

    return NervanaGPU
