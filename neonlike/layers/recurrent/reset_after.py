"""GRU whose reset gate is applied behind the product of the state: the formula of PyTorch, cuDNN and Keras."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from neonlike.autograd import ops
from neonlike.autograd.variable import Variable
from neonlike.errors import DTypeError, NotDefined, ShapeError
from neonlike.layers.core.base import Layer, require_size
from neonlike.layers.core.lambdas import Lambda
from neonlike.layers.core.parameter import StoredLayer
from neonlike.layers.recurrent.steps import interpret_in_shape
from neonlike.nervanaobject import Description

if TYPE_CHECKING:
    from neonlike.initializers.initializer import Init
    from neonlike.layers.core.base import ShapeSource

__public_module__ = "neonlike.layers.recurrent"


class ResetAfterGRU(Lambda):
    """Gated recurrent unit: h = (1 - z) · n + z · h_prev, n = tanh(W_n · x + b_n + r · (U_n · h_prev + b_recur)).

    r, z = logistic function of their rows of W_input · x + W_recur · h_prev + b. The rows of the weights are in the
    order r, z, n; U_n is the last part of ``W_recur``. Each batch starts from a state of 0.

    :class:`GRU` has the formula of the paper, and is faster: this layer is computed step by step from variables.

    Parameters
    ----------
    output_size : int
        Units.
    init : Initializer
        Initializer of both weights, ``W_input (3 units, features)`` and ``W_recur (3 units, units)``.
    init_inner : Initializer, optional
        Initializer of ``W_recur``; ``init`` by default.
    name : str, optional
        Name of the layer, unique by default.

    Attributes
    ----------
    W_input, W_recur, b, b_recur : Tensor
        Parameters; ``b (3 units, 1)`` and ``b_recur (units, 1)`` start from 0.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.initializers import Constant
    >>> be = gen_backend("cpu", batch_size=1)
    >>> layer = ResetAfterGRU(2, Constant(0.5))
    >>> layer(be.ones((3, 2))).shape    # 3 features, 2 steps
    (2, 2)
    """

    def __init__(self, output_size: int, init: Init, init_inner: Init | None = None, name: str | None = None) -> None:
        self.output_size = units = require_size(output_size, "ResetAfterGRU: output_size")
        self.init, self.init_inner = init, init_inner
        inner = init if init_inner is None else init_inner
        for given in (init, inner):
            if not hasattr(given, "fill") or isinstance(given, type | np.ndarray):
                raise DTypeError(f"ResetAfterGRU: init must be an initializer, e.g. GlorotUniform(), got {given!r:.60}")
        parameters = {
            "W_input": (partial(_of_inputs, units), init),
            "W_recur": ((3 * units, units), inner),
            "b": (3 * units, 1),
            "b_recur": (units, 1),
        }
        super().__init__(_unrolled, parameters, name=name)

    def __str__(self) -> str:
        return f"ResetAfterGRU Layer '{self.name}': {self.in_shape} -> {self.out_shape}"

    def notes(self) -> list[str]:
        """Notes for ``model.explain``."""
        return ["runs step by step"]

    def configure(self, in_obj: ShapeSource) -> Layer:
        """Set the shapes for an input ``(features, steps)``, or a number of features (one step)."""
        shape = self.input_shape(in_obj)
        if not isinstance(shape, int) and len(shape) > 2:
            raise ShapeError(
                f"{self.name}: needs a sequence, an input (features, steps), got {shape}; put "
                "Reshape((features, steps)) before it"
            )
        return super().configure(in_obj)

    def _probed(self) -> tuple[int, ...]:
        return self.output_size, interpret_in_shape(self.in_shape)[1]

    def set_lengths(self, lengths: Any) -> None:
        """Refuse lengths; only None is accepted."""
        if lengths is not None:
            raise NotDefined(f"{self.name}.set_lengths: sequences must have all steps here; use GRU for padded ones")

    def get_description(  # type: ignore[override]
        self, get_weights: bool = False, keep_states: bool = True, **kwargs: Any
    ) -> Description:
        """Describe the layer by the arguments of its constructor."""
        return StoredLayer.get_description(self, get_weights, keep_states, **kwargs)


def _of_inputs(units: int, in_shape: Any) -> tuple[int, int]:
    """The shape of ``W_input``."""
    return 3 * units, interpret_in_shape(in_shape)[0]


def _unrolled(x: Any, W_input: Any, W_recur: Any, b: Any, b_recur: Any) -> Variable:
    """The states of all steps, (units, steps, N), of an input (features, steps, N), or (features, N) of one step."""
    units, samples = W_recur.shape[1], x.shape[-1]
    sums: Any = ops.matmul(W_input, ops.reshape(x, W_input.shape[1], x.size // W_input.shape[1])) + b
    h: Any = None  # a state of 0
    found = []
    for first in range(0, sums.shape[1], samples):
        r, z, n = (sums[k * units : (k + 1) * units, first : first + samples] for k in range(3))
        passed: Any = b_recur
        if h is not None:
            of_state: Any = ops.matmul(W_recur, h)
            r, z = r + of_state[:units], z + of_state[units : 2 * units]
            passed = of_state[2 * units :] + b_recur
        reset: Any = ops.sigmoid(r)
        update: Any = ops.sigmoid(z)
        new: Any = ops.tanh(n + reset * passed)
        h = new - update * new if h is None else new + update * (h - new)
        found.append(h)
    return ops.stack(found, axis=1) if len(found) > 1 else found[0]
