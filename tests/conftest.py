"""Options and fixtures shared by all tests; support/backend_fixtures.py has the backends."""

from __future__ import annotations

import gc
import os
import random
import signal
from collections import Counter
from collections.abc import Iterator
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401  NumPy knows the name bfloat16 from here on
import numpy as np
import pytest

LEFT_OUT = pytest.StashKey[Counter[str]]()
"""Why tests were left out, and how many."""
ENGINE_BEFORE = pytest.StashKey["str | None"]()
"""NEONLIKE_CPU_JIT when the tests began."""
KERNELS = pytest.StashKey[str]()
"""Where compiled kernels are kept, in words."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("neonlike")
    group.addoption("--backend", choices=("cpu", "gpu"), default="cpu", help="where tests that take `be` run")
    group.addoption(
        "--cases",
        type=int,
        default=0,
        metavar="N",
        help="run at most N cases of each parametrized test of a backend, spread over all of them (default: all)",
    )
    group.addoption(
        "--c-cases",
        type=int,
        default=0,
        metavar="N",
        help="the same for what tests marked optree do on C, where each case is a kernel to compile, and as many cases "
        "of tests marked `compiles` as that mark says (default: all)",
    )
    group.addoption(
        "--dialect",
        choices=("default", "neon"),
        default="default",
        help="what the forms mean that neon defines in a way of its own (neonlike/optree/dialect.py); tests of these "
        "forms themselves fail in neon's",
    )
    group.addoption(
        "--require-gpu",
        action="store_true",
        help="run on a real GPU and fail without one; tests of the emulated GPU are left out",
    )


def pytest_configure(config: pytest.Config) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell starts what is to run in the background so
        signal.signal(signal.SIGINT, signal.default_int_handler)
    from tests.support.kept_kernels import keep_kernels

    config.stash[ENGINE_BEFORE] = os.environ.get("NEONLIKE_CPU_JIT")
    config.stash[KERNELS] = keep_kernels()
    if config.getoption("--backend") == "gpu":
        os.environ["NEONLIKE_TEST_BACKEND"] = "gpu"
    else:  # scripts too, which take a GPU that is there, as the emulated one is for some tests
        argparser: Any = import_module("neonlike.experiments.argparser")
        argparser.get_compute_capability = lambda: 0.0
    if config.getoption("--dialect") == "neon":
        import_module("neonlike.compat.neon")
    if config.getoption("--require-gpu"):
        from tests.support.gpu.gpu_driver import REQUIRE_VARIABLE, EmulatorUnavailable, require_real

        os.environ[REQUIRE_VARIABLE] = "1"
        try:
            require_real()
        except EmulatorUnavailable as error:
            raise pytest.UsageError(f"--require-gpu: {error}") from error
    config.pluginmanager.import_plugin("tests.support.backend_fixtures")
    from tests.support.engines import sampling

    sampling.on = bool(config.getoption("--cases") or config.getoption("--c-cases"))


def pytest_unconfigure() -> None:
    from tests.support.kept_kernels import remove_folder_of_this_run

    remove_folder_of_this_run()


def pytest_report_header(config: pytest.Config) -> str:
    """Say where kernels are kept."""
    return config.stash[KERNELS]


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With ``-m checked``, leave out files without this mark: to import them all takes longer than their tests."""
    if config.getoption("markexpr") == "checked" and collection_path.name.startswith("test_"):
        if collection_path.is_file() and "mark.checked" not in collection_path.read_text(encoding="utf-8"):
            return True
    return None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        mark_by_fixtures(item)
    if config.getoption("--require-gpu"):
        leave_out(config, items, "emulator", "about the emulated GPU")
    if config.getoption("--backend") == "gpu":
        leave_out(config, items, "cpu_only")
        leave_out_alike(config, items)
    reason = "cases of kernels that take long to compile"
    if most := config.getoption("--cases"):
        of_backends = [item for item in items if item.get_closest_marker("backend")]
        leave_out_cases(config, items, of_backends, most, f"cases beyond {most} of a test")
        others = [item for item in items if not item.get_closest_marker("backend")]
        for number, compiling in by_cases_to_compile(others).items():
            leave_out_cases(config, items, compiling, number, reason)
    if most := config.getoption("--c-cases"):
        on_c = [item for item in items if item.get_closest_marker("optree") and on_the_engine(item, "c")]
        leave_out_cases(config, items, on_c, most, f"cases beyond {most} of a test on C, which run on NumPy")
        deselect(config, items, dict.fromkeys(not_asked_for(items), reason))
        for number, compiling in by_cases_to_compile(items).items():
            leave_out_cases(config, items, compiling, number, reason)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[Any]:
    """Have the garbage collector pass over the tests themselves, while they are found and while they run.

    To look at their half a million objects takes 0.2 s, and a hundred tests collect garbage to see what is let go.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()


def on_the_engine(item: pytest.Item, name: str) -> bool:
    """Whether ``item`` is the turn of this engine of a test that runs on several."""
    callspec = getattr(item, "callspec", None)
    return callspec is not None and callspec.params.get("engine") == name


def by_cases_to_compile(items: list[pytest.Item]) -> dict[int, list[pytest.Item]]:
    """Tests that say how many of their cases are enough, by that number; those on NumPy compile nothing."""
    found: dict[int, list[pytest.Item]] = {}
    for item in items:
        mark = item.get_closest_marker("compiles")
        if mark is not None and not on_the_engine(item, "numpy"):
            found.setdefault(mark.args[0], []).append(item)
    return found


def not_asked_for(items: list[pytest.Item]) -> list[pytest.Item]:
    """Cases of tests that say which of them are enough, by texts one of which their names have, and these do not."""
    found = []
    for item in items:
        mark = item.get_closest_marker("compiles")
        if mark is not None and mark.args[1:] and not on_the_engine(item, "numpy"):
            if not any(text in item.name for text in mark.args[1:]):
                found.append(item)
    return found


def mark_by_fixtures(item: pytest.Item) -> None:
    """Mark a test by its fixtures: whether it asks for a backend, and whether it needs a GPU."""
    fixtures, named = getattr(item, "fixturenames", ()), item.get_closest_marker("engines")
    needs_gpu = "gpu_driver" in fixtures or ("engine" in fixtures and named is not None and named.args == ("gpu",))
    if needs_gpu:
        item.add_marker(pytest.mark.gpu)
    elif "engine" in fixtures:
        item.add_marker(pytest.mark.backend)


def leave_out_alike(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect tests that ask for no backend and need no GPU: one in place of the CPU's changes nothing for them."""
    names = ("backend", "gpu")
    alike = [item for item in items if not any(item.get_closest_marker(name) for name in names)]
    deselect(config, items, {item: "about no backend" for item in alike})


