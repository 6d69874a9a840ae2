"""Layers of AlexNet, VGG-A, OverFeat, GoogLeNet and ResNet-50 through the backend alone, forward and backward.

Times are those that the backend records in bench mode: ``gen_backend("cpu", bench=True)``. ``--quick``: 8 images, under
a minute. ``python benchmarks/networks.py --help`` lists the options.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from _cases import markdown
from _network_calls import CALLS, KINDS, PASSES
from _networks import BATCH, distinct
from _suite import NOT_READY, lacks_memory
from harness import Session, arguments, some_of

ITERATIONS, QUICK_ITERATIONS = 5, 3
"""Timed calls of each pass; the table shows their median."""

WARM = 2
"""Untimed calls before them, which compile the kernels and touch memory for the first time."""

QUICK_BATCH = 8
OPERANDS = 3
"""Estimated memory of a layer as a multiple of its input and output: these, their errors, and their initial values."""

SUMS = {"forward": PASSES[:1], "backward": PASSES[1:], "both": PASSES}
"""Passes summed in each total: backward is the gradient of the data and that of the weights."""

COLUMNS = ("layer", "geometry", "times", *(column for name in PASSES for column in (f"{name} ms", "rate")))
TOTALS = ("kind", "layers", *(column for name in SUMS for column in (f"{name} ms", "rate")))
FIGURE, RATE = 8, 14
"""Widths of a time and of a rate with its unit."""


@dataclass(frozen=True)
class Figure:
    """One pass of a layer, from the backend's records."""

    seconds: float
    """Of the median call."""
    nbytes: int
    flops: int
    """Of one call."""
    product: bool
    """Its rate is in FLOP/s, as of all that multiplies matrices; else in bytes a second."""

    @property
    def rate(self) -> str:
        """``81.3 GFLOP/s`` or ``40.1 GB/s``."""
        return _rate(self.flops if self.product else self.nbytes, self.seconds, "GFLOP/s" if self.product else "GB/s")


@dataclass(frozen=True)
class Line:
    """A layer of a network and the figures of its passes; ``layer.count`` says how often it occurs."""

    layer: Any
    figures: dict[str, Figure]

    def seconds(self, passes: Sequence[str] = PASSES) -> float:
        """Seconds of these passes, of all layers like this one."""
        return self.layer.count * sum(figure.seconds for name, figure in self.figures.items() if name in passes)

    def flops(self, passes: Sequence[str] = PASSES) -> int:
        """Operations of the matrix products, of all layers like this one."""
        figures = [figure for name, figure in self.figures.items() if name in passes and figure.product]
        return int(self.layer.count * sum(figure.flops for figure in figures))

    def cells(self) -> list[str]:
        """Cells of the columns."""
        found = [self.layer.name, self.layer.text, str(self.layer.count)]
        for name in PASSES:
            figure = self.figures.get(name)
            found += [f"{1e3 * figure.seconds:.3f}", figure.rate] if figure else ["-", "-"]
        return found

    def as_json(self) -> dict[str, Any]:
        """The same for programs; times in seconds."""
        layer, figures = self.layer, {name: asdict(figure) for name, figure in self.figures.items()}
        facts = {"layer": layer.name, "kind": KINDS[type(layer)], "geometry": layer.text, "times": layer.count}
        return facts | figures


def _rate(total: float, seconds: float, unit: str) -> str:
    return f"{total / seconds / 1e9:.1f} {unit}" if seconds else "-"


def totals(lines: Sequence[Line]) -> list[list[str]]:
    """All layers together, each as often as it occurs: a row a kind, then everything."""
    kinds = {kind: [line for line in lines if KINDS[type(line.layer)] == kind] for kind in KINDS.values()}
    return [*(_total(kind, some) for kind, some in kinds.items() if some), _total("total", lines)]


def _total(name: str, lines: Sequence[Line]) -> list[str]:
    cells = [name, str(sum(line.layer.count for line in lines))]
    for passes in SUMS.values():
        seconds, flops = sum(line.seconds(passes) for line in lines), sum(line.flops(passes) for line in lines)
        cells += [f"{1e3 * seconds:.3f}", _rate(flops, seconds, "GFLOP/s") if flops else "-"]
    return cells


def speed(lines: Sequence[Line], N: int) -> str:
    """Images a second, the optimizer's step left out."""
    seconds = sum(line.seconds() for line in lines)
    rate = f": {N / seconds:.1f} a second" if seconds else ""
    return f"{N} images forward and backward in {1e3 * seconds:.1f} ms{rate}"


class Layout:
    """Rows as lines of text, words on the left, figures on the right; a column called "rate" has room for its unit.

    Parameters
    ----------
    titles : sequence of str
        Of the columns.
    words : sequence of sequence of str
        All that will stand in each of the first columns.
    """

    def __init__(self, titles: Sequence[str], words: Sequence[Iterable[str]]) -> None:
        self.titles, self.words = titles, len(words)
        self.widths = [max(map(len, (title, *column))) for title, column in zip(titles, words)]
        self.widths += [max(len(t), FIGURE, RATE * (t == "rate")) for t in titles[len(words) :]]

    def heading(self) -> str:
        """The titles, and a line below them."""
        titles = self.line(self.titles)
        return f"{titles}\n{'-' * len(titles)}"

    def line(self, cells: Sequence[str]) -> str:
        """One row."""
        pairs = list(zip(cells, self.widths))
        left = [cell.ljust(width) for cell, width in pairs[: self.words]]
        return "  ".join(left + [cell.rjust(width) for cell, width in pairs[self.words :]])


