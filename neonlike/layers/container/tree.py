"""Networks with several outputs: a trunk with branches at its junctions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from neonlike.backends.backend import Tensor
from neonlike.checks import shown
from neonlike.errors import ArgumentError, DTypeError
from neonlike.layers.container.branches import adds_to_deltas, as_branches
from neonlike.layers.container.sequential import LayerContainer, Sequential
from neonlike.layers.core.base import Layer
from neonlike.layers.core.deltas import DeltasTree

if TYPE_CHECKING:
    from neonlike.layers.core.base import Layers, ShapeSource

__public_module__ = "neonlike.layers.container"


class Tree(LayerContainer):
    """A network with several outputs.

    Parameters
    ----------
    layers : list
        Branches: layers, lists of layers or Sequentials. The first is the trunk, which gets the input; each of the
        others begins with a :class:`BranchNode` of a branch listed before it.
    name : str, optional
        Name in listings and model files; by default the class's with a number.
    alphas : list of float, optional
        Factor of the error that each branch adds at its junction, 1 by default.

    Attributes
    ----------
    outputs, out_shape : list
        Outputs and their shapes, in the order of the branches.
    betas : list of float
        Factor of the error already in each branch's BranchNode: 0 for the branch that comes first in the backward
        pass, which visits the branches in reverse order, else 1.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.initializers import Constant
    >>> from neonlike.layers import BranchNode, Linear, Tree
    >>> be = gen_backend("cpu", batch_size=2)
    >>> node = BranchNode("fork of Tree")
    >>> layers = [Linear(2, Constant(1.0)), node, Linear(1, Constant(1.0))]
    >>> tree = Tree([layers, [node, Linear(1, Constant(2.0))]])
    >>> [y.tolist() for y in tree(be.ones((3, 2)))]
    [[[6.0, 6.0]], [[12.0, 12.0]]]
    """

    def __init__(self, layers: Layers, name: str | None = None, alphas: Sequence[float] | None = None) -> None:
        super().__init__(name)
        self.layers = as_branches(self.name, layers)
        if not self.layers:
            raise ArgumentError(f"{self.name}: the list of branches is empty; give a trunk at least")
        if alphas is not None and len(alphas) != len(self.layers):
            raise ArgumentError(f"{self.name}: {len(self.layers)} branches but {len(alphas)} alphas; give one each")
        self.alphas = [1.0] * len(self.layers) if alphas is None else list(alphas)
        roots = [branch.layers[0] for branch in self.layers[1:]]
        self._check_roots(roots)
        self.betas = [1.0, *(float(root in roots[i + 1 :]) for i, root in enumerate(roots))]
        self._roots = roots
        self.outputs: list[Any] = [None] * len(self.layers)

    def _check_roots(self, roots: list[Any]) -> None:
        for i, root in enumerate(roots, start=1):
            if not root.is_branch_node:
                raise ArgumentError(
                    f"{self.name}: branch {i} begins with {shown(root)}; it must begin with the BranchNode of the "
                    "place where it leaves another branch"
                )
            if not any(root in _nodes(branch) for branch in self.layers[:i]):
                raise ArgumentError(
                    f"{self.name}: branch {i} begins with the BranchNode '{root.name}', which is in no branch "
                    "listed before it; list the trunk first"
                )

    def configure(self, in_obj: ShapeSource) -> Layer:
        """Configure the trunk with the input, then the branches from their junctions."""
        super().configure(in_obj)
        for i, branch in enumerate(self.layers):
            branch.configure(None if i else in_obj)
            self._check_after_junctions(branch)
        for root in self._roots:
            root.has_branches = True
        self.out_shape = [branch.out_shape for branch in self.layers]
        return self

    def _check_after_junctions(self, branch: Sequential) -> None:
        for layer in branch.layers_fprop():
            at_junction = getattr(layer.prev_layer, "is_branch_node", False)
            if at_junction and not adds_to_deltas(layer):
                raise ArgumentError(
                    f"{self.name}: {layer.name} follows a BranchNode, but works in place or cannot add its error to "
                    "that of other branches; put a SkipNode before it"
                )

    def allocate(self, shared_outputs: Tensor | None = None) -> None:
        """Allocate the branches with outputs of their own; ``shared_outputs`` is not used."""
        for branch in self.layers:
            branch.allocate()
        self.outputs = [branch.outputs for branch in self.layers]

    def allocate_deltas(self, global_deltas: DeltasTree | None = None) -> None:
        """Register all branches with one tree of error buffers; without one, build and allocate a new tree."""
        tree = global_deltas if global_deltas is not None else DeltasTree()
        for branch in self.layers:
            branch.allocate_deltas(tree)
        if global_deltas is None:
            tree.allocate_buffers()
            self.set_deltas(tree)

    def set_deltas(self, delta_buffers: DeltasTree | list[Any]) -> None:
        """Give each layer its error buffer."""
        super().set_deltas(delta_buffers)
        self.deltas = self.layers[0].deltas

    def fprop(self, inputs: Any, inference: bool = False) -> Any:
        """Outputs of all branches, as a list.

        Parameters
        ----------
        inputs : Tensor
            Input of the trunk.
        inference : bool
            True outside of training: batches may be partial.
        """
        self.outputs = [branch.fprop(None if i else inputs, inference) for i, branch in enumerate(self.layers)]
        return self.outputs

    def bprop(self, error: Any) -> Any:
        """Backward pass, the last branch first.

        Parameters
        ----------
        error : list of Tensor
            Gradients of the cost with respect to the outputs.

        Returns
        -------
        Tensor or None
            Gradient with respect to the input; None if the tree is the whole network.
        """
        if not isinstance(error, list | tuple) or len(error) != len(self.layers):
            raise DTypeError(
                f"{self.name}.bprop: expected a list of {len(self.layers)} errors, one for each branch, got "
                f"{shown(error)}; use Multicost"
            )
        for i in range(len(self.layers) - 1, -1, -1):
            self.layers[i].bprop(error[i], self.alphas[i], self.betas[i] if i else 0.0)
        return self.deltas

    def get_terminal(self) -> list[Any]:
        """The last layers of the branches."""
        return [branch.get_terminal() for branch in self.layers]


class SingleOutputTree(Tree):
    """A :class:`Tree` with branches for training only: inference computes the trunk alone.

    Parameters
    ----------
    layers, name, alphas
        As of :class:`Tree`.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.initializers import Constant
    >>> from neonlike.layers import BranchNode, Linear, SingleOutputTree
    >>> be = gen_backend("cpu", batch_size=2)
    >>> node = BranchNode("fork of SingleOutputTree")
    >>> layers = [Linear(2, Constant(1.0)), node, Linear(1, Constant(1.0))]
    >>> tree = SingleOutputTree([layers, [node, Linear(1, Constant(2.0))]])
    >>> [y.tolist() for y in tree(be.ones((3, 2)))]
    [[[6.0, 6.0]], [[12.0, 12.0]]]
    >>> tree(be.ones((3, 2)), inference=True).tolist()
    [[6.0, 6.0]]
    """

    def fprop(self, inputs: Any, inference: bool = False) -> Any:
        """Outputs of all branches as a list; in inference the output of the trunk, a tensor.

        Parameters
        ----------
        inputs : Tensor
            Input of the trunk.
        inference : bool
            True outside of training: batches may be partial.
        """
        if not inference:
            return super().fprop(inputs, inference)
        return self.layers[0].fprop(inputs, inference)


def _nodes(layer: Layer) -> list[Any]:
    """The BranchNodes in a container and in its nested containers."""
    if isinstance(layer, LayerContainer):
        return [node for inner in layer.layers for node in _nodes(inner)]
    return [layer] if layer.is_branch_node else []
