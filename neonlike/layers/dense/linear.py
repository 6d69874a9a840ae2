"""Fully connected layers: Linear, and Affine with bias or normalization and activation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from neonlike.backends.backend import Tensor
from neonlike.backends.geometry.products import ProductSizes
from neonlike.errors import ArgumentError, ShapeError
from neonlike.layers.core.base import Layer, interpret_in_shape, require_input, require_size
from neonlike.layers.core.chain import taken_over
from neonlike.layers.core.epilogue import EpilogueLayer, rectifier
from neonlike.layers.core.int8 import Int8Layer
from neonlike.layers.core.parts import transposed
from neonlike.layers.dense.compound import CompoundLayer

if TYPE_CHECKING:
    from neonlike.initializers.initializer import Init
    from neonlike.layers.core.base import ShapeSource
    from neonlike.transforms.transform import Transform

__public_module__ = "neonlike.layers.layer"


class Linear(Int8Layer, EpilogueLayer):
    """Matrix product: outputs = W · inputs, for each sample and time step.

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

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.initializers import Constant
    >>> from neonlike.layers import Linear
    >>> be = gen_backend("cpu", batch_size=2)
    >>> layer = Linear(nout=1, init=Constant(0.5))
    >>> layer.configure(3).out_shape  # one step
    (1, 1)
    >>> layer.allocate()
    >>> layer.fprop(be.ones((3, 2))).tolist()
    [[1.5, 1.5]]
    """

    repeatable = takes_int8 = True

    def __init__(
        self, nout: int, init: Init, bsum: bool = False, name: str | None = None, parallelism: str = "Disabled"
    ) -> None:
        super().__init__(init, name, parallelism)
        self.nout = require_size(nout, "Linear: nout")
        self.bsum = bsum
        self.nin = 0
        self.nsteps = 1

    def __str__(self) -> str:
        steps = f" over {self.nsteps} steps" if self.nsteps > 1 else ""
        return f"Linear Layer '{self.name}': {self.nin} inputs, {self.nout} outputs{steps}"

    def configure(self, in_obj: ShapeSource) -> Layer:
        """Set the shapes; an input other than ``(nin,)``, an int or ``(nin, steps)`` is flattened."""
        super().configure(in_obj)
        self.nin, self.nsteps = interpret_in_shape(self.in_shape)
        self.out_shape = (self.nout, self.nsteps)
        self.weight_shape = (self.nout, self.nin)
        if self.bsum:
            self.batch_sum_shape = (self.nout, 1)
        return self

    def products(self, backward: bool = False) -> list[tuple[Any, str]]:
        """See :meth:`Layer.products`; the same sizes forward and backward."""
        if self.int8_step is not None:
            return []  # it notes int8 itself
        return [(ProductSizes(self.nout, self.nin, self.nsteps * self.be.bsz, self.be.default_np_dtype), "")]

    def takes_over(self, following: Layer) -> bool:
        """Take over a plain rectifier; in int8 a bias and a rectifier. Neither if the outputs are summed before."""
        if self.int8_step is not None:
            return super().takes_over(following)
        transform = rectifier(following)
        return not (self.folded or self.bsum or transform is None or transform.slope)

    def fprop(self, inputs: Tensor, inference: bool = False, beta: float = 0.0) -> Tensor:
        """outputs = W · inputs + beta · outputs; inference accepts partial batches.

        Parameters
        ----------
        inputs : Tensor
            ``(nin, steps * N)``.
        inference : bool
            True outside of training: batches may be partial.
        beta : float
            Factor of the previous outputs; 0 overwrites them.

        Returns
        -------
        Tensor
            ``outputs``, ``(nout, steps * N)``.
        """
        inputs, outputs = require_input(self, inputs, self.nin, inference)
        self.inputs = inputs
        used = self._used(outputs)
        if self.int8_step is not None:
            bias, relu, slope = self.epilogue(outputs)
            self.multiply_int8(self._used(inputs), used, inference, beta, bias, relu, slope)
            return outputs
        relu = bool(taken_over(self)) and used is outputs
        self.be.compound_dot(
            A=self.W, B=self._used(inputs), C=used, beta=beta, relu=relu, bsum=self.asked_sums(inference)
        )
        if relu:
            self.finished = outputs
        return outputs

    @Layer.accumulates
    def bprop(
        self, error: Tensor, alpha: float = 1.0, beta: float = 0.0, *, dW_alpha: float = 1.0, dW_beta: float = 0.0
    ) -> Tensor | None:
        """deltas = alpha · Wᵀ · error + beta · deltas; dW = dW_alpha · error · inputsᵀ + dW_beta · dW.

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
            W_T = transposed(self, "W", self.W)
            self.be.compound_dot(A=W_T, B=error, C=self._used(self.deltas), alpha=alpha, beta=beta)
        x_T = transposed(self, "inputs", self._used(self.inputs))
        self.be.compound_dot(A=error, B=x_T, C=self.dW, alpha=dW_alpha, beta=dW_beta)
        return self.deltas

    def _used(self, buffer: Tensor) -> Tensor:
        """The columns in use: all, or the first of a smaller batch or shorter sequence."""
        if self.actual_bsz is None and self.actual_seq_len is None:
            return buffer
        samples = self.be.bsz if self.actual_bsz is None else self.actual_bsz
        steps = self.nsteps if self.actual_seq_len is None else self.actual_seq_len
        if steps < 1 or not 0 < samples <= buffer.shape[1]:
            raise ShapeError(
                f"{self.name}: {steps} steps of {samples} samples are set, and there are {buffer.shape[1]} columns; "
                "set 1 or more by set_seq_len and set_batch_size, and at most as many samples as a batch has"
            )
        return buffer[:, : samples * steps]


class Affine(CompoundLayer):
    """Linear, then bias or batch normalization, then activation.

    Parameters
    ----------
    nout : int
        Number of outputs.
    init : Initializer or array
        For the weight.
    bias : Initializer, optional
        For the bias; none without it.
    batch_norm : bool
        Normalize over the batch (has its own bias).
    activation : Transform, optional
        Applied last.
    name : str, optional
        Name in listings and model files; by default the class's with a number.
    parallelism : str
        Kept for compatibility, see :class:`~neonlike.layers.layer.Layer`.

    Raises
    ------
    MissingArgument
        If there are both a bias and batch normalization.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.initializers import Constant
    >>> from neonlike.layers import Affine
    >>> from neonlike.transforms import Rectlin
    >>> be = gen_backend("cpu", batch_size=2)
    >>> layers = Affine(nout=1, init=Constant(0.5), bias=Constant(1.0), activation=Rectlin())
    >>> layers(be.ones((3, 2))).tolist()
    [[2.5, 2.5]]
    >>> [type(layer).__name__ for layer in layers]
    ['Linear', 'Bias', 'Activation']
    """

    def __init__(
        self,
        nout: int,
        init: Init,
        bias: Init | None = None,
        batch_norm: bool = False,
        activation: Transform | None = None,
        name: str | None = None,
        parallelism: str = "Disabled",
    ) -> None:
        super().__init__(bias=bias, batch_norm=batch_norm, activation=activation, name=name)
        self.append(Linear(nout, init, bsum=batch_norm, name=name, parallelism=parallelism))
        self.add_postfilter_layers()
