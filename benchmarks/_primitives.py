"""Suites of compound primitives: layers in several directions, beside PyTorch in its faster layout.

A script describes a :class:`Problem`: the operands of one layer, minibatch and direction, what they must give, and how
our backend and PyTorch compute it. A :class:`Primitives` measures a table of layers; ``gpu.py`` uses the problems too.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import _pictures
import _precision
import numpy as np
from _cases import (
    COPIES,
    NOT_BUILT,
    OURS,
    Case,
    Effort,
    Record,
    Refused,
    Result,
    fastest,
    geometric_mean,
    markdown,
    met,
    text,
    time_text,
    times,
)  # fmt: skip
from _layers import BATCHES
from _libraries import STORED, Array, Library, Made, Neonlike, Torch, contender, set_torch_up
from _precision import FLOAT32, IN_FLOAT32, OURS_STORED, PRECISIONS, WAYS
from _report import Form
from _suite import Key, Suite, lacks_memory, numbers
from harness import Session

from neonlike.kernels.run.threads import thread_count
from neonlike.optree.dtypes import bfloat16

QUICK = Effort(sample=2e-3, min_rounds=3, max_rounds=7, budget=0.3, long=0.05)
FULL = Effort(sample=4e-3, min_rounds=3, max_rounds=9, budget=0.8, long=0.1)
"""A call of a large layer takes a second: three of each contender are enough."""

NEED = 6
"""Estimated memory of a case as a multiple of its operands: everyone's."""

SGEMM_SIZE, SGEMM_EVERY = 2048, 8
"""NumPy's matrix product is sampled before every eighth case."""

VALUES = 1_000_003
"""Random values that operands repeat; a prime, so that no two rows of an operand are alike."""

TITLE = 46
"""Characters of a line before its figures."""

LAYOUTS = ("torch NCHW", "torch NHWC")


def values(shape: Sequence[int], seed: int, scale: float = 1.0) -> Array:
    """Normal float32 values; few of them, repeated."""
    pool = np.random.default_rng(seed).standard_normal(VALUES, dtype=np.float32)
    return np.resize(pool * np.float32(scale), tuple(shape))


