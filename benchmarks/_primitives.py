"""What the benchmarks of the compound primitives share: their command line, PyTorch as a peer, operands, a run.

A script describes a :class:`Subject`: layers of ``_layers.py``, directions, and a function that makes the case of one
layer, minibatch and direction. :func:`main` measures all that the command line asks for.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import _apart
import _machine
import numpy as np
import numpy.typing as npt
from _apart import Apart, Child, Desk, Link
from _cases import Case, Contender, Effort
from _layers import BATCHES
from _rates import Rates
from _terms import NOT_BUILT, OURS
from harness import Session, arguments

from neonlike.kernels.run.threads import thread_count

Array = npt.NDArray[Any]
Peers = dict[str, Callable[[Any, str], Contender]]

QUICK = Effort(sample=2e-3, min_rounds=3, max_rounds=7, budget=0.3, long=0.05)
FULL = Effort(sample=4e-3, min_rounds=3, max_rounds=9, budget=0.8, long=0.1)
"""A call of a large layer takes a second: three of each contender are enough."""

NO_TORCH = 2
"""Exit status without PyTorch."""

SPARE = 0.85
"""Share of the free memory that a case may take."""

SGEMM_EVERY = 8
"""Cases between two samples of NumPy's matrix product."""

VALUES = 1_000_003
"""Random values that operands repeat; a prime, so that no two rows of an operand are alike."""


@dataclass(frozen=True)
class Subject:
    """What a script measures.

    Parameters
    ----------
    name, text : str
        Section of RESULTS.md, and what the script says of itself.
    layers : list of Layer
    make_case : callable (be, layer, N, direction, peers)
        Without a backend, ours is left out.
    peers : dict
        Name -> what makes that contender of a problem.
    directions : dict
        Direction -> least geometric mean over the layers of torch's time divided by ours, None where no target is set.
    quick : list of str
        Titles of the layers that ``--quick`` measures, at the first minibatch.
    batches : tuple of int
    directions_of : callable
        Directions of a layer, if not all.
    remarks : callable
        More lines at the end of a run, from the rates.
    compute : bool
        Rates are GFLOP/s beside that of SGEMM, not GB/s beside a copy's.
    """

    name: str
    text: str
    layers: Sequence[Any]
    make_case: Callable[[Any, Any, int, str, Peers], Case]
    peers: Peers
    directions: dict[str, float | None]
    quick: Sequence[str]
    batches: tuple[int, ...] = BATCHES
    directions_of: Callable[[Any], Sequence[str]] | None = None
    remarks: Callable[[Rates], list[str]] = field(default=lambda rates: [])
    compute: bool = True


# Contenders -----------------------------------------------------------------------------------------------------


class NotBuilt(Exception):
    """A primitive that this version does not have."""


def need(be: Any, *names: str) -> None:
    """Raise :class:`NotBuilt` unless ``be`` has all methods ``names``."""
    missing = [name for name in names if not hasattr(be, name)]
    if missing:
        raise NotBuilt(f"{NOT_BUILT}: {', '.join(missing)}")


def make(
    be: Any,
    layer: Any,
    N: int,
    problem: Any,
    ours: Callable[[Any, Any], Contender],
    peers: Peers,
    **more: Any,
) -> Case:
    """The case of ``problem``: ours where there is a backend, and ``peers``; ``more`` are more of Case's arguments."""
    found, refused = [], {}
    try:
        found += [ours(be, problem)] if be is not None else []
    except NotBuilt as why:
        refused[OURS] = str(why)
    except NotImplementedError as why:  # a primitive that runs while another is prepared
        refused[OURS] = f"{NOT_BUILT}: {why}".rstrip(": ")
    found += [maker(problem, name) for name, maker in peers.items()]
    named = f"{layer.title}: {problem.direction}"
    return Case(named, layer.text, N, found, problem.reference, refused=refused, **more)


