"""Containers of parallel branches, with one common input or one input each, and outputs summed or concatenated.

Error buffers: the container and the first layer of each branch share one buffer of their error tree, and the branches
add their errors to it. All other layers use the pair of buffers in the child tree, one branch after the other. A
container that is the first layer of a branch uses one level deeper, because both are in use at the same time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from neonlike.backends.backend import Tensor
from neonlike.checks import brief, shown
from neonlike.errors import ArgumentError, DTypeError, ShapeError
from neonlike.layers.container.branches import Run, adds_to_outputs, as_branches, chain, note_deltas, overwrites_error
from neonlike.layers.container.sequential import LayerContainer
from neonlike.layers.core.base import Layer, interpret_in_shape, part_of
from neonlike.layers.core.deltas import DeltasTree
from neonlike.layers.core.parts import copied

if TYPE_CHECKING:
    from neonlike.layers.core.base import Layers, ShapeSource

__public_module__ = "neonlike.layers.container"


class Broadcast(LayerContainer):
    """Base of containers with one common input for all branches.

    Parameters
    ----------
    layers : list
        Branches: layers, lists of layers or Sequentials.
    name : str, optional
        Name in listings and model files; by default the class's with a number.

    Attributes
    ----------
    layers : list of Sequential
        The branches.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.initializers import Constant
    >>> from neonlike.layers import Linear, MergeSum
    >>> from neonlike.layers.container import Broadcast
    >>> be = gen_backend("cpu", batch_size=2)
    >>> merge = MergeSum([Linear(2, Constant(0.1)), [Linear(4, Constant(0.1)), Linear(2, Constant(0.1))]])
    >>> isinstance(merge, Broadcast), [len(branch.layers) for branch in merge.layers]
    (True, [1, 2])
    """

    def __init__(self, layers: Layers, name: str | None = None) -> None:
        super().__init__(name)
        self.layers = as_branches(self.name, layers)
        if not self.layers:
            raise ArgumentError(f"{self.name}: the list of branches is empty; give at least one branch")
        self.owns_delta = True
        self._runs = [Run(branch) for branch in self.layers]

    def configure(self, in_obj: ShapeSource) -> Layer:
        """Configure all branches with the same input."""
        super().configure(in_obj)
        for run in self._runs:
            run.configure(in_obj)
        self.configure_merge()
        return self

    def configure_merge(self) -> None:
        """Compute the output shape from the shapes of the branches."""
        self.out_shape = [branch.out_shape for branch in self.layers]

    def _shapes(self) -> list[tuple[int, int]]:
        """Rows and steps of the branches' outputs."""
        return [interpret_in_shape(branch.out_shape) for branch in self.layers]

    def allocate_deltas(self, global_deltas: DeltasTree | None = None, nested: DeltasTree | None = None) -> None:
        """Register the first layers of the branches with the tree, and the others with its child or with ``nested``.

        Without a tree, this is the whole network: it has a tree of its own.
        """
        if global_deltas is None:
            tree = DeltasTree()
            self.allocate_deltas(tree)
            tree.allocate_buffers()
            self.set_deltas(tree)
            return
        nested = global_deltas.decend() if nested is None else nested
        for run in self._runs:
            first, *others = run.layers()
            if isinstance(first, Broadcast):
                first.allocate_deltas(global_deltas, nested.decend())
            else:
                first.allocate_deltas(global_deltas)
            for layer in others:
                layer.allocate_deltas(nested)

    def set_deltas(self, delta_buffers: DeltasTree | list[Any], nested: DeltasTree | None = None) -> None:
        """Give the first layers of the branches the tree's current buffer, and all others the buffers of its child.

        The tree's two buffers are swapped once.
        """
        delta_buffers = DeltasTree.of(delta_buffers)
        nested = delta_buffers.decend() if nested is None else nested
        current = delta_buffers.buffers[0]
        self.deltas = None
        for run in self._runs:
            first, *others = run.layers()
            first.prev_layer = first.prev_layer or self.prev_layer
            if isinstance(first, Broadcast):
                first.set_deltas(delta_buffers, nested.decend())
            else:
                first.set_deltas(delta_buffers)
            if took := delta_buffers.buffers[0] is not current:
                delta_buffers.swap()
            for layer in others:
                layer.set_deltas(nested)
            note_deltas(run.branch)
            if first.deltas is not None:
                delta_buffers.require_buffers(self)
                self.deltas, swaps = first.deltas, took
        if self.deltas is not None and swaps:
            delta_buffers.swap()


