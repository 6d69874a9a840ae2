"""Fully connected layers with weights of +1 and −1."""

from __future__ import annotations

from typing import Any

from neonlike.backends.backend import Tensor
from neonlike.errors import ArgumentError
from neonlike.layers.core.base import Layer, require_input
from neonlike.layers.core.elementwise import Activation
from neonlike.layers.dense.compound import CompoundLayer
from neonlike.layers.dense.linear import Linear
from neonlike.layers.norm.normalization import ShiftBatchNorm
from neonlike.transforms import Sign

__public_module__ = "neonlike.layers.layer"


class BinaryLinear(Linear):
    """Matrix product with the signs of a trained weight: outputs = sign(W) · inputs.

    If the previous layer outputs only +1 and −1 (activation ``Sign``), the product is computed by counting bits.

    Attributes
    ----------
    Wb : Tensor
        The signs of the weight, in its shape; +1 for 0.

    Source: Courbariaux et al., "Binarized neural networks" (2016), algorithm 1.
    """

    def __init__(
        self, nout: int, init: Any, bsum: bool = False, name: str | None = None, parallelism: str = "Disabled"
    ) -> None:
        super().__init__(nout, init, bsum, name, parallelism)
        self.Wb: Any = None

    def takes_over(self, following: Layer) -> bool:
        """Take over nothing."""
        return False

    def products(self, backward: bool = False) -> list[tuple[Any, str]]:
        """None to report: signs are the same in any precision."""
        return []

    def allocate(self, shared_outputs: Tensor | None = None) -> None:  # type: ignore[override]
        """Create the output and sign buffers, and the weight unless it exists."""
        super().allocate(shared_outputs)
        del self.accumulate_updates  # set_acc_on reads its presence as support for accumulation
        if self.Wb is None:
            self.Wb = self.be.empty_like(self.W)

    def fprop(self, inputs: Tensor, inference: bool = False, beta: float = 0.0) -> Tensor:
        """outputs = sign(W) · inputs + beta · outputs."""
        inputs, outputs = require_input(self, inputs, self.nin, inference)
        self.inputs = inputs
        self.be.binarize(self.W, self.Wb, stochastic=False)
        before = self.prev_layer
        signs = isinstance(before, Activation) and isinstance(before.transform, Sign)
        product = self.be.xnor_compound_dot if signs else self.be.compound_dot
        product(A=self.Wb, B=self._used(inputs), C=self._used(outputs), beta=beta, bsum=self.asked_sums(inference))
        return outputs

    def bprop(
        self, error: Tensor, alpha: float = 1.0, beta: float = 0.0, *, dW_alpha: float = 1.0, dW_beta: float = 0.0
    ) -> Tensor | None:
        """deltas = alpha · sign(W)ᵀ · error + beta · deltas; dW = dW_alpha · error · inputsᵀ + dW_beta · dW."""
        if self.inputs is None:
            raise ArgumentError(f"{self.name}.bprop: there are no inputs to take the gradient by; call fprop first")
        error = self._used(error)
        if self.deltas is not None:
            self.be.compound_dot(A=self.Wb.T, B=error, C=self._used(self.deltas), alpha=alpha, beta=beta)
        self.be.compound_dot(A=error, B=self._used(self.inputs).T, C=self.dW, alpha=dW_alpha, beta=dW_beta)
        return self.deltas


class BinaryAffine(CompoundLayer):
    """BinaryLinear, then bias or shift-based batch normalization, then activation.

    Parameters
    ----------
    nout : int
        Number of outputs.
    init : Initializer or array
        For the weight.
    bias : Initializer, optional
        For the bias; none without it.
    batch_norm : bool
        Normalize over the batch by powers of two (has its own bias).
    activation : Transform, optional
        Applied last.
    """

    normalization = ShiftBatchNorm
    normalization_suffix = "sbnorm"

    def __init__(
        self,
        nout: int,
        init: Any,
        bias: Any = None,
        batch_norm: bool = False,
        activation: Any = None,
        name: str | None = None,
    ) -> None:
        super().__init__(bias=bias, batch_norm=batch_norm, activation=activation, name=name)
        self.append(BinaryLinear(nout, init, bsum=batch_norm, name=name))
        self.add_postfilter_layers()
