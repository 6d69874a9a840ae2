"""The libraries that are compared, behind one interface: arrays on a processor, and the time that work on them takes.

A library is imported when it is made. One that is not installed, or sees no GPU, is :class:`_cases.Refused`.
"""

from __future__ import annotations

import ctypes
import gc
import importlib.util
import itertools
import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from _cases import NOT_INSTALLED, Contender, Refused

Array = np.ndarray[Any, Any]
Run = Callable[[], object]

AUTOCAST, STORED = "autocast", "bfloat16"
"""PyTorch's ways to products in bfloat16 on a CPU: autocast on float32 tensors, and tensors that are of bfloat16."""


class Library:
    """One library on one processor; this one is NumPy.

    Attributes
    ----------
    name, version : str
    device : str
        ``cpu``, or else a clock of the library's own has to be asked for times.
    returns : bool
        It makes its results anew instead of writing them where one says.
    """

    name = version = ""
    device = "cpu"
    returns = False

    def put(self, array: Array) -> Any:
        """A copy where the library computes."""
        return array.copy()

    def room(self, shape: tuple[int, ...]) -> Any:
        """A float32 array for results."""
        return self.put(np.full(shape, np.nan, np.float32))

    def get(self, array: Any) -> Array:
        """A host copy."""
        return np.array(array)

    def set(self, array: Any, values: Any) -> None:
        """Overwrite ``array`` with host values, or with one number."""
        array[...] = values

    def synchronize(self) -> None:
        """Wait for all work of this library."""

    def elapsed(self, run: Run, loops: int) -> float:
        """Seconds of the device for ``loops`` runs, queued one after the other."""
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
        """Seconds of the host until ``loops`` runs are queued: what calling costs, whatever the device does."""
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

    def __init__(self, be: Any, device: str = "cpu") -> None:
        self.be, self.device = be, device

    def put(self, array: Array) -> Any:
        return self.be.array(array, dtype=array.dtype)

    def room(self, shape: tuple[int, ...]) -> Any:
        return self.be.zeros(shape)

    def get(self, array: Any) -> Array:
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
    """PyTorch; on a GPU in inference mode, but where gradients are asked for.

    Parameters
    ----------
    device : str
    way : str
        ``AUTOCAST`` or ``STORED`` for products in bfloat16 on a CPU.
    """

    name = "torch"

    def __init__(self, device: str = "cuda", way: str = "") -> None:
        need("torch")
        import torch

        self.torch, self.version, self.device, self.way = torch, str(torch.__version__), device, way
        logging.getLogger("torch").setLevel(logging.ERROR)
        if device != "cpu":
            if not torch.cuda.is_available():
                raise Refused(f"{NOT_INSTALLED} with support for this GPU")
            torch.inference_mode().__enter__()  # once for the process, as entering it takes a microsecond

    def put(self, array: Array) -> Any:
        rows = np.ascontiguousarray(array)
        if rows.dtype.name == "bfloat16":  # which NumPy does not know, and PyTorch takes no other package's
            return self.torch.from_numpy(rows.view(np.int16)).view(self.torch.bfloat16).to(self.device)
        made = self.torch.from_numpy(rows)
        if self.way == STORED and rows.dtype == np.float32:
            return made.bfloat16()
        return made.clone() if self.device == "cpu" and rows is array else made.to(self.device)

    def autocast(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """``function`` under autocast to bfloat16 if that is the way, else itself."""
        return autocast(self.torch, self.way, function)

    def kept(self, *tensors: Any) -> list[Any]:
        """These as a forward pass keeps them for the gradients: under autocast, cast already."""
        return [tensor.bfloat16() for tensor in tensors] if self.way == AUTOCAST else list(tensors)

    def to_leaves(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """``function``, whose gradient of bfloat16 becomes one of float32 tensors where these were cast by autocast."""
        return (lambda *given: function(*given).float()) if self.way == AUTOCAST else function

    def images(self, maps: Array, form: Any = None) -> Any:
        """Maps (C, H, W, N) or (C, D, H, W, N) as a tensor with N first, in a memory format."""
        made = self.put(maps.transpose(-1, *range(maps.ndim - 1)))
        return made if form is None else made.contiguous(memory_format=form)

    def layout(self, name: str, axes: int = 4) -> Any:
        """Memory format of the contender ``name``."""
        if not name.endswith("NHWC"):
            return self.torch.contiguous_format
        return self.torch.channels_last if axes == 4 else self.torch.channels_last_3d

    @contextmanager
    def gradients(self, wanted: bool = True) -> Iterator[None]:
        """Within it tensors and functions have gradients, if they are wanted."""
        if not wanted:
            yield
            return
        with self.torch.inference_mode(False), self.torch.enable_grad():
            yield

    def get(self, array: Any) -> Array:
        array = array.detach()
        return (array.float() if array.dtype == self.torch.bfloat16 else array).cpu().numpy().copy()

    def set(self, array: Any, values: Any) -> None:
        array.copy_(self.torch.as_tensor(values))

    def synchronize(self) -> None:
        if self.device != "cpu":
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

    name, device = "cupy", "cuda"

    def __init__(self) -> None:
        need("cupy")
        import cupy

        try:
            cupy.cuda.runtime.getDeviceCount()
        except Exception as why:
            raise Refused(f"{NOT_INSTALLED} with support for this GPU") from why
        self.cupy, self.version = cupy, str(cupy.__version__)

    def put(self, array: Array) -> Any:
        return self.cupy.asarray(array)

    def get(self, array: Any) -> Array:
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

    def __init__(self, device: str = "gpu") -> None:
        need("jax")
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # or it takes most of the memory
        import jax

        try:
            self.place = jax.devices(device)[0]
        except RuntimeError as why:
            raise Refused(f"{NOT_INSTALLED} with support for this GPU") from why
        self.jax, self.version, self.device = jax, str(jax.__version__), device
        self.last: Any = ()
        """Results of the latest run."""

    def put(self, array: Array) -> Any:
        return self.jax.device_put(array.copy(), self.place)

    def get(self, array: Any) -> Array:
        return np.asarray(array)

    def synchronize(self) -> None:
        self.jax.block_until_ready(self.last)


def autocast(torch: Any, way: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` under autocast to bfloat16 on a CPU if that is the way, else itself."""
    return torch.autocast("cpu", torch.bfloat16)(function) if way == AUTOCAST else function  # type: ignore[no-any-return]


def need(name: str) -> None:
    """Refuse a library that is not installed."""
    if importlib.util.find_spec(name) is None:
        raise Refused(NOT_INSTALLED)


GPU_PEERS: dict[str, Callable[[], Library]] = {"torch": Torch, "cupy": Cupy, "jax": Jax}


def find_peers() -> tuple[dict[str, Library], dict[str, str]]:
    """The libraries that are there on a GPU, by name; and why the others are not."""
    found: dict[str, Library] = {}
    absent: dict[str, str] = {}
    for name, make in GPU_PEERS.items():
        try:
            found[name] = make()
        except Refused as why:
            absent[name] = str(why)
        except Exception as failure:  # an installation of theirs that does not load is no reason to measure nothing
            absent[name] = f"does not load: {type(failure).__name__}: {failure}".splitlines()[0]
    return found, absent


def set_torch_up(threads: int, keep_memory: bool = True, gradients: bool = False) -> None:
    """Set up PyTorch on a CPU: threads, gradients only where asked for, memory reused (:func:`reuse_memory`)."""
    if keep_memory:
        os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")  # large pages, which NumPy asks for too
        reuse_memory()
    import torch

    logging.getLogger("torch").setLevel(logging.ERROR)
    torch.set_num_threads(threads)
    torch.set_grad_enabled(gradients)


def reuse_memory() -> bool:
    """Have the C library keep freed memory of any size for the next call; False where it cannot.

    Else each result that PyTorch makes comes from the system anew and page by page, which takes longer than pooling
    it. Ours writes into memory it has, as a peer with an allocator that caches would.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    m_trim_threshold, m_mmap_max = -1, -4
    return bool(mallopt(m_mmap_max, 0) and mallopt(m_trim_threshold, 2**31 - 1))


# Calls of a library as contenders -------------------------------------------------------------------------------


def unchanged(*arrays: Array) -> Sequence[Array]:
    """The arrays themselves."""
    return arrays


@dataclass
class Made:
    """A call in a library, with operands and results of its own."""

    run: Run
    results: Callable[[], Sequence[Any]]
    """The library's arrays that the last run left."""
    back: Callable[..., Sequence[Array]] = unchanged
    """Brings host copies of these into our layout."""
    reset: Run | None = None
    """First values to operands that are replaced, nan to results; by default nan to results of ours."""


def writes(run: Run, *results: Any, shapes: Sequence[tuple[int, ...]] | None = None) -> Made:
    """A call that writes into ``results``, which have these shapes for whoever looks at them."""
    if shapes is None:
        return Made(run, lambda: results)
    return Made(run, lambda: results, lambda *arrays: [a.reshape(shape) for a, shape in zip(arrays, shapes)])


def returns(function: Callable[[], Any], back: Callable[..., Sequence[Array]] = unchanged) -> Made:
    """A call that makes new arrays; the last ones are given up first, so that their memory can be used again."""
    last: list[Any] = []

    def run() -> None:
        last.clear()
        last.append(function())

    def results() -> Sequence[Any]:
        return () if not last else last[0] if isinstance(last[0], (tuple, list)) else last

    return Made(run, results, back)


def from_images(*tensors: Array) -> list[Array]:
    """Maps with N last, of arrays with N first."""
    return [tensor.transpose(*range(1, tensor.ndim), 0) for tensor in tensors]


def contender(
    library: Library, name: str, *sets: Made, sample: Callable[..., Sequence[Array]] = unchanged, ours: bool = False,
    **more: Any,
) -> Contender:  # fmt: skip
    """The contender ``name``, whose runs take turns with these calls; ``sample`` chooses what is compared of results.

    Results of ours are nan before the check, so that a call that computes nothing is found out; and all calls must
    give the same.
    """
    following = itertools.cycle([made.run for made in sets])
    run: Run = sets[0].run if len(sets) == 1 else lambda: next(following)()

    def reset() -> None:
        nonlocal following
        following = itertools.cycle([made.run for made in sets])
        for made in sets:
            if made.reset is not None:
                made.reset()
            elif ours:
                for result in made.results():
                    library.set(result, np.float32(np.nan))

    def read(made: Made) -> Sequence[Array]:
        return made.back(*[library.get(array) for array in made.results()])

    def result() -> Sequence[Array]:
        library.synchronize()
        found = read(sets[0])
        for made in sets[1:] if ours else ():
            next(following)()
            if not all(np.array_equal(a, b) for a, b in zip(found, read(made))):
                raise ArithmeticError("the same operands elsewhere in memory give another result")
        return sample(*found)

    elapsed = None if library.device == "cpu" else partial(library.elapsed, run)
    return Contender(name, run, result, reset, ours, elapsed, **more)
