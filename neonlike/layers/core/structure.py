"""Layers without arithmetic of their own: reshaping, identity, and the junctions of branched networks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from neonlike.backends.backend import Tensor
from neonlike.checks import brief, shown
from neonlike.errors import ArgumentError, DTypeError, ShapeError
from neonlike.layers.core.base import Layer, interpret_in_shape, require_input
from neonlike.layers.core.deltas import DeltasTree
from neonlike.layers.core.parts import viewed_as

if TYPE_CHECKING:
    from neonlike.layers.core.base import ShapeSource

__public_module__ = "neonlike.layers.layer"


class Reshape(Layer):
    """Give the activations another shape; a view, unless the input is not contiguous.

    Parameters
    ----------
    reshape : int or sequence of int
        New shape without the batch. A first entry 0 keeps that input dimension, and one entry −1 is inferred.
    name : str, optional
        Name in listings and model files; by default the class's with a number.

    Raises
    ------
    ArgumentError
        If an entry is no integer from −1, or more than one is −1.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.layers import Reshape
    >>> be = gen_backend("cpu", batch_size=2)
    >>> layer = Reshape((4, -1))
    >>> layer.configure((2, 6, 1)).out_shape
    (4, 3)
    """

    repeatable = True
    set_forward = frozenset(("inputs", "outputs"))

    def __init__(self, reshape: int | Sequence[int], name: str | None = None) -> None:
        super().__init__(name)
        sizes = (reshape,) if isinstance(reshape, int | np.integer) else tuple(reshape)
        if not sizes or not all(isinstance(size, int | np.integer) and size >= -1 for size in sizes):
            raise ArgumentError(f"Reshape: sizes must be integers from -1, got {brief(reshape)}")
        self.reshape = sizes
        if self.reshape.count(-1) > 1:
            raise ArgumentError(f"Reshape: {self.reshape} has more than one -1; only one size can be inferred")
        self.owns_output = False
        self.in_shape_t: tuple[int, int] = (0, 0)
        self.out_shape_t: tuple[int, int] = (0, 0)

    @property
    def needs_outputs(self) -> bool:  # type: ignore[override]
        """Whether the previous layer needs its outputs, since they share memory."""
        return bool(getattr(self.prev_layer, "needs_outputs", False))

    def __str__(self) -> str:
        return f"Reshape Layer '{self.name}': {self.in_shape} -> {self.out_shape}"

    def configure(self, in_obj: ShapeSource) -> Layer:
        """Resolve the entries 0 and −1 from the input shape.

        Raises
        ------
        ShapeError
            If the number of elements differs.
        """
        super().configure(in_obj)
        in_shape = (self.in_shape,) if isinstance(self.in_shape, int) else tuple(self.in_shape)
        new = list(self.reshape)
        if new[0] == 0:
            new[0] = in_shape[0]
        total = int(np.prod(in_shape))
        if -1 in new:
            known = -int(np.prod(new))
            new[new.index(-1)] = total // known if known > 0 else 0
        if int(np.prod(new)) != total:
            raise ShapeError(
                f"{self.name}: cannot reshape {in_shape} of {total} elements to {self.reshape}; "
                "the number of elements must stay"
            )
        self.out_shape = tuple(new)
        self.in_shape_t, self.out_shape_t = (self._buffer_shape(s, self.be.bsz) for s in (in_shape, self.out_shape))
        return self

    @staticmethod
    def _buffer_shape(shape: tuple[int, ...], samples: int) -> tuple[int, int]:
        if len(shape) == 2:
            return shape[0], shape[1] * samples
        return int(np.prod(shape)), samples

    def fprop(self, inputs: Tensor, inference: bool = False) -> Tensor:
        """View of the inputs in the new shape; inference accepts partial batches.

        Parameters
        ----------
        inputs : Tensor
            ``(features, steps * N)``.
        inference : bool
            True outside of training: batches may be partial.
        """
        if not inputs.is_contiguous:
            contiguous = self.be.empty(inputs.shape, dtype=inputs.dtype)
            contiguous[:] = inputs
            inputs = contiguous
        self.inputs = inputs
        shape = self.out_shape_t
        if inference:
            shape = self._buffer_shape(self.out_shape, inputs.size // int(np.prod(self.out_shape)))
        self.outputs = viewed_as(self, "outputs", inputs, shape)
        return self.outputs

    def bprop(self, error: Tensor) -> Tensor:
        """View of the error in the old shape.

        Parameters
        ----------
        error : Tensor
            Gradient of the cost by the outputs, in their shape.
        """
        self.deltas = viewed_as(self, "deltas", error, self.in_shape_t)
        return self.deltas


class SkipNode(Layer):
    """Identity with buffers of its own: the shortcut of a residual block.

    Parameters
    ----------
    name : str, optional
        Name in listings and model files; by default the class's with a number.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.layers import SkipNode
    >>> be = gen_backend("cpu", batch_size=2)
    >>> SkipNode()(be.ones((1, 2))).tolist()
    [[1.0, 1.0]]
    """

    repeatable = True

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name)
        self.owns_delta = True

    def configure(self, in_obj: ShapeSource) -> Layer:
        """Set the output shape to the input shape."""
        super().configure(in_obj)
        self.out_shape = self.in_shape
        return self

    def fprop(self, inputs: Tensor, inference: bool = False, beta: float = 0.0) -> Tensor:
        """outputs = inputs + beta · outputs.

        Parameters
        ----------
        inputs : Tensor
            ``(features, N)``.
        inference : bool
            True outside of training: batches may be partial.
        beta : float
            Factor of the previous outputs; 0 overwrites them.
        """
        inputs, outputs = require_input(self, inputs, interpret_in_shape(self.in_shape)[0], inference)
        self.inputs = inputs
        self.be.fprop_skipnode(inputs, outputs, beta)
        return outputs

    def bprop(self, error: Tensor, alpha: float = 1.0, beta: float = 0.0) -> Tensor | None:
        """deltas = alpha · error + beta · deltas.

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
        if self.deltas is not None:
            self.be.bprop_skipnode(error, self.deltas, alpha, beta)
        return self.deltas


