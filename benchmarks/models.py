"""Whole networks against PyTorch: training steps, one sample forward, and the memory that training takes.

The networks are those of ``_nets.py``: a perceptron, convolutional and recurrent ones, built of the layers as scripts
written for neon build them, and of PyTorch's modules with the same weights. A step is forward, the cost (which is
read), backward and the optimizer. PyTorch is eager, with channels last, and compiled. Every contender is a process of
its own, which stands still while another is measured. Without PyTorch the exit status is 2.

``--modes "training in turn"`` has another minibatch forward in inference after each step, as reinforcement learning.

``--precision bfloat16`` has products in bfloat16 on a CPU, PyTorch's by autocast; its weights stay in float32, in
inference as the faster of that and of bfloat16.

With ``--backend gpu`` all of that runs on a GPU, twice: with products of float32, and with factors rounded to TF32.
Ours alone, checked against the CPU, where no PyTorch sees the GPU. Then the exit status is 2 without a GPU.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import _machine
import _outside as outside
import _precision
import numpy as np
from _apart import Apart, Desk
from _cases import LEFT_OUT, NOT_INSTALLED, OURS, Case, Result, geometric_mean, met, takes, times
from _contenders import SLOW_TO_COMPILE
from _libraries import AUTOCAST, STORED, set_torch_up
from _nets import NETS, ON_GPU_ALONE, TINY
from _nets_torch import CHANNELS_LAST, COMPILED
from _precision import BFLOAT16, FLOAT32, IN_FLOAT32, PRECISIONS
from _report import Form
from _steps import REFERENCE, STEPS, Step, Steps, StepSuite, best_peer, drop_wrong, groups, in_steps, ours, sample, some
from _suite import Key, installed
from harness import Session, some_of

ALLOWED = {FLOAT32: (2e-3, 0.05), "tf32": (2e-2, 0.3), BFLOAT16: (1e-1, 0.5)}
"""Largest relative error of costs and of what steps change, by the precision of factors; the second number bounds the
error of PyTorch's that explains a larger one of ours."""
TIMES = 3
"""An error of ours may be so many times that of PyTorch in the same precision: in deep networks rectifiers close to 0
turn rounding into errors of some percent."""

PEERS = ("torch", CHANNELS_LAST, COMPILED)
IMAGES = 3
"""Axes of the input of networks that PyTorch may run with channels last."""

LEAST = 2
"""Fewest steps of a sample."""

LIMIT = 540.0
"""Seconds after which no further network is begun on a GPU."""

QUICK = ("mlp", "digits", "char-lstm 256")

TRAINING, INFERENCE, IN_TURN, TF32, HALF = "training", "inference", "training in turn", ", TF32", f", {BFLOAT16}"
"""Modes; the last two end one in which factors of products are rounded."""
MODES = {
    TRAINING: "A training step", INFERENCE: "One sample forward",
    IN_TURN: "A training step, then another minibatch forward in inference",
    TRAINING + TF32: "A training step, factors of products in TF32",
    INFERENCE + TF32: "One sample forward, factors of products in TF32",
    TRAINING + HALF: "A training step, factors of products in bfloat16",
    INFERENCE + HALF: "One sample forward, factors of products in bfloat16",
}  # fmt: skip

EACH, ALL, ALL_HALF, FORWARD = 1.05, 1.25, 1.3, 1.0
"""Time of the fastest of PyTorch's ways divided by ours, at least: a network's step, all of them on the geometric
mean, the same in bfloat16, and one sample forward."""
EAGER = {("resnet50", TRAINING): 0.8}
"""Time of eager PyTorch's step divided by ours, at least, by network and mode: a target on a GPU."""

OUTSIDE = 0.05
"""Largest share of a step that is outside of kernels."""


def is_training(mode: str) -> bool:
    """Whether steps are taken in a mode, in whichever precision."""
    return mode.startswith(TRAINING)


# In the process of a contender ----------------------------------------------------------------------------------