class MergeSum(Broadcast):
    """Sum of branches with one common input: the end of a residual block.

    Parameters
    ----------
    layers : list
        Branches: layers, lists of layers or Sequentials, with outputs of equal shape. Branches share one output
        buffer if their last layer can add to it (convolution, linear, pooling, batch normalization, SkipNode).
    name : str, optional
        Name in listings and model files; by default the class's with a number.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.initializers import Constant
    >>> from neonlike.layers import Linear, MergeSum, SkipNode
    >>> be = gen_backend("cpu", batch_size=2)
    >>> MergeSum([Linear(2, Constant(1.0)), SkipNode()])(be.ones((2, 2))).tolist()  # 2 + 1
    [[3.0, 3.0], [3.0, 3.0]]
    """

    repeatable = True

    def __init__(self, layers: Layers, name: str | None = None) -> None:
        super().__init__(layers, name)
        # The other branches end in a layer that reads its outputs again, or writes them in place.
        self._direct = [run for run in self._runs if adds_to_outputs(chain(run.branch)[-1])]
        self._apart = [run for run in self._runs if run not in self._direct]
        for run in self._runs[1:]:  # the first one comes last in the backward pass
            run.copies_error = overwrites_error(run.branch)

    def configure_merge(self) -> None:
        """The output shape is that of the branches."""
        if len(set(self._shapes())) > 1:
            shapes = [branch.out_shape for branch in self.layers]
            raise ShapeError(f"{self.name}: branches of one shape can be summed, got {brief(shapes)}")
        self.out_shape = self.layers[0].out_shape

    def allocate(self, shared_outputs: Tensor | None = None) -> None:
        """Create the output buffer, shared by the branches, and allocate the branches."""
        super().allocate(shared_outputs)
        for run in self._runs:
            run.allocate(self.outputs if run in self._direct else None)

    def fprop(self, inputs: Any, inference: bool = False) -> Any:
        """outputs = sum of the branches' outputs.

        Parameters
        ----------
        inputs : Tensor
            Input of all branches.
        inference : bool
            True outside of training: batches may be partial.
        """
        outputs: Any = None
        for run in self._direct:
            outputs = run.fprop(inputs, inference, 0.0 if outputs is None else 1.0)
        if not self._apart:
            return outputs
        terms = [run.fprop(inputs, inference) for run in self._apart]
        if outputs is None:
            outputs = self._part(*terms[0].shape)
            outputs[:] = sum(terms[1:], terms[0])
        else:
            outputs[:] = sum(terms, outputs)
        return outputs

    def _part(self, rows: int, columns: int) -> Any:
        """The outputs, or their first columns for a partial batch."""
        whole = self.outputs
        return whole if whole.shape == (rows, columns) else part_of(self, "sum", whole, columns)

    def bprop(self, error: Any, alpha: float = 1.0, beta: float = 0.0) -> Any:
        """deltas = alpha · sum of the branches' gradients + beta · deltas.

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
        self.be.bprop_mergesum(None, alpha, beta, self._runs, error, self.deltas)
        return self.deltas


class MergeBroadcast(Broadcast):
    """Concatenation of the outputs of branches with one common input.

    Parameters
    ----------
    layers : list
        Branches: layers, lists of layers or Sequentials.
    merge : str
        ``"depth"``: concatenate feature maps, with equal height and width (or number of steps). ``"stack"``:
        concatenate all features in one column. ``"recurrent"``: concatenate time steps, with equal numbers of features.
    alphas : list of float, optional
        Factor of each branch's input gradient, 1 by default.
    name : str, optional
        Name in listings and model files; by default the class's with a number.

    Attributes
    ----------
    slices : list of slice
        Rows of the outputs (for ``"recurrent"`` columns) of each branch.
    output_views, error_views : list of Tensor
        Each branch's part of the outputs and of the last error; a copy if the part is a range of columns.

    Raises
    ------
    ArgumentError
        If ``merge`` is none of these, or there are other numbers of branches and alphas.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.initializers import Constant
    >>> from neonlike.layers import Linear, MergeBroadcast
    >>> be = gen_backend("cpu", batch_size=2)
    >>> merge = MergeBroadcast([Linear(1, Constant(1.0)), Linear(1, Constant(2.0))], merge="stack")
    >>> merge(be.ones((3, 2))).tolist()
    [[3.0, 3.0], [6.0, 6.0]]
    """

    MERGES = ("recurrent", "depth", "stack")
    repeatable = True

    def __init__(
        self, layers: Layers, merge: str, alphas: Sequence[float] | None = None, name: str | None = None
    ) -> None:
        super().__init__(layers, name)
        if merge not in self.MERGES:
            raise ArgumentError(f"{self.name}: merge={brief(merge)} is not one of {', '.join(self.MERGES)}")
        if alphas is not None and len(alphas) != len(self.layers):
            raise ArgumentError(f"{self.name}: {len(self.layers)} branches but {len(alphas)} alphas; give one each")
        self.merge = merge
        self.alphas = [1.0] * len(self.layers) if alphas is None else list(alphas)
        self.betas = [1.0] * len(self.layers)
        self.slices: list[slice] = []
        self.output_views: list[Any] = []
        self.error_views: list[Any] = []
        self._error: Any = None
        self._error_parts: list[Any] = []
        self._partial: Any = None

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return copied(self, memo, bool(self.output_views))

    def configure_merge(self) -> None:
        """Compute the output shape and the part of each branch."""
        shapes = [_as_tuple(branch.out_shape) for branch in self.layers]
        if self.merge == "stack":
            sizes = [math.prod(shape) for shape in shapes]
            self.out_shape = sum(sizes)
        elif self.merge == "depth":
            self._check_equal({shape[1:] for shape in shapes}, shapes, "maps (or steps)")
            self.out_shape = (sum(shape[0] for shape in shapes), *shapes[0][1:])
            # Rows of a buffer are the features of a sequence, with steps as columns, or the elements of maps.
            sizes = [rows for rows, _ in self._shapes()]
        else:
            features = self._shapes()
            self._check_equal({rows for rows, _ in features}, shapes, "number of features")
            self.out_shape = (features[0][0], sum(steps for _, steps in features))
            sizes = [steps * self.be.bsz for _, steps in features]
        ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
        self.slices = [slice(end - size, end) for end, size in zip(ends, sizes, strict=True)]

    def _check_equal(self, kinds: set[Any], shapes: list[Any], what: str) -> None:
        if len(kinds) > 1:
            raise ShapeError(f"{self.name}: merge={self.merge!r} needs branches of one {what}, got {brief(shapes)}")

    def allocate(self, shared_outputs: Tensor | None = None) -> None:
        """Create the output buffer and let each branch write into its part."""
        super().allocate(shared_outputs)
        self.output_views = self._parts(self.outputs)
        for run, view in zip(self._runs, self.output_views, strict=True):
            # Few layers can write to a range of columns of a larger buffer; the outputs of all others are copied there.
            run.allocate(view if view.is_contiguous else None)

    @property
    def needs_outputs(self) -> bool:  # type: ignore[override]
        """Whether any branch needs its outputs, since they share memory with these outputs."""
        return any(branch.needs_outputs for branch in self.layers)

    def _parts(self, whole: Tensor) -> list[Tensor]:
        """Each branch's part of the outputs, or of the error, in the shape of the branch's buffers."""
        if self.merge == "recurrent":
            return [whole[:, part] for part in self.slices]
        shapes = [(rows, steps * self.be.bsz) for rows, steps in self._shapes()]
        return [whole[part].viewed(shape) for part, shape in zip(self.slices, shapes, strict=True)]

    def fprop(self, inputs: Any, inference: bool = False) -> Any:
        """Concatenated outputs of all branches; inference accepts partial batches.

        Parameters
        ----------
        inputs : Tensor
            Input of all branches.
        inference : bool
            True outside of training: batches may be partial.
        """
        found = [run.fprop(x, inference) for run, x in zip(self._runs, self._branch_inputs(inputs), strict=True)]
        for y, view in zip(found, self.output_views, strict=True):
            if y is view or _same_memory(y, view):
                continue
            if y.size != view.size:
                return self._assemble(found)
            view[:] = y.viewed(view.shape)
        return self.outputs

    def _branch_inputs(self, inputs: Any) -> Sequence[Any]:
        return [inputs] * len(self._runs)

    def _assemble(self, found: list[Any]) -> Any:
        """The outputs of a partial batch, in separate memory."""
        sizes = [rows * steps for rows, steps in self._shapes()]
        samples = found[0].size // sizes[0]
        rows, steps = interpret_in_shape(self.out_shape)
        if self._partial is None or self._partial.shape != (rows, steps * samples):
            self._partial = self.be.empty((rows, steps * samples), dtype=self.outputs.dtype)
        for y, part in zip(found, self.slices, strict=True):
            if self.merge == "recurrent":
                bsz = self.be.bsz
                self._partial[:, part.start // bsz * samples : part.stop // bsz * samples] = y
            else:
                self._partial[part] = y.viewed(part.stop - part.start, -1)
        return self._partial

    def bprop(self, error: Any, alpha: float = 1.0, beta: float = 0.0) -> Any:
        """deltas = alpha · sum of (alphas · the branches' gradients) + beta · deltas.

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
        if error is not self._error:
            self._error, self._error_parts = error, self._parts(error)
            self.error_views = [
                view if view.is_contiguous else self.be.empty(view.shape, dtype=view.dtype)
                for view in self._error_parts
            ]
        for view, part in zip(self.error_views, self._error_parts, strict=True):
            if view is not part:
                view[:] = part
        self.be.bprop_mergebroadcast(
            None, self._runs, self.error_views, error, self.deltas, self.out_shape, alpha, beta, self.alphas, self.betas
        )
        return self.deltas


class MergeMultistream(MergeBroadcast):
    """Concatenation of the outputs of branches with one input each.

    Parameters
    ----------
    layers : list
        Branches: layers, lists of layers or Sequentials.
    merge : str
        ``"recurrent"``, ``"depth"`` or ``"stack"``; see :class:`MergeBroadcast`.
    name : str, optional
        Name in listings and model files; by default the class's with a number.

    Notes
    -----
    If a branch begins with a MergeMultistream, its input and its shape are nested lists.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.initializers import Constant
    >>> from neonlike.layers import Linear, MergeMultistream
    >>> be = gen_backend("cpu", batch_size=2)
    >>> merge = MergeMultistream([Linear(1, Constant(1.0)), Linear(1, Constant(1.0))], merge="stack")
    >>> merge([be.ones((3, 2)), be.ones((4, 2))]).tolist()
    [[3.0, 3.0], [4.0, 4.0]]
    """

    several_inputs = True

    def __init__(self, layers: Layers, merge: str, name: str | None = None) -> None:
        super().__init__(layers, merge, name=name)
        self.owns_delta = False

    def configure(self, in_obj: ShapeSource) -> Layer:
        """Configure each branch with its input.

        Parameters
        ----------
        in_obj : list, or object with a list as ``shape``
            The input of each branch: a shape, layer, tensor or dataset.
        """
        shapes = getattr(in_obj, "shape", in_obj)
        if not isinstance(shapes, list | tuple) or len(shapes) != len(self.layers):
            raise ShapeError(
                f"{self.name}: {len(self.layers)} branches need a list of as many input shapes, got {shown(shapes)}"
            )
        self.prev_layer = None
        self.in_shape = [self.input_shape(shape) for shape in shapes]
        for i, (run, shape) in enumerate(zip(self._runs, self.in_shape, strict=True)):
            run.configure(shape)
            if chain(run.branch)[0].several_inputs:
                self.in_shape[i] = run.branch.in_shape
        self.configure_merge()
        return self

    def allocate_deltas(self, global_deltas: DeltasTree | None = None, nested: DeltasTree | None = None) -> None:
        """Build a separate tree of error buffers for each branch, independent of the surrounding network."""
        for run in self._runs:
            first, *others = run.layers()
            tree = DeltasTree()
            for layer in (first, *others) if first.nests_deltas or first.prev_layer else others:
                layer.allocate_deltas(tree)
            tree.allocate_buffers()
            for layer in (first, *others):
                layer.set_deltas(tree)
            note_deltas(run.branch)

    def set_deltas(self, delta_buffers: DeltasTree | list[Any] | None = None, nested: DeltasTree | None = None) -> None:
        """Do nothing: the branches have error buffers of their own."""

    def _branch_inputs(self, inputs: Any) -> Sequence[Any]:
        if not isinstance(inputs, list | tuple) or len(inputs) != len(self._runs):
            raise DTypeError(
                f"{self.name}.fprop: expected a list of {len(self._runs)} inputs, one for each branch, got "
                f"{shown(inputs)}"
            )
        return inputs

    def bprop(self, error: Any, alpha: float = 1.0, beta: float = 0.0) -> None:
        """Backward pass of each branch; returns None, because there are several inputs.

        Parameters
        ----------
        error : Tensor
            Gradient of the cost by the outputs, in their shape.
        alpha, beta : float
            As of :meth:`MergeBroadcast.bprop`.
        """
        super().bprop(error, alpha, beta)


def _as_tuple(shape: Any) -> tuple[int, ...]:
    return (shape,) if isinstance(shape, int) else tuple(shape)


def _same_memory(y: Tensor, view: Tensor) -> bool:
    """Whether a result already lies in ``view``: a contiguous view of another shape, created by a Reshape."""
    return bool(y.ptr == view.ptr and y.size == view.size and y.is_contiguous and view.is_contiguous)
