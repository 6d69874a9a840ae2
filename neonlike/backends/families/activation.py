"""What layers call around activations: softmax, relu, transforms, skip connections, fully connected biases."""

from __future__ import annotations

from typing import Any

from neonlike.backends.families.base import Family
from neonlike.optree import functions
from neonlike.optree.functions import F as Functions
from neonlike.optree.node import expression

F: Any = Functions


class ActivationFamily(Family):
    """Definitions in op-trees; each is one fused kernel."""

    def fprop_softmax(self, x: Any, axis: int = 0) -> Any:
        """exp(x - max) / sum(exp(x - max)) along ``axis``; lazy."""
        return functions.softmax(expression("fprop_softmax", x, self), axis)

    def fprop_relu(self, layer: Any, x: Any, slope: float = 0) -> Any:
        """max(x, 0) + slope * min(x, 0); lazy."""
        return F.maximum(x, 0) + slope * F.minimum(x, 0) if slope else F.maximum(x, 0)

    def bprop_relu(self, layer: Any, x: Any, error: Any, deltas: Any, slope: float = 0) -> Any:
        """Derivative (x > 0) + slope * (x < 0), not multiplied by the error; lazy."""
        return F.greater(x, 0) + slope * F.less(x, 0) if slope else F.greater(x, 0)

    def fprop_transform(self, ngLayer: Any, transform: Any, inputs: Any, outputs: Any, relu: bool = False) -> None:
        """outputs = transform(inputs); they may be one tensor."""
        self.assign(outputs, transform(inputs))

    def bprop_transform(
        self, ngLayer: Any, transform: Any, outputs: Any, error: Any, deltas: Any, relu: bool = False
    ) -> None:
        """deltas = transform.bprop(outputs) * error."""
        self.assign(deltas, transform.bprop(outputs) * error)

    def fprop_skipnode(self, x: Any, y: Any, beta: float) -> None:
        """y = beta * y + x."""
        self.assign(y, y * float(beta) + x if beta else x)

    def bprop_skipnode(self, error: Any, deltas: Any, alpha: float, beta: float) -> None:
        """deltas = beta * deltas + alpha * error."""
        scaled = error * float(alpha)
        self.assign(deltas, deltas * float(beta) + scaled if beta else scaled)

    def add_fc_bias(self, inputs: Any, bias: Any) -> None:
        """inputs += bias, in place; bias is (features, 1)."""
        self.assign(inputs, inputs + bias)

    def update_fc_bias(self, err: Any, out: Any) -> None:
        """out = row sums of ``err``: the gradient of :meth:`add_fc_bias`'s bias."""
        self.assign(out, F.sum(err, axis=1))
