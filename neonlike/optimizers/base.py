"""What all optimizers share: the list of parameters, clipping, states, and one fused assignment a parameter."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from neonlike.checks import checked, require_method
from neonlike.errors import ArgumentError, DTypeError, NotDefined
from neonlike.nervanaobject import NervanaObject
from neonlike.optree.dtypes import compute_dtype

__public_module__ = "neonlike.optimizers.optimizer"

Parameter = tuple[tuple[Any, Any], list[Any]]
"""((parameter, gradient), states); the list of states belongs to the layer and is filled by the optimizer."""


@checked
def get_param_list(layer_list: Iterable[Any]) -> list[Parameter]:
    """All parameters of the layers, ``[((param, grad), states), ...]``.

    A layer's ``get_params()`` gives one such entry, or a list of them.
    """
    found: list[Parameter] = []
    for layer in layer_list:
        require_method("get_param_list", "each layer", layer, "get_params", "Linear")
        params = layer.get_params()
        if isinstance(params, list):
            found.extend(params)
        else:
            found.append(params)
    return found


class Optimizer(NervanaObject):
    """Base of optimizers.

    A subclass sets ``number_of_states`` and defines ``_begin`` (hyperparameters of a step) and ``_updates`` (the
    assignments of one parameter). All right-hand sides are evaluated with the values before the step, in one
    kernel.
    """

    number_of_states: ClassVar[int] = 0
    stochastic_round: bool | int = False
    gradient_clip_norm: float | None = None
    gradient_clip_value: float | None = None
    param_clip_value: float | None = None

    def optimize(self, layer_list: Sequence[Any], epoch: int) -> None:
        """Update the parameters of the layers in place.

        Parameters
        ----------
        layer_list : list
            Objects with ``get_params()``; gradients are sums over the batch and are divided by ``be.bsz`` here.
        epoch : int
            Number of the epoch, from 0, for the learning rate.
        """
        param_list = get_param_list(layer_list)
        if not self.require_backend("optimize").bsz:
            raise ArgumentError(
                f"{self.classnm}.optimize: the backend's batch size is {self.be.bsz}; gradients are divided by it, "
                "so set be.bsz to the number of samples in a batch"
            )
        scale = self.clip_gradient_norm(param_list, self.gradient_clip_norm)
        step = self._begin(epoch)
        for (param, grad), states in param_list:
            param.rounding = self.stochastic_round
            if len(states) < self.number_of_states:
                states.extend(self.be.zeros_like(param) for _ in range(self.number_of_states - len(states)))
            self.be.assign_many(self._updates(param, grad, states, scale, step))

    def progress(self) -> dict[str, Any]:
        """What resuming a saved training needs beside the states of the layers, as plain values."""
        return {}

    def set_progress(self, saved: dict[str, Any]) -> None:
        """Resume from the :meth:`progress` of an optimizer; what is not in it stays."""

    def _begin(self, epoch: int) -> Any:
        """Hyperparameters of this step, handed to each ``_updates``."""
        raise NotDefined(f"{self.classnm} does not define the update of a step")

    def _updates(self, param: Any, grad: Any, states: list[Any], scale: float, step: Any) -> list[tuple[Any, Any]]:
        """Assignments ``[(target, expression), ...]`` of one parameter; ``scale`` is the factor of norm clipping."""
        raise NotDefined(f"{self.classnm} does not define the update of a parameter")

    def _mean_gradient(self, grad: Any) -> Any:
        """Gradient divided by the batch size and clipped by value."""
        return self.clip_value(grad / self.be.bsz, self.gradient_clip_value)

    def clip_gradient_norm(self, param_list: Sequence[Parameter], clip_norm: float | None) -> float:
        """Factor that brings the norm of the mean gradient of all parameters down to at most ``clip_norm``.

        Returns
        -------
        float
            clip_norm / max(sqrt(Σ‖grad‖²) / bsz, clip_norm), or 1 if ``clip_norm`` is None or 0.
        """
        if not isinstance(param_list, list | tuple) or not all(map(_is_parameter, param_list)):
            raise DTypeError(f"{self.classnm}.clip_gradient_norm: param_list must be what get_param_list returns")
        if not clip_norm or not param_list:
            return 1.0
        be = self.be
        total: Any = 0
        for (_, grad), _ in param_list:
            total = total + be.sum(be.square(grad))
        norm = be.empty((1, 1), dtype=compute_dtype(be.default_np_dtype))  # float16 overflows
        norm[:] = be.sqrt(total) / be.bsz
        return float(clip_norm / max(float(norm.get()[0, 0]), clip_norm))

    def clip_value(self, v: Any, abs_bound: float | None = None) -> Any:
        """Expression of ``v`` clipped to ±|abs_bound|; ``v`` itself if the bound is None or 0."""
        if not abs_bound:
            return v
        return self.be.clip(v, -abs(abs_bound), abs(abs_bound))


def _is_parameter(entry: Any) -> bool:
    """Whether ``entry`` has the form of :data:`Parameter`."""
    pair = isinstance(entry, tuple | list) and len(entry) == 2
    return pair and isinstance(entry[0], tuple | list) and len(entry[0]) == 2
