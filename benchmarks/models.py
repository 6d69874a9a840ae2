"""Whole networks against PyTorch: training steps, one sample forward, and the memory that training takes.

The networks are those of ``_nets.py``: a perceptron, convolutional and recurrent ones, built of the layers as scripts
written for neon build them, and of PyTorch's modules with the same weights. A step is forward, the cost (which is
read), backward and the optimizer. PyTorch is eager, with channels last, and compiled. Every contender is a process of
its own, which stands still while another is measured. Without PyTorch the exit status is 2.

With ``--backend gpu`` all of that runs on a GPU, with and without TF32; ours alone, checked against the CPU, where no
PyTorch sees it. Then the exit status is 2 without a GPU.
"""

from __future__ import annotations

import argparse
import logging
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import _apart
import _models_gpu as gpu
import _models_outside as outside
import _models_report as report
import _primitives
import numpy as np
from _apart import Child, Link
from _cases import Result
from _contenders import SLOW_TO_COMPILE
from _models_report import TF32, TRAINING, is_training
from _nets import NETS, ON_GPU_ALONE
from _sequences import some
from _sequences_torch import CHANNELS_LAST, COMPILED
from _terms import LEFT_OUT, OURS
from harness import Session, arguments, error, some_of

TOLERANCE, TIMES = 2e-3, 3
"""Largest relative error of costs and of what steps change; or so many times that of PyTorch in float32, if that is
larger: in deep networks rectifiers close to 0 turn rounding into errors of some percent."""

MOST = 0.05
"""An error of PyTorch's that is larger explains nothing."""
ROUNDED_TOLERANCE, ROUNDED_MOST = 2e-2, 0.3
"""The same where factors are rounded to TF32, to 11 bits."""

STEPS = 2
"""Steps before results are compared: the second uses the momentum that the first made."""

REFERENCE = "reference"
PEERS = ("torch", CHANNELS_LAST, COMPILED)
IMAGES = 3
"""Axes of the input of networks that PyTorch may run with channels last."""

ROUNDS, QUICK_ROUNDS = 7, 3
SECONDS, QUICK_SECONDS = 1.0, 0.3
"""Length of a sample, which is the median of the steps made in this time."""

LEAST = 2
"""Fewest steps of a sample."""

QUICK = ("mlp", "digits", "char-lstm 256")


# In the process of a contender ----------------------------------------------------------------------------------


class Desk:
    """What the process of a contender answers; ``reference`` is PyTorch in float64."""

    def __init__(self, name: str, backend: str = "cpu") -> None:
        self.name, self.backend = name, backend
        self._step: Callable[[], object] = list
        self._made: Any = None

    def make(self, net: str, mode: str, threads: int) -> list[list[float]]:
        """Set the network up, make some steps; some values of each array that they changed."""
        if self.backend == "gpu":
            return self._make_on_gpu(net, mode, threads)
        load(self.name)
        before = memory()
        made = make_ours(net, threads) if self.name == OURS else make_torch(self.name, net, threads)
        if not is_training(mode):
            self._step = made.inference()
            self._step()
            return []
        step: Callable[[], object] = made.step
        for _ in range(STEPS):
            step()
        found = [some(array) for array in made.result()]
        step()
        self._step, self._bytes, self._made = step, memory() - before, made
        return found

    def _make_on_gpu(self, net: str, mode: str, threads: int) -> list[list[float]]:
        """See :meth:`make`; each step is waited for, as it is when its cost is read."""
        if self.name == OURS:
            made = gpu.make_ours(net, mode)
        elif self.name == REFERENCE and not _primitives.has_torch():
            made = gpu.make_host(net)
        else:
            gpu.allow_tf32(mode)
            made = make_torch(self.name, net, threads, self.backend)
        step = made.step if is_training(mode) else made.inference()
        for _ in range(STEPS):
            step()
        found = [some(array) for array in made.result()] if is_training(mode) else []
        self._step, self._bytes = gpu.waiting(made, step), gpu.memory(made)
        return found

    def memory(self) -> int:
        """Bytes by which the process has grown at most while it set the network up and made its first steps."""
        return self._bytes

    def outside(self, seconds: float) -> list[float] | None:
        """The part of a step of ours in which no kernel runs; None where that cannot be told."""
        alone = None if self._made is None else outside.kernels_of(self._made)
        return None if alone is None else outside.shares(self._step, alone, seconds)

    def sample(self, seconds: float) -> float:
        """The median time of a step, of those that ``seconds`` have time for."""
        taken: list[float] = []
        self._step()
        end = time.perf_counter() + seconds
        while len(taken) < LEAST or time.perf_counter() < end:
            start = time.perf_counter()
            self._step()
            taken.append(time.perf_counter() - start)
        return statistics.median(taken)


