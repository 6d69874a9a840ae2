"""Training steps on two ranks of one thread against one, and against PyTorch's DistributedDataParallel; a prediction.

Every figure is the median of the steps of processes of their own, and contenders run in turns. Two ranks that share a
minibatch are compared with one rank on the whole of it (strong scaling) and with one rank on half of it (weak scaling).
Ranks of ours talk by MPI (mpiexec of ``neonlike[mpi]``), PyTorch's by gloo. A model (``_scaling_model.py``) predicts
the time of two ranks from messages between them, and the efficiency of up to 1,024 machines as this one.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import _machine
import _pictures
import _rank_runs
from _cases import NOT_INSTALLED, Record, markdown, size_text, time_text
from _nets import NETS
from _rank_runs import RANKS, Contender, Effort
from _report import Form
from _scaling_model import (
    ALGORITHMS,
    INTERCONNECTS,
    Interconnect,
    Step,
    efficiency,
    fitted,
    messages,
    ring,
    step_time,
)
from _scaling_nets import LARGE, parameters, step_of
from harness import Session, arguments, some_of

CHOSEN, QUICK_CHOSEN = ("mlp", "vgg", "resnet18", "char-lstm 256"), ("mlp",)
STEPS = {"mlp": 200, "digits": 200}
FEW = 12
"""Steps that are measured, of networks that are not in the table above."""
QUICK = Effort(4, 4)
ROUNDS, QUICK_ROUNDS = 3, 1
ON_THE_WHOLE, QUICK_ON_THE_WHOLE = Effort(3, 2), Effort(1, 1)
"""For the large networks."""
QUICK_BATCH = 4
REPEATS, QUICK_REPEATS = 50, 5
SPEEDUPS = {"vgg": 1.9, "mlp": 1.5}
"""Time of one rank divided by that of two on the same minibatch, at least."""
LAUNCH_TARGET = 1.02
"""Time of one rank under mpiexec divided by that without."""
MACHINES = (2, 8, 32, 128, 1024)
FASTER = 100
"""Times as fast as this machine, for machines where the network matters more, as with GPUs."""

ONE, LAUNCHED = Contender("1 rank"), Contender("mpiexec -n 1", mpi=True)
THREADS = Contender(f"1 rank, {RANKS} threads", threads=RANKS)
SEVERAL = Contender(f"{RANKS} ranks", processes=RANKS, mpi=True)
HALF = Contender("1 rank, half the batch", half=True)
APART = Contender("the same, twice at once", "apart", processes=RANKS, mpi=True, half=True)
TORCH, DDP = Contender("torch, 1 thread", "torch"), Contender(f"torch DDP, {RANKS} ranks", "torch", processes=RANKS)
TORCH_HALF = Contender("torch, half the batch", "torch", half=True)
OURS, PEERS = (ONE, LAUNCHED, THREADS, SEVERAL, HALF, APART), (TORCH, DDP, TORCH_HALF)


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = arguments(f"{__doc__}".partition("\n")[0])
    parser.add_argument("--only", type=some_of(NETS), metavar="NAME,NAME", help=f"some of {', '.join(NETS)}")
    names = ", ".join(LARGE)
    parser.add_argument("--predict", type=some_of(LARGE), metavar="NAME,NAME", help=f"for some of {names}")
    options = parser.parse_args(argv)
    options.chosen = options.only or list(QUICK_CHOSEN if options.quick else CHOSEN)
    options.predict = options.predict or list(LARGE)
    return options


# On two ranks -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Found:
    """Seconds of a network's steps, by contender and round, and the time that the model predicts for two ranks."""

    name: str
    seconds: Mapping[Contender, list[float]]
    predicted: float
    overlapped: float
    """The same if gradients were summed during backward."""

    def median(self, contender: Contender) -> float:
        """Over the rounds."""
        return statistics.median(self.seconds[contender])

    def ratio(self, a: Contender, b: Contender) -> float:
        """The time of ``a`` divided by that of ``b``: the median of the ratios within a round."""
        return statistics.median(x / y for x, y in zip(self.seconds[a], self.seconds[b]))

    @property
    def has_torch(self) -> bool:
        """Whether PyTorch took part."""
        return DDP in self.seconds

    def row(self) -> list[str]:
        """Its line of the table of ratios."""
        strong, weak = [f"{self.ratio(ONE, SEVERAL):.2f}"], [f"{self.ratio(HALF, SEVERAL):.0%}"]
        if self.has_torch:
            strong.append(f"{self.ratio(TORCH, DDP):.2f}")
            weak.append(f"{self.ratio(TORCH_HALF, DDP):.0%}")
        times = [self.predicted, self.median(SEVERAL), self.overlapped]
        return [self.name, "; ".join(strong), "; ".join(weak), *map(time_text, times), f"{self.off:.2f}"]

    @property
    def off(self) -> float:
        """The predicted time of two ranks divided by the measured."""
        return self.predicted / self.median(SEVERAL)

    def verdicts(self) -> Iterator[str]:
        """A line for each target, with what was measured."""
        launched = self.ratio(LAUNCHED, ONE)
        yield f"{self.name}: one rank under mpiexec takes {launched:.3f} times as long (target {LAUNCH_TARGET})"
        target = f" (target {SPEEDUPS[self.name]})" if self.name in SPEEDUPS else ""
        yield f"{self.name}: {RANKS} ranks are {self.ratio(ONE, SEVERAL):.2f} times as fast as one{target}"
        if self.has_torch:
            yield f"{self.name}: {RANKS} ranks are {self.ratio(DDP, SEVERAL):.2f} times as fast as PyTorch's (target 1)"
        yield f"{self.name}: the model predicts {self.off:.2f} of the time that {RANKS} ranks take"