def host_memory() -> int:
    """The most memory that this process has had at a time, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) << 10


def precision_of(mode: str) -> str:
    """The backend's ``product_precision`` in a mode."""
    return "tf32" if mode.endswith(TF32) else BFLOAT16 if mode.endswith(HALF) else FLOAT32


def load(who: str, threads: int) -> None:
    """Import the contender's modules, whose size does not count."""
    if who.startswith(OURS):
        import _nets_ours  # noqa: F401

        import neonlike.backends  # noqa: F401
    else:
        set_torch_up(threads, gradients=True)
        import _nets_torch  # noqa: F401


def make_ours(net: str, threads: int, backend: str = "cpu", mode: str = "") -> Any:
    """The network of our layers."""
    from _nets_ours import Training

    from neonlike.backends import gen_backend

    be = gen_backend(backend, rng_seed=0, batch_size=NETS[net].N)
    be.product_precision = precision_of(mode)
    if backend != "gpu" and threads:
        be.num_threads = threads
    return Training(be, NETS[net])


def make_torch(who: str, net: str, threads: int, backend: str = "cpu", mode: str = "") -> Any:
    """The network of PyTorch's modules; on a GPU in TF32 if the mode says so, as it does convolutions of itself."""
    set_torch_up(threads, gradients=True)
    import torch
    from _nets_torch import Training, Way

    double = who == REFERENCE
    device = "cpu"
    if backend == "gpu":
        device = "cuda" if torch.cuda.is_available() or not double else "cpu"
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = mode.endswith(TF32)
    return Training(Way(who, double, device), NETS[net])


def waiting(made: Any, step: Step) -> Step:
    """``step``, and until the GPU has done it, as when its cost is read."""
    if hasattr(made, "be"):
        wait = made.be.synchronize
    else:
        import torch

        wait = torch.cuda.synchronize

    def run() -> None:
        step()
        wait()

    return run


def device_memory(made: Any) -> int:
    """The most of the GPU's memory that arrays have taken at a time, in bytes."""
    if hasattr(made, "be"):
        return int(made.be.memory_stats().used_peak)
    import torch

    return int(torch.cuda.max_memory_allocated()) if torch.cuda.is_available() else 0


class ModelDesk(Desk):
    """The desk of a contender, who also tells its memory and what of a step is outside of kernels.

    Parameters
    ----------
    who, backend : str
    seconds : float
        Length of a sample.
    """

    def __init__(self, who: str, backend: str, seconds: float) -> None:
        super().__init__(self.network)
        self.who, self.backend, self.seconds = who, backend, seconds
        self.made: Any = None
        self.step: Step = list
        self.bytes = 0

    def network(self, net: str, mode: str, threads: int, expected: Any = None) -> Case:
        """Set the network up; its steps are made when it is checked."""
        load(self.who, threads)
        before = host_memory()
        maker = make_ours if self.who.startswith(OURS) else partial(make_torch, self.who)
        rounding = mode.removesuffix(HALF) if self.who == IN_FLOAT32 else mode
        made = self.made = maker(net, threads, self.backend, rounding)
        on_gpu = self.backend == "gpu"

        def weigh() -> None:
            self.bytes = device_memory(made) if on_gpu else host_memory() - before

        steps = {TRAINING: lambda: made.step, INFERENCE: made.inference, IN_TURN: made.in_turn}
        self.step = steps[mode.partition(",")[0]]()
        timed = waiting(made, self.step) if on_gpu else self.step
        changed = made.result if is_training(mode) else lambda: []
        contender = in_steps(self.who, self.step, changed, partial(sample, timed, self.seconds, LEAST), weigh)
        reference = lambda: [np.asarray(array) for array in expected or ()]  # noqa: E731
        return Case(net, mode, threads, [contender], reference, tolerance=float("inf"))

    def memory(self) -> int:
        """Bytes by which the process has grown at most while it set the network up and made its first steps."""
        return self.bytes

    def outside(self, seconds: float) -> list[float] | None:
        """Share of a step of ours in which no kernel runs; None where that cannot be told."""
        alone = outside.kernels_of(self.made)
        return None if alone is None else outside.shares(self.step, alone, seconds)


