"""Containers that merge branches: what ``MergeSum`` and ``MergeBroadcast`` have their branches do, in which order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from neonlike.backends.families.base import Family
from neonlike.checks import require_method
from neonlike.errors import ArgumentError


class MergeFamily(Family):
    """``fprop_mergesum`` and ``fprop_mergebroadcast`` with their backward forms.

    Branches are layers or containers: ``fprop(inputs, inference, beta=)`` and ``bprop(error, alpha=, beta=)``. They
    write into buffers that they were given when they were allocated; ``beta`` says what is kept of them.
    """

    def fprop_mergesum(
        self, ngLayer: Any, inputs: Any, inference: bool, layers: Sequence[Any], outputs: Any, out_shape: Any
    ) -> None:
        """Add up branches in the one buffer ``outputs`` that all write to: the first replaces it (beta 0).

        Parameters
        ----------
        ngLayer : object or None
            Engine object of the container; none is needed.
        inputs : tensor
            What each branch receives.
        inference : bool
        layers : sequence of branches, which share the output buffer
        outputs : tensor
            That buffer.
        out_shape : tuple
            Its shape without the batch.
        """
        _check_branches("fprop_mergesum", layers, "fprop")
        for position, layer in enumerate(layers):
            layer.fprop(inputs, inference, beta=1.0 if position else 0.0)

    def bprop_mergesum(
        self, ngLayer: Any, alpha: float, beta: float, layers: Sequence[Any], error: Any, deltas: Any
    ) -> None:
        """Send one error through all branches, the last first, adding up in the one buffer ``deltas``.

        Parameters
        ----------
        alpha, beta : float
            deltas = alpha * sum of the branches' gradients + beta * deltas.
        layers : sequence of branches, which share the delta buffer
        error : tensor
            What each branch receives.
        deltas : tensor
            That buffer.
        """
        _check_branches("bprop_mergesum", layers, "bprop")
        for position, layer in enumerate(reversed(layers)):
            layer.bprop(error, alpha=alpha, beta=1.0 if position else beta)

    def fprop_mergebroadcast(
        self, ngLayer: Any, inputs: Any, inference: bool, outputs: Any, layers: Sequence[Any], out_shape: Any
    ) -> None:
        """Run all branches on one input; each writes its own part of ``outputs``.

        Parameters
        ----------
        ngLayer : object or None
            Engine object of the container; none is needed.
        inputs : tensor
            What each branch receives.
        inference : bool
        outputs : tensor
            The buffer of which each branch has a view.
        layers : sequence of branches
        out_shape : tuple
            The buffer's shape without the batch.
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
        """Send each branch its part of the error, the last branch first, adding up in the one buffer ``delta``.

        Parameters
        ----------
        layers : sequence of branches, which share the delta buffer
        error_views : sequence of tensors
            Each branch's part of ``error``.
        error, delta : tensors
            The whole error, and that buffer.
        alpha, beta : float
            Scale of what is added, and of what ``delta`` held.
        alphas : sequence of float
            A further factor for each branch.
        betas : list of float
            What each branch keeps of ``delta``; the last entry, which comes first, becomes ``beta``, in place.

        Raises
        ------
        ArgumentError
            If the sequences have different lengths; nothing was run.
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