# A run ----------------------------------------------------------------------------------------------------------


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = arguments(f"{__doc__}".partition("\n")[0])
    parser.add_argument(
        "--network", type=some_of(BATCH, "network "), default=list(BATCH), metavar="NAME,NAME", help=", ".join(BATCH)
    )
    default = ", ".join(f"{name} {N}" for name, N in BATCH.items())
    parser.add_argument("-n", "--batch", type=_count, metavar="N", help=f"images; default {default}")
    parser.add_argument("-b", "--backend", choices=("cpu", "gpu"), default="cpu", help="default cpu")
    parser.add_argument("--threads", type=_count, metavar="N", help="of the CPU's kernels; default: all cores")
    parser.add_argument("--iterations", type=_count, metavar="N", help=f"default {ITERATIONS}")
    parser.add_argument(
        "--bench", nargs="?", const=True, default=False, metavar="FILE",
        help="also report every kernel that ran, on the screen or to a .txt, .json or .csv file",
    )  # fmt: skip
    options = parser.parse_args(argv)
    if options.picture:
        parser.error("--picture: this benchmark draws none")
    if options.results and options.backend != "cpu":
        parser.error("--results: RESULTS.md is for the cpu backend")
    options.iterations = options.iterations or (QUICK_ITERATIONS if options.quick else ITERATIONS)
    return options


def _count(text: str) -> int:
    if (number := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"expected 1 or more, got {text}")
    return number


def figure(recorder: Any, label: str, iterations: int) -> Figure:
    """The latest calls of the block ``label`` by ``recorder``: the kernels and primitives that ran in it."""
    rows = recorder.rows()
    (block,) = [row for row in rows if row.name == label and not row.inside]
    parts = [row for row in rows if row.inside == label]
    seconds, nbytes, flops = 0.0, 0, 0
    for row in parts:
        times = row.calls // block.calls  # within one call of the block
        seconds += times * statistics.median(list(row.samples)[-times * iterations :])
        nbytes += row.nbytes // block.calls
        flops += row.flops // block.calls
    return Figure(seconds, nbytes, flops, any(row.kind == "product" for row in parts))


def measure(be: Any, layer: Any, N: int, passes: Sequence[str], iterations: int) -> Line:
    """Run some passes of a layer, forward first."""
    calls = {name: call for name, call in CALLS[type(layer)](be, layer, N).items() if name in passes}
    figures = {}
    for name, call in calls.items():
        label = f"{layer.title}: {name}"
        for _ in range(WARM + iterations):
            with be.bench_measure(label):
                call()
        figures[name] = figure(be.bench, label, iterations)
    return Line(layer, figures)


def network(be: Any, session: Session, name: str, N: int) -> None:
    """Measure all layers of a network, and show its table as it grows."""
    found, heading = distinct(name), f"{name}, N = {N}"
    shown = Layout(COLUMNS, [[layer.name for layer in found], [layer.text for layer in found]])
    session.say(f"\n{heading}\n\n{shown.heading()}")
    lines: list[Line] = []
    for layer in found:
        if why := lacks_memory(f"{layer.title} at N = {N}", OPERANDS * layer.nbytes(N)):
            session.skip(why)
            continue
        # Nobody asks for the gradient of the images.
        passes = PASSES if layer is not found[0] else ("fprop", "update")
        lines.append(measure(be, layer, N, passes, session.options.iterations))
        session.say(shown.line(lines[-1].cells()))
    if lines:
        together, words = totals(lines), speed(lines, N)
        shown = Layout(TOTALS, [[row[0] for row in together]])
        session.say("\n".join(["", shown.heading(), *map(shown.line, together), words]))
        tables = markdown(COLUMNS, [line.cells() for line in lines]), markdown(TOTALS, together)
        session.tables[heading] = [*tables[0], "", *tables[1], "", words]
    session.more[name] = {"N": N, "layers": [line.as_json() for line in lines]}


def run(be: Any, options: argparse.Namespace) -> int:
    """Measure all networks; the exit status."""
    facts = {"backend": f"{options.backend}, {be.engine.name} engine", "threads": str(be.num_threads)}
    facts["times"] = f"of one layer: medians of {options.iterations} calls after {WARM} that do not count"
    session = Session("networks", options, facts)
    for name in options.network:
        network(be, session, name, options.batch or (QUICK_BATCH if options.quick else BATCH[name]))
    return session.finish()


def main(argv: list[str] | None = None) -> int:
    """Run what the command line asks for; the exit status is 2 if there is no such backend."""
    from neonlike.backends import gen_backend
    from neonlike.errors import ArgumentError, BackendUnavailable

    options = parse(argv)
    try:
        be = gen_backend(options.backend, rng_seed=0, bench=options.bench or True)
        if options.threads:
            be.num_threads = options.threads
    except (ArgumentError, BackendUnavailable) as why:
        print(f"benchmarks/networks.py: {why}", file=sys.stderr)
        return NOT_READY
    with be:
        try:
            return run(be, options)
        finally:
            if not options.bench:
                be.bench.clear()  # else the backend reports every kernel when it ends


if __name__ == "__main__":
    sys.exit(main())
