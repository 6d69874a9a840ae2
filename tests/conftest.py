"""Options and fixtures shared by all tests; backend_fixtures.py has the backends."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("neonlike")
    group.addoption("--backend", choices=("cpu", "gpu"), default="cpu", help="where tests that take `be` run")
    group.addoption(
        "--require-gpu",
        action="store_true",
        help="run on a real GPU and fail without one; tests of the emulated GPU are left out",
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--backend") == "gpu":
        os.environ["NEONLIKE_TEST_BACKEND"] = "gpu"
    if config.getoption("--require-gpu"):
        from gpu_driver import REQUIRE_VARIABLE, EmulatorUnavailable, require_real

        os.environ[REQUIRE_VARIABLE] = "1"
        try:
            require_real()
        except EmulatorUnavailable as error:
            raise pytest.UsageError(f"--require-gpu: {error}") from error
    config.pluginmanager.import_plugin("backend_fixtures")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if "gpu_driver" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.gpu)
    if config.getoption("--require-gpu"):
        left_out = [item for item in items if item.get_closest_marker("emulator")]
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=left_out)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reasons = [
        report.longrepr[2]
        for report in terminalreporter.stats.get("skipped", ())
        if "no GPU tests" in str(report.longrepr)
    ]
    if reasons:
        terminalreporter.write_line(f"{len(reasons)} GPU tests were skipped: {reasons[0]}", yellow=True)


@pytest.fixture(scope="session")
def gpu_driver() -> object:
    """The CUDA driver, real or emulated, ready for ``import pycuda.driver`` (a ``gpu_driver.Driver``)."""
    from engines import needs_gpu
    from gpu_driver import find_driver

    needs_gpu()
    return find_driver()


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