class BranchNode(Layer):
    """Marks a junction of a network: it is listed in the trunk and at the head of each branch.

    Constructing a second node of the same name (also None) returns the same object.

    Parameters
    ----------
    name : str, optional
        Name of the junction; equal names are one node.

    Attributes
    ----------
    has_branches : bool
        Whether branches start here and have added their errors to ``deltas`` before the trunk's: set by Tree.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.layers import BranchNode
    >>> be = gen_backend("cpu", batch_size=2)
    >>> BranchNode("fork") is BranchNode("fork")
    True
    """

    instances: ClassVar[dict[str | None, BranchNode]] = {}
    is_branch_node = needs_outputs = True
    has_branches = False

    def __new__(cls, name: str | None = None) -> BranchNode:
        if name is not None and not isinstance(name, str):
            raise DTypeError(f"BranchNode: name must be a string or None, got {shown(name)}")
        if name not in cls.instances:
            cls.instances[name] = super().__new__(cls)
        return cls.instances[name]

    def __init__(self, name: str | None = None) -> None:
        if hasattr(self, "owns_output"):  # the existing object
            return
        super().__init__(name)
        self.owns_output = False

    def configure(self, in_obj: ShapeSource) -> Layer:
        """Take the shape of the trunk; None reuses the known shape."""
        if in_obj is not None:
            super().configure(in_obj)
            self.out_shape = self.in_shape
            self.deltas = None
            self.has_branches = False
        elif self.in_shape is None:
            raise ArgumentError(
                f"BranchNode '{self.name}': a branch starts here before the trunk has passed; list the trunk, "
                "which contains the node, first"
            )
        return self

    def set_deltas(self, delta_buffers: DeltasTree | list[Any]) -> None:
        """Allocate an error buffer for the trunk and all branches to add to.

        It is separate from the tree's two buffers: the trunk behind the node uses both of them between the first and
        the last branch's additions to this one.
        """
        if self.deltas is None:
            self.deltas = self.be.iobuf(self.in_shape, parallelism=self.parallelism)
            DeltasTree.of(delta_buffers).swap()

    def fprop(self, inputs: Tensor | None = None, inference: bool = False) -> Tensor:
        """Keep the trunk's activations and return them; None returns the kept ones.

        Parameters
        ----------
        inputs : Tensor, optional
            Activations of the trunk.
        inference : bool
            True outside of training: batches may be partial.
        """
        if inputs is not None:
            self.inputs = self.outputs = inputs
        return self.outputs

    def bprop(self, error: Tensor, alpha: float = 1.0, beta: float = 0.0) -> Tensor:
        """Return the error unchanged.

        Parameters
        ----------
        error : Tensor
            Gradient of the cost by the outputs, in their shape.
        alpha, beta : float
            Not used: a Tree scales what branches add.
        """
        return error
