"""What layers call around activations: softmax, relu, transforms, skip connections, fully connected biases."""

from __future__ import annotations

from typing import Any

from neonlike.backends.families.base import Family
from neonlike.errors import ShapeError
from neonlike.optree import functions
from neonlike.optree.functions import F as Functions
from neonlike.optree.node import expression

F: Any = Functions


class ActivationFamily(Family):
    """Definitions in op-trees; each is one fused kernel."""

    def fprop_softmax(self, x: Any, axis: int = 0) -> Any:
        """exp(x - max) / sum(exp(x - max)) along ``axis``; lazy. x: tensor or expression (features, N)."""
        return functions.softmax(expression("fprop_softmax", x, self), axis)

    def fprop_relu(self, layer: Any, x: Any, slope: float = 0) -> Any:
        """max(x, 0) + slope * min(x, 0); lazy.

        Parameters
        ----------
        layer : object or None
            Engine object of the layer; none is needed.
        x : tensor or expression
        slope : float
        """
        x = expression("fprop_relu", x, self)
        return F.maximum(x, 0) + slope * F.minimum(x, 0) if slope else F.maximum(x, 0)

    def bprop_relu(self, layer: Any, x: Any, error: Any, deltas: Any, slope: float = 0) -> Any:
        """Derivative (x > 0) + slope * (x < 0), not multiplied by the error, as in neon; lazy.

        Parameters
        ----------
        layer, error, deltas
            neon's arguments for its engine; accepted.
        x : tensor or expression
            Input or output of the activation.
        slope : float
        """
        x = expression("bprop_relu", x, self)
        return F.greater(x, 0) + slope * F.less(x, 0) if slope else F.greater(x, 0)

    def fprop_transform(self, ngLayer: Any, transform: Any, inputs: Any, outputs: Any, relu: bool = False) -> None:
        """outputs = transform(inputs).

        Parameters
        ----------
        ngLayer : object or None
            Engine object of the layer; none is needed.
        transform : callable
            Of a tensor, gives an expression.
        inputs, outputs : tensors
            They may be one tensor.
        relu : bool
            Says that the transform is a relu; nothing follows from it.
        """
        self.assign(outputs, transform(inputs))

    def bprop_transform(
        self, ngLayer: Any, transform: Any, outputs: Any, error: Any, deltas: Any, relu: bool = False
    ) -> None:
        """deltas = transform.bprop(outputs) * error.

        Parameters
        ----------
        ngLayer, relu
            As in :meth:`fprop_transform`.
        transform : object
            Its ``bprop`` takes outputs and gives the derivative, an expression or a number.
        outputs, error, deltas : tensors of one shape
            ``deltas`` may be ``error`` or ``outputs``.
        """
        self.assign(deltas, transform.bprop(outputs) * error)

    def fprop_skipnode(self, x: Any, y: Any, beta: float) -> None:
        """y = beta * y + x, for tensors of one shape; with beta 0 what y held is not read."""
        self.assign(y, y * float(beta) + x if beta else x)

    def bprop_skipnode(self, error: Any, deltas: Any, alpha: float, beta: float) -> None:
        """deltas = beta * deltas + alpha * error, for tensors of one shape; with beta 0 deltas are not read."""
        scaled = error * float(alpha)
        self.assign(deltas, deltas * float(beta) + scaled if beta else scaled)

    def add_fc_bias(self, inputs: Any, bias: Any) -> None:
        """inputs += bias, in place; inputs (features, N), bias (features, 1)."""
        self._check_target(inputs)
        _check_bias("add_fc_bias", inputs, bias)
        self.assign(inputs, inputs + bias)

    def update_fc_bias(self, err: Any, out: Any) -> None:
        """out = row sums of err, the gradient of :meth:`add_fc_bias`'s bias; err (features, N), out (features, 1)."""
        self._check_target(out)
        err = expression("update_fc_bias", err, self)
        _check_bias("update_fc_bias", err, out)
        self.assign(out, F.sum(err, axis=1))


def _check_bias(operation: str, rows: Any, bias: Any) -> None:
    shape = getattr(bias, "shape", None)
    if len(rows.shape) != 2 or shape != (rows.shape[0], 1):
        raise ShapeError(
            f"{operation}: for (features, N) = {rows.shape}, the bias must be (features, 1), got {shape or bias!r}"
        )