def load(name: str) -> None:
    """Import what the contender is made of, whose size does not count."""
    if name == OURS:
        import _nets_ours  # noqa: F401

        import neonlike.backends  # noqa: F401
    else:
        _primitives.set_torch_up()
        import _nets_torch  # noqa: F401
        import torch  # noqa: F401


def memory() -> int:
    """The most memory that this process has had at a time, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) << 10


def make_ours(net: str, threads: int) -> Any:
    """The network of our layers."""
    from _nets_ours import Training

    from neonlike.backends import gen_backend

    be = gen_backend("cpu", rng_seed=0, batch_size=NETS[net].N)
    be.num_threads = threads
    return Training(be, net)


def make_torch(name: str, net: str, threads: int, backend: str = "cpu") -> Any:
    """The network of PyTorch's modules."""
    _primitives.set_torch_up()
    import torch
    from _nets_torch import Training
    from _sequences_torch import Way

    logging.getLogger("torch").setLevel(logging.ERROR)
    torch.set_num_threads(threads)
    torch.set_grad_enabled(True)
    double = name == REFERENCE
    return Training(Way(name, double, gpu.torch_device(backend, double)), net)


# A run ----------------------------------------------------------------------------------------------------------


class Run:
    """Measures what the command line asks for.

    Parameters
    ----------
    session : Session
    link : callable
        Makes the link to the process of a contender.
    """

    def __init__(self, session: Session, link: Callable[[str], Link]) -> None:
        self.session, self.link, self.options = session, link, session.options
        self.absent = gpu.why_absent() if self.options.backend == "gpu" else ""

    def network(self, name: str, mode: str) -> None:
        """Measure every contender on one network."""
        able = [who for who in (OURS, *PEERS) if who != CHANNELS_LAST or len(NETS[name].shape) == IMAGES]
        cells = [Result(name, mode, self.options.threads, who) for who in able]
        for cell in cells:
            if cell.contender != OURS and self.absent:
                cell.note = self.absent
            elif cell.contender in SLOW_TO_COMPILE and self.options.quick:
                cell.note = f"{LEFT_OUT}, compiling takes seconds"
        self.measure(cells)
        self.session.beside += cells
        self.session.say(report.group_text(cells))

    def outside(self, name: str) -> list[str]:
        """Measure ours alone: how much of a training step is outside of kernels."""
        cell = Result(name, TRAINING, self.options.threads, OURS)
        link = self.link(OURS)
        try:
            link.ask("make", cell.case, cell.text, cell.size)
            cell.outside = link.ask("outside", self.options.seconds * self.options.rounds)
        finally:
            link.close()
        return report.outside_lines(cell) or [f"{name}: not all that a step does can be started apart"]

    def measure(self, cells: Sequence[Result]) -> None:
        """Fill ``cells``, which are of one network and mode."""
        expected = self.reference(cells[0]) if is_training(cells[0].text) else []
        links: dict[str, Link] = {}
        with ExitStack() as ending:
            for cell in (cell for cell in cells if not cell.note):
                link = links[cell.contender] = self.link(cell.contender)
                ending.callback(link.close)
                made = link.ask("make", cell.case, cell.text, cell.size)
                if is_training(cell.text):
                    cell.memory, cell.error = link.ask("memory"), worst(made, expected)
            check(cells)
            able = [cell for cell in cells if not cell.note]
            for turn in range(self.options.rounds):
                for cell in random.Random(turn).sample(able, len(able)):
                    cell.samples.append(links[cell.contender].ask("sample", self.options.seconds))
            for cell in able:
                if cell.contender == OURS and is_training(cell.text) and self.options.backend == "cpu":
                    cell.outside = links[OURS].ask("outside", self.options.seconds)
        for cell in able:
            cell.rounds, cell.median = len(cell.samples), statistics.median(cell.samples)
            cell.low, cell.high = min(cell.samples), max(cell.samples)

    def reference(self, cell: Result) -> list[Any]:
        """What two steps change, computed by PyTorch in float64."""
        link = self.link(REFERENCE)
        try:
            return [np.asarray(array) for array in link.ask("make", cell.case, TRAINING, cell.size)]
        finally:
            link.close()


