"""``gen_backend`` and ``cleanup_backend`` for the process-wide current backend, ``NervanaObject.be``.

Only this file knows, and loads, the backends that are not imported with the library.
"""

from __future__ import annotations

import atexit
from typing import Any

import numpy as np
import numpy.typing as npt

from neonlike import settings
from neonlike.backends.arguments import FILLED, check_names, check_values
from neonlike.backends.backend import Backend
from neonlike.backends.current import release
from neonlike.backends.gpu import load as load_gpu
from neonlike.backends.tensors.creation import checked_default_dtype
from neonlike.checks import brief
from neonlike.distributed.launch import ranks_of, silence
from neonlike.distributed.ranks import Ranks
from neonlike.errors import ArgumentError
from neonlike.kernels.bench.recorder import bench_target
from neonlike.kernels.run.threads import share_cores
from neonlike.logger import logger
from neonlike.nervanaobject import NervanaObject

Backend.loaders["gpu"] = load_gpu
_state = {"hooked": False}


def gen_backend(
    backend: str = "cpu",
    rng_seed: int | None = None,
    datatype: npt.DTypeLike = np.float32,
    batch_size: int = 0,
    stochastic_round: bool | int = False,
    device_id: int = 0,
    max_devices: int | None = None,
    compat_mode: str | None = None,
    deterministic_update: Any = None,
    deterministic: Any = None,
    distributed: bool | None = None,
    **options: Any,
) -> Backend:
    """Create a backend and install it as ``NervanaObject.be``; an earlier one is cleaned up first.

    Parameters
    ----------
    backend : str
        "cpu", "gpu" (see :mod:`neonlike.backends.gpu`), or another registered name.
    rng_seed : int or None
        Seed; None takes entropy from the system.
    datatype : dtype
        Default dtype of tensors: float16, bfloat16, float32 or float64.
    batch_size : int
        Samples in a batch. Several ranks share them: ``be.bsz`` of each are so many over their number.
    stochastic_round, device_id, max_devices
        Mantissa bits of stochastic rounding, number of the GPU, and maximum number of GPUs; ignored on the CPU. With 0
        each rank of a machine takes a GPU of its own.
    compat_mode : None or "caffe"
    deterministic_update, deterministic
        Deprecated and ignored, as in neon.
    distributed : bool or None
        Train with the other ranks of the program (docs/distributed.md). None: if an MPI launcher such as ``mpiexec``
        has started several; False: alone; True: by MPI in any case.
    **options
        Further arguments of the backend, such as ``bench=True`` (see :class:`~neonlike.backends.backend.Backend`).

    Raises
    ------
    BackendUnavailable
        If the name is not registered, or it is "gpu" and a GPU, its driver or PyCUDA is missing.
    ArgumentError
        If an argument or environment variable (docs/environment.md) is invalid, or ``batch_size`` is not a multiple of
        the number of ranks. An earlier backend is kept then.
    MissingExtra
        If there are several ranks and mpi4py is not installed.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu", rng_seed=1, batch_size=64)
    >>> be
    <NervanaCPU float32 bsz=64>
    """
    if deterministic_update is not None or deterministic is not None:
        logger.warning("gen_backend: deterministic and deterministic_update are deprecated and ignored")
    kind = Backend.backend_class(backend)
    check_names("gen_backend", options, gen_backend, kind.__init__, without=FILLED)
    check_values("gen_backend", rng_seed, stochastic_round, device_id, max_devices, compat_mode, batch_size)
    checked_default_dtype("gen_backend", datatype)
    bench_target(options.get("bench"))
    kind.precision_of(options.get("product_precision"))
    settings.check()
    ranks = ranks_of(distributed)
    share = _share_of(batch_size, ranks.size)
    share_cores(ranks.cores)
    _replace_current()  # only now: an error above must leave the old backend alone
    be = kind(
        rng_seed=rng_seed, default_dtype=datatype, stochastic_round=stochastic_round, num_devices=max_devices,
        device_id=device_id or kind.device_of(ranks.local_rank), compat_mode=compat_mode, **options,
    )  # fmt: skip
    be.bsz = share
    if ranks.size > 1:
        _join(be, ranks)
    NervanaObject.be = be
    return be


def _share_of(batch_size: int, ranks: int) -> int:
    """Samples of a batch that each rank has.

    Raises
    ------
    ArgumentError
        If the ranks cannot have equal shares.
    """
    share, rest = divmod(batch_size, ranks)
    if rest:
        near = f"{share * ranks} or {(share + 1) * ranks}" if share else str(ranks)
        raise ArgumentError(
            f"gen_backend: batch_size={brief(batch_size)} cannot be shared equally by {ranks} ranks; the nearest that "
            f"can: {near}"
        )
    return share


def _join(be: Any, ranks: Ranks) -> None:
    """Let the backend train with the other ranks, all from one seed."""
    be.ranks = ranks
    if be.rng_seed is None:
        be.gen_rng(ranks.tell(int(np.random.SeedSequence().generate_state(1)[0]))[0])
    be.num_dev = ranks.size
    silence(ranks)


def _replace_current() -> None:
    """Clean up the current backend, and register the cleanup of the next one at process exit."""
    cleanup_backend()
    if not _state["hooked"]:
        atexit.register(cleanup_backend)
        _state["hooked"] = True


def cleanup_backend() -> None:
    """Clean up the current backend, if there is one.

    Examples
    --------
    >>> from neonlike import NervanaObject
    >>> from neonlike.backends import cleanup_backend, gen_backend
    >>> be = gen_backend("cpu")
    >>> cleanup_backend()
    >>> NervanaObject.be is None
    True
    """
    if NervanaObject.be is not None:
        release(NervanaObject.be)
