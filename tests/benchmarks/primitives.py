"""Small layers for the benchmarks of compound primitives, and runs beside a made-up PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

SUBJECTS = (
    "conv", "conv_shapes", "pool", "batchnorm", "lrn", "rnn", "gemm", "gemm_shapes", "attention", "int8", "batches",
)  # fmt: skip


def tiny(bench: Any, name: str) -> list[Any]:
    """A layer or two of every kind a script meets, of odd sizes."""
    layers, shapes = bench._layers, bench._conv_shapes
    return {
        "conv": lambda: [
            layers.conv2d("net", "a", 3, (7, 6), 5, 3, 2, 1, count=2), layers.conv2d("net", "b", 4, 5, 2, 1),
        ],
        "conv_shapes": lambda: [
            shapes._flat("net", 2, 4, (5, 6), 6, 3, 2, 1, 2, 2), shapes._line("net", 3, 2, 9, 3, 3),
            shapes._flat("net", 1, 3, 6, 2, 4, 2, 1, transposed=True), shapes._solid("net", 2, 2, (3, 4, 5), 3, 3, 2),
        ],
        "pool": lambda: [layers.Pool("net", op, 1, op, 3, 7, 6, 3, 2, 1) for op in ("max", "avg")],
        "batchnorm": lambda: [layers.Maps("net", "a", 2, 5, 3, 4)],
        "lrn": lambda: [layers.Maps("net", "a", 1, 7, 3, 2, 5)],
        "rnn": lambda: [layers.Cell("net", kind, 1, kind, 5, 4, 3) for kind in ("rnn", "lstm", "gru")],
        "gemm_shapes": lambda: [layers.Product("net", "a", 1, 5, 9, 3)],
        "gemm": lambda: [layers.Product("net", "fc", 1, 5, 7), layers.Product("square", "6", 1, 6, 6, 6)],
        "int8": lambda: [layers.Product("net", "a", 1, 5, 9, 3), shapes._flat("net", 2, 4, (5, 6), 6, 3, 2, 1, 2, 2)],
        "batches": lambda: [bench.batches.Samples("net", "a", features=7)],
        "attention": lambda: [bench.attention.Heads("net", f"a{n}", 1, 3, 4, 6, n, n > 6) for n in (5, 7)],
    }[name]()  # fmt: skip


class StandIn:
    """A library that has the right result, times ``factor``."""

    device = "cpu"

    def __init__(self, bench: Any, factor: float = 1.0) -> None:
        self.bench, self.factor = bench, factor

    def contender(self, problem: Any, who: str) -> Any:
        """A contender that computes nothing."""
        made = lambda: [self.factor * array for array in problem.reference()]  # noqa: E731
        return self.bench._cases.Contender(who, list, made)


@pytest.fixture
def script(bench: Any, run: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, Any]]:
    """Runs a script on tiny layers beside a made-up PyTorch: (status, session)."""
    primitives = bench._primitives
    monkeypatch.setattr(bench._suite, "installed", lambda name: True)
    monkeypatch.setattr(primitives, "set_torch_up", lambda threads, keep_memory: None)
    monkeypatch.setattr(primitives, "SGEMM_SIZE", 16)
    real = primitives.Primitives.contender

    def runner(name: str, *argv: str, factors: dict[str, float] | None = None) -> tuple[int, Any]:
        suite = getattr(bench, name).SUITE
        suite.layers = tiny(bench, name)
        suite.quick = [layer.title for layer in suite.layers]
        suite.contenders = ("neonlike", "torch NCHW", "torch NHWC")
        if hasattr(suite, "lists"):
            suite.lists = dict.fromkeys(suite.lists, suite.layers)

        def contender(problem: Any, be: Any, who: str) -> Any:
            if who.startswith("neonlike"):
                return real(suite, problem, be, who)
            return StandIn(bench, (factors or {}).get(who, 1.0)).contender(problem, who)

        suite.contender = contender
        return run(suite, *argv)

    return runner
