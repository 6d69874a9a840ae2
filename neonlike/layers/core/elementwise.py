"""Elementwise layers, mostly in place: activation, dropout, transforms of the data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from neonlike.backends.backend import Tensor
from neonlike.backends.expressions.activation import asks_for, derivative
from neonlike.checks import brief
from neonlike.errors import ArgumentError
from neonlike.layers.core.base import Layer, interpret_in_shape, require_input, require_transform
from neonlike.layers.core.folding import is_finished, leave_error
from neonlike.layers.core.parts import reshaped
from neonlike.optree import dialect

if TYPE_CHECKING:
    from neonlike.layers.core.base import ShapeSource

__public_module__ = "neonlike.layers.layer"


def changes_needed(layer: Layer) -> bool:
    """Whether ``layer``, working in place, would overwrite outputs that must be preserved."""
    return bool(getattr(layer.prev_layer, "needs_outputs", False))


def features_of(layer: Layer) -> int | None:
    """Number of rows of the layer's outputs; None before it is configured."""
    return None if layer.out_shape is None else interpret_in_shape(layer.out_shape)[0]


def own_outputs(layer: Layer, owned: bool) -> None:
    """Switch ``layer`` between an output buffer of its own and work in place on its input."""
    if owned != layer.owns_output:
        layer.owns_output, layer.outputs = owned, None