def leave_out(config: pytest.Config, items: list[pytest.Item], name: str, reason: str = "") -> None:
    """Deselect tests marked ``name``, for the reasons that they give."""
    marked = {item: mark for item in items if (mark := item.get_closest_marker(name))}
    deselect(config, items, {item: reason or str(mark.args[0]) for item, mark in marked.items()})


def leave_out_cases(
    config: pytest.Config, items: list[pytest.Item], among: list[pytest.Item], most: int, reason: str
) -> None:
    """Deselect cases of tests ``among`` those that have more than ``most``."""
    cases: dict[str, list[pytest.Item]] = {}
    for item in among:
        cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    kept = {item for of_one in cases.values() for item in spread(of_one, most)}
    deselect(config, items, {item: reason for item in among if item not in kept})


def spread(cases: list[pytest.Item], most: int) -> list[pytest.Item]:
    """So many of ``cases``, by chance one of each part: at equal distances all might have the same dtype."""
    chance = random.Random(len(cases))
    ends = [len(cases) * n // most for n in range(most + 1)]
    return [cases[chance.randrange(first, last)] for first, last in pairwise(ends) if first < last]


def deselect(config: pytest.Config, items: list[pytest.Item], reasons: dict[pytest.Item, str]) -> None:
    """Leave out the tests of ``reasons``; the summary says how many for which reason."""
    config.stash.setdefault(LEFT_OUT, Counter()).update(reasons.values())
    items[:] = [item for item in items if item not in reasons]
    config.hook.pytest_deselected(items=list(reasons))


def pytest_runtest_setup(item: pytest.Item) -> None:
    from tests.support.engines import asking
    from tests.support.optimizing import choose_for
    from tests.support.peers import find_peers

    find_peers(item)
    choose_for(item)
    asking.allowed = any(item.get_closest_marker(name) for name in ("backend", "cpu_only", "gpu"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """Fail a file's last test if the file left NEONLIKE_CPU_JIT changed: C tests would be skipped from then on.

    That comes of ``monkeypatch.setenv`` in a test whose backend is made after ``monkeypatch``: what the fixture of the
    backend had set is put back last.
    """
    yield
    if nextitem is None or nextitem.path != item.path:
        left = os.environ.get("NEONLIKE_CPU_JIT")
        if left != item.config.stash[ENGINE_BEFORE]:
            restore(item.config.stash[ENGINE_BEFORE])
            raise AssertionError(f"{item.path.name} leaves NEONLIKE_CPU_JIT={left} behind for the files after it")


def restore(engine: str | None) -> None:
    """NEONLIKE_CPU_JIT as it was when the tests began."""
    os.environ.pop("NEONLIKE_CPU_JIT", None)
    if engine is not None:
        os.environ["NEONLIKE_CPU_JIT"] = engine


def pytest_runtest_logfinish() -> None:
    """Give up a worker of pytest-xdist that has lost its GPU: it would fail all the tests that it still got, quickly.

    What failed is reported by now. The others go to the worker that takes its place.
    """
    from tests.support.gpu.gpu_driver import is_lost

    if "PYTEST_XDIST_WORKER" in os.environ and is_lost():
        os._exit(70)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Send a pytest-xdist worker's counts to the process that writes the summary."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        from tests.support.engines import on_gpu

        output["left_out"] = dict(session.config.stash.get(LEFT_OUT, {}))
        output["on_gpu"] = sorted(on_gpu)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Add a worker's counts: each chose among all tests, and ran some."""
    from tests.support.engines import on_gpu

    told = getattr(node, "workeroutput", {})
    node.config.stash[LEFT_OUT] = Counter(told.get("left_out", node.config.stash.get(LEFT_OUT, {})))
    on_gpu.update(told.get("on_gpu", ()))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    reasons = [
        report.longrepr[2]
        for report in terminalreporter.stats.get("skipped", ())
        if "no GPU tests" in str(report.longrepr)
    ]
    if reasons:
        terminalreporter.write_line(f"{len(reasons)} GPU tests were skipped: {reasons[0]}", yellow=True)
    if config.getoption("--backend") == "gpu":
        from tests.support.engines import on_gpu

        terminalreporter.write_line(f"{len(on_gpu)} tests ran on the GPU backend in place of the CPU's")
    from tests.support.optimizing import optimizes_less

    if optimizes_less():
        terminalreporter.write_line("kernels were compiled with -O1, but for those of tests marked `optimized`")
    left_out = config.stash.get(LEFT_OUT, Counter[str]())
    if left_out:
        terminalreporter.write_line(f"{left_out.total()} tests were left out:")
    for reason, count in left_out.most_common():
        terminalreporter.write_line(f"  {count:5} {reason}")


@pytest.fixture(scope="session")
def gpu_driver() -> object:
    """The CUDA driver, real or emulated, ready for ``import pycuda.driver`` (a ``support.gpu.gpu_driver.Driver``)."""
    from tests.support.engines import needs_gpu
    from tests.support.gpu.gpu_driver import find_driver

    needs_gpu()
    return find_driver()


@pytest.fixture
def emulator(gpu_driver: Any) -> Any:
    """The emulator behind ``gpu_driver`` (a ``cudaemu.Emulator``), for tests marked ``emulator``."""
    assert gpu_driver.emulator is not None
    return gpu_driver.emulator


@pytest.fixture
def cuda(gpu_driver: Any) -> Iterator[Any]:
    """``pycuda.driver`` with a context of the test's own."""
    import pycuda.driver as driver

    driver.init()
    context = driver.Device(0).make_context()
    yield driver
    gc.collect()  # what belongs to the context goes before it
    context.pop()


@pytest.fixture
def rng() -> np.random.Generator:
    """Random numbers for test data."""
    return np.random.default_rng(20240)


@pytest.fixture(autouse=True)
def threads_as_they_were() -> Iterator[None]:
    """Restore the default number of threads after each test."""
    yield
    from neonlike.kernels.run import threads

    threads.choose(None)
