"""Gradient accumulation: one step of an optimizer for several minibatches, as for one batch of all their samples."""

from __future__ import annotations

from collections.abc import Sequence
from operator import is_
from typing import Any

import numpy as np

from neonlike.autograd.parameters import store_gradients
from neonlike.checks import brief, shown
from neonlike.errors import ArgumentError, DTypeError
from neonlike.kernels.run.prepared import PreparedSequence
from neonlike.optimizers.base import Optimizer, get_param_list, keep
from neonlike.optree.dtypes import compute_dtype

__public_module__ = "neonlike.optimizers.optimizer"


class GradientAccumulation(Optimizer):
    """Wraps an optimizer to update parameters once for a group of minibatches, by the mean of their gradients.

    So K minibatches of N samples train as one of K · N does, in the memory of N, but for layers that look at a whole
    minibatch, such as batch normalization. At the end of an epoch, ``model.fit`` steps with the mean of the minibatches
    that there are; a custom loop calls :meth:`flush`. Schedules count epochs and, as Adam and LossScaling do, steps of
    the wrapped optimizer. Several ranks exchange gradients only for these steps. Generative adversarial networks are
    not supported.

    Parameters
    ----------
    optimizer : Optimizer
        Any, also a :class:`MultiOptimizer` or :class:`LossScaling`.
    minibatches : int
        Number of minibatches K of a group.
    name : str, optional
        Name in listings and model files; by default the class's with a number.

    Raises
    ------
    ArgumentError, DTypeError
        If an argument is invalid.

    Examples
    --------
    >>> from neonlike.optimizers import Adam, GradientAccumulation
    >>> GradientAccumulation(Adam(), minibatches=4).minibatches
    4
    """

    def __init__(self, optimizer: Optimizer, minibatches: int, name: str | None = None) -> None:
        super().__init__(name=name)
        if not isinstance(optimizer, Optimizer) or isinstance(optimizer, GradientAccumulation):
            raise DTypeError(f"GradientAccumulation: optimizer is {shown(optimizer)}; expected one such as Adam()")
        whole = isinstance(minibatches, int | np.integer) and not isinstance(minibatches, bool)
        if not whole or minibatches < 1:
            raise ArgumentError(
                f"GradientAccumulation: minibatches must be a number from 1, got {brief(minibatches)}"
            )
        self.optimizer, self.minibatches = optimizer, int(minibatches)
        self._gradients: list[Any] = []
        self._sums: list[Any] = []
        self._prepared: dict[Any, Any] = {}
        self._count = 0
        self._loaded: list[np.ndarray] = []
        self._of_all: list[np.ndarray] | None = None

    def __getstate__(self) -> dict[str, Any]:
        here: dict[str, Any] = {"_prepared": {}, "_gradients": [], "_sums": [], "_of_all": None}
        return {**super().__getstate__(), **here, "_loaded": self._arrays()}

    @property
    def scales_errors(self) -> bool:  # type: ignore[override]
        """Whether the wrapped optimizer uses loss scaling."""
        return self.optimizer.scales_errors

    def scale_errors(self, errors: Any) -> Any:
        """Scale the ``errors`` of a cost in place as the wrapped optimizer does.

        Parameters
        ----------
        errors : Tensor, or list of Tensor
            Gradient of a cost by the outputs.
        """
        return self.optimizer.scale_errors(errors)

    def optimize(self, layer_list: Sequence[Any], epoch: int) -> None:
        """Add the gradients of a minibatch; update the parameters if it is the last of its group.

        Parameters
        ----------
        layer_list : list
            Layers as :meth:`Optimizer.optimize` takes them.
        epoch : int
            Number of the epoch, from 0.
        """
        if self.add(layer_list):
            self.optimizer.optimize(layer_list, epoch)

    def flush(self, layer_list: Sequence[Any], epoch: int) -> None:
        """Update the parameters by the mean of the minibatches since the last step, if there were any.

        Parameters
        ----------
        layer_list : list
            Layers as :meth:`Optimizer.optimize` takes them.
        epoch : int
            Number of the epoch, from 0.
        """
        if self.end_group(layer_list):
            self.optimizer.optimize(layer_list, epoch)

    def add(self, layer_list: Sequence[Any]) -> bool:
        """Add the gradients of a minibatch; whether the wrapped optimizer is to step, which finds their means.

        Parameters
        ----------
        layer_list : list
            Layers as :meth:`Optimizer.optimize` takes them.

        Raises
        ------
        ArgumentError
            If the minibatch trains other parameters than those before it in its group.
        """
        if self.minibatches == 1 and not self._count:
            return True
        self._hold(layer_list)
        self._run("add" if self._count else "begin")
        self._count, self._of_all = self._count + 1, None
        return self._count >= self.minibatches and self._end(layer_list)

    def end_group(self, layer_list: Sequence[Any]) -> bool:
        """Replace the gradients by their means since the last step; whether there were any, for a step to take.

        Parameters
        ----------
        layer_list : list
            Layers as :meth:`Optimizer.optimize` takes them.
        """
        if not self._count:
            return False
        self._hold(layer_list)
        return self._end(layer_list)

    def forget(self) -> None:
        """Drop the gradients since the last step."""
        self._count, self._loaded, self._of_all = 0, [], None

    def _end(self, layer_list: Sequence[Any]) -> bool:
        self._run("mean")
        store_gradients(layer_list)
        self.forget()
        return True

    def _hold(self, layer_list: Sequence[Any]) -> None:
        """Find the gradients, and have a sum for each."""
        found = list({id(grad): grad for (_, grad), _ in get_param_list(layer_list)}.values())
        known = len(found) == len(self._gradients) and all(map(is_, found, self._gradients))
        if self._count and not known and not self._loaded:
            raise ArgumentError(
                f"{self.name}: a minibatch trains other parameters than those before it in its group of "
                f"{self.minibatches}; use a GradientAccumulation for each list of layers (models of the class GAN "
                "train two, and are not supported)"
            )
        if not known:
            be = self.require_backend("optimize")
            self._gradients = found
            self._sums = [be.empty(grad.shape, dtype=compute_dtype(grad.dtype)) for grad in found]
        if self._loaded:
            self._place(self._loaded)
            self._loaded = []

    def _place(self, loaded: Sequence[np.ndarray]) -> None:
        """Go on from saved sums."""
        if [array.shape for array in loaded] != [total.shape for total in self._sums]:
            raise ArgumentError(
                f"{self.name}: the saved model has gradients of other shapes than its parameters; the file is damaged, "
                "load with load_states=False to begin anew"
            )
        for total, array in zip(self._sums, loaded):
            total.set(array)
        self.scale_errors([])  # those behind the saved gradients were scaled

    def _run(self, what: str) -> None:
        """Begin sums of the gradients, add to them, or replace the gradients by their mean."""
        be, count = self.be, self._count if what == "mean" else 0
        key = (be, be.engine, be.num_threads, what, count, *map(id, self._sums))
        if key not in self._prepared:
            pairs = list(zip(self._sums, self._gradients))
            assigned = {
                "begin": lambda total, grad: (total, grad),
                "add": lambda total, grad: (total, total + grad),
                "mean": lambda total, grad: (grad, total / count),
            }[what]
            steps = [be.prepare(*assigned(*pair)) for pair in pairs]
            keep(self._prepared, key, (PreparedSequence(be, steps), pairs))
        self._prepared[key][0]()

    # -- saved trainings -----------------------------------------------------------------------------------

    def sum_over_ranks(self) -> None:
        """Let :meth:`progress` tell the gradients of all ranks, which call this together."""
        ranks = self.be.ranks
        if self._count and ranks.size > 1:
            self._of_all = self._arrays()
            for array in self._of_all:
                ranks.reduce(array)

    def _arrays(self) -> list[np.ndarray]:
        """The sums of this rank, on the host."""
        if not self._count:
            return []
        return self._loaded or [total.get() for total in self._sums]

    def progress(self) -> dict[str, Any]:
        """The minibatches since the last step, the sums of their gradients, and the wrapped optimizer's progress."""
        sums = self._arrays() if self._of_all is None else self._of_all
        inner = self.optimizer.progress()
        found = {"minibatches": self._count, "sums": sums, "optimizer": inner}
        return {name: value for name, value in found.items() if value or name == "minibatches"}

    def set_progress(self, saved: dict[str, Any]) -> None:
        """Restore saved progress; of several ranks, the first has the sums."""
        self.forget()
        count, sums = saved.get("minibatches", 0), saved.get("sums", [])
        fits = isinstance(count, int | np.integer) and count >= 0 and isinstance(sums, list | tuple)
        if not fits or not all(isinstance(array, np.ndarray) for array in sums) or bool(count) != bool(sums):
            raise ArgumentError(f"{self.classnm}: minibatches={brief(count)} with sums={brief(sums)} is no saved group")
        first = self.be is None or not self.be.rank
        self._count, self._loaded = int(count), [array.copy() if first else np.zeros_like(array) for array in sums]
        if isinstance(inner := saved.get("optimizer"), dict):
            self.optimizer.set_progress(inner)
