"""Layers of AlexNet, VGG-A, OverFeat, GoogLeNet and ResNet-50 through the backend alone, forward and backward.

Times are those that the backend records in bench mode: ``gen_backend("cpu", bench=True)``. ``--quick``: 8 images, under
a minute. ``python benchmarks/networks.py --help`` lists the options.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Sequence
from typing import Any

import _network_report as report
import _primitives
from _network_calls import CALLS, PASSES
from _network_report import COLUMNS, TOTALS, Figure, Layout, Line, markdown, totals
from _networks import BATCH, distinct
from harness import Session, arguments

ITERATIONS, QUICK_ITERATIONS = 5, 3
"""Timed calls of each pass; the table shows their median."""

WARM = 2
"""Untimed calls before them, which compile the kernels and touch memory for the first time."""

QUICK_BATCH = 8
OPERANDS = 3
"""Estimated memory of a layer as a multiple of its input and output: these, their errors, and their initial values."""

NO_BACKEND = 2
"""Exit status where the backend that was asked for is not available."""


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = arguments(f"{__doc__}".partition("\n")[0])
    parser.add_argument("--network", type=_networks, default=list(BATCH), metavar="NAME,NAME", help=", ".join(BATCH))
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


def _networks(text: str) -> list[str]:
    names = text.split(",")
    if unknown := [name for name in names if name not in BATCH]:
        raise argparse.ArgumentTypeError(f"no network {', '.join(unknown)}; there are {', '.join(BATCH)}")
    return names


def _count(text: str) -> int:
    if (number := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"expected 1 or more, got {text}")
    return number


def figure(recorder: Any, label: str, iterations: int) -> Figure:
    """What ``recorder`` has of the latest calls of the block ``label``: the kernels and primitives that ran in it."""
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
        if why := _primitives.fits(layer, N, layer.nbytes(N), OPERANDS):
            session.skip(why)
            continue
        # Nobody asks for the gradient of the images.
        passes = PASSES if layer is not found[0] else ("fprop", "update")
        lines.append(measure(be, layer, N, passes, session.options.iterations))
        session.say(shown.line(lines[-1].cells()))
    if lines:
        together, speed = totals(lines), report.speed(lines, N)
        shown = Layout(TOTALS, [[row[0] for row in together]])
        session.say("\n".join(["", shown.heading(), *map(shown.line, together), speed]))
        tables = markdown(COLUMNS, [line.cells() for line in lines]), markdown(TOTALS, together)
        session.tables[heading] = [*tables[0], "", *tables[1], "", speed]
    session.more[name] = {"N": N, "layers": report.as_json(lines)}


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
        return NO_BACKEND
    with be:
        try:
            return run(be, options)
        finally:
            if not options.bench:
                be.bench.clear()  # else the backend reports every kernel when it ends


if __name__ == "__main__":
    sys.exit(main())