class Activation(Layer):
    """Apply a transform **in place** on the previous layer's output.

    The layer uses a buffer of its own if that output is still needed: by a transform whose ``bprop`` reads ``inputs``
    (Swish, GELU), or by the previous layer, such as another activation.

    Parameters
    ----------
    transform : Transform
        The activation function.
    name : str, optional
        Name in listings and model files; by default the class's with a number.

    Attributes
    ----------
    left_to_cost : bool or None
        Whether the errors that ``bprop`` is given contain the derivative of the transform. None: those of a last layer
        do, if the transform leaves its derivative to the cost.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.layers import Activation
    >>> from neonlike.transforms import Rectlin
    >>> be = gen_backend("cpu", batch_size=2)
    >>> Activation(Rectlin())(be.array([[-1.0, 2.0]])).tolist()
    [[0.0, 2.0]]
    """

    repeatable = needs_outputs = True
    set_forward = frozenset(("inputs", "outputs"))
    left_to_cost: bool | None = None

    def __init__(self, transform: Any, name: str | None = None) -> None:
        super().__init__(name)
        self.transform = require_transform(transform, self.classnm)
        self.owns_output = "inputs" in asks_for(self.transform)
        self.owns_delta = True

    def __str__(self) -> str:
        return f"Activation Layer '{self.name}': {type(self.transform).__name__}"

    def configure(self, in_obj: ShapeSource) -> Layer:
        """Set the output shape to the input shape."""
        super().configure(in_obj)
        self.out_shape = self.in_shape
        own_outputs(self, "inputs" in asks_for(self.transform) or changes_needed(self))
        return self

    nout = property(lambda self: features_of(self), doc="Rows of the outputs; None before the layer is configured.")

    def fprop(self, inputs: Tensor, inference: bool = False) -> Tensor:
        """outputs = transform(inputs), in place unless the inputs are needed.

        Parameters
        ----------
        inputs : Tensor
            ``(features, N)``; **overwritten** unless they are needed.
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
        self.be.fprop_transform(self, self.transform, inputs, outputs, relu=False)
        return outputs

    def bprop(self, error: Tensor, alpha: float = 1.0, beta: float = 0.0) -> Tensor | None:
        """deltas = alpha · transform'(outputs) · error + beta · deltas.

        Parameters
        ----------
        error : Tensor
            Gradient of the cost by the outputs, in their shape.
        alpha, beta : float
            deltas = alpha · gradient + beta · deltas.

        Returns
        -------
        Tensor or None
            ``deltas``, the gradient by the inputs; None if no layer before needs it.

        Raises
        ------
        ArgumentError
            If there was no forward pass.
        """
        if self.deltas is None:
            return None
        if self.outputs is None:
            raise ArgumentError(f"{self.name}.bprop: there are no outputs to take the gradient by; call fprop first")
        if alpha == 1 and not beta and leave_error(self, error):
            return error
        kept = self.inputs if self.owns_output else None
        is_missing = self._lacks_derivative()
        if alpha == 1 and not beta and not is_missing and not self.left_to_cost:
            self.be.bprop_transform(self, self.transform, self.outputs, error, self.deltas, relu=False, inputs=kept)
            return self.deltas
        if self.left_to_cost:
            gradient = error * alpha
        elif is_missing:
            gradient = self.transform.through(self.outputs, error) * alpha
        else:
            gradient = derivative(self.transform, self.outputs, kept) * error * alpha
        self.deltas[:] = gradient + beta * self.deltas if beta else gradient
        return self.deltas

    def _lacks_derivative(self) -> bool:
        """Whether errors lack the derivative though the transform leaves it to the cost: another layer comes next."""
        if not self.transform.left_to_cost or self.left_to_cost is not None:
            return self.transform.left_to_cost and not self.left_to_cost
        return self.next_layer is not None and not dialect.is_neon()


class DataTransform(Layer):
    """Apply a transform **in place** to the data; no error is propagated back.

    Parameters
    ----------
    transform : Transform
        For example ``Normalizer()``.
    name : str, optional
        Name in listings and model files; by default the class's with a number.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.layers import DataTransform
    >>> from neonlike.transforms import Normalizer
    >>> be = gen_backend("cpu", batch_size=2)
    >>> DataTransform(Normalizer(divisor=255.0))(be.array([[0.0, 255.0]])).tolist()
    [[0.0, 1.0]]
    """

    def __init__(self, transform: Any, name: str | None = None) -> None:
        super().__init__(name)
        self.transform = require_transform(transform, self.classnm)
        self.owns_output = False

    def __str__(self) -> str:
        return f"DataTransform Layer '{self.name}': {type(self.transform).__name__}"

    def configure(self, in_obj: ShapeSource) -> Layer:
        """Set the output shape to the input shape."""
        super().configure(in_obj)
        self.out_shape = self.in_shape
        return self

    def fprop(self, inputs: Tensor, inference: bool = False) -> Tensor:
        """inputs = transform(inputs), in place.

        Parameters
        ----------
        inputs : Tensor
            ``(features, N)``; **overwritten**.
        inference : bool
            True outside of training: batches may be partial.
        """
        self.inputs = self.outputs = inputs
        self.outputs[:] = self.transform(inputs)
        return self.outputs

    def bprop(self, *error: Any) -> None:
        """Return None: the data need no gradient."""
        return None


class Dropout(Layer):
    """Set each element to zero with probability 1 − keep while training, **in place**.

    In Caffe mode, which divides kept elements, it uses a buffer of its own if the previous layer needs its outputs.

    Parameters
    ----------
    keep : float
        Probability of keeping an element.
    name : str, optional
        Name in listings and model files; by default the class's with a number.

    Raises
    ------
    ArgumentError
        If ``keep`` is no probability.

    Notes
    -----
    In inference outputs are multiplied by ``keep`` instead. On a backend in Caffe mode, training divides by
    ``keep`` and inference changes nothing. The backward pass works in place on the error.

    Source: Srivastava et al., "Dropout: a simple way to prevent neural networks from overfitting" (2014).

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.layers import Dropout
    >>> be = gen_backend("cpu", batch_size=2)
    >>> Dropout(keep=0.5)(be.ones((3, 2)), inference=True).tolist()
    [[0.5, 0.5], [0.5, 0.5], [0.5, 0.5]]
    """

    overwrites_error = True
    repeatable = True  # in training the mask is drawn by the host each time: see trace.call_again
    set_forward = frozenset(("inputs", "outputs"))

    def __init__(self, keep: float = 0.5, name: str | None = None) -> None:
        super().__init__(name)
        if not 0.0 <= keep <= 1.0:
            raise ArgumentError(f"Dropout: keep={brief(keep)}; expected a probability in [0, 1]")
        self.keep = keep
        self.keep_mask: Any = None
        self.caffe_mode = self.require_backend().check_caffe_compat()
        if self.caffe_mode and not keep:
            raise ArgumentError("Dropout: keep=0 cannot be used in Caffe mode, which divides by it; keep more than 0")
        self._train_scaling = 1.0 / keep if self.caffe_mode else 1.0
        self.owns_output = False

    def __str__(self) -> str:
        return f"Dropout Layer '{self.name}': {self.in_shape} inputs, keep {100 * self.keep:.0f}%"

    def configure(self, in_obj: ShapeSource) -> Layer:
        """Set the output shape to the input shape."""
        super().configure(in_obj)
        self.out_shape = self.in_shape
        own_outputs(self, self.caffe_mode and changes_needed(self))
        return self

    nout = property(lambda self: features_of(self), doc="Rows of the outputs; None before the layer is configured.")

    @property
    def needs_outputs(self) -> bool:  # type: ignore[override]
        """Whether the previous layer needs these outputs; no error comes from elements set to zero."""
        return not self.owns_output and changes_needed(self)

    def allocate(self, shared_outputs: Tensor | None = None) -> None:
        """Create the mask buffer, anew for another shape or batch size."""
        super().allocate(shared_outputs)
        features, steps = interpret_in_shape(self.out_shape)
        if self.keep_mask is None or self.keep_mask.shape != (features, steps * self.be.bsz):
            self.keep_mask = self.be.iobuf(self.out_shape, parallelism=self.parallelism)

    def fprop(self, inputs: Tensor, inference: bool = False) -> Tensor:
        """Mask the inputs in place, or scale them in inference, and return them.

        Parameters
        ----------
        inputs : Tensor
            ``(features, N)``; **overwritten** where the layer works in place.
        inference : bool
            True outside of training: batches may be partial.
        """
        self.inputs = outputs = inputs
        if self.owns_output:
            inputs, outputs = require_input(self, inputs, interpret_in_shape(self.in_shape)[0], inference)
            self.inputs = inputs
        else:
            self.outputs = inputs
        if inference:
            if not self.caffe_mode:
                outputs[:] = inputs * self.keep
            elif outputs is not inputs:
                outputs[:] = inputs
            return outputs
        self.be.make_binary_mask(self.keep_mask, self.keep)
        mask = self.keep_mask
        if mask.shape[0] != inputs.shape[0] and mask.size == inputs.size:  # sequences, each in a column
            mask = reshaped(self, "mask in rows", mask, inputs.shape[0])
        masked = mask * inputs
        outputs[:] = masked if self._train_scaling == 1 else masked * self._train_scaling
        return outputs

    def bprop(self, error: Tensor, alpha: float = 1.0, beta: float = 0.0) -> Tensor:
        """error = mask · error · alpha (/ keep in Caffe mode) + beta · error, in place; returns it.

        Parameters
        ----------
        error : Tensor
            Gradient of the cost by the outputs, in their shape; **overwritten**.
        alpha, beta : float
            Factors of the masked error and of the error before.
        """
        factor = alpha * self._train_scaling
        masked = self.keep_mask * error if factor == 1 else self.keep_mask * error * factor
        error[:] = masked + beta * error if beta else masked
        self.deltas = error
        return error
