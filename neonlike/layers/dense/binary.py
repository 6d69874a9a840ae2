"""Fully connected layers with weights of +1 and −1."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from neonlike.backends.backend import Tensor
from neonlike.errors import ArgumentError
from neonlike.layers.core.base import Layer, require_input
from neonlike.layers.core.elementwise import Activation
from neonlike.layers.dense.compound import CompoundLayer
from neonlike.layers.dense.linear import Linear
from neonlike.layers.norm.normalization import ShiftBatchNorm
from neonlike.transforms import Sign

if TYPE_CHECKING:
    from neonlike.initializers.initializer import Init
    from neonlike.transforms.transform import Transform

__public_module__ = "neonlike.layers.layer"


class BinaryLinear(Linear):
    """Matrix product with the signs of a trained weight: outputs = sign(W) · inputs.

    If the previous layer outputs only +1 and −1 (activation ``Sign``), the product is computed by counting bits.

    Parameters
    ----------
    nout : int
        Rows of the output.
    init : Initializer or array
        Initializer of the weight ``(nout, nin)``.
    bsum : bool
        Also sum the outputs over the batch into ``batch_sum``, for a following batch normalization.
    name : str, optional
        Name in listings and model files; by default the class's with a number.
    parallelism : str
        Kept for compatibility, see :class:`~neonlike.layers.layer.Layer`.

    Attributes
    ----------
    Wb : Tensor
        The signs of the weight, in its shape; +1 for 0.

    References
    ----------
    Courbariaux et al., "Binarized neural networks" (2016), algorithm 1.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.initializers import Constant
    >>> from neonlike.layers import BinaryLinear
    >>> be = gen_backend("cpu", batch_size=2)
    >>> BinaryLinear(nout=1, init=Constant(-0.3))(be.ones((3, 2))).tolist()
    [[-3.0, -3.0]]
    """

    def __init__(
        self, nout: int, init: Init, bsum: bool = False, name: str | None = None, parallelism: str = "Disabled"
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
        """outputs = sign(W) · inputs + beta · outputs.

        Parameters
        ----------
        inputs : Tensor
            ``(nin, steps * N)``.
        inference : bool
            True outside of training: batches may be partial.
        beta : float
            Factor of the previous outputs; 0 overwrites them.
        """
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
        """deltas = alpha · sign(W)ᵀ · error + beta · deltas; dW = dW_alpha · error · inputsᵀ + dW_beta · dW.

        Parameters
        ----------
        error : Tensor
            Gradient of the cost by the outputs, ``(nout, steps * N)``.
        alpha, beta : float
            deltas = alpha · gradient + beta · deltas.
        dW_alpha, dW_beta : float
            dW = dW_alpha · gradient + dW_beta · dW.

        Returns
        -------
        Tensor or None
            ``deltas``, the gradient by the inputs; None if no layer before needs it.

        Raises
        ------
        ArgumentError
            If there was no forward pass.
        """
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
    name : str, optional
        Name in listings and model files; by default the class's with a number.

    References
    ----------
    Courbariaux et al., "Binarized neural networks" (2016).

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.initializers import Constant
    >>> from neonlike.layers import BinaryAffine
    >>> from neonlike.transforms import Sign
    >>> be = gen_backend("cpu", batch_size=2)
    >>> BinaryAffine(nout=1, init=Constant(-0.3), activation=Sign())(be.ones((3, 2))).tolist()
    [[-1.0, -1.0]]
    """

    normalization = ShiftBatchNorm
    normalization_suffix = "sbnorm"

    def __init__(
        self,
        nout: int,
        init: Init,
        bias: Init | None = None,
        batch_norm: bool = False,
        activation: Transform | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(bias=bias, batch_norm=batch_norm, activation=activation, name=name)
        self.append(BinaryLinear(nout, init, bsum=batch_norm, name=name))
        self.add_postfilter_layers()