def some(count: int) -> list[int]:
    """Indices that a check looks at: both ends, one beside, one in the middle."""
    return sorted({0, min(1, count - 1), count // 2, count - 1})


class Problem:
    """One direction of one layer at one minibatch.

    Attributes
    ----------
    needs : sequence of str
        Methods of the backend, without which it is not built.
    tolerance : float
        Largest error of ours.
    nbytes, flops : int
        Of the case.
    rounds_within : bool
        In bfloat16, what is computed on the way to the results is rounded too, not only the operands.
    """

    needs: Sequence[str] = ()
    tolerance = 1e-5
    flops = 0
    rounds_within = False

    def __init__(self, layer: Any, N: int, direction: str) -> None:
        self.layer, self.N, self.direction = layer, N, direction
        self.nbytes = layer.nbytes(N)

    def cast(self, dtype: Any) -> None:
        """Store the operands of floating point in another data type."""
        for name, value in vars(self).items():
            if isinstance(value, np.ndarray) and value.dtype == np.float32:
                setattr(self, name, value.astype(dtype))

    def round(self) -> None:
        """Make the operands numbers that bfloat16 has, so that rounding them changes nothing."""
        for name, value in vars(self).items():
            if isinstance(value, np.ndarray) and value.dtype == np.float32:
                setattr(self, name, _precision.rounded(value))
        if self.rounds_within:
            self.tolerance = _precision.TOLERANCE

    def reference(self) -> list[Array]:
        """The results that are compared, in float64."""
        raise NotImplementedError

    def reference_of(self, who: str) -> Callable[[], list[Array]] | None:
        """Another reference, of a contender that defines the primitive in another way."""
        return None

    def sample(self, *made: Array) -> list[Array]:
        """Those that are compared of results in our layout: some images of maps (.., N)."""
        return [maps[..., some(self.N)] for maps in made]

    def ours(self, library: Any) -> Made:
        """Our call."""
        raise NotImplementedError

    def peer(self, library: Any, who: str) -> Made:
        """The call of the contender ``who``, which is PyTorch in a layout."""
        raise NotImplementedError


@dataclass
class Row:
    """One layer, minibatch and direction, with what was found about every contender."""

    layer: Any
    N: int
    direction: str
    results: dict[str, Result] = field(default_factory=dict)

    @property
    def ours(self) -> Result | None:
        """Our result, in the faster of our ways; None if it was not measured."""
        return fastest(r for name, r in self.results.items() if name in WAYS)

    @property
    def best(self) -> Result | None:
        """The fastest of PyTorch's layouts and ways; None if none was measured."""
        return fastest(r for name, r in self.results.items() if name.startswith("torch"))

    @property
    def gain(self) -> float | None:
        """Time of ours in float32 divided by ours in a run's other precision; None where that was not measured."""
        return times(self.ours, self.results.get(IN_FLOAT32))

    @property
    def ratio(self) -> float | None:
        """PyTorch's faster time divided by ours."""
        return times(self.ours, self.best)

    def ratio_of(self, who: str) -> float | None:
        """The same of one of our ways and PyTorch's way to it."""
        peers = (r for name, r in self.results.items() if _precision.way_of(name)[1] == WAYS[who])
        return times(self.results.get(who), fastest(peers))


class Rates(Form):
    """The rows of a run in order, and how they are shown.

    Parameters
    ----------
    layers : sequence of Layer
    targets : dict
        Direction -> least geometric mean of the ratios, or None.
    compute : bool
        Rates are GFLOP/s and shares are SGEMM's; otherwise GB/s and a memory copy's.
    precision : str
        Of products.
    """

    baseline = OURS

    def __init__(
        self, layers: Sequence[Any], targets: dict[str, float | None], compute: bool = True, precision: str = FLOAT32
    ) -> None:
        self.layers = {layer.title: layer for layer in layers}
        self.targets, self.compute, self.unit = targets, compute, "GFLOP/s" if compute else "GB/s"
        self.precision = precision
        self.rows: list[Row] = []
        self.sgemm_samples: list[float] = []

    def sample_sgemm(self) -> None:
        """Measure NumPy's product of two square float32 matrices: the best of three, after one that does not count."""
        a, b, out = (np.ones((SGEMM_SIZE, SGEMM_SIZE), np.float32) for _ in range(3))
        seconds = []
        for _ in range(4):
            start = time.perf_counter()
            np.matmul(a, b, out)
            seconds.append(time.perf_counter() - start)
        self.sgemm_samples.append(2 * SGEMM_SIZE**3 / min(seconds[1:]) / 1e9)

    @property
    def sgemm(self) -> float:
        """GFLOP/s, the median of the samples in this run."""
        return statistics.median(self.sgemm_samples) if self.sgemm_samples else float("nan")

    def share(self, row: Row) -> float | None:
        """Our rate as a share of SGEMM's, or of a memory copy's."""
        if row.ours is None:
            return None
        if not self.compute:
            return row.ours.of_memory_copy
        return (row.ours.rate or 0.0) / self.sgemm if self.sgemm_samples else None

    def title(self, size: int) -> str:
        """Name of a minibatch: the heading of its table."""
        return f"N = {size}" if size else "Without minibatch"

    def heading(self, size: int) -> str:
        """Heading of the lines of a minibatch, with the columns."""
        columns = f"{'ours':>10}{self.unit:>9}{'error':>8}{'of SGEMM' if self.compute else 'of copy':>10}"
        others = "torch's time" if self.precision == FLOAT32 else "times of others"
        return f"{self.title(size):<{TITLE}}{columns}{'torch/ours':>12}  {others} and {self.unit} by layout"

    def case(self, results: list[Result]) -> str:
        """One line, and another for each contender that could not be measured."""
        title, _, direction = results[0].case.rpartition(": ")
        found = {r.contender: r for r in results if r.contender not in COPIES}
        row = Row(self.layers[title], results[0].size, direction, found)
        self.rows.append(row)
        ours = row.ours or Result("", "", 0, OURS)
        peers = [
            f"{name.removeprefix('torch ')} {time_text(r.median)} {text(r.rate, '.1f')}"
            for name, r in found.items()
            if name != OURS and r.median is not None
        ]
        line = f"{f'{title}, {direction}'[: TITLE - 1]:<{TITLE}}{time_text(ours.median):>10}{text(ours.rate, '.1f'):>9}"
        line += f"{text(ours.error, '.0e'):>8}{text(self.share(row), '.0%'):>10}{text(row.ratio, '.2f', 'x'):>12}"
        notes = [f"  {name}: {r.note or 'not measured'}" for name, r in found.items() if r.median is None]
        return "\n".join([f"{line}  {', '.join(peers)}", *notes])

    def table(self, record: Record, size: int) -> list[str]:
        """A line a layer: a cell for each direction."""
        here = [row for row in self.rows if row.N == size]
        directions = [d for d in self.targets if any(row.direction == d for row in here)]
        by_layer: dict[Any, dict[str, Row]] = {}
        for row in here:
            by_layer.setdefault(row.layer, {})[row.direction] = row
        share = "of SGEMM" if self.compute else "of a memory copy"
        words = f"Ours and PyTorch's faster layout in {self.unit}; its time divided by ours; ours as a share {share}"
        words += "; time of ours in float32 divided by ours." if self.precision != FLOAT32 else "."
        lines = [
            [layer.title, layer.text, str(layer.count), *(self._cell(rows.get(direction)) for direction in directions)]
            for layer, rows in by_layer.items()
        ]
        return [words, "", *markdown(["layer", "", "times", *directions], lines)]

    def _cell(self, row: Row | None) -> str:
        if row is None:
            return ""
        if row.ours is None:
            return row.results[OURS].note.partition(":")[0] if OURS in row.results else "-"
        rates = f"{text(row.ours.rate, '.1f')} / {text(row.best.rate if row.best else None, '.1f')}"
        cell = f"{rates}; {text(row.ratio, '.2f', 'x')}; {text(self.share(row), '.0%')}"
        return cell if self.precision == FLOAT32 else f"{cell}; {text(row.gain, '.2f', 'x')}"

    def draw(self, record: Record, path: Path) -> None:
        """Draw the ratios of all layers."""
        _pictures.draw_ratios(self.rows, self.targets, record, path)

    # Verdicts ---------------------------------------------------------------------------------------------------

    def of(self, **wanted: Any) -> list[Row]:
        """The rows with these attributes."""
        return [row for row in self.rows if all(getattr(row, name) == value for name, value in wanted.items())]

    def summary(self) -> list[str]:
        """Geometric means by direction with their targets, the same by minibatch, and times of whole networks."""
        lines = [f"SGEMM of NumPy at {SGEMM_SIZE}: {self.sgemm:.1f} GFLOP/s"] if self.sgemm_samples else []
        for direction, target in self.targets.items():
            lines += self._mean(direction, self.of(direction=direction), target)
        for direction in self.targets:
            if found := geometric_mean(row.gain for row in self.of(direction=direction)):
                about = f"{direction}, geometric mean over {found[1]}"
                lines.append(f"{about}: ours in float32 takes {found[0]:.2f} times as long")
        return lines + self._ways() + self._networks()

    def _ways(self) -> list[str]:
        """Geometric means of each of our ways to bfloat16 beside PyTorch's way to it."""
        lines = []
        for direction in self.targets if self.precision != FLOAT32 else ():
            for who, way in WAYS.items():
                if found := geometric_mean(row.ratio_of(who) for row in self.of(direction=direction)):
                    ours = f"tensors in {self.precision}" if who == OURS_STORED else "float32 tensors"
                    theirs = "the same" if way == STORED else way
                    about = f"{direction}, geometric mean over {found[1]}"
                    lines.append(f"{about}: with {ours} PyTorch, {theirs}, takes {found[0]:.2f} times as long")
        return lines

    def _mean(self, direction: str, rows: Sequence[Row], target: float | None) -> list[str]:
        found = geometric_mean(row.ratio for row in rows)
        if found is None:
            return [f"{direction}: nothing to compare"] if rows else []
        mean, count = found
        by_batch = []
        for N in sorted({row.N for row in rows}):
            part = geometric_mean(row.ratio for row in rows if row.N == N)
            by_batch += [f"{part[0]:.2f} {f'at {self.title(N)}' if N else 'without minibatch'}"] if part else []
        worst = min((row for row in rows if row.ratio is not None), key=lambda row: row.ratio or 0.0)
        line = f"{direction}, geometric mean over {count}: PyTorch takes {mean:.2f} times as long"
        line += f" ({', '.join(by_batch)}; lowest {worst.ratio:.2f}, {worst.layer.title}"
        missing = f", {len(rows) - count} not measured" if count < len(rows) else ""
        return [line + missing + (f"; target {target:g}): {met(mean >= target)}" if target else ")")]

    def means_by(self, what: Callable[[Row], Any], words: str, kinds: Iterable[Any] = ()) -> list[str]:
        """``3x3 filters, PyTorch's time / ours: fprop 1.20, bprop 1.30``: geometric means by a property of rows."""
        lines = []
        for kind in kinds or dict.fromkeys(map(what, self.rows)):
            means = []
            for direction in self.targets:
                here = [row.ratio for row in self.rows if (what(row), row.direction) == (kind, direction)]
                if found := geometric_mean(here):
                    means.append(f"{direction} {found[0]:.2f}")
            lines += [f"{words.format(kind)}, PyTorch's time / ours: {', '.join(means)}"] if means else []
        return lines

    def _networks(self) -> list[str]:
        """Times of all layers of a network together, each as often as it occurs."""
        lines = []
        for N in sorted({row.N for row in self.rows}):
            for network in dict.fromkeys(row.layer.network for row in self.of(N=N)):
                here = [row for row in self.of(N=N) if row.layer.network == network]
                parts = [p for d in self.targets for p in _total(d, (row for row in here if row.direction == d))]
                if parts:
                    where = f"{network}, {self.title(N)}" if N else network
                    lines.append(f"{where}, ours / torch: {', '.join(parts)}")
        return lines


def _total(direction: str, rows: Iterable[Row]) -> list[str]:
    """``fprop 12.3 / 14.5 ms``, of the layers that both were measured on."""
    ours = theirs = 0.0
    for row in rows:
        if row.ours is not None and row.best is not None:
            ours += row.layer.count * (row.ours.median or 0.0)
            theirs += row.layer.count * (row.best.median or 0.0)
    return [f"{direction} {time_text(ours)} / {time_text(theirs)}"] if ours else []


class Primitives(Suite):
    """A table of layers.

    Parameters
    ----------
    name, doc : str
    problem : callable
        A class of Problem, or what returns one for a layer, minibatch and direction.
    layers : sequence of Layer
    directions : dict
        Direction -> least geometric mean over the layers of PyTorch's time divided by ours, None without a target.
    quick : sequence of str
        Titles of the layers that ``--quick`` measures, at the first minibatch.
    batches : tuple of int
    peers : sequence of str
    compute : bool
        Rates are GFLOP/s beside that of SGEMM, not GB/s beside a copy's.
    directions_of : callable, optional
        Directions of a layer, if not all.
    remarks : callable, optional
        More lines at the end of a run, from the rates.
    precisions : sequence of str
        Those of products that ``--precision`` chooses from.
    """

    needs_torch = True
    efforts = (QUICK, FULL)

    def __init__(
        self, name: str, doc: str | None, problem: Callable[[Any, int, str], Problem], layers: Sequence[Any],
        directions: dict[str, float | None], quick: Sequence[str], batches: tuple[int, ...] = BATCHES,
        peers: Sequence[str] = LAYOUTS, compute: bool = True,
        directions_of: Callable[[Any], Iterable[str]] | None = None,
        remarks: Callable[[Rates], list[str]] = lambda rates: [], precisions: Sequence[str] = PRECISIONS[:1],
    ) -> None:  # fmt: skip
        self.name, self.text, self.problem, self.layers, self.directions = name, doc or "", problem, layers, directions
        self.quick, self.batches, self.peers, self.compute = quick, batches, peers, compute
        self.directions_of, self.remarks = directions_of or (lambda layer: directions), remarks
        self.contenders = (OURS, *peers)
        self.precisions, self.precision = precisions, FLOAT32

    def options(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--only", metavar="TEXT,TEXT", help="layers whose title has one of these in it")
        parser.add_argument("--batches", type=numbers, metavar="N,N", help=f"default {self.batches}")
        parser.add_argument("--directions", metavar="NAME,NAME", help=f"some of {', '.join(self.directions)}")
        text = "PyTorch gets its results' memory anew from the system each time"
        parser.add_argument("--fresh-memory", action="store_true", help=text)
        _precision.add_option(parser, self.precisions)

    def settle(self, options: argparse.Namespace) -> str:
        chosen = options.directions.split(",") if options.directions else list(self.directions)
        if unknown := [name for name in chosen if name not in self.directions]:
            return f"no direction {', '.join(unknown)}; there are {', '.join(self.directions)}"
        options.directions, self.precision = chosen, options.precision
        return super().settle(options)

    def plan(self, options: argparse.Namespace) -> list[Key]:
        """(title of the layer, minibatch, direction); the minibatch is 0 for layers that have none."""
        planned: dict[Key, None] = {}
        for N in options.batches or (self.batches[:1] if options.quick else self.batches):
            for layer in (layer for layer in self.layers if self._chosen(options, layer)):
                for direction in self.directions_of(layer):
                    if direction in options.directions:
                        planned[layer.title, layer.minibatch(N), direction] = None
        return sorted(planned, key=lambda case: case[1])

    def _chosen(self, options: argparse.Namespace, layer: Any) -> bool:
        if options.only:
            return any(part in layer.title for part in options.only.split(","))
        return not options.quick or layer.title in self.quick

    def layer(self, title: str) -> Any:
        """The layer of this title."""
        return next(layer for layer in self.layers if layer.title == title)

    def fits(self, title: str, N: int, direction: str) -> str:
        return lacks_memory(f"{title} at N = {N}", NEED * self.layer(title).nbytes(N))

    def taking(self, options: argparse.Namespace) -> Sequence[str]:
        return _precision.contenders(self.contenders, options.precision, stored=True)

    def settings(self, who: str, options: argparse.Namespace) -> dict[str, Any]:
        return _precision.settings(who, options.precision)

    def set_up(self, who: str, options: argparse.Namespace) -> None:
        if who.startswith("torch"):
            set_torch_up(thread_count(), keep_memory=not options.fresh_memory)

    def make(self, be: Any, who: str, title: str, N: int, direction: str) -> Case:
        problem = self.problem(self.layer(title), N, direction)
        if self.precision != FLOAT32:
            problem.round()
        found, refused = [], {}
        try:
            found = [self.contender(problem, be, who)]
        except Refused as why:
            refused[who] = str(why)
        except NotImplementedError as why:  # a primitive that runs while another is prepared
            refused[who] = f"{NOT_BUILT}: {why}".rstrip(": ")
        return Case(
            f"{title}: {direction}", problem.layer.text, N, found, problem.reference, problem.nbytes,
            problem.tolerance, refused, problem.flops,
        )  # fmt: skip

    def contender(self, problem: Problem, be: Any, who: str) -> Any:
        """One contender of a problem."""
        if who.startswith(OURS):
            if missing := [name for name in problem.needs if not hasattr(be, name)]:
                raise Refused(f"{NOT_BUILT}: {', '.join(missing)}")
            library, allowed = Neonlike(be), None
            if who == OURS_STORED:
                problem.cast(bfloat16())
                allowed = _precision.TOLERANCE
            return contender(library, who, problem.ours(library), sample=problem.sample, ours=True, tolerance=allowed)
        name, way = _precision.way_of(who)
        peer: Library = Torch("cpu", way) if who.startswith("torch") else Library()
        made, allowed = problem.peer(peer, name), _precision.TOLERANCE if way else None
        found = problem.reference_of(name)
        return contender(peer, who, made, sample=problem.sample, reference=found, tolerance=allowed)

    def form(self, options: argparse.Namespace) -> Rates:
        rounded = options.precision != FLOAT32
        targets = dict.fromkeys(self.directions, _precision.LEAST) if rounded else self.directions
        return Rates(self.layers, targets, self.compute, options.precision)

    def subject(self, options: argparse.Namespace) -> str:
        return _precision.subject(self.name, options.precision)

    def facts(self, options: argparse.Namespace) -> dict[str, str]:
        memory = "in fresh memory" if options.fresh_memory else "in memory used before"
        found = {"threads": f"{thread_count()} for everyone", "PyTorch's results": memory}
        return found | _precision.facts(options.precision, stored=True)

    def before(self, session: Session, index: int) -> None:
        if index % SGEMM_EVERY == 0:
            session.form.sample_sgemm()

    def verdicts(self, session: Session) -> list[str]:
        rates = session.form
        session.machine["SGEMM 2048, NumPy"] = f"{rates.sgemm:.1f} GFLOP/s"
        session.more["sgemm_gflop_per_s"] = rates.sgemm_samples
        return [*rates.summary(), *self.remarks(rates)]


class Lists(Primitives):
    """Two lists of shapes, of which a run measures one or both.

    Parameters
    ----------
    shapes, held_out : sequence of Layer
        What kernels are tuned with, and what nothing was tuned with.
    """

    def __init__(
        self, name: str, doc: str | None, problem: Callable[[Any, int, str], Problem], shapes: Sequence[Any],
        held_out: Sequence[Any], directions: dict[str, float | None], quick: Sequence[str], **more: Any,
    ) -> None:  # fmt: skip
        super().__init__(name, doc, problem, [*shapes, *held_out], directions, quick, batches=(1,), **more)
        self.lists = {"shapes": shapes, "held-out": held_out, "all": [*shapes, *held_out]}

    def options(self, parser: argparse.ArgumentParser) -> None:
        super().options(parser)
        parser.add_argument("--list", choices=tuple(self.lists), default="shapes")

    def plan(self, options: argparse.Namespace) -> list[Key]:
        titles = {layer.title for layer in self.lists[options.list]}
        return [key for key in super().plan(options) if key[0] in titles]
