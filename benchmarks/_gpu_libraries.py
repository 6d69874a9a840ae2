"""The libraries that ``gpu.py`` compares, behind one interface: arrays on the GPU, and the time that work on it takes.

A library is imported when it is made. One that is not installed, or sees no GPU, is :class:`Refused`.
"""

from __future__ import annotations

import gc
import importlib.util
import itertools
import logging
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from _contenders import Refused
from _terms import NOT_INSTALLED

Run = Callable[[], object]


class Library:
    """One library on the GPU; what is common to all of them.

    Attributes
    ----------
    name : str
    version : str
    returns : bool
        It makes its results anew instead of writing them where one says.
    """

    name = version = ""
    returns = False

    def put(self, array: Any) -> Any:
        """A copy on the GPU."""
        raise NotImplementedError

    def get(self, array: Any) -> Any:
        """A host copy."""
        raise NotImplementedError

    def set(self, array: Any, values: Any) -> None:
        """Overwrite ``array`` with host values, or with one number."""
        raise NotImplementedError

    def synchronize(self) -> None:
        """Wait for all work of this library."""
        raise NotImplementedError

    def elapsed(self, run: Run, loops: int) -> float:
        """Seconds of the GPU for ``loops`` runs, queued one after the other."""
        return self.wall(run, loops)

    def wall(self, run: Run, loops: int) -> float:
        """Seconds of the host until ``loops`` runs are done."""
        self.synchronize()
        start = time.perf_counter()
        for _ in itertools.repeat(None, loops):
            run()
        self.synchronize()
        return time.perf_counter() - start

    def queueing(self, run: Run, loops: int) -> float:
        """Seconds of the host until ``loops`` runs are queued: what calling costs, whatever the GPU does."""
        self.synchronize()
        enabled = gc.isenabled()
        gc.disable()
        try:
            start = time.perf_counter()
            for _ in itertools.repeat(None, loops):
                run()
            return time.perf_counter() - start
        finally:
            self.synchronize()
            if enabled:
                gc.enable()


class Neonlike(Library):
    """Ours: tensors of a backend."""

    name = "neonlike"

    def __init__(self, be: Any) -> None:
        self.be = be

    def put(self, array: Any) -> Any:
        return self.be.array(array, dtype=array.dtype)

    def get(self, array: Any) -> Any:
        return array.get()

    def set(self, array: Any, values: Any) -> None:
        array[:] = values

    def synchronize(self) -> None:
        self.be.synchronize()

    def elapsed(self, run: Run, loops: int) -> float:
        be = self.be
        start, end = be.init_mark(), be.init_mark()
        be.record_mark(start)
        for _ in itertools.repeat(None, loops):
            run()
        be.record_mark(end)
        return float(be.get_time(start, end)) / 1e3


class Torch(Library):
    """PyTorch, in inference mode."""

    name, device = "torch", "cuda"

    def __init__(self) -> None:
        _need("torch")
        import torch

        if not torch.cuda.is_available():
            raise Refused(f"{NOT_INSTALLED} with support for this GPU")
        logging.getLogger("torch").setLevel(logging.ERROR)
        torch.inference_mode().__enter__()  # once for the process, as entering it takes a microsecond
        self.torch, self.version = torch, str(torch.__version__)

    def put(self, array: Any) -> Any:
        if array.dtype.name == "bfloat16":  # which NumPy does not know, and PyTorch takes no other package's
            return self.torch.from_numpy(array.view(np.int16)).view(self.torch.bfloat16).to(self.device)
        return self.torch.from_numpy(array).to(self.device)

    def get(self, array: Any) -> Any:
        return (array.float() if array.dtype == self.torch.bfloat16 else array).cpu().numpy()

    def set(self, array: Any, values: Any) -> None:
        array.copy_(self.torch.as_tensor(values))

    def synchronize(self) -> None:
        self.torch.cuda.synchronize()

    def elapsed(self, run: Run, loops: int) -> float:
        start, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in itertools.repeat(None, loops):
            run()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) / 1e3


class Cupy(Library):
    """CuPy."""

    name = "cupy"

    def __init__(self) -> None:
        _need("cupy")
        import cupy

        try:
            cupy.cuda.runtime.getDeviceCount()
        except Exception as why:
            raise Refused(f"{NOT_INSTALLED} with support for this GPU") from why
        self.cupy, self.version = cupy, str(cupy.__version__)

    def put(self, array: Any) -> Any:
        return self.cupy.asarray(array)

    def get(self, array: Any) -> Any:
        return array.get()

    def set(self, array: Any, values: Any) -> None:
        array[...] = self.cupy.asarray(values)

    def synchronize(self) -> None:
        self.cupy.cuda.get_current_stream().synchronize()

    def elapsed(self, run: Run, loops: int) -> float:
        start, end = self.cupy.cuda.Event(), self.cupy.cuda.Event()
        start.record()
        for _ in itertools.repeat(None, loops):
            run()
        end.record()
        end.synchronize()
        return float(self.cupy.cuda.get_elapsed_time(start, end)) / 1e3


class Jax(Library):
    """JAX, compiled. It has no events: its times are the host's, until the last result is there."""

    name = "jax"
    returns = True

    def __init__(self) -> None:
        _need("jax")
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # or it takes most of the memory
        import jax

        try:
            self.device = jax.devices("gpu")[0]
        except RuntimeError as why:
            raise Refused(f"{NOT_INSTALLED} with support for this GPU") from why
        self.jax, self.version = jax, str(jax.__version__)
        self.last: Any = ()
        """What the latest run returned."""

    def put(self, array: Any) -> Any:
        return self.jax.device_put(array, self.device)

    def get(self, array: Any) -> Any:
        return np.asarray(array)

    def synchronize(self) -> None:
        self.jax.block_until_ready(self.last)


def _need(name: str) -> None:
    if importlib.util.find_spec(name) is None:
        raise Refused(NOT_INSTALLED)


PEERS: dict[str, Callable[[], Library]] = {"torch": Torch, "cupy": Cupy, "jax": Jax}


def find_peers() -> tuple[dict[str, Library], dict[str, str]]:
    """The libraries that are there, by name; and why the others are not."""
    found: dict[str, Library] = {}
    absent: dict[str, str] = {}
    for name, make in PEERS.items():
        try:
            found[name] = make()
        except Refused as why:
            absent[name] = str(why)
        except Exception as failure:  # an installation of theirs that does not load is no reason to measure nothing
            absent[name] = f"does not load: {type(failure).__name__}: {failure}".splitlines()[0]
    return found, absent
