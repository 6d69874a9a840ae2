"""Merging containers: the order in which ``MergeSum`` and ``MergeBroadcast`` run their branches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from neonlike.backends.family import Family
from neonlike.checks import require_method
from neonlike.errors import ArgumentError


class MergeFamily(Family):
    """``fprop_mergesum`` and ``fprop_mergebroadcast`` with their backward forms.

    Branches are layers or containers: ``fprop(inputs, inference, beta=)`` and ``bprop(error, alpha=, beta=)``. They
    write into buffers assigned at allocation; ``beta`` is the factor of the old contents.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> be.fprop_mergebroadcast(None, be.ones((1, 2)), False, None, [], (1,))
    """

    def fprop_mergesum(
        self, ngLayer: Any, inputs: Any, inference: bool, layers: Sequence[Any], outputs: Any, out_shape: Any
    ) -> None:
        """Add up branches in the shared buffer ``outputs``: the first replaces its contents (beta 0).

        Parameters
        ----------
        ngLayer : object or None
            Engine object of the container; not used.
        inputs : tensor
            Input of each branch.
        inference : bool
            Passed to the branches: False in training.
        layers : sequence of branches, which share the output buffer
        outputs : tensor
            The shared output buffer.
        out_shape : tuple
            Shape of the buffer without the batch.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> class Branch:
        ...     def __init__(self, outputs):
        ...         self.outputs = outputs
        ...     def fprop(self, inputs, inference, beta=0.0):
        ...         self.outputs[:] = inputs + beta * self.outputs
        >>> be = gen_backend("cpu")
        >>> outputs = be.empty((1, 2))
        >>> branches = [Branch(outputs), Branch(outputs)]
        >>> be.fprop_mergesum(None, be.ones((1, 2)), False, branches, outputs, (1,))
        >>> outputs.tolist()
        [[2.0, 2.0]]
        """
        _check_branches("fprop_mergesum", layers, "fprop")
        for position, layer in enumerate(layers):
            layer.fprop(inputs, inference, beta=1.0 if position else 0.0)

    def bprop_mergesum(
        self, ngLayer: Any, alpha: float, beta: float, layers: Sequence[Any], error: Any, deltas: Any
    ) -> None:
        """Propagate one error through all branches, last first, accumulating in the shared buffer ``deltas``.

        Parameters
        ----------
        ngLayer : object or None
            Engine object of the container; not used.
        alpha, beta : float
            deltas = alpha * sum of the branches' gradients + beta * deltas.
        layers : sequence of branches, which share the delta buffer
        error : tensor
            Error at each branch.
        deltas : tensor
            The shared delta buffer.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> class Branch:
        ...     def __init__(self, deltas):
        ...         self.deltas = deltas
        ...     def bprop(self, error, alpha=1.0, beta=0.0):
        ...         self.deltas[:] = alpha * error + beta * self.deltas
        >>> be = gen_backend("cpu")
        >>> deltas = be.empty((1, 2))
        >>> be.bprop_mergesum(None, 1.0, 0.0, [Branch(deltas), Branch(deltas)], be.ones((1, 2)), deltas)
        >>> deltas.tolist()
        [[2.0, 2.0]]
        """
        _check_branches("bprop_mergesum", layers, "bprop")
        for position, layer in enumerate(reversed(layers)):
            layer.bprop(error, alpha=alpha, beta=1.0 if position else beta)

    def fprop_mergebroadcast(
        self, ngLayer: Any, inputs: Any, inference: bool, outputs: Any, layers: Sequence[Any], out_shape: Any
    ) -> None:
        """Run all branches on one input; each writes its part of ``outputs``.

        Parameters
        ----------
        ngLayer : object or None
            Engine object of the container; not used.
        inputs : tensor
            Input of each branch.
        inference : bool
            Passed to the branches: False in training.
        outputs : tensor
            The buffer that contains each branch's view.
        layers : sequence of branches
        out_shape : tuple
            Shape of the buffer without the batch.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> class Branch:
        ...     def __init__(self, outputs):
        ...         self.outputs = outputs
        ...     def fprop(self, inputs, inference):
        ...         self.outputs[:] = inputs
        >>> be = gen_backend("cpu")
        >>> outputs = be.empty((2, 2))
        >>> branches = [Branch(outputs[:1]), Branch(outputs[1:])]
        >>> be.fprop_mergebroadcast(None, be.ones((1, 2)), False, outputs, branches, (2,))
        >>> outputs.tolist()
        [[1.0, 1.0], [1.0, 1.0]]
        """
        _check_branches("fprop_mergebroadcast", layers, "fprop")
        for layer in layers:
            layer.fprop(inputs, inference)

    def bprop_mergebroadcast(
        self,
        ngLayer: Any,
        layers: Sequence[Any],
        error_views: Sequence[Any],
        error: Any,
        delta: Any,
        out_shape: Any,
        alpha: float,
        beta: float,
        alphas: Sequence[float],
        betas: list[float],
    ) -> None:
        """Propagate each branch's part of the error, last branch first, accumulating in the shared buffer ``delta``.

        Parameters
        ----------
        ngLayer, out_shape
            Not used.
        layers : sequence of branches, which share the delta buffer
        error_views : sequence of tensors
            Each branch's part of ``error``.
        error, delta : tensors
            The whole error, and the shared delta buffer.
        alpha, beta : float
            Factors of the branches' gradients, and of the old ``delta``.
        alphas : sequence of float
            An additional factor for each branch.
        betas : list of float
            Each branch's factor of ``delta``; the last entry, which runs first, is set to ``beta``, in place.

        Raises
        ------
        ArgumentError
            If the sequences have different lengths; nothing was run.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> class Branch:
        ...     def __init__(self, delta):
        ...         self.delta = delta
        ...     def bprop(self, error, alpha=1.0, beta=0.0):
        ...         self.delta[:] = alpha * error + beta * self.delta
        >>> be = gen_backend("cpu")
        >>> error, delta = be.array([[1.], [2.]]), be.zeros((1, 1))
        >>> branches, parts = [Branch(delta), Branch(delta)], [error[:1], error[1:]]
        >>> be.bprop_mergebroadcast(None, branches, parts, error, delta, (2,), 1.0, 0.0, [1.0, 1.0], [1.0, 1.0])
        >>> delta.item()
        3.0
        """
        counts = [len(layers), len(error_views), len(alphas), len(betas)]
        if len(set(counts)) != 1:
            raise ArgumentError(
                f"bprop_mergebroadcast: {counts[0]} layers need as many error views, alphas and betas, "
                f"got {counts[1]}, {counts[2]} and {counts[3]}"
            )
        _check_branches("bprop_mergebroadcast", layers, "bprop")
        if betas:
            betas[-1] = beta
        for layer, part, factor, kept in reversed(list(zip(layers, error_views, alphas, betas))):
            layer.bprop(part, alpha=factor * alpha, beta=kept)


def _check_branches(operation: str, layers: Sequence[Any], method: str) -> None:
    for layer in layers:
        require_method(operation, "each of layers", layer, method, "a layer")
