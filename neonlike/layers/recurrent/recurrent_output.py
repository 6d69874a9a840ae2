"""Layers that reduce a sequence to one output: sum, mean or last step; and the sum of two directions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from neonlike.backends.backend import Tensor
from neonlike.errors import NotDefined, ShapeError
from neonlike.layers.core.base import Layer, first_part
from neonlike.layers.recurrent.padding import Padding, padding_of
from neonlike.layers.recurrent.steps import (
    MOST_VIEWS,
    Extent,
    extent_of,
    first_columns,
    get_steps,
    in_rows,
    interpret_in_shape,
    require_error,
    same_memory,
)

if TYPE_CHECKING:
    from neonlike.layers.core.base import ShapeSource

__public_module__ = "neonlike.layers.recurrent"


class RecurrentOutput(Layer):
    """Base of layers that reduce a sequence ``(features, steps)`` to ``(features, 1)`` by a weighted sum of steps.

    Parameters
    ----------
    name : str, optional
        Name in listings and model files; by default the class's with a number.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.layers import RecurrentMean
    >>> from neonlike.layers.recurrent import RecurrentOutput
    >>> be = gen_backend("cpu", batch_size=2)
    >>> layer = RecurrentMean()
    >>> isinstance(layer, RecurrentOutput), layer.configure((4, 5)).out_shape
    (True, (4, 1))
    """

    set_forward = frozenset(("inputs", "_x", "_extent", "_weights"))

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name)
        self.owns_delta = True
        self.nin, self.nsteps = 0, 1
        self.allocated_samples = 0
        self.padding: Padding | None = None
        self._extent: Extent | None = None
        self._weights: Any = None
        self._x: Any = None
        self._weightings: dict[Extent, tuple[Extent, Any]] = {}

    def __str__(self) -> str:
        return f"{self.classnm} Layer '{self.name}': {self.nin} inputs, {self.nsteps} steps"

    def configure(self, in_obj: ShapeSource) -> Layer:
        """Set the shapes for an input ``(features, steps)``; the last axis of an image ``(C, H, W)`` is the steps."""
        super().configure(in_obj)
        self.nin, self.nsteps = interpret_in_shape(self.in_shape)
        self.out_shape = (self.nin, 1)
        return self

    def allocate(self, shared_outputs: Tensor | None = None) -> None:
        """Create the output buffer."""
        super().allocate(shared_outputs)
        self.allocated_samples = self.outputs.shape[1]
        self._extent = self._x = self.inputs = None
        self._weightings.clear()

    def set_lengths(self, lengths: Any) -> None:
        """Set the length of each sample in the following batches; None: all steps.

        Steps after a sample's last one do not count; a sample without steps gives 0.

        Parameters
        ----------
        lengths : sequence of int, optional
            Number of steps of each of the N samples; None: all steps.
        """
        self.padding = padding_of(lengths, self)
        self._extent = None
        self._weightings.clear()

    @property
    def x(self) -> Any:
        """Inputs of the last forward pass; None before the first."""
        return self.inputs

    @property
    def xs(self) -> Any:
        """The steps of these inputs, ``(features, N)`` each."""
        if self._extent is None:
            return None
        used = first_columns(in_rows(self.inputs, self.nin), self._extent.columns)
        return get_steps(used, (self.nin, self._extent.steps))

    def _weighting(self, extent: Extent) -> Any:
        """Weight of each step: a number, or a tensor that broadcasts to (1, steps, N)."""
        raise NotDefined(f"{self.classnm} does not define how steps are weighted")

    def _known_weighting(self, extent: Extent) -> tuple[Extent, Any]:
        """The extent and its weights, the same objects each time, as repeated passes need."""
        known = self._weightings.get(extent)
        if known is None:
            if len(self._weightings) >= MOST_VIEWS:
                self._weightings.clear()
            known = self._weightings[extent] = extent, self._weighting(extent)
        return known

    def _masks(self, extent: Extent) -> Any:
        return None if self.padding is None else self.padding.masks(self.name, self.outputs, extent)

    def _by_step(self, buffer: Tensor, extent: Extent) -> Tensor:
        """A buffer as (features, steps, N)."""
        return first_columns(in_rows(buffer, self.nin), extent.columns).reshape(self.nin, *extent)

    def fprop(self, inputs: Any, inference: bool = False) -> Tensor:
        """Outputs ``(features, N)``; inference accepts partial batches.

        Parameters
        ----------
        inputs : Tensor
            ``(features, steps * N)``.
        inference : bool
            True outside of training: batches may be partial.
        """
        extent = extent_of(self, inputs, self.nin, inference)
        is_other = extent != self._extent
        if is_other:
            self._extent, self._weights = self._known_weighting(extent)
        if is_other or not same_memory(inputs, self.inputs):
            self._x, self.inputs = self._by_step(inputs, extent), inputs
        outputs: Tensor = self.outputs
        if extent.samples < outputs.shape[1] and self.actual_bsz is None:
            outputs = first_part(outputs, self.nin, extent.samples)
        used = first_columns(outputs, extent.samples).reshape(self.nin, 1, extent.samples)
        used[:] = self._combine(self._x)
        return outputs

    def _combine(self, x: Tensor) -> Any:
        weighted = x if isinstance(self._weights, float) else x * self._weights
        total = self.be.sum(weighted, axis=1)
        return total * self._weights if isinstance(self._weights, float) and self._weights != 1 else total

    def bprop(self, error: Any, alpha: float = 1.0, beta: float = 0.0) -> Any:
        """deltas of each step = alpha · weight of the step · error + beta · deltas.

        Parameters
        ----------
        error : Tensor
            Gradient of the cost by the outputs, ``(features, N)``.
        alpha, beta : float
            deltas = alpha · gradient + beta · deltas.
        """
        extent = self._extent
        used = require_error(self, error, self.nin, extent and Extent(1, extent.samples))
        if self.deltas is None:
            return None
        assert extent is not None
        deltas = self._by_step(self.deltas, extent)
        spread = used.reshape(self.nin, 1, extent.samples) * self._weights
        spread = spread if alpha == 1 else alpha * spread
        deltas[:] = spread + beta * deltas if beta else spread
        return self.deltas


class RecurrentSum(RecurrentOutput):
    """Sum of all steps.

    Parameters
    ----------
    name : str, optional
        Name in listings and model files; by default the class's with a number.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.layers import RecurrentSum
    >>> be = gen_backend("cpu", batch_size=2)
    >>> RecurrentSum()(be.ones((1, 3, 2))).tolist()  # of three steps
    [[3.0, 3.0]]
    """

    repeatable = True

    def _weighting(self, extent: Extent) -> Any:
        masks = self._masks(extent)
        return 1.0 if masks is None else masks.valid.reshape(1, *extent)


class RecurrentMean(RecurrentOutput):
    """Mean of all steps.

    Parameters
    ----------
    name : str, optional
        Name in listings and model files; by default the class's with a number.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.layers import RecurrentMean
    >>> be = gen_backend("cpu", batch_size=2)
    >>> RecurrentMean()(be.ones((1, 3, 2))).tolist()  # of three steps
    [[1.0, 1.0]]
    """

    repeatable = True

    def _weighting(self, extent: Extent) -> Any:
        masks = self._masks(extent)
        return 1.0 / extent.steps if masks is None else masks.mean.reshape(1, *extent)


class RecurrentLast(RecurrentOutput):
    """The last step.

    Parameters
    ----------
    name : str, optional
        Name in listings and model files; by default the class's with a number.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.layers import RecurrentLast
    >>> be = gen_backend("cpu", batch_size=2)
    >>> RecurrentLast()(be.array([[[1.0, 2.0], [3.0, 4.0]]])).tolist()  # of two steps
    [[3.0, 4.0]]
    """

    repeatable = True

    def _weighting(self, extent: Extent) -> Any:
        masks = self._masks(extent)
        if masks is not None:
            return masks.last.reshape(1, *extent)
        last = np.zeros((1, extent.steps, 1))
        last[0, -1] = 1
        return self.be.array(last, dtype=self.outputs.dtype)

    def _combine(self, x: Tensor) -> Any:
        return x[:, -1:] if self.padding is None else super()._combine(x)


class BiSum(Layer):
    """Sum of the two directions of a bidirectional layer: first half of the features plus second half.

    Parameters
    ----------
    name : str, optional
        Name in listings and model files; by default the class's with a number.

    Raises
    ------
    ShapeError
        If the number of features is odd.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.layers.recurrent import BiSum
    >>> be = gen_backend("cpu", batch_size=2)
    >>> BiSum()(be.array([[1.0, 2.0], [10.0, 20.0]])).tolist()
    [[11.0, 22.0]]
    """

    repeatable = True
    set_forward = frozenset(("inputs", "_extent"))

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name)
        self.owns_delta = True
        self.nin, self.nsteps = 0, 1
        self.allocated_samples = 0
        self._extent: Extent | None = None

    def __str__(self) -> str:
        return f"BiSum Layer '{self.name}': {self.nin} inputs, {self.nsteps} steps"

    def configure(self, in_obj: ShapeSource) -> Layer:
        """Set the shapes: input ``(2 features, steps)``, output ``(features, steps)``."""
        super().configure(in_obj)
        self.nin, self.nsteps = interpret_in_shape(self.in_shape)
        if self.nin % 2:
            raise ShapeError(f"{self.name}: an even number of features is needed for two halves, got {self.nin}")
        self.out_shape = (self.nin // 2, self.nsteps)
        return self

    def allocate(self, shared_outputs: Tensor | None = None) -> None:
        """Create the output buffer."""
        super().allocate(shared_outputs)
        self.allocated_samples = self.outputs.shape[1] // self.nsteps

    def fprop(self, inputs: Any, inference: bool = False) -> Tensor:
        """Outputs ``(features, steps * N)``; inference accepts partial batches.

        Parameters
        ----------
        inputs : Tensor
            ``(2 features, steps * N)``.
        inference : bool
            True outside of training: batches may be partial.
        """
        extent = extent_of(self, inputs, self.nin, inference)
        if extent != self._extent:  # otherwise keep the object, as repeated passes require
            self._extent = extent
        self.inputs = inputs
        outputs: Tensor = self.outputs
        if extent.columns < outputs.shape[1] and self.actual_bsz is None and self.actual_seq_len is None:
            outputs = first_part(outputs, self.nin // 2, extent.columns)
        x = first_columns(in_rows(inputs, self.nin), extent.columns)
        first_columns(outputs, extent.columns)[:] = x[: self.nin // 2] + x[self.nin // 2 :]
        return outputs

    def bprop(self, error: Any, alpha: float = 1.0, beta: float = 0.0) -> Any:
        """deltas of both halves = alpha · error + beta · deltas.

        Parameters
        ----------
        error : Tensor
            Gradient of the cost by the outputs, ``(features, steps * N)``.
        alpha, beta : float
            deltas = alpha · gradient + beta · deltas.

        Returns
        -------
        Tensor or None
            ``deltas``, the gradient by the inputs; None if no layer before needs it.
        """
        extent, half = self._extent, self.nin // 2
        e = require_error(self, error, half, extent)
        if self.deltas is None:
            return None
        deltas = first_columns(self.deltas, e.shape[1])
        for part in (deltas[:half], deltas[half:]):
            if alpha == 1 and not beta:
                part[:] = e
            else:
                part[:] = alpha * e + beta * part if beta else alpha * e
        return self.deltas
