"""Update of all parameters of a group as one step, planned once by ``be.prepare`` on fixed tensors.

Numbers that change from step to step (a learning rate, Adam's bias correction) are tensors ``(1, 1)``, written before
a run if any of them differs from that of the run before. Each parameter has a separate plan, so that parameters of all
sizes share kernels, and tied parameters are updated in sequence.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from neonlike.kernels.run.prepared import PreparedSequence
from neonlike.optree.dtypes import compute_dtype

if TYPE_CHECKING:
    from neonlike.backends.backend import Backend

Parameter = tuple[tuple[Any, Any], list[Any]]
"""((parameter, gradient), states); the list of states belongs to the layer, and the optimizer fills it."""

Updates = Callable[..., list[tuple[Any, Any]]]
"""``updates(param, grad, states, *numbers)`` returns the assignments for one parameter."""


def identity(param_list: Sequence[Parameter]) -> tuple[int, ...]:
    """Identity key of these tensors: equal for lists of the same tensors, as long as they live."""
    found: list[Any] = []
    for pair, states in param_list:
        found += pair
        found += states
    return tuple(map(id, found))


class Step:
    """An optimizer step on the tensors of ``param_list``; call it with the step's numbers.

    Parameters
    ----------
    be : Backend
        The backend of the parameters.
    param_list : list of Parameter
        The parameters, with all their states.
    updates : callable
        See :data:`Updates`.
    count : int
        Number of numbers per step.
    """

    def __init__(self, be: Backend, param_list: Sequence[Parameter], updates: Updates, count: int) -> None:
        self._held = [(param, grad, *states) for (param, grad), states in param_list]
        numbers: dict[Any, list[Any]] = {}
        steps = []
        for (param, grad), states in param_list:
            dtype = compute_dtype(param.dtype)
            if dtype not in numbers:
                numbers[dtype] = [be.empty((1, 1), dtype=dtype) for _ in range(count)]
            steps.append(be.prepare(updates(param, grad, states, *numbers[dtype])))
        self._run = PreparedSequence(be, steps)
        self._numbers = list(numbers.values())
        self._values: tuple[float, ...] | None = None

    def __call__(self, numbers: tuple[float, ...]) -> None:
        """Update the parameters in place."""
        if numbers != self._values:
            self._values = None  # until all are written
            for of_one_dtype in self._numbers:
                for tensor, value in zip(of_one_dtype, numbers, strict=True):
                    tensor[:] = value
            self._values = numbers
        self._run()


class Norm:
    """The norm of the mean gradient of all parameters, as a prepared computation.

    Parameters
    ----------
    be : Backend
        The backend of the parameters.
    param_list : list
        Parameters as :func:`~neonlike.optimizers.get_param_list` gives them.
    scale : loss_scaling.Scale, optional
        Scale of the loss behind the gradients.
    """

    def __init__(self, be: Backend, param_list: Sequence[Parameter], scale: Any = None) -> None:
        self._be = be
        self._grads = [grad if scale is None else scale.unscaled(grad) for (_, grad), _ in param_list]
        total: Any = 0
        for grad in self._grads:
            total = total + be.sum(be.square(grad))
        self._norm = be.empty((1, 1), dtype=compute_dtype(be.default_np_dtype))  # float16 overflows
        self._run = be.prepare(self._norm, be.sqrt(total) / be.global_bsz)
        self._wide: Any = None

    def __call__(self) -> float:
        """Compute sqrt(Σ‖grad‖²) / batch size; if squares may be out of range, by norms without overflow."""
        self._run()
        found = float(self._norm.get()[0, 0])
        if _LEAST_NORM < found < math.inf or found != found:
            return found
        if self._wide is None:
            norms = [self._be.norm2(grad) for grad in self._grads]
            target = self._be.empty((1, 1), dtype=np.float64)
            self._wide = target, self._be.prepare(target, functools.reduce(self._be.hypot, norms) / self._be.global_bsz)
        target, run = self._wide
        run()
        return float(target.get()[0, 0])


_LEAST_NORM = 1e-12
"""Below this, squares of float32 may have lost digits or underflowed."""
