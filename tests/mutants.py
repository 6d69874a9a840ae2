"""Test the tests: plant single faults in primitives and layers, one at a time, and see that the tests catch each.

    python tests/mutants.py [--family conv] [--only "beta ignored"] [--part 1/8] [--jobs 2] [--list]

The faults are rows of the tables in ``planted/``: a file, a text that occurs once in it, and what it is replaced by.
They are planted in private copies of the package; the working tree is not touched. A fault is caught if the tests of
its family, or their fixtures, fail: not if they cannot be collected, crash or hang, nor if the planted C does not
compile, nor if the test that failed does so without the fault, too. Faults that end with "(checked)" meet the tests on
an emulated GPU that checks every access. The exit status is 1 if a fault survives, or its text is no longer there
(stale).
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
from tests.planted import (
    attention,
    autograd,
    basics,
    batchnorm,
    blueprints,
    containers,
    contraction,
    conv,
    converted,
    cuda_base,
    cuda_conv,
    cuda_dispatch,
    cuda_engine,
    cuda_folds,
    cuda_images,
    cuda_rest,
    cuda_rnn,
    data,
    described,
    exchange,
    far_from_zero,
    formulas,
    host_copies,
    int8,
    kept_results,
    layers,
    lazy,
    lrn,
    nccl,
    nodes,
    pages,
    pairs,
    pool,
    ranks,
    recurrent,
    repeating,
    replays,
    reports,
    rest,
    rnn,
    roi,
    scaling,
    short_rows,
    systems,
    tiles,
    training,
    unsigned,
    winograd_pairs,
)  # fmt: skip
from tests.planted.table import Mutant
from tests.planted.watch import FAILED, FIRST, REFUSED

MUTANTS = tuple(
    row
    for table in (
        roi, lrn, batchnorm, pool, rnn, recurrent, rest, lazy, layers, conv, containers, training, data, described,
        cuda_base, cuda_rest, cuda_dispatch, cuda_engine, cuda_folds, cuda_rnn, cuda_conv, cuda_images, blueprints,
        repeating, attention, autograd, replays, basics, short_rows, contraction, ranks, pages, formulas, pairs,
        far_from_zero, unsigned, nccl, scaling, winograd_pairs, int8, systems, exchange, reports,
        converted, tiles, kept_results, nodes, host_copies,
    )
    for row in table.MUTANTS
)


def files(names: str) -> Iterator[str]:
    """Paths of test files: ``folder: name name`` is short for those of a folder of ``tests/``."""
    folder = ""
    for word in names.split():
        if word.endswith(":"):
            folder = word.removesuffix(":")
        else:
            yield f"tests/{folder}/test_{word}.py"


TESTS = {
    family: tuple(files(names))
    for family, names in {
        "roi": "backends/primitives/roi: nms roi",
        "lrn": "backends/primitives: lrn lrn_calls",
        "batchnorm": "backends/primitives/batchnorm: halves numerics batchnorm",
        "attention": "backends/primitives/attention: attention calls pairs",
        "attention_tiles": "backends/primitives/attention: tiles",
        "attention_cuda": "backends/gpu/primitives: attention",
        "base_cuda": "backends/gpu/device: graphs streams kernels/cuda: compilers",
        "nccl": "backends/gpu/ranks: nccl communicator",
        "ahead_cuda": "backends/gpu/memory: ahead",
        "batchnorm_cuda": "backends/gpu/primitives: batchnorm",
        "described": "backends/tensors: offset descriptors backends: factories backends/objects: movers mapped "
        "backends/tensors: interop",
        "batchnorm_op": "backends/objects: batchnorm_op",
        "lookup_cuda": "backends/gpu/primitives: lookup",
        "stats_cuda": "backends/gpu/primitives: stats",
        "reductions_cuda": "kernels/cuda: reductions",
        "powers_cuda": "kernels/cuda: softmax",
        "turned_cuda": "kernels/cuda: fit elementwise",
        "elementwise_cuda": "kernels/cuda: elementwise",
        "moves_cuda": "kernels/cuda: moves",
        "lines_cuda": "kernels/cuda: lines",
        "gemm_cuda": "kernels/cuda: moves backends/gpu/products: products",
        "foreign_cuda": "backends/gpu/tensors: sharing",
        "pool_cuda": "backends/gpu/primitives: pool",
        "lrn_cuda": "backends/gpu/primitives: lrn",
        "roi_cuda": "backends/gpu/primitives: roi",
        "nms_cuda": "backends/gpu/primitives: nms",
        "detection_cuda": "backends/gpu/primitives: detection",
        "pool": "backends/primitives/pooling: memory backends/geometry: pool_sizes backends/primitives/pooling: calls "
        "few halves pool",
        "rnn": "backends/primitives/rnn: errors rnn unroll kernels gated pairs halves kernels/c: gemm",
        "cuda_rnn": "backends/gpu/primitives: rnn kernels/cuda: step",
        "persistent_cuda": "backends/gpu/primitives: rnn_persistent kernels/cuda: rnn_sass",
        "cuda_dispatch": "backends/gpu: fastpath backends/gpu/products: blas",
        "repeating": "kernels/run: program prepared autograd: passes pass_keys pass_random kernels/c: fastpath "
        "fastpath_checked fastpath_stages fastpath_products fastpath_calls backends: call_cache "
        "layers/recurrent: recurrent_state",
        "replays": "backends/replays: replays_watched replays_played replays replays_steps replays_layers "
        "replays_stale replays_masks replays_words replays_in_turn replays_users backends: call_cache "
        "kernels/c: fastpath_calls",
        "recurrent": "layers/recurrent: bidirectional sequence_lengths recurrent_layers recurrent_state",
        "lookup": "backends/primitives: lookup backends: families optree: positions",
        "onehot": "optree: onehot kernels/c: fastpath_classes",
        "nodes": "kernels/c: recalled fastbuild backends/tensors: indexing optree: arrange",
        "workers": "kernels/c: workers",
        "linalg": "kernels/c: gemm_blas backends/primitives: linalg optree: linalg",
        "stats": "backends: rest_helpers rest_memory families",
        "merge": "backends: rest_helpers",
        "memory": "backends/tensors: memory",
        "scratch": "backends: rest_memory",
        "activation": "backends: rest_helpers families transforms: input_activations kernels/c: fastbuild",
        "lazy": "optree: gradients lazy_primitives",
        "autograd": "autograd: autograd memory graphs ops joining optree: sweep",
        "optimizers": "optimizers: schedules optimizers optimizer_states adam_counts",
        "masters": "optimizers: master_weights",
        "loss_scaling": "optimizers: loss_scaling",
        "accumulation": "optimizers: accumulation",
        "initializers": "initializers: initializers",
        "costs": "transforms: costs metrics",
        "saving": "models: model_files util: persist",
        "reports": "report: page training watch",
        "event_files": "callbacks: tensorboard",
        "traces": "kernels/bench: trace",
        "plots": "models: plot",
        "callbacks": "callbacks: progress_bar callbacks_more visualizations: visualizations",
        "layers": "layers/norm: batchnorm layers: rest modern pad layers/images: conv convnet layers: kept_views",
        "batches": "data: array_iterator hdf5 prefetch dataloader_transformers",
        "texts": "data: text text_preprocessing",
        "tasks": "data: tasks",
        "images": "data: images image_folder captions",
        "downloads": "data: fetch",
        "together": "distributed: random training faults interrupts",
        "overlap": "distributed: overlap",
        "sent": "distributed: compression gradients",
        "waits": "distributed: waiting children faults interrupts models: together",
        "ranks": "data: ranks sharing models: few_samples distributed: first evaluation files",
        "scaling": "benchmarks: scaling",
        "conv": "backends/primitives/conv: few conv_calls backends/geometry: conv_geometry backends/primitives/conv: "
        "depthwise maps shapes winograd conv kernels",
        "winograd_pairs": "backends/primitives/conv: winograd_pairs",
        "kept_results": "backends/primitives/conv: kept_results",
        "conv_cuda": "backends/gpu/primitives/conv: conv",
        "implicit_cuda": "backends/gpu/primitives/conv: implicit",
        "winograd_cuda": "backends/gpu/primitives/conv: winograd",
        "blueprints": "layers/blueprint: blueprints errors networks recurrent",
        "containers": "layers/container: tree merge merge_streams sequential",
        "short_rows": "kernels/c: short_rows",
        "interleaved": "kernels/c: reduction_forms",
        "int8": "kernels/c: quads fastpath_int8 backends/primitives/int8: products matrices memory",
        "int8_tiles": "kernels/c: quad_tiles quad_tile_code",
        "quantize": "layers/core: int8 layers/recurrent: recurrent_int8 models: quantize",
        "factors": "models: factors",
        "pages": "compat: page",
        "formulas": "docs: reference pictures formulas",
        "tiles": "kernels/c: tiles tile_code",
        "unroll_tiles": "backends/primitives/rnn: unroll_tiles",
        "conv_tiles": "backends/primitives/conv: tiles tile_code",
        "pairs": "kernels/c: pairs backends/primitives/conv: pairs",
        "stored": "kernels/c: stored_products",
        "converted": "kernels/c: convert fastpath_calls fastpath_products fastpath_halves kernels/run: kept_halves",
        "host_copies": "kernels/run: host_copies",
        "contraction": "optree: contraction",
        "kinds": "fuzz: fuzz_kinds optree: narrow_stores",
        "far_from_zero": "optree: far_from_zero moments norms_in_range",
        "vecmath": "kernels/c: vecmath",
        "uint64": "optree: uint64",
        "in_place": "layers: in_place",
        "basics": "layers: mlp layers/core: generalized_cost layers/container: sequential merge_streams tree",
        "activations": "transforms: activations layers: modern",
        "models": "models: model_mlp optree: eval models: model_storage partial_batches divergence",
        "recorded": "callbacks: progress_bar callbacks callbacks_control models: damaged_models model_mlp",
        "resumed": "models: resume optimizers: accumulation",
        "gan": "models: gan",
        "systems": ".: system util: atomic persist",
        "weights": "exchange: safetensors",
        "torch": "exchange: torch_weights",
        "onnx": "exchange: onnx onnx_graphs",
        "seq2seq": "layers/container: seq2seq models: skipthought",
    }.items()
}
"""Test files of each family, those first that are soon done."""
TIMEOUT_S, HASTY_S = 1800.0, 300.0
"""Seconds for tests in their own order, and in an order in which they are soon done or hang."""
CHECKED = {"CUEMU_CHECK": "1", "CUEMU_ASYNC": "1", "NEONLIKE_GPU_POOL": "0"}
"""What the tests of a fault marked so run with: see ``table.Mutant.checked``."""
CAUGHT, SURVIVED, STALE, INVALID = "caught", "SURVIVED", "STALE", "INVALID"


class Outcome(NamedTuple):
    """Outcome of a fault; ``words``: the first test that failed, or the reason why there is none."""

    mutant: Mutant
    verdict: str
    words: str
    seconds: float


def title(mutant: Mutant) -> str:
    """``family: name``, which is unique."""
    return f"{mutant.family}: {mutant.name}"


@contextmanager
def private_copy() -> Iterator[Path]:
    """A folder with package, tests, benchmarks and pages, and a cache of its own unless NEONLIKE_CACHE_DIR is set."""
    with tempfile.TemporaryDirectory(prefix="neonlike-mutants-") as name:
        folder, skipped = Path(name), shutil.ignore_patterns("__pycache__", ".hypothesis")
        for part in ("neonlike", "tests", "benchmarks", "docs"):
            shutil.copytree(ROOT / part, folder / part, ignore=skipped)
        shutil.copy2(ROOT / "pyproject.toml", folder)
        yield folder


def run_tests(
    copy: Path, tests: Sequence[str], checked: bool = False, first: Sequence[str] = (), stop: bool = True
) -> tuple[int, str]:
    """Exit status and output of pytest on ``tests`` in ``copy``, ``first`` before others; ``stop``: at a failure."""
    environment = {**os.environ, **(CHECKED if checked else {}), FIRST: "\n".join(first)}
    environment["PYTHONPATH"] = str(copy)
    environment["PYTHONDONTWRITEBYTECODE"] = "1"  # a fault may keep a file's size, and its time in seconds
    environment.setdefault("NEONLIKE_CACHE_DIR", str(copy / "cache"))
    options = ["-x"] * stop + "-q -p no:cacheprovider -p tests.planted.watch".split()
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *tests],
        cwd=copy,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=HASTY_S if first else TIMEOUT_S,
    )
    return done.returncode, done.stdout


def failed_tests(output: str) -> list[str]:
    """Tests that failed by the output of ``run_tests``, as pytest names them in ``tests/``."""
    return [line.removeprefix(FAILED).strip() for line in output.splitlines() if line.startswith(FAILED)]


@contextmanager
def planted_in(copy: Path, mutant: Mutant) -> Iterator[bool]:
    """``copy`` with the fault; False if its text is not there exactly once, or not changed."""
    path = copy / mutant.file
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    fits = text.count(mutant.old) == 1 and mutant.old != mutant.new
    if not fits:
        yield False
        return
    path.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")
    try:
        yield True
    finally:
        path.write_text(text, encoding="utf-8")


def judge(copy: Path, mutant: Mutant, tests: Sequence[str], first: Sequence[str] = ()) -> Outcome:
    """Plant ``mutant`` in ``copy``, run ``tests`` there, those of ``first`` before others, and return the verdict."""
    began = time.perf_counter()
    with planted_in(copy, mutant) as fits:
        verdict, words = STALE, f"its text is not once in {mutant.file}"
        if fits:
            verdict, words = _verdict(copy, tests, mutant.checked, first)
        if verdict == INVALID and first:  # in their own order, tests may fail before one crashes or hangs
            verdict, words = _verdict(copy, tests, mutant.checked, ())
    return Outcome(mutant, verdict, words, time.perf_counter() - began)


def _verdict(copy: Path, tests: Sequence[str], checked: bool, first: Sequence[str]) -> tuple[str, str]:
    try:
        status, output = run_tests(copy, tests, checked, first)
    except subprocess.TimeoutExpired:
        return INVALID, "the tests took too long"
    failed = failed_tests(output)
    if REFUSED in output:
        return INVALID, "the planted C does not compile"
    if status == 1 and failed:
        return CAUGHT, failed[0]
    if status == 0:
        return SURVIVED, "all tests passed"
    return INVALID, f"pytest ended with {status}: {output.strip().splitlines()[-1:]}"


def confirm(outcomes: Sequence[Outcome], jobs: int) -> list[Outcome]:
    """Return ``outcomes``; a fault that was caught is INVALID if its test fails without it, too."""
    by_runs: dict[tuple[str, bool], dict[str, None]] = {}
    for found in outcomes:
        if found.verdict == CAUGHT:
            by_runs.setdefault((found.mutant.family, found.mutant.checked), {})[found.words] = None

    def failing(run: tuple[str, bool]) -> set[str]:
        tests = by_runs[run]
        try:
            status, output = run_tests(copy, [f"tests/{test}" for test in tests], checked=run[1], stop=False)
        except subprocess.TimeoutExpired:
            return set(tests)
        return set() if status == 0 else set(failed_tests(output)) or set(tests)

    with private_copy() as copy, ThreadPoolExecutor(jobs) as pool_of_threads:
        unsound = dict(zip(by_runs, pool_of_threads.map(failing, by_runs), strict=True))
    return [
        found._replace(verdict=INVALID, words=f"{found.words} fails without the fault, too")
        if found.verdict == CAUGHT and found.words in unsound[found.mutant.family, found.mutant.checked]
        else found
        for found in outcomes
    ]


def run_all(mutants: Sequence[Mutant], jobs: int) -> list[Outcome]:
    """Judge ``mutants``, ``jobs`` at a time in as many copies, and print each outcome as it comes.

    Tests that caught a fault are the first to meet the next ones of its family, those that caught most before others.
    """
    free: SimpleQueue[Path] = SimpleQueue()
    catchers: dict[str, Counter[str]] = {mutant.family: Counter() for mutant in mutants}

    def one(mutant: Mutant) -> Outcome:
        copy = free.get()
        try:
            first = [test for test, _ in catchers[mutant.family].most_common()]
            found = judge(copy, mutant, TESTS[mutant.family], first)
        finally:
            free.put(copy)
        if found.verdict == CAUGHT:
            catchers[mutant.family][found.words] += 1
        print(f"{found.verdict:8} {found.seconds:6.1f} s  {title(mutant):75} {found.words}", flush=True)
        return found

    with _copies(jobs) as copies, ThreadPoolExecutor(jobs) as pool_of_threads:
        for copy in copies:
            free.put(copy)
        return list(pool_of_threads.map(one, mutants))


@contextmanager
def _copies(count: int) -> Iterator[list[Path]]:
    if count == 0:
        yield []
        return
    with private_copy() as copy, _copies(count - 1) as others:
        yield [copy, *others]


def part(text: str) -> tuple[int, int]:
    """The part, from 0 on, and the number of parts that ``K/N`` names; ``K`` is from 1 to ``N``."""
    match = re.fullmatch(r"([0-9]+)/([0-9]+)", text)
    number, count = (int(match[1]), int(match[2])) if match else (0, 0)
    if not 1 <= number <= count:
        raise argparse.ArgumentTypeError(f"a part is K/N with K from 1 to N, as 1/8; got {text!r}")
    return number - 1, count


def of_part(mutants: Iterable[Mutant], number: int, count: int) -> list[Mutant]:
    """Those of a part; a fault is in the same one whichever others there are, and each is in one."""
    return [mutant for mutant in mutants if zlib.crc32(title(mutant).encode()) % count == number]


def report(outcomes: Sequence[Outcome]) -> bool:
    """Print a table by family, and the missed faults; True if all were caught."""
    counts = Counter((found.mutant.family, found.verdict) for found in outcomes)
    print(f"\n{'family':12}{'planted':>8}{CAUGHT:>8}{'survived':>10}{'stale':>7}{'invalid':>9}")
    for family in [*dict.fromkeys(found.mutant.family for found in outcomes), "all"]:
        numbers = [
            sum(n for (its, verdict), n in counts.items() if family in (its, "all") and kind in (verdict, ""))
            for kind in ("", CAUGHT, SURVIVED, STALE, INVALID)
        ]
        print("{:12}{:8}{:8}{:10}{:7}{:9}".format(family, *numbers))
    missed = [found for found in outcomes if found.verdict != CAUGHT]
    for found in missed:
        print(f"{found.verdict}: {title(found.mutant)} ({found.mutant.file}): {found.words}")
    return not missed


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Plant single faults and see that the tests catch each.")
    parser.add_argument("--family", action="append", choices=sorted(TESTS), help="only these (may be repeated)")
    parser.add_argument("--only", metavar="TEXT", default="", help="only faults with TEXT in 'family: name'")
    parser.add_argument("--part", type=part, default="1/1", metavar="K/N", help="only this part, of all families")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="so many at a time, each in a copy of its own")
    parser.add_argument("--list", action="store_true", help="show the faults; plant none")
    options = parser.parse_args(arguments)
    chosen = [m for m in MUTANTS if options.only in title(m) and (not options.family or m.family in options.family)]
    chosen = of_part(chosen, *options.part)
    if not chosen:
        parser.error("no fault has that name and is of that part")
    if options.list:
        print("\n".join(f"{title(mutant):80} {mutant.file}" for mutant in chosen))
        return 0
    with tempfile.TemporaryDirectory(prefix="neonlike-mutants-") as cache:
        os.environ.setdefault("NEONLIKE_CACHE_DIR", cache)  # of all copies: what is not planted is compiled once
        jobs = max(1, options.jobs)
        return 0 if report(confirm(run_all(chosen, jobs), jobs)) else 1


if __name__ == "__main__":
    sys.exit(main())
