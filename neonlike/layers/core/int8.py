"""Layers that multiply in int8 in inference, once ``model.quantize`` has measured their inputs."""

from __future__ import annotations

import math
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from neonlike.backends.backend import Tensor
from neonlike.backends.primitives.int8.definition import step_of
from neonlike.backends.tensors.operands import require_tensors
from neonlike.checks import brief, number
from neonlike.errors import ArgumentError
from neonlike.layers.core.folding import fold_again
from neonlike.layers.core.parameter import ParameterLayer
from neonlike.nervanaobject import Description

if TYPE_CHECKING:
    from neonlike.initializers.initializer import Init

__public_module__ = "neonlike.layers.layer"


class Int8Layer(ParameterLayer):
    """Base of layers whose product can be computed in int8.

    Attributes
    ----------
    int8_step : Tensor or None
        Size of the steps to which a quantized layer rounds its inputs, (1, 1). None: the layer is not quantized.
    """

    takes_int8 = False  # does a class say that its forward pass reads int8_step; subclasses say it themselves
    int8_steps: ClassVar[tuple[str, ...]] = ("int8_step",)
    """Attributes with the steps of what a layer multiplies in int8; they are saved with the parameters."""
    int8_step: Any = None
    _int8: Any = None
    """The quantized weight, made by the first pass of a quantized layer."""

    def quantize(self, *largest: float) -> None:
        """Multiply in int8 from now on, in inference; numbers of a larger magnitude than ``largest`` are clipped to it.

        The weight is quantized as it is now: call this again after a change.

        Parameters
        ----------
        *largest : float
            The largest magnitude that is represented, for each of ``int8_steps``; first of the inputs. What has none
            is multiplied in float32.

        Raises
        ------
        ArgumentTypeError, ArgumentError
            If they are no numbers, or negative, infinite or nan, or too many.
        """
        operation = f"{self.name}.quantize"
        sizes = [None if size is None else number(operation, "largest", size) for size in largest]
        if len(sizes) > len(self.int8_steps):
            raise ArgumentError(
                f"{operation}: got {len(sizes)} magnitudes, takes {len(self.int8_steps)}: {', '.join(self.int8_steps)}"
            )
        if any(size is not None and not 0 <= size < math.inf for size in sizes):
            raise ArgumentError(f"{operation}: magnitudes must be finite and at least 0, got {brief(largest)}")
        for name, size in zip_longest(self.int8_steps, sizes):
            setattr(self, name, None if size is None else self.be.array([[step_of(size)]], dtype=np.float32))
        self._changed()

    def dequantize(self) -> None:
        """Multiply in the backend's dtype again."""
        self.quantize()

    def _changed(self) -> None:
        """Have weights quantized by the next pass, and let the layer take over what it can now."""
        self._int8 = None
        fold_again(self)

    def measured(self) -> list[tuple[Any, ...]]:
        """The tensors that the last pass multiplied, for each of ``int8_steps``."""
        return [() if self.inputs is None else (self.inputs,)]

    def notes(self) -> list[str]:
        """Notes for ``model.explain``."""
        return [] if self.int8_step is None else ["multiplies in int8"]

    def parameter_names(self) -> tuple[str, ...]:
        """Attributes saved as parameters."""
        return (*super().parameter_names(), *(name for name in self.int8_steps if getattr(self, name) is not None))

    def loaded_names(self) -> tuple[str, ...]:
        """Attributes that a file may set."""
        return tuple(dict.fromkeys((*self.parameter_names(), *self.int8_steps)))

    def stored_dtype(self, name: str) -> Any:
        """The dtype of the named parameter; None for the backend's default."""
        return np.float32 if name in self.int8_steps else super().stored_dtype(name)

    def set_params(self, pdict: Description) -> None:
        """Load the parameters, and whether the layer is quantized."""
        super().set_params(pdict)
        given = self.present_form(pdict)["params"]
        for name in self.int8_steps:
            if name not in given:
                setattr(self, name, None)
        self._changed()

    def int8_weight(self) -> Tensor:
        """The weight that is multiplied in int8."""
        weight: Tensor = self.W
        return weight

    def multiply_int8(
        self,
        inputs: Tensor,
        outputs: Tensor,
        inference: bool,
        beta: float = 0.0,
        bias: Init | None = None,
        relu: bool = False,
        slope: float = 0.0,
    ) -> None:
        """outputs = f(product + bias) + beta · outputs in int8, with f as of ``be.int8_product``.

        Parameters
        ----------
        inputs, outputs : Tensor
            Factors ``(rows, columns)``, and the tensor for the result.
        inference : bool
            True outside of training: batches may be partial.
        beta : float
            Factor of the previous outputs; 0 overwrites them.
        bias : Tensor, optional
            A number for each row, or map.
        relu : bool
            Whether f rectifies.
        slope : float
            Factor of values below 0 where f rectifies.

        Raises
        ------
        ArgumentError
            In training, or if the layer is not quantized.
        DTypeError
            If inputs or outputs are no tensors.
        """
        require_tensors(self.be, f"{self.name}.multiply_int8", inputs=inputs, outputs=outputs)
        if self.int8_step is None:
            raise ArgumentError(
                f"{self.name}: is not quantized; call model.quantize(calibration) with typical inputs, or "
                "quantize(largest) with their largest magnitude"
            )
        if not inference:
            raise ArgumentError(
                f"{self.name}: is quantized for inference, and has no gradients; call fprop(x, inference=True), or "
                "model.dequantize() to train it"
            )
        if self._int8 is None:
            self._int8 = self.be.int8_weights(self.int8_weight(), float(self.int8_step.item()), self.nglayer)
        direct = not beta and _in_rows(outputs)
        target = outputs if direct else self.be.fresh(outputs.shape, dtype=outputs.dtype)
        # assignments, which are repeated with the product; a copy inside of it would not be
        self.be.int8_product(self._int8, _rows(inputs), target, bias=bias, relu=relu, slope=slope)
        if not direct:
            outputs[:] = target + beta * outputs if beta else target


def _in_rows(tensor: Tensor) -> bool:
    """Whether the numbers of a row follow each other in memory."""
    return tensor.shape[1] == 1 or tensor.strides[1] == 1


def _rows(tensor: Tensor) -> Tensor:
    """The tensor, or a copy whose rows are contiguous, such as of the steps of a single sample."""
    if _in_rows(tensor):
        return tensor
    made: Tensor = tensor.backend.fresh(tensor.shape, dtype=tensor.dtype)
    made[:] = tensor
    return made