# A run ----------------------------------------------------------------------------------------------------------


class Models(StepSuite):
    """A key is a network, a mode, and a number of threads."""

    name, text = "models", f"{__doc__}"
    contenders = (OURS, *PEERS)
    rounds, seconds = (3, 7), (0.3, 1.0)

    def options(self, parser: argparse.ArgumentParser) -> None:
        super().options(parser)
        kinds = (TRAINING, INFERENCE, IN_TURN)
        text = f"begin no network after so long (on a GPU {LIMIT:.0f}, else never)"
        parser.add_argument("--only", type=some_of(NETS), metavar="NAME,NAME", help=f"some of {', '.join(NETS)}")
        parser.add_argument("--modes", type=some_of(kinds), help=f"{', '.join(kinds)}; default: two")
        parser.add_argument("--threads", type=int, default=_machine.cores(), metavar="N", help="default: the cores")
        parser.add_argument("--outside", action="store_true", help="only what part of our steps is outside of kernels")
        parser.add_argument("-b", "--backend", choices=("cpu", "gpu"), default="cpu", help="where all of them compute")
        parser.add_argument("--tiny", action="store_true", help="small networks instead, for an emulated GPU")
        _precision.add_option(parser, PRECISIONS)
        parser.add_argument("--limit", type=float, metavar="SECONDS", help=text)

    def settle(self, options: argparse.Namespace) -> str:
        on_gpu, half = options.backend == "gpu", options.precision == BFLOAT16
        if on_gpu and half:
            return "--precision: a GPU is measured in float32 and TF32, got bfloat16; leave one of the two options out"
        if options.tiny:
            NETS.clear()
            NETS.update(TINY)
        every = sorted(NETS, key=lambda name: name not in ON_GPU_ALONE)  # which have a target: before the time is up
        every = [name for name in every if on_gpu or name not in ON_GPU_ALONE]
        options.only = [name for name in options.only or (QUICK if options.quick else every) if name in NETS]
        options.modes = options.modes or [TRAINING, INFERENCE]
        if on_gpu:
            options.modes = [mode + how for how in ("", TF32) for mode in options.modes]
        elif half:
            options.modes = [mode + HALF for mode in options.modes]
        if options.limit is None:
            options.limit = LIMIT if on_gpu else float("inf")
        return "--threads: at least one" if options.threads < 1 else super().settle(options)

    def plan(self, options: argparse.Namespace) -> list[Key]:
        return [(name, mode, options.threads) for name in options.only for mode in options.modes]

    def same(self, key: Key) -> Key:
        return (key[0], TRAINING, key[2]) if is_training(key[1]) else ()

    def truth(self, options: argparse.Namespace, *key: Any) -> list[list[float]]:
        net, _, threads = key
        host = options.backend == "gpu" and not installed("torch")
        made = make_ours(net, 0) if host else make_torch(REFERENCE, net, threads, options.backend)
        for _ in range(STEPS):
            made.step()
        return [some(array) for array in made.result()]

    @contextmanager
    def desk(self, options: argparse.Namespace, who: str) -> Iterator[Any]:
        if who == REFERENCE:
            with super().desk(options, who) as desk:
                yield desk
        else:
            yield ModelDesk(who, options.backend, options.seconds)

    def taking_part(self, key: Key, options: argparse.Namespace) -> tuple[list[str], dict[str, str]]:
        absent = {}
        ways = (AUTOCAST,) if is_training(key[1]) else (AUTOCAST, STORED)
        everyone = _precision.contenders(self.contenders, options.precision, ways)
        names = {who: _precision.way_of(who)[0] for who in everyone}
        for who, peer in names.items():
            if peer not in PEERS:
                continue
            if why := why_absent() if options.backend == "gpu" else "":
                absent[who] = why
            elif options.quick and peer in SLOW_TO_COMPILE:
                absent[who] = f"{LEFT_OUT}, compiling takes seconds"
        able = [who for who, peer in names.items() if peer != CHANNELS_LAST or len(NETS[key[0]].shape) == IMAGES]
        return [who for who in able if who not in absent], {who: absent[who] for who in able if who in absent}

    def judge(self, case: Case) -> None:
        """Leave out who is wrong: by more than the tolerance, and by more than PyTorch's own float32 explains."""
        least, most = ALLOWED[precision_of(case.text)]
        names = (PEERS[0], f"{PEERS[0]} {AUTOCAST}")
        eager = next((r.error for r in case.checked or () if r.contender in names and r.error is not None), 0.0)
        drop_wrong(case, lambda result: max(least, TIMES * min(eager, most)))

    def afterwards(self, apart: Apart, session: Session, results: list[Result]) -> None:
        for result in (r for r in results if r.median is not None and is_training(r.text)):
            result.memory = apart.ask(result.contender, "memory")
            if result.contender == OURS and session.options.backend == "cpu" and result.text != IN_TURN:
                result.outside = apart.ask(OURS, "outside", session.options.seconds)

    def measure_case(
        self, session: Session, argv: Sequence[str], key: Key, names: Sequence[str], absent: Mapping[str, str]
    ) -> list[Result]:
        if time.monotonic() - self.began < session.options.limit:
            return super().measure_case(session, argv, key, names, absent)
        session.skip(f"{key[0]}, {key[1]}: left out, {session.options.limit:.0f} seconds are over")
        return []

    def measure(self, session: Session, argv: Sequence[str]) -> None:
        self.began = time.monotonic()
        if not session.options.outside:
            super().measure(session, argv)
            return
        for name in session.options.only:
            with Apart([OURS], partial(self.start, argv)) as apart:
                apart.case(name, TRAINING, session.options.threads)
                options = session.options
                result = Result(name, TRAINING, options.threads, OURS)
                result.outside = apart.ask(OURS, "outside", options.seconds * options.rounds)
                self.alone += outside_lines(result) or [f"{name}: not all that a step does can be started apart"]

    def facts(self, options: argparse.Namespace) -> dict[str, str]:
        found = {"threads": f"{options.threads}", "checked against": "PyTorch in float64"}
        if options.backend == "gpu" and not installed("torch"):
            found["checked against"] = "ours on the CPU"
        return found | self.gpu | _precision.facts(options.precision)

    def form(self, options: argparse.Namespace) -> Form:
        size = lambda r: NETS[r.case].N if is_training(r.text) else 1  # noqa: E731
        return Steps(
            about=lambda r: f"{r.case}, {r.text}: {NETS[r.case].text}, N = {size(r)}",
            table_of=lambda r: MODES[r.text],
            titles=("network", "N"),
            row=lambda r: (r.case, str(size(r))),
            more={"memory": memory_text, "outside": outside_text},
            besides=lambda r: (f", {memory_text(r)}" if is_training(r.text) else "")
            + (f", {outside_text(r)} outside kernels" if r.outside else ""),
        )

    def verdicts(self, session: Session) -> list[str]:
        return [*self.alone, *verdicts(session.beside)]

    def subject(self, options: argparse.Namespace) -> str:
        name = f"models{' in turn' * (options.modes == [IN_TURN])}{' gpu' * (options.backend == 'gpu')}"
        return _precision.subject(name, options.precision)

    def ready(self, options: argparse.Namespace) -> bool:
        self.gpu, self.alone, self.needs_torch = {}, [], options.backend == "cpu" and not options.outside
        if options.backend == "cpu":
            return super().ready(options)
        found = gpu_facts()
        self.gpu = found or {}
        if "cuemu" in self.gpu.get("GPU", ""):  # whose times say nothing
            options.results = False
        return found is not None


