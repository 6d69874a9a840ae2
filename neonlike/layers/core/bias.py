"""The bias layer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from neonlike.backends.backend import Tensor
from neonlike.layers.core.base import Layer, interpret_in_shape, require_input
from neonlike.layers.core.chain import taken_over
from neonlike.layers.core.elementwise import Activation, changes_needed, own_outputs
from neonlike.layers.core.folding import is_finished
from neonlike.layers.core.parameter import ParameterLayer
from neonlike.layers.core.parts import reshaped
from neonlike.transforms import Explin, Identity, Logistic, Rectlin, Rectlinclip, Softmax, Tanh

if TYPE_CHECKING:
    from neonlike.initializers.initializer import Init
    from neonlike.layers.core.base import ShapeSource

__public_module__ = "neonlike.layers.layer"

EXPRESSIONS = frozenset({Explin, Identity, Logistic, Rectlin, Rectlinclip, Softmax, Tanh})
"""Activations that build an expression of their argument, and so accept expressions."""


class Bias(ParameterLayer):
    """Add a bias to each feature (of images, to each feature map), **in place** on the previous layer's output.

    If the previous layer needs its output unchanged, the bias layer uses a buffer of its own.

    Parameters
    ----------
    init : Initializer or array
        Initializer of the bias ``(features, 1)`` or ``(maps, 1)``.
    name : str, optional
        Name in listings and model files; by default the class's with a number.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.initializers import Constant
    >>> from neonlike.layers import Bias
    >>> be = gen_backend("cpu", batch_size=2)
    >>> Bias(init=Constant(1.0))(be.zeros((3, 2))).tolist()
    [[1.0, 1.0], [1.0, 1.0], [1.0, 1.0]]
    """

    repeatable = True
    set_forward = frozenset(("inputs", "outputs"))

    def __init__(self, init: Init, name: str | None = None) -> None:
        super().__init__(init, name)
        self.owns_output = False
        self.owns_delta = False

    def __str__(self) -> str:
        rows = self.weight_shape[0] if self.weight_shape else "?"
        return f"Bias Layer '{self.name}': {rows} biases"

    def configure(self, in_obj: ShapeSource) -> Layer:
        """Read the number of biases from the first entry of the input shape."""
        super().configure(in_obj)
        self.out_shape = self.in_shape
        rows = self.in_shape if isinstance(self.in_shape, int) else self.in_shape[0]
        self.weight_shape = (rows, 1)
        own_outputs(self, changes_needed(self))
        return self

    def takes_over(self, following: Layer) -> bool:
        """Take over an activation in place if there is one bias per feature: sum and activation are one kernel."""
        rows, _ = interpret_in_shape(self.in_shape)
        in_place = not following.owns_output
        return not self.folded and self.weight_shape == (rows, 1) and in_place and _has_expression(following)

    @property
    def y(self) -> Any:
        """The outputs, under neon's name."""
        return self.outputs

    @property
    def bias_size(self) -> int | None:
        """Number of biases; None before the layer is configured."""
        return None if self.weight_shape is None else self.weight_shape[0]

    def _by_feature(self, role: str, buffer: Tensor) -> Tensor:
        rows = self.W.shape[0]
        return buffer if buffer.shape[0] == rows else reshaped(self, role, buffer, rows)

    def fprop(self, inputs: Tensor, inference: bool = False) -> Tensor:
        """outputs = inputs + bias, in place unless the inputs are needed; returns the outputs.

        Parameters
        ----------
        inputs : Tensor
            ``(features, N)``, of images ``(C*H*W, N)``; **overwritten** unless they are needed.
        inference : bool
            True outside of training: batches may be partial.
        """
        self.inputs = outputs = inputs
        if self.owns_output:
            inputs, outputs = require_input(self, inputs, interpret_in_shape(self.in_shape)[0], inference)
            self.inputs = inputs
        else:
            self.outputs = inputs
            if is_finished(self, inputs):
                return inputs
        view = self._by_feature("inputs", inputs)
        target = view if outputs is inputs else self._by_feature("outputs", outputs)
        if following := taken_over(self):
            target[:] = following[0].transform(view + self.W)
            self.finished = outputs
        else:
            target[:] = view + self.W
        return outputs

    @Layer.accumulates
    def bprop(self, error: Tensor) -> Tensor:
        """dW = sum of the error over all axes but the feature; returns the error itself.

        Parameters
        ----------
        error : Tensor
            Gradient of the cost by the outputs, in their shape.
        """
        self.dW[:] = self.be.sum(self._by_feature("error", error), axis=1)
        return error


def _has_expression(layer: Layer) -> bool:
    return type(layer) is Activation and type(layer.transform) in EXPRESSIONS
