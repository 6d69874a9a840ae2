"""Backend that computes the numbers of pictures."""

from __future__ import annotations

from typing import Any


def backend() -> Any:
    """Make a backend that runs the definitions, without a compiler: pictures have the same numbers everywhere."""
    from neonlike.backends import gen_backend
    from neonlike.backends.cpu.backend import compiled_engine
    from neonlike.kernels.numpy_engine.engine import NumpyEngine

    with compiled_engine(NumpyEngine):
        return gen_backend("cpu", rng_seed=0)
