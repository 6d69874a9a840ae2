"""Branches of containers: chains that share an input and an error buffer with the chains beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from neonlike.backends.backend import Tensor
from neonlike.checks import is_iterable, shown
from neonlike.errors import DTypeError
from neonlike.kernels.run.depends import Dependent
from neonlike.layers.container.sequential import LayerContainer, Sequential
from neonlike.layers.core.structure import SkipNode
from neonlike.nervanaobject import get_args

if TYPE_CHECKING:
    from neonlike.layers.core.base import Layer, Layers, ShapeSource

__public_module__ = "neonlike.layers.container"


def as_branch(layers: Layers) -> Sequential:
    """Return a chain unchanged, and wrap a layer or a list of layers in a chain."""
    return layers if isinstance(layers, Sequential) else Sequential(layers)


def as_branches(name: str, layers: Any) -> list[Sequential]:
    """Each of ``layers`` as a chain; ``name`` is the container's, for the message.

    Raises
    ------
    DTypeError
        If they are no list.
    """
    if not is_iterable(layers):
        raise DTypeError(f"{name}: layers must be a list of branches, got {shown(layers)}")
    return [as_branch(branch) for branch in layers]


def chain(layer: Layer) -> list[Any]:
    """List the layers of a chain in order, with nested chains flattened; another layer becomes a list of one."""
    if not isinstance(layer, Sequential):
        return [layer]
    return [entry for inner in layer.layers for entry in chain(inner)]


def adds_to_deltas(layer: Layer) -> bool:
    """Whether ``bprop(error, alpha, beta)`` of a layer adds to an error buffer of its own."""
    return bool(layer.owns_delta) and "beta" in get_args(layer.bprop)


def adds_to_outputs(layer: Layer) -> bool:
    """Whether ``fprop(inputs, inference, beta)`` of a layer adds to its outputs and does not read them later."""
    return not isinstance(layer, LayerContainer) and "beta" in get_args(layer.fprop)


def overwrites_error(branch: Any) -> bool:
    """Whether the backward pass of a branch modifies its incoming error."""
    for layer in reversed(chain(branch)):
        if isinstance(layer, LayerContainer):
            return any(overwrites_error(inner) for inner in layer.layers)
        if layer.overwrites_error or layer.owns_delta:
            return bool(layer.overwrites_error)
    return False


def note_deltas(branch: Any) -> None:
    """Pass the error buffer of a nested chain's first layer on to the chain itself."""
    if isinstance(branch, Sequential):
        for layer in branch.layers:
            note_deltas(layer)
        branch.deltas = chain(branch)[0].deltas


class Run(Dependent):
    """Runs one branch of a container, with copies of buffers that it cannot share with other branches.

    Parameters
    ----------
    branch : Sequential
        The branch.

    Attributes
    ----------
    head : SkipNode or None
        Identity layer before a first layer that works in place on its input or cannot add to an error buffer.
    copies_error : bool
        Whether the branch gets a copy of the error; set if it modifies the error before other branches read it.
    """

    def __init__(self, branch: Sequential) -> None:
        self.branch = branch
        first = chain(branch)[0]
        alone = first.several_inputs or (first.owns_output and adds_to_deltas(first))
        self.head = None if alone else SkipNode(f"{branch.name}_head")
        self.copies_error = False
        self._error: Any = None

    def layers(self) -> list[Any]:
        """The layers in order, the head included."""
        return [*([] if self.head is None else [self.head]), *chain(self.branch)]

    def configure(self, in_obj: ShapeSource) -> None:
        """Configure the branch for the container's input."""
        self.branch.configure(in_obj if self.head is None else self.head.configure(in_obj))

    def allocate(self, shared_outputs: Tensor | None = None) -> None:
        """Allocate the branch."""
        if self.head is not None:
            self.head.allocate()
        self.branch.allocate(shared_outputs)

    def fprop(self, inputs: Any, inference: bool = False, beta: float = 0.0) -> Any:
        """Forward pass; ``beta`` goes to the last layer.

        Parameters
        ----------
        inputs : Tensor
            Input of the container.
        inference : bool
            True outside of training: batches may be partial.
        beta : float
            Factor of the previous outputs; 0 overwrites them.
        """
        x = inputs if self.head is None else self.head.fprop(inputs, inference)
        return self.branch.fprop(x, inference, beta)

    def bprop(self, error: Any, alpha: float = 1.0, beta: float = 0.0) -> Any:
        """Backward pass into the error buffer shared by all branches.

        Parameters
        ----------
        error : Tensor
            Gradient of the cost by the outputs of the branch.
        alpha, beta : float
            deltas = alpha · gradient + beta · deltas.

        Returns
        -------
        Tensor or None
            ``deltas``, shared by all branches.
        """
        if self.copies_error:
            error = self._copy(error)
        if self.head is None:
            return self.branch.bprop(error, alpha, beta)
        inner, deltas = self.branch.bprop(error), self.head.deltas
        if inner is not None:
            return self.head.bprop(inner, alpha, beta)
        if deltas is not None:  # the branch begins with a transform of the data, which returns no error
            deltas[:] = deltas * beta if beta else 0
        return deltas

    def _copy(self, error: Tensor) -> Tensor:
        if self._error is None or self._error.shape != error.shape:
            self._error = error.backend.empty(error.shape, dtype=error.dtype)
        self._error[:] = error
        return self._error