def why_absent() -> str:
    """Why PyTorch does not take part on a GPU; empty if it does."""
    if not installed("torch"):
        return NOT_INSTALLED
    import torch

    return "" if torch.cuda.is_available() else f"{NOT_INSTALLED} with support for this GPU"


def gpu_facts() -> dict[str, str] | None:
    """The GPU, for the reader; None, with a line for the user, if there is none that can be used."""
    from neonlike.backends import gen_backend
    from neonlike.errors import BackendUnavailable

    try:
        with gen_backend("gpu", rng_seed=0) as be:
            major, minor = be.compute_capability
            return {"GPU": f"{be.device.name}, {be.sm_count} multiprocessors, capability {major}.{minor}"}
    except BackendUnavailable as why:
        print(f"benchmarks/models.py: {why}")
        return None


def memory_text(result: Result) -> str:
    """How much a process has grown by training."""
    return f"{result.memory / (1 << 20):.0f} MiB" if result.memory else "-"


def outside_text(result: Result) -> str:
    """The part of a step that is outside of kernels."""
    return f"{100 * result.outside[0]:.1f} %" if result.outside else "-"


# Verdicts -------------------------------------------------------------------------------------------------------


def verdicts(results: Sequence[Result]) -> list[str]:
    """All targets that this run says something about."""
    lines = []
    for mode in MODES:
        target, ratios = EACH if is_training(mode) else FORWARD, []
        for network, cells in groups([r for r in results if r.text == mode], lambda r: r.case).items():
            first, best = ours(cells), best_peer(cells)
            if best is None or (ratio := times(first, best)) is None:
                continue
            ratios.append(ratio)
            lines += [f"{network}, {mode}: {takes(best.contender, ratio, target)}", *_eager(network, mode, cells)]
            if gain := times(first, next((cell for cell in cells if cell.contender == IN_FLOAT32), None)):
                lines.append(f"{network}, {mode}: {takes(IN_FLOAT32, gain)}")
            if first is not None and is_training(mode):
                lines += [*_memory(network, first, cells), *outside_lines(first)]
        if is_training(mode) and len(ratios) > 1:
            mean, least = (geometric_mean(ratios) or (0.0, 0))[0], ALL_HALF if mode.endswith(HALF) else ALL
            words = f"{mean:.2f} on the geometric mean (target >= {least:g}): {met(mean >= least)}"
            lines.append(f"{len(ratios)} networks, {mode}: {words}")
    return lines