def own(run: Callable[[], object], result: Callable[[], Sequence[Any]]) -> Contender:
    """Our contender."""
    return Contender(OURS, run, result, ours=True)


def peer(name: str, function: Callable[[], Any], sample: Callable[[Any], Sequence[Any]]) -> Contender:
    """A contender that returns new arrays; the last ones are given up first, so that their memory can be used again."""
    last: list[Any] = []

    def run() -> None:
        last.clear()
        last.append(function())

    return Contender(name, run, lambda: sample(last[0]))


def layouts(torch: Any) -> dict[str, Any]:
    """Contender -> memory format."""
    return {"torch NCHW": torch.contiguous_format, "torch NHWC": torch.channels_last}


def to_torch(torch: Any, maps: Array, memory_format: Any) -> Any:
    """Maps (C, H, W, N) as a tensor (N, C, H, W) of its own memory in this format."""
    tensor = torch.from_numpy(maps).permute(3, 0, 1, 2)
    return tensor.clone(memory_format=memory_format)


def from_torch(tensor: Any) -> Array:
    """Maps (C, H, W, N) of a tensor (N, C, H, W); a view."""
    array: Array = tensor.detach().permute(1, 2, 3, 0).numpy()
    return array


def view(tensor: Any, *dims: int) -> Array:
    """Our tensor as an array, without a copy."""
    array: Array = tensor.asnumpyarray().reshape(dims)
    return array


def values(shape: Sequence[int], seed: int, scale: float = 1.0) -> Array:
    """Normal float32 values; few of them, repeated."""
    pool = np.random.default_rng(seed).standard_normal(VALUES, dtype=np.float32)
    return np.resize(pool * np.float32(scale), tuple(shape))


# PyTorch --------------------------------------------------------------------------------------------------------


def has_torch() -> bool:
    """Nothing is imported."""
    return importlib.util.find_spec("torch") is not None


def say_what_is_missing(script: str) -> int:
    """Say that ``script`` needs PyTorch; the exit status."""
    print(
        f"benchmarks/{script}.py compares with PyTorch, which is not installed: pip install .[bench-torch]",
        file=sys.stderr,
    )
    return NO_TORCH


def set_torch_up(keep_memory: bool = True) -> None:
    """Set up PyTorch: our number of threads, no gradients unless asked for, memory reused (:func:`reuse_memory`)."""
    if keep_memory:
        os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")  # large pages, which NumPy asks for too
        reuse_memory()
    import torch

    torch.set_num_threads(thread_count())
    torch.set_grad_enabled(False)


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


# A run ----------------------------------------------------------------------------------------------------------