RATIOS = (
    "network", "times as fast as 1 rank; PyTorch", "as fast as 1 rank on half the batch; PyTorch", "predicted",
    "measured", "predicted with overlap", "predicted / measured",
)  # fmt: skip
"""Strong scaling, weak scaling, and times of two ranks."""


def on_two_ranks(session: Session, name: str, contenders: list[Contender], by: Interconnect) -> Found:
    """Measure a network's steps, all contenders in turns."""
    quick, batch = session.options.quick, NETS[name].N
    steps = STEPS.get(name, FEW)
    effort = QUICK if quick else Effort(steps, max(5, steps // 4))
    seconds: dict[Contender, list[float]] = {contender: [] for contender in contenders}
    for turn in range(QUICK_ROUNDS if quick else ROUNDS):
        for contender in contenders if turn % 2 else reversed(contenders):
            seconds[contender].append(_rank_runs.step_seconds(contender, name, batch, effort))
    predicted, overlapped = two_ranks(step_of(NETS[name], statistics.median(seconds[APART])), by)
    found = Found(name, seconds, predicted, overlapped)
    for contender in contenders:
        session.say(f"{name:<15}{contender.name:<26}{time_text(found.median(contender)):>10}")
    return found


def two_ranks(step: Step, by: Interconnect) -> tuple[float, float]:
    """Seconds of a step on two ranks whose parts take ``step.seconds`` at once: in our messages, and with overlap."""
    from neonlike.distributed.gradients import LARGE_BYTES

    sent = messages([gradient.nbytes for gradient in step.gradients], LARGE_BYTES)
    after = step.seconds + sum(ring(nbytes, RANKS, by) for nbytes in sent)
    return after, step_time(step, RANKS, by, overlap=True, allreduce=ring)


def table_of_messages(seconds: Mapping[str, Any], by: Interconnect) -> list[str]:
    """Messages between two ranks, with what the model says of them."""
    rows = []
    for nbytes in seconds["exchange"]:
        times = [seconds[kind][nbytes] for kind in ("exchange", "allreduce", "rows")]
        predicted = by.alpha + nbytes * by.beta, ring(nbytes, RANKS, by)
        rows.append([size_text(nbytes), *map(time_text, (times[0], predicted[0], *times[1:], predicted[1]))])
    return markdown(["bytes", "exchange", "predicted", "allreduce", "rows", "predicted"], rows)


# On many machines -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Alone:
    """A step of a large network on this machine alone, with minibatches of ``batch``."""

    name: str
    batch: int
    step: Step

    def row(self) -> list[str]:
        """Its line of the table of networks."""
        net, buckets = LARGE[self.name], self.step.buckets()
        count, nbytes = parameters(net), sum(bucket.nbytes for bucket in buckets)
        facts = [f"{count:,}", f"{nbytes / 1e6:.0f} MB", str(len(buckets)), f"{buckets[0].ready:.0%} of the step"]
        return [self.name, net.text, *facts, str(self.batch), time_text(self.step.seconds)]


NETWORKS = ("network", "text", "parameters", "gradients", "buckets", "first bucket after", "N", "step on this machine")


def on_the_whole(session: Session, name: str) -> Alone:
    """Measure a step of a large network on all cores of this machine."""
    quick, cores = session.options.quick, _machine.cores()
    batch = QUICK_BATCH if quick else LARGE[name].N
    effort = QUICK_ON_THE_WHOLE if quick else ON_THE_WHOLE
    seconds = _rank_runs.step_seconds(Contender("", threads=cores), name, batch, effort)
    session.say(f"{name:<15}{f'N = {batch}, {cores} threads':<26}{time_text(seconds):>10}")
    return Alone(name, batch, step_of(LARGE[name], seconds))


@dataclass(frozen=True)
class Curve:
    """Efficiency of a network on an interconnect by numbers of machines, without overlap and with it."""

    network: str
    batch: int
    interconnect: str
    faster: int
    without: Mapping[int, float]
    overlapped: Mapping[int, float]

    def row(self) -> list[str]:
        """Its line of a table."""
        return [self.network, self.interconnect, *(
            f"{self.without[ranks]:.0%}; {self.overlapped[ranks]:.0%}" for ranks in MACHINES
        )]  # fmt: skip


def curves(steps: list[Alone], gamma: float, faster: int) -> list[Curve]:
    """Each network on each interconnect, if all machines are ``faster`` times as fast as this one."""
    ranks = [1 << power for power in range(11)]
    found = []
    for one in steps:
        step = replace(one.step, seconds=one.step.seconds / faster)
        for title, link in INTERCONNECTS.items():
            by = replace(link, gamma=gamma / faster)
            by_overlap = [{p: efficiency(step, p, by, overlap) for p in ranks} for overlap in (False, True)]
            found.append(Curve(one.name, one.batch, title, faster, *by_overlap))
    return found


def table_of_algorithms(steps: list[Alone], gamma: float) -> list[str]:
    """Efficiency on the most machines by each algorithm."""
    rows, ways = [], ALGORITHMS.values()
    for one in steps:
        for title, link in INTERCONNECTS.items():
            by, most = replace(link, gamma=gamma), MACHINES[-1]
            shares = ([efficiency(one.step, most, by, overlap, way) for overlap in (False, True)] for way in ways)
            rows.append([one.name, title, *(f"{without:.0%}; {overlapped:.0%}" for without, overlapped in shares)])
    return markdown(["network", "interconnect", *ALGORITHMS], rows)


def tables_of_curves(found: list[Curve]) -> dict[str, list[str]]:
    """Predicted efficiency, a table for each speed of the machines."""
    titles = ["network", "interconnect", *(f"{ranks:,} machines" for ranks in MACHINES)]
    tables = {}
    for faster in dict.fromkeys(curve.faster for curve in found):
        machines = "machines as this one" if faster == 1 else f"machines {faster} times as fast"
        rows = [curve.row() for curve in found if curve.faster == faster]
        tables[f"Predicted efficiency of {machines}: without overlap; with it"] = markdown(titles, rows)
    return tables


# The run ----------------------------------------------------------------------------------------------------------


class ScalingForm(Form):
    """Draws the predicted efficiency."""

    curves: list[Curve]

    def draw(self, record: Record, path: Path) -> None:
        """Draw the picture of a run."""
        _pictures.draw_efficiency(self.curves, record, path)


def lacking() -> str:
    """Why ranks cannot be started here; empty if they can."""
    if _rank_runs.MPIEXEC.exists() and importlib.util.find_spec("mpi4py"):
        return ""
    return "scaling.py starts ranks by MPI, which is not installed: pip install 'neonlike[mpi]'"


@dataclass(frozen=True)
class Outcome:
    """Everything that a run has found."""

    sent: Mapping[str, Any]
    by: Interconnect
    found: list[Found]
    steps: list[Alone]
    curves: list[Curve]

    def tables(self) -> dict[str, list[str]]:
        """Tables by heading."""
        contenders = list(self.found[0].seconds)
        medians = [[one.name, *(time_text(one.median(who)) for who in contenders)] for one in self.found]
        by_algorithm = f"Predicted efficiency of {MACHINES[-1]:,} machines as this one by algorithm"
        return {
            "A step of the global batch": markdown(["network", *(who.name for who in contenders)], medians),
            f"{RANKS} ranks: strong scaling, weak scaling, prediction": markdown(RATIOS, [x.row() for x in self.found]),
            f"Messages between {RANKS} ranks": table_of_messages(self.sent, self.by),
            "Networks whose efficiency is predicted": markdown(NETWORKS, [one.row() for one in self.steps]),
            **tables_of_curves(self.curves),
            f"{by_algorithm}: without overlap; with it": table_of_algorithms(self.steps, self.by.gamma),
        }

    def plain(self) -> dict[str, Any]:
        """Everything in plain types, for the JSON file."""
        times = [
            {"network": one.name, "contender": who.name, "all": seconds, "predicted": one.predicted}
            for one in self.found
            for who, seconds in one.seconds.items()
        ]
        steps = {one.name: one.step.seconds for one in self.steps}
        efficiency = [vars(curve) for curve in self.curves]
        return {
            "ranks": times, "messages": self.sent, "interconnect": vars(self.by), "steps": steps,
            "efficiency": efficiency,
        }  # fmt: skip


def measure(session: Session, contenders: list[Contender]) -> Outcome:
    """Measure messages and steps, and predict."""
    options = session.options
    sent = _rank_runs.message_seconds(QUICK_REPEATS if options.quick else REPEATS)
    by = fitted(sent["exchange"], sent["add"])
    rate = f"{1e-9 / by.beta:.1f} GB/s" if by.beta else "no time for bytes"
    session.tell({"messages": f"{time_text(by.alpha)}, then {rate}; added at {1e-9 / by.gamma:.1f} GB/s"})
    found = [on_two_ranks(session, name, contenders, by) for name in options.chosen]
    steps = [on_the_whole(session, name) for name in options.predict]
    drawn = [curve for faster in (1, FASTER) for curve in curves(steps, by.gamma, faster)]
    return Outcome(sent, by, found, steps, drawn)


def main(argv: list[str] | None = None) -> int:
    """Run what the command line asks for."""
    options = parse(argv)
    if why := lacking():
        print(why, file=sys.stderr)
        return 2
    form = ScalingForm()
    session = Session("scaling", options, form=form)
    has_torch = _machine.peer_versions()["torch"] != NOT_INSTALLED
    outcome = measure(session, [*OURS, *(PEERS if has_torch else ())])
    form.curves, session.tables, session.more = outcome.curves, outcome.tables(), outcome.plain()
    lines = [line for one in outcome.found for line in one.verdicts()]
    return session.finish(lines if has_torch else ["not installed: torch", *lines])


if __name__ == "__main__":
    sys.exit(main())