def _eager(network: str, mode: str, cells: Sequence[Result]) -> list[str]:
    """The target of a network beside PyTorch's eager way alone, if it has one."""
    target, eager = EAGER.get((network, mode)), next((cell for cell in cells if cell.contender == "torch"), None)
    ratio = times(ours(cells), eager)
    return [] if target is None or ratio is None else [f"{network}, {mode}: {takes('torch', ratio, target)}"]


def outside_lines(result: Result) -> list[str]:
    """Whether kernels take nearly all of a step's time."""
    if not result.outside:
        return []
    by_clock, by_thread = (f"{100 * share:.1f} %" for share in result.outside)
    words = f"{by_clock} of a step, {by_thread} of its thread's time (target < {100 * OUTSIDE:.0f} %)"
    return [f"{result.case}, outside kernels: {words}: {met(result.outside[0] < OUTSIDE)}"]


def _memory(network: str, first: Result, cells: Sequence[Result]) -> list[str]:
    """Whether ours takes no more memory than the most sparing of PyTorch's eager ways."""
    peers = [cell.memory for cell in cells if not cell.contender.startswith(OURS) and cell.memory]
    if not first.memory or not peers:
        return []
    share = first.memory / min(peers)
    return [f"{network}, memory: {share:.2f} of PyTorch's (target <= 1): {met(share <= 1)}"]


SUITE = Models()

if __name__ == "__main__":
    sys.exit(SUITE.main())
