"""Times and memory of the layers in some sampled minibatches of a training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from neonlike.backends.backend import Backend
    from neonlike.models.model import Model

SAMPLED = (2, 3, 4)
"""Minibatches of a training that are sampled, counted from 1: the first compiles, the fifth may be replayed."""


class StepSampler:
    """Measures each pass of each layer in a few minibatches; results of the training stay the same.

    Attributes
    ----------
    seconds : dict
        (layer, pass) -> milliseconds of all its calls in each sampled minibatch, by the minibatch's number.
    shares : dict
        (layer, pass) -> seconds of its kernels, and seconds at the machine's rates; in bench mode only.
    memory : list
        (layer, pass, bytes used, bytes reserved) behind each pass of the first sampled minibatch; to find them takes
        some milliseconds each time, and later minibatches find the same.
    """

    def __init__(self) -> None:
        self.seconds: dict[tuple[str, str], dict[int, float]] = {}
        self.shares: dict[tuple[str, str], list[tuple[float, float]]] = {}
        self.memory: list[tuple[str, str, int, int]] = []
        self._wrapped: list[Any] = []
        self._minibatch = 0

    def begin(self, model: Model) -> None:
        """Count a minibatch, and measure the layers in it if it is to be sampled."""
        self._minibatch += 1
        if self._minibatch not in SAMPLED:
            return
        self.stop()
        layers = list(model.layers.layers_fprop())
        for layer, label in zip(layers, told_apart([layer.name for layer in layers]), strict=True):
            if "fprop" in vars(layer) or "bprop" in vars(layer):
                continue  # somebody else measures, or a user replaced it
            for name in ("fprop", "bprop"):
                setattr(layer, name, self._measured(model.be, label, name, getattr(layer, name)))
            self._wrapped.append(layer)

    def stop(self) -> None:
        """Leave the layers as they were."""
        while self._wrapped:
            layer = self._wrapped.pop()
            del layer.fprop, layer.bprop

    def _measured(self, be: Backend, layer: str, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        key = (layer, name)
        start, end = be.init_mark(), be.init_mark()

        @wraps(function)
        def measured(*args: Any, **kwargs: Any) -> Any:
            before = None if be.bench is None else be.bench.seconds_and_best()
            be.record_mark(start)
            result = function(*args, **kwargs)
            be.record_mark(end)
            be.synchronize_mark(end)
            sums = self.seconds.setdefault(key, {})
            sums[self._minibatch] = sums.get(self._minibatch, 0.0) + be.get_time(start, end)
            if before is not None and be.bench is not None:
                after = be.bench.seconds_and_best()
                self.shares.setdefault(key, []).append((after[0] - before[0], after[1] - before[1]))
            if self._minibatch == SAMPLED[0]:
                stats = be.memory_stats()
                self.memory.append((layer, name, stats.used, stats.reserved))
            return result

        return measured

    def found(self) -> dict[str, Any]:
        """The measured times and memory as plain data; empty if nothing was sampled."""
        if not self.seconds:
            return {}
        from statistics import median

        times = [
            {"layer": layer, "pass": name, "ms": median(sums.values()), "share": self._share((layer, name))}
            for (layer, name), sums in self.seconds.items()
        ]
        return {"times": times, "memory": [list(entry) for entry in self.memory]}

    def _share(self, key: tuple[str, str]) -> float | None:
        """Share of the machine's rates that the kernels of a pass have reached; None if it is unknown."""
        pairs = self.shares.get(key, [])
        needed, best = (sum(column) for column in zip(*pairs, strict=True)) if pairs else (0.0, 0.0)
        return best / needed if needed > 0 and best > 0 else None


def told_apart(names: Sequence[str]) -> list[str]:
    """Number those of the names that occur more than once, from 1."""
    return [
        f"{name} ({names[: place + 1].count(name)})" if names.count(name) > 1 else name
        for place, name in enumerate(names)
    ]
