"""Multi-head self-attention over the steps of a sequence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from neonlike.backends.backend import Tensor
from neonlike.backends.geometry.products import ProductSizes
from neonlike.errors import ArgumentError, ShapeError
from neonlike.initializers import Constant
from neonlike.kernels.run.depends import Dependent
from neonlike.layers.core.base import Layer, interpret_in_shape, require_input, require_size
from neonlike.layers.core.parameter import ParameterLayer

if TYPE_CHECKING:
    from neonlike.initializers.initializer import Init
    from neonlike.layers.core.base import ShapeSource

__public_module__ = "neonlike.layers.layer"

HEADS_FIRST = (0, 1, 4, 3, 2)
"""Permutations from (3, heads, size, steps, N) to (3, heads, N, steps, size) and back."""


class MultiHeadAttention(ParameterLayer):
    """Multi-head self-attention: each step becomes a mean of all steps, weighted by the match of query and key.

    With x ``(features, steps)`` of a sample, for each head: queries, keys, values = rows of W · x + bias; outputs =
    W_out · (values · softmax(keysᵀ · queries / sqrt(size)), concatenated over heads) + bias_out.

    Parameters
    ----------
    heads : int
        Number of heads; a divisor of the number of features.
    init : Initializer or array
        Initializer of ``W`` (3 · features, features), with queries first, then keys, then values, by heads; and
        ``W_out``.
    nout : int, optional
        Rows of the output; by default the number of features.
    causal : bool
        Restrict each step to itself and earlier steps.
    bias : Initializer, optional
        Initializer of both biases, 0 by default.
    name : str, optional
        Name in listings and model files; by default the class's with a number.

    Attributes
    ----------
    W, W_out, bias_in, bias_out : Tensor
        Parameters; ``dW``, ``dW_out``, ``grad_bias_in`` and ``grad_bias_out`` are their gradients.

    Raises
    ------
    ShapeError
        By ``configure``, if ``heads`` does not divide the number of features.

    References
    ----------
    Vaswani et al., "Attention is all you need" (2017), section 3.2.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.initializers import Constant
    >>> from neonlike.layers import MultiHeadAttention
    >>> be = gen_backend("cpu", batch_size=2)
    >>> layer = MultiHeadAttention(heads=2, init=Constant(0.25))
    >>> layer(be.ones((4, 3, 2))).shape  # features, steps, samples
    (4, 3, 2)
    """

    repeatable = True

    def __init__(
        self,
        heads: int,
        init: Init,
        nout: int | None = None,
        causal: bool = False,
        bias: Init | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(init, name)
        self.heads = require_size(heads, "MultiHeadAttention: heads")
        self.nout = nout if nout is None else require_size(nout, "MultiHeadAttention: nout")
        self.causal, self.bias = causal, bias
        self.nin = self.nsteps = 0
        self.W_out: Any = None
        self.dW_out: Any = None
        self.bias_in: Any = None
        self.grad_bias_in: Any = None
        self.bias_out: Any = None
        self.grad_bias_out: Any = None
        self.states = [[] for _ in range(4)]
        self._work: Any = None
        self._part: Any = None

    def __str__(self) -> str:
        return f"MultiHeadAttention Layer '{self.name}': {self.heads} heads, {self.in_shape} -> {self.out_shape}"

    def configure(self, in_obj: ShapeSource) -> Layer:
        """Input ``(features, steps)``; the output is ``(nout, steps)``."""
        super().configure(in_obj)
        self.nin, self.nsteps = interpret_in_shape(self.in_shape)
        if self.nin % self.heads:
            raise ShapeError(f"{self.name}: {self.heads} heads do not divide the {self.nin} features of the input")
        self.out_shape = (self.nin if self.nout is None else self.nout, self.nsteps)
        self.weight_shape = (3 * self.nin, self.nin)
        return self

    def products(self, backward: bool = False) -> list[tuple[Any, str]]:
        """See :meth:`Layer.products`: the two of weights, and the attention between them."""
        be, features, steps = self.be, self.nin, self.nsteps
        columns, dtype = steps * be.bsz, be.default_np_dtype
        sizes = be.attention_layer(None, be.bsz, self.heads, steps, features // self.heads, causal=self.causal)
        return [
            (ProductSizes(3 * features, features, columns, dtype), ""),
            (sizes, "bprop" if backward else "fprop"),
            (ProductSizes(self.out_shape[0], features, columns, dtype), ""),
        ]

    def allocate(self, shared_outputs: Tensor | None = None, accumulate_updates: bool = False) -> None:
        """Create the buffers, and the parameters unless they exist; see :class:`ParameterLayer`."""
        super().allocate(shared_outputs, accumulate_updates)
        shift = Constant(0.0) if self.bias is None else self.bias
        rows = self.out_shape[0]
        for name, shape, init in (
            ("W_out", (rows, self.nin), self.init),
            ("bias_in", (3 * self.nin, 1), shift),
            ("bias_out", (rows, 1), shift),
        ):
            if getattr(self, name) is None:
                setattr(self, name, self.new_parameter(shape, init))
            if getattr(self, _gradient(name)) is None:
                setattr(self, _gradient(name), self.gradient_of(getattr(self, name)))
        if accumulate_updates:
            self.acc_params = [(self.be.empty_like(grad), grad) for (_, grad), _ in self.get_params()]
        if self._work is None or self._work.steps != self.nsteps or self._work.samples != self.be.bsz:
            self._work = _Workspace(self, self.be.bsz)

    def init_params(self, shape: Any) -> None:
        """Create the first weight and its gradient and fill the weight."""
        super().init_params(shape)
        self.states = [[] for _ in range(4)]

    def parameter_names(self) -> tuple[str, ...]:
        """Attributes saved as parameters."""
        return "W", "W_out", "bias_in", "bias_out"

    def get_params(self) -> Any:
        """A list of ``((parameter, gradient), states)`` in the order of :meth:`parameter_names`."""
        pairs = [(getattr(self, name), getattr(self, _gradient(name))) for name in self.parameter_names()]
        return list(zip(pairs, self.states, strict=True))

    def fprop(self, inputs: Tensor, inference: bool = False, beta: float = 0.0) -> Tensor:
        """outputs = attention of the inputs + beta · outputs; in inference of fewer samples than a batch, too.

        Parameters
        ----------
        inputs : Tensor
            ``(features, steps * N)``.
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
        be, w = self.be, self._workspace(outputs.shape[1] // self.nsteps)
        be.compound_dot(self.W, inputs, w.projected)
        w.projected[:] = w.projected + self.bias_in  # apart: a transposing copy of a sum takes twice as long
        be.copy_transpose(w.apart, w.heads, HEADS_FIRST)
        be.fprop_attention(w.sizes, w.queries, w.keys, w.values, w.mixed, w.lse)
        be.copy_transpose(w.mixed_apart, w.joined_apart, (0, 3, 2, 1))
        be.compound_dot(self.W_out, w.joined, outputs, beta=beta)
        outputs[:] = outputs + self.bias_out
        return outputs

    @Layer.accumulates
    def bprop(self, error: Tensor, alpha: float = 1.0, beta: float = 0.0) -> Tensor | None:
        """deltas = alpha · data gradient + beta · deltas; gradients of the weights and biases.

        Parameters
        ----------
        error : Tensor
            Gradient of the cost by the outputs, ``(nout, steps * N)``.
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
        if self.inputs is None:
            raise ArgumentError(f"{self.name}.bprop: there are no inputs to take the gradient by; call fprop first")
        be, w = self.be, self._work
        be.compound_dot(error, w.joined.T, self.dW_out)
        be.sum(error, axis=1, out=self.grad_bias_out)
        be.compound_dot(self.W_out.T, error, w.joined_error)
        be.copy_transpose(w.joined_error_apart, w.mixed_error_apart, (0, 3, 2, 1))
        be.bprop_attention(w.sizes, w.queries, w.keys, w.values, w.mixed, w.lse, w.mixed_error, *w.errors)
        be.copy_transpose(w.errors_heads, w.apart, HEADS_FIRST)
        be.compound_dot(w.projected, self.inputs.T, self.dW)
        be.sum(w.projected, axis=1, out=self.grad_bias_in)
        if self.deltas is not None:
            be.compound_dot(self.W.T, w.projected, self.deltas, alpha=alpha, beta=beta)
        return self.deltas

    def _workspace(self, samples: int) -> _Workspace:
        """The workspace of a batch, or of the given number of samples."""
        if samples == self._work.samples:
            whole: _Workspace = self._work
            return whole
        if self._part is None or self._part.samples != samples:
            self._part = _Workspace(self, samples)
        part: _Workspace = self._part
        return part


class _Workspace(Dependent):
    """Memory of a call for ``samples`` samples, and views of it.

    Attributes
    ----------
    projected : Tensor (3 features, steps N)
        Queries, keys and values, and their errors in the backward pass. ``apart``: (3, heads, size, steps, N).
    queries, keys, values : Tensor (heads N, steps, size)
        ``heads`` is all three, (3, heads, N, steps, size).
    sizes : AttentionGeometry
        Geometry for the backend's attention primitive.
    lse : Tensor (heads N, steps)
        Log-sum-exp of the scores; the backward pass recomputes the larger attention weights from it.
    mixed, joined : Tensor (heads N, steps, size), (features, steps N)
        Weighted means, and the same in the layout of the last product; ``mixed_error``, ``joined_error``: errors.
    errors : list of Tensor
        Errors of queries, keys and values.
    """

    def __init__(self, layer: MultiHeadAttention, samples: int) -> None:
        be, heads, steps = layer.be, layer.heads, layer.nsteps
        size = layer.nin // heads
        self.samples, self.steps = samples, steps
        self.sizes = be.attention_layer(None, samples, heads, steps, size, causal=layer.causal)
        self.projected = be.empty((3 * layer.nin, steps * samples))
        self.apart = self.projected.viewed(3, heads, size, steps, samples)
        self.heads, self.errors_heads = (be.empty((3, heads, samples, steps, size)) for _ in range(2))
        self.queries, self.keys, self.values = self._thirds(self.heads, heads * samples, steps, size)
        self.errors = self._thirds(self.errors_heads, heads * samples, steps, size)
        self.lse = be.empty((heads * samples, steps), dtype=self.sizes.lse_dtype)
        self.mixed, self.mixed_error = (be.empty((heads * samples, steps, size)) for _ in range(2))
        self.mixed_apart, self.mixed_error_apart = (
            whole.viewed(heads, samples, steps, size) for whole in (self.mixed, self.mixed_error)
        )
        self.joined, self.joined_error = (be.empty((layer.nin, steps * samples)) for _ in range(2))
        self.joined_apart, self.joined_error_apart = (
            whole.viewed(heads, size, steps, samples) for whole in (self.joined, self.joined_error)
        )

    @staticmethod
    def _thirds(whole: Tensor, *shape: int) -> list[Tensor]:
        parts = whole.viewed(3 * shape[0], *shape[1:])
        return [parts[i * shape[0] : (i + 1) * shape[0]] for i in range(3)]


def _gradient(name: str) -> str:
    return f"d{name}" if name.startswith("W") else f"grad_{name}"
