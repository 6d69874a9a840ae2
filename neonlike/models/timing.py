"""Timing of networks per pass and per layer, with the backend's own clock."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from neonlike.checks import require_method, shown
from neonlike.errors import ArgumentError, DTypeError, NeonlikeError
from neonlike.logger import logger
from neonlike.nervanaobject import NervanaObject
from neonlike.optimizers.loss_scaling import scaled_errors

if TYPE_CHECKING:
    from neonlike.data.protocol import DataIterator
    from neonlike.layers.core.cost import NetworkCost
    from neonlike.models.protocol import TrainedModel
    from neonlike.optimizers.base import Optimizer

__public_module__ = "neonlike.benchmark"

Statistic = Callable[[Any], Any]
Times: TypeAlias = "OrderedDict[str, list[float]]"


@dataclass(frozen=True)
class Profile:
    """Settings of :func:`profile`.

    Attributes
    ----------
    inference : bool
        Forward passes only.
    iterations, skipped : int
        Minibatches to time, and warm-up minibatches before them.
    """

    inference: bool = False
    iterations: int = 50
    skipped: int = 5


wanted: Profile | None = None
"""Profile that replaces training in ``Model.fit`` (command line ``--profile``); None: it trains."""


def instead_of_training(asked: Profile | None) -> None:
    """Make ``Model.fit`` time the model from now on; None switches back to training."""
    global wanted
    wanted = asked


def profile(model: TrainedModel, dataset: DataIterator, asked: Profile) -> None:
    """Time passes and layers over some minibatches and show a table; ``model`` has its cost and optimizer.

    Parameters
    ----------
    model : Model
        The model, with cost and optimizer unless only inference is timed.
    dataset : iterator
        Data, iterated repeatedly as needed.
    asked : Profile
        The passes and minibatches that are timed.
    """
    logger.display(
        "--profile: %s is timed instead of trained, %d minibatches after %d that are left out",
        model.name, asked.iterations, asked.skipped,
    )  # fmt: skip
    times = Benchmark(model).time(dataset, asked.inference, asked.iterations + asked.skipped)
    Benchmark.print_stats(times, nskip=asked.skipped)


class BenchmarkError(NeonlikeError, RuntimeError):
    """The model lacks a cost or an optimizer for timing its training."""


class Benchmark(NervanaObject):
    """Times the passes of a model.

    Parameters
    ----------
    model : Model
        The model, with cost and optimizer unless only inference is timed.
    time_layers : bool
        Time each leaf layer too.

    Attributes
    ----------
    layer_times : dict
        Milliseconds per call, under ``"fprop <layer>"`` and ``"bprop <layer>"``.

    Examples
    --------
    >>> import numpy as np
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.benchmark import Benchmark
    >>> from neonlike.callbacks import Callbacks
    >>> from neonlike.data import ArrayIterator
    >>> from neonlike.initializers import Constant
    >>> from neonlike.layers import Linear
    >>> from neonlike.models import Model
    >>> be = gen_backend("cpu", batch_size=2)
    >>> model = Model([Linear(1, Constant(0.0))])
    >>> data = ArrayIterator(np.ones((4, 3)), np.ones((4, 1)), make_onehot=False)
    >>> callbacks = Callbacks(model, progress_bar=False)
    >>> sorted(Benchmark(model, time_layers=False).time(data, inference=True, niterations=2))
    ['data_loading', 'fprop']
    """

    def __init__(self, model: TrainedModel, time_layers: bool = True) -> None:
        super().__init__()
        self.model = model
        self.time_layers = time_layers
        self.layer_times: OrderedDict[str, list[float]] = OrderedDict()
        self._start, self._end = self.be.init_mark(), self.be.init_mark()

    def _timed(self, function: Callable[..., Any], times: list[float]) -> Callable[..., Any]:
        be = self.be
        start, end = be.init_mark(), be.init_mark()

        def timed(*args: Any, **kwargs: Any) -> Any:
            be.record_mark(start)
            result = function(*args, **kwargs)
            be.record_mark(end)
            be.synchronize_mark(end)
            times.append(be.get_time(start, end))
            return result

        return timed

    def _wrap_layers(self) -> list[Any]:
        layers = list(self.model.layers.layers_fprop()) if self.time_layers else []
        self.layer_times.clear()
        for direction in ("fprop", "bprop"):
            for layer in layers:
                times = self.layer_times.setdefault(f"{direction} {layer.name}", [])
                setattr(layer, direction, self._timed(getattr(layer, direction), times))
        return layers

    def time(
        self, dataset: DataIterator, inference: bool = False, niterations: int = 20
    ) -> OrderedDict[str, np.ndarray]:
        """Run batches and return the milliseconds of each pass.

        Parameters
        ----------
        dataset : iterator
            Data, iterated repeatedly as needed.
        inference : bool
            Forward passes only; otherwise the parameters are trained.
        niterations : int
            Number of batches.

        Returns
        -------
        OrderedDict
            Arrays ``fprop``[, ``bprop`` (with the update), ``iteration``], ``data_loading``, and one per layer and
            pass.
        """
        _require_batches("time", dataset, niterations)
        model = self.model
        if not inference and (model.cost is None or model.optimizer is None):
            raise BenchmarkError("Benchmark.time: training needs a cost and an optimizer; give them or inference=True")
        model.initialize(dataset, None if inference else model.cost)
        return self._with_layers(lambda times: self._run(dataset, inference, niterations, times))

    def time_gan(self, dataset: DataIterator, niterations: int = 101) -> OrderedDict[str, np.ndarray]:
        """Train a :class:`~neonlike.models.gan.GAN` on batches and return the milliseconds of each step.

        Parameters
        ----------
        dataset : iterator
            Data, iterated repeatedly as needed.
        niterations : int
            Number of batches. The generator is trained after every ``model.k`` of them.

        Returns
        -------
        OrderedDict
            Arrays ``iteration``, ``data_loading``, and one per layer and pass of both networks.
        """
        _require_batches("time_gan", dataset, niterations)
        model: Any = self.model
        if not hasattr(model, "train_minibatch"):
            raise DTypeError(f"Benchmark.time_gan: {model.name} is a {type(model).__name__}, not a GAN; use time")
        if model.cost is None or model.optimizer is None:
            raise BenchmarkError("Benchmark.time_gan: training needs a cost and an optimizer; set those of the model")
        model.initialize(dataset, model.cost)
        model.start_training()

        def run(times: Times) -> None:
            iterate = self._timed(model.train_minibatch, times["iteration"])
            for x, _ in self._batches(dataset, niterations, times):
                iterate(x)

        return self._with_layers(run)

    def _with_layers(self, run: Callable[[Times], None]) -> OrderedDict[str, np.ndarray]:
        """Run ``run`` with timed layers and return all times."""
        times: Times = OrderedDict((name, []) for name in ("fprop", "bprop", "iteration", "data_loading"))
        layers = self._wrap_layers()
        try:
            run(times)
        finally:
            for layer in layers:
                del layer.fprop, layer.bprop
        times.update(self.layer_times)
        return OrderedDict((name, np.array(values)) for name, values in times.items() if values)

    def _run(self, dataset: DataIterator, inference: bool, niterations: int, times: Times) -> None:
        model = self.model
        to_optimize = model.layers_to_optimize
        fprop = self._timed(lambda x: model.fprop(x, inference), times["fprop"])

        def backward(y: Any, t: Any) -> None:
            model.bprop(scaled_errors(model.optimizer, model.cost.get_errors(y, t)))
            model.optimizer.optimize(to_optimize, model.epoch_index)

        bprop = self._timed(backward, times["bprop"])

        def train(x: Any, t: Any) -> None:
            y = fprop(x)
            model.cost.get_cost(y, t)
            bprop(y, t)

        iterate = self._timed(train, times["iteration"])
        for x, t in self._batches(dataset, niterations, times):
            if inference:
                fprop(x)
            else:
                iterate(x, t)

    def _batches(self, dataset: DataIterator, niterations: int, times: Times) -> Iterator[Any]:
        """Yield the given number of batches and time their loading."""
        batches: Any = iter(())
        for _ in range(niterations):
            self.be.record_mark(self._start)
            batch = next(batches, None)
            if batch is None:
                batches = iter(dataset)
                batch = next(batches)
            self.be.record_mark(self._end)
            self.be.synchronize_mark(self._end)
            times["data_loading"].append(self.be.get_time(self._start, self._end))
            yield batch

    @staticmethod
    def print_stats(
        stats: Any, functions: Sequence[Statistic] | None = None, output: Any = None, nskip: int = 0
    ) -> None:
        """Print a table of statistics.

        Parameters
        ----------
        stats : dict
            Result of ``time``.
        functions : list of callable, optional
            Columns; mean, median, min and max by default.
        output : object with ``display``, optional
            Destination of the table, as one text; by default the library's logger.
        nskip : int
            Number of first calls to exclude.
        """
        if not stats:
            raise ArgumentError("Benchmark.print_stats: nothing to print; give what Benchmark.time returned")
        output = logger if output is None else output
        if not hasattr(output, "display"):
            raise DTypeError(f"Benchmark.print_stats: output is a {type(output).__name__}, which has no display method")
        columns: list[Statistic] = list(functions) if functions else [np.mean, np.median, np.min, np.max]
        width = max(20, *(len(name) + 2 for name in stats))
        rule = "-" * (width + 14 * len(columns))
        titles = "".join(f"| {_title(function):<12}" for function in columns)
        lines = [rule, f"{'Func':<{width}}{titles}", rule]
        for name, values in stats.items():
            kept = values[min(nskip, len(values) - 1) :]
            cells = "".join(f"| {float(function(kept)):<9.4f}ms " for function in columns)
            lines.append(f"{name:<{width}}{cells}")
        output.display("\n".join([*lines, rule]))


def _require_batches(method: str, dataset: DataIterator, niterations: int) -> None:
    if not dataset or niterations < 1:
        raise ArgumentError(
            f"Benchmark.{method}: dataset={dataset!r}, niterations={niterations}; give data and at least one iteration"
        )


def benchmark_model(
    model: TrainedModel,
    dataset: DataIterator,
    inference: bool,
    cost: NetworkCost | None,
    optimizer: Optimizer | None,
    niterations: int,
    nskip: int,
) -> dict[str, dict[str, float]]:
    """See :meth:`Model.benchmark`.

    Parameters
    ----------
    model : Model
        The model.
    dataset, inference, cost, optimizer, niterations, nskip
        As of :meth:`Model.benchmark`.
    """
    if not inference and optimizer is not None:
        require_method("Model.benchmark", "optimizer", optimizer, "optimize", "GradientDescentMomentum(...)")
    if niterations < 1:
        raise BenchmarkError(f"Model.benchmark: niterations must be at least 1, got {niterations}")
    if isinstance(dataset, type) or not all(hasattr(dataset, name) for name in ("reset", "ndata", "__iter__")):
        raise BenchmarkError(f"Model.benchmark: dataset must be a data iterator, got {shown(dataset)}")
    if not inference:
        if cost is None or optimizer is None:
            missing = "cost" if cost is None else "optimizer"
            raise BenchmarkError(f"Model.benchmark: {missing} is missing; training needs one, or use inference=True")
        model.initialize(dataset, cost)
        model.optimizer = optimizer
    measured = Benchmark(model, time_layers=False).time(dataset, inference, niterations + nskip)
    passes = OrderedDict((name, values[nskip:]) for name, values in measured.items() if name != "data_loading")
    Benchmark.print_stats(passes)
    statistics: dict[str, Statistic] = {"mean": np.mean, "median": np.median, "min": np.min, "max": np.max}
    return {
        name: {label: float(function(values)) for label, function in statistics.items()}
        for name, values in passes.items()
    }


def _title(function: Statistic) -> str:
    # np.min and np.max used to be called amin and amax, and the table has always used these names.
    name = {"min": "amin", "max": "amax"}.get(function.__name__, function.__name__)
    return name.title()
