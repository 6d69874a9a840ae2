"""What ``models.py --backend gpu`` does otherwise: float32 with and without TF32, waits for the GPU, the GPU's memory.

A network and mode are measured twice: with products of float32, and with factors rounded to TF32
(``be.product_precision``; PyTorch's ``allow_tf32`` of cuBLAS and cuDNN). PyTorch counts as missing where it does not
see the GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from _models_report import TF32
from _nets import NETS, TINY
from _terms import NOT_INSTALLED

LIMIT = 540.0
"""Seconds after which no further network is begun."""


def make_ours(net: str, mode: str) -> Any:
    """The network of our layers on the GPU."""
    from _nets_ours import Training

    from neonlike.backends import gen_backend

    be = gen_backend("gpu", rng_seed=0, batch_size=NETS[net].N)
    be.product_precision = "tf32" if mode.endswith(TF32) else "float32"
    return Training(be, net)


def make_host(net: str) -> Any:
    """The network of our layers on the CPU: the reference where there is no PyTorch."""
    from _nets_ours import Training

    from neonlike.backends import gen_backend

    return Training(gen_backend("cpu", rng_seed=0, batch_size=NETS[net].N), net)


def allow_tf32(mode: str) -> None:
    """Have PyTorch round factors, or not; it does for convolutions of itself."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = mode.endswith(TF32)


def torch_device(backend: str, reference: bool = False) -> str:
    """Where PyTorch computes; the reference on the CPU if there is no other place for it."""
    if backend == "cpu":
        return "cpu"
    import torch

    return "cuda" if torch.cuda.is_available() or not reference else "cpu"


def why_absent() -> str:
    """Why PyTorch does not take part; empty if it does."""
    from _primitives import has_torch

    if not has_torch():
        return NOT_INSTALLED
    import torch

    return "" if torch.cuda.is_available() else f"{NOT_INSTALLED} with support for this GPU"


def waiting(made: Any, step: Callable[[], object]) -> Callable[[], object]:
    """``step``, and until the GPU has done it."""
    if hasattr(made, "be"):
        wait = made.be.synchronize
    else:
        import torch

        wait = torch.cuda.synchronize

    def run() -> None:
        step()
        wait()

    return run


def memory(made: Any) -> int:
    """The most of the GPU's memory that arrays have taken at a time, in bytes."""
    if hasattr(made, "be"):
        return int(made.be.memory_stats().used_peak)
    import torch

    return int(torch.cuda.max_memory_allocated()) if torch.cuda.is_available() else 0


def facts() -> dict[str, str] | None:
    """What a reader is told of the GPU; None, with a line for the user, if there is none that can be used."""
    from neonlike.backends import gen_backend
    from neonlike.errors import BackendUnavailable

    try:
        with gen_backend("gpu", rng_seed=0) as be:
            major, minor = be.compute_capability
            return {"GPU": f"{be.device.name}, {be.sm_count} multiprocessors, capability {major}.{minor}"}
    except BackendUnavailable as why:
        print(f"benchmarks/models.py: {why}")
        return None


def use_tiny() -> None:
    """Take small networks instead, for an emulated GPU: their figures say nothing."""
    NETS.clear()
    NETS.update(TINY)
