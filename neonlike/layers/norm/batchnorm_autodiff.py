"""Batch normalization as expressions, differentiated automatically."""

from __future__ import annotations

from typing import Any

from neonlike.backends import Autodiff
from neonlike.backends.backend import Tensor
from neonlike.errors import ArgumentError
from neonlike.layers.core.base import Layer, require_input
from neonlike.layers.norm.normalization import BatchNorm
from neonlike.optree.functions import standardized

__public_module__ = "neonlike.layers.layer"


class BatchNormAutodiff(BatchNorm):
    """:class:`BatchNorm` from expressions alone: an example of a layer that defines only its forward pass.

    Parameters
    ----------
    rho, eps
        As of :class:`BatchNorm`.
    name : str, optional
        Name in listings and model files; by default the class's with a number.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.layers import BatchNormAutodiff
    >>> be = gen_backend("cpu", batch_size=2)
    >>> layer = BatchNormAutodiff()
    >>> layer(be.array([[1.0, 3.0]])).get().round(3).tolist()
    [[-1.0, 1.0]]
    """

    def __init__(self, rho: float = 0.99, eps: float = 1e-6, name: str | None = None) -> None:
        super().__init__(rho, eps, name)
        self._tree: Any = None
        self._tree_of: Any = None

    def _by_map(self, buffer: Tensor) -> Tensor:
        return buffer if buffer.shape[0] == self.nfm else buffer.viewed(self.nfm, -1)

    def get_forward_optree(self) -> Any:
        """Expression of the training outputs for the last inputs, (features, columns)."""
        if self.inputs is None:
            raise ArgumentError(f"{self.name}: there are no inputs to normalize; call fprop first")
        if self._tree_of is not self.inputs:
            x = self._by_map(self.inputs)
            normal = standardized(x, 1, self.eps)
            self._tree, self._tree_of, self.x = self.gamma * normal + self.beta, self.inputs, x
        return self._tree

    def fprop(self, inputs: Tensor, inference: bool = False, beta: float = 0.0) -> Tensor:
        """outputs = normalized inputs + beta · outputs; inference accepts partial batches.

        Parameters
        ----------
        inputs : Tensor
            ``(features, N)``.
        inference : bool
            True outside of training: batches may be partial.
        beta : float
            Factor of the previous outputs; 0 overwrites them.
        """
        if self.be.sync_batchnorm and self.be.num_ranks > 1:
            raise ArgumentError(f"{self.name}: its statistics cannot be those of all ranks; use BatchNorm")
        inputs, outputs = require_input(self, inputs, self._rows, inference)
        self.inputs = inputs
        be, target = self.be, self._by_map(outputs)
        if inference:
            tree = self.gamma * (self._by_map(inputs) - self.gmean) / be.sqrt(self.gvar + self.eps) + self.beta
        else:
            tree = self.get_forward_optree()
            self.gmean[:] = self.gmean * self.rho + (1 - self.rho) * be.mean(self.x, axis=1)
            self.gvar[:] = self.gvar * self.rho + (1 - self.rho) * be.var(self.x, axis=1)
        target[:] = tree + beta * target if beta else tree
        return outputs

    @Layer.accumulates
    def bprop(self, error: Tensor, alpha: float = 1.0, beta: float = 0.0) -> Tensor | None:
        """deltas = alpha · data gradient + beta · deltas; gradients of gamma and beta.

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
        """
        tree = self.get_forward_optree()
        gradients = Autodiff(tree, self.be, next_error=self._by_map(error)).get_grad_op_tree(
            [self.x, self.gamma, self.beta]
        )
        self.grad_gamma[:], self.grad_beta[:] = gradients[1:]
        if self.deltas is not None:
            deltas = self._by_map(self.deltas)
            scaled = gradients[0] if alpha == 1 else alpha * gradients[0]
            deltas[:] = scaled + beta * deltas if beta else scaled
        return self.deltas