def worst(made: list[list[float]], expected: list[Any]) -> float:
    """The largest error of costs, and of what steps changed, each relative to its array's largest value."""
    if len(made) != len(expected):
        return float("inf")
    return max(error([np.asarray(array)], [right]) for array, right in zip(made, expected))


def check(cells: Sequence[Result]) -> None:
    """Leave out who is wrong: by more than the tolerance, and by more than PyTorch's own float32 explains."""
    rounded = any(cell.text.endswith(TF32) for cell in cells)
    least, most = (ROUNDED_TOLERANCE, ROUNDED_MOST) if rounded else (TOLERANCE, MOST)
    eager = next((cell.error for cell in cells if cell.contender == PEERS[0] and cell.error is not None), 0.0)
    allowed = max(least, TIMES * min(eager, most))
    for cell in cells:
        if cell.error is not None and not cell.error <= allowed:
            cell.note = f"not timed, because it is wrong: error {cell.error:.1e}, allowed {allowed:.0e}"
            cell.wrong = cell.contender == OURS


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = arguments(f"{__doc__}".partition("\n")[0], bench=True)
    _apart.add_option(parser)
    parser.add_argument("--only", type=some_of(NETS), metavar="NAME,NAME", help=f"some of {', '.join(NETS)}")
    kinds = TRAINING, report.INFERENCE
    parser.add_argument("--modes", type=some_of(kinds), help=f"{', '.join(kinds)}; default both")
    parser.add_argument("--threads", type=int, default=report.cores(), metavar="N", help="default: the cores")
    parser.add_argument("--outside", action="store_true", help="only what part of our steps is outside of kernels")
    parser.add_argument("-b", "--backend", choices=("cpu", "gpu"), default="cpu", help="where all of them compute")
    parser.add_argument("--tiny", action="store_true", help="small networks instead, for an emulated GPU")
    text = f"begin no network after so long (on a GPU {gpu.LIMIT:.0f}, else never)"
    parser.add_argument("--limit", type=float, metavar="SECONDS", help=text)
    parser.add_argument("--rounds", type=int, metavar="N", help=f"default {ROUNDS}, {QUICK_ROUNDS} with --quick")
    options = parser.parse_args(argv)
    if options.tiny:
        gpu.use_tiny()
    every = sorted(NETS, key=lambda name: name not in ON_GPU_ALONE)  # which have a target: before the time is up
    if options.backend == "cpu":
        every = [name for name in every if name not in ON_GPU_ALONE]
    options.only = [name for name in options.only or (QUICK if options.quick else every) if name in NETS]
    options.modes = options.modes or [*kinds]
    if options.backend == "gpu":
        options.modes = [mode + how for how in ("", TF32) for mode in options.modes]
    if options.limit is None:
        options.limit = gpu.LIMIT if options.backend == "gpu" else float("inf")
    options.seconds = QUICK_SECONDS if options.quick else SECONDS
    if options.rounds is None:
        options.rounds = QUICK_ROUNDS if options.quick else ROUNDS
    if options.rounds < 1 or options.threads < 1:
        parser.error("--rounds, --threads: at least one")
    return options


def start(argv: Sequence[str], name: str) -> Link:
    """The process of the contender ``name``."""
    return Child(name, __file__, argv)


def main(argv: list[str] | None = None) -> int:
    """Run what the command line asks for; the exit status is 1 if a result of ours was wrong, 2 without PyTorch."""
    options = parse(argv)
    if options.child:
        return _apart.serve(Desk(options.child, options.backend))
    facts = {"threads": f"{options.threads}", "checked against": "PyTorch in float64"}
    if options.backend == "gpu":
        found = gpu.facts()
        if found is None:
            return _primitives.NO_TORCH
        options.results = options.results and "cuemu" not in found["GPU"]  # whose times say nothing
        facts |= found if _primitives.has_torch() else found | {"checked against": "ours on the CPU"}
    elif not options.outside and not _primitives.has_torch():
        return _primitives.say_what_is_missing("models")
    session = Session(f"models{' gpu' * (options.backend == 'gpu')}", options, facts)
    run, began = Run(session, partial(start, sys.argv[1:] if argv is None else argv)), time.monotonic()
    if options.outside:
        return session.finish([line for name in options.only for line in run.outside(name)])
    for name in options.only:
        for mode in options.modes:
            if time.monotonic() - began < options.limit:
                run.network(name, mode)
            else:
                session.skip(f"{name}, {mode}: left out, {options.limit:.0f} seconds are over")
    session.tables = report.tables(session.beside)
    return session.finish(report.verdicts(session.beside))


if __name__ == "__main__":
    sys.exit(main())
