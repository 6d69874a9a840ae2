"""Layers that multiply in int8 in inference, once ``model.quantize`` has measured their inputs."""

from __future__ import annotations

from typing import Any

import numpy as np

from neonlike.backends.backend import Tensor
from neonlike.backends.primitives.int8.definition import step_of
from neonlike.errors import ArgumentError
from neonlike.layers.core.folding import fold_again
from neonlike.layers.core.parameter import ParameterLayer
from neonlike.nervanaobject import Description

__public_module__ = "neonlike.layers.layer"


class Int8Layer(ParameterLayer):
    """Base of layers whose product can be computed in int8.

    Attributes
    ----------
    int8_step : Tensor or None
        Size of the steps to which a quantized layer rounds its inputs, (1, 1). It is saved with the parameters. None:
        the layer is not quantized.
    """

    takes_int8 = False  # does a class say that its forward pass reads int8_step; subclasses say it themselves
    int8_note = "multiplies in int8"
    """The note for ``model.explain``."""
    int8_step: Any = None
    _int8: Any = None
    """The quantized weight, made by the first pass of a quantized layer."""

    def quantize(self, largest: float) -> None:
        """Multiply in int8 from now on, in inference; inputs of a larger magnitude than ``largest`` are clipped to it.

        The weight is quantized as it is now: call this again after a change.

        Parameters
        ----------
        largest : float
            The largest magnitude of inputs that is represented.
        """
        self.int8_step = self.be.array([[step_of(largest)]], dtype=np.float32)
        self._int8 = None
        fold_again(self)

    def dequantize(self) -> None:
        """Multiply in the backend's dtype again."""
        self.int8_step = self._int8 = None
        fold_again(self)

    def notes(self) -> list[str]:
        """Notes for ``model.explain``."""
        return [] if self.int8_step is None else [self.int8_note]

    def parameter_names(self) -> tuple[str, ...]:
        """Attributes saved as parameters."""
        return (*super().parameter_names(), *(() if self.int8_step is None else ("int8_step",)))

    def loaded_names(self) -> tuple[str, ...]:
        """Attributes that a file may set."""
        names = self.parameter_names()
        return (*names, "int8_step") if self.int8_step is None else names

    def stored_dtype(self, name: str) -> Any:
        """The dtype of the named parameter; None for the backend's default."""
        return np.float32 if name == "int8_step" else super().stored_dtype(name)

    def set_params(self, pdict: Description) -> None:
        """Load the parameters, and whether the layer is quantized."""
        super().set_params(pdict)
        self._int8 = None
        if "int8_step" not in self.present_form(pdict)["params"]:
            self.int8_step = None
        fold_again(self)

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
        bias: Any = None,
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
            In training.
        """
        if not inference:
            raise ArgumentError(
                f"{self.name}: is quantized for inference, and has no gradients; call fprop(x, inference=True), or "
                "model.dequantize() to train it"
            )
        if self._int8 is None:
            self._int8 = self.be.int8_weights(self.int8_weight(), float(self.int8_step.get().item()), self.nglayer)
        target = self.be.empty(outputs.shape, dtype=outputs.dtype) if beta else outputs
        self.be.int8_product(self._int8, inputs, target, bias=bias, relu=relu, slope=slope)
        if beta:
            outputs[:] = target + beta * outputs