def parse(subject: Subject, argv: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = arguments(subject.text.partition("\n")[0], bench=True)
    parser.add_argument("--only", metavar="TEXT,TEXT", help="layers whose title has one of these in it")
    parser.add_argument("--batches", type=numbers, metavar="N,N", help=f"default {subject.batches}")
    parser.add_argument("--directions", metavar="NAME,NAME", help=f"some of {', '.join(subject.directions)}")
    _apart.add_option(parser)
    parser.add_argument(
        "--fresh-memory", action="store_true", help="PyTorch gets its results' memory anew from the system each time"
    )
    options = parser.parse_args(argv)
    chosen = options.directions.split(",") if options.directions else list(subject.directions)
    if unknown := [name for name in chosen if name not in subject.directions]:
        parser.error(f"no direction {', '.join(unknown)}; there are {', '.join(subject.directions)}")
    options.directions = chosen
    if not schedule(subject, options):
        parser.error(f"no layer has {options.only} in its title")
    return options


def numbers(text: str) -> tuple[int, ...]:
    """The type of an option that takes sizes of minibatches, with commas between them."""
    found = tuple(int(part) for part in text.split(","))
    if min(found) < 1:
        raise argparse.ArgumentTypeError(f"a minibatch has at least one sample, got {text}")
    return found


def schedule(subject: Subject, options: argparse.Namespace) -> list[tuple[Any, int, str]]:
    """(layer, minibatch, direction) to measure; the minibatch is 0 for layers that have none."""
    layers = [layer for layer in subject.layers if _chosen(subject, options, layer)]
    batches = options.batches or (subject.batches[:1] if options.quick else subject.batches)
    planned: dict[tuple[Any, int, str], None] = {}
    for N in batches:
        for layer in layers:
            for direction in subject.directions_of(layer) if subject.directions_of else subject.directions:
                if direction in options.directions:
                    planned[layer, layer.minibatch(N), direction] = None
    return sorted(planned, key=lambda case: case[1])


def _chosen(subject: Subject, options: argparse.Namespace, layer: Any) -> bool:
    if options.only:
        return any(text in layer.title for text in options.only.split(","))
    return not options.quick or layer.title in subject.quick


def fits(layer: Any, N: int, nbytes: int, times: int = 6) -> str:
    """Why a case is left out; empty if there is memory for ``times`` as much, or nobody can tell.

    The default is for everyone's operands.
    """
    need, free = times * nbytes, _machine.free_memory()
    if free is None or need <= SPARE * free:
        return ""
    sizes = f"{need / 2**30:.0f} GiB of memory, and {free / 2**30:.0f} are free"
    return f"{layer.title} at N = {N}: left out, as it needs {sizes}"


@contextmanager
def desk(subject: Subject, options: argparse.Namespace, name: str) -> Iterator[Desk]:
    """The desk of the process of contender ``name``: it makes, checks and times cases."""
    from neonlike.backends import gen_backend

    layers = {layer.title: layer for layer in subject.layers}
    if name == OURS:
        with gen_backend("cpu", rng_seed=0) as be:
            make = lambda title, N, direction: subject.make_case(be, layers[title], N, direction, {})  # noqa: E731
            yield Desk(make, {"engine": be.engine.name})
        return
    if name.startswith("torch"):
        set_torch_up(keep_memory=not options.fresh_memory)
    peers = {name: subject.peers[name]}
    yield Desk(lambda title, N, direction: subject.make_case(None, layers[title], N, direction, peers))


def start(subject: Subject, options: argparse.Namespace, argv: Sequence[str], name: str) -> Link:
    """The process of the contender ``name``."""
    return Child(name, Path(__file__).with_name(f"{subject.name}.py"), argv)


def main(subject: Subject, argv: list[str] | None = None) -> int:
    """Run what the command line asks for; the status is 1 if a result of ours was wrong, 2 without PyTorch."""
    options = parse(subject, argv)
    if options.child:
        with desk(subject, options, options.child) as answers:
            return _apart.serve(answers)
    if not has_torch():
        return say_what_is_missing(subject.name)
    rates = Rates(subject.directions, subject.compute)
    effort = QUICK if options.quick else FULL
    link = partial(start, subject, options, sys.argv[1:] if argv is None else argv)
    with Apart([OURS, *subject.peers], link) as apart:
        facts = apart.facts | {"threads": f"{thread_count()} for everyone"}
        facts["PyTorch's results"] = "in fresh memory" if options.fresh_memory else "in memory used before"
        session = Session(subject.name, options, facts, rates, effort)
        for index, (layer, N, direction) in enumerate(schedule(subject, options)):
            if index % SGEMM_EVERY == 0:
                rates.sample_sgemm()
            if why := fits(layer, N, layer.nbytes(N)):
                session.skip(why)
                continue
            rates.add(layer, N, direction)
            session.run(apart.case(layer.title, N, direction))
    session.machine["SGEMM 2048, NumPy"] = f"{rates.sgemm:.1f} GFLOP/s"
    session.more["sgemm_gflop_per_s"] = rates.sgemm_samples
    return session.finish([*rates.summary(session.results), *subject.remarks(rates)])
