"""The protocol of a layer: configure, allocate, allocate deltas, then forward and backward passes.

A layer's shapes leave out the batch: ``(C, H, W)``, ``(features, steps)`` or a number of features. Its buffers are
``(features, N)``, or ``(features, steps*N)`` for sequences. A layer that does not own its output works in place on
the buffer of the layer before it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np

from neonlike.backends.backend import Tensor
from neonlike.checks import admit, brief, shown
from neonlike.errors import ArgumentError, DTypeError, NeonlikeError, NotDefined, ShapeError
from neonlike.kernels.run.depends import Depends
from neonlike.layers.core.deltas import DeltasTree
from neonlike.layers.core.parts import first_part, part_of, reshaped
from neonlike.layers.core.variables import OnVariables
from neonlike.logger import logger
from neonlike.nervanaobject import Description, NervanaObject, is_in_package
from neonlike.optree import dialect

if TYPE_CHECKING:
    from neonlike.layers.core.protocol import HasShape

__all__ = [
    "AccumulationError", "Layer", "first_part", "interpret_in_shape", "part_of", "plain_shape", "require_input",
    "require_layer", "require_size", "require_tensor", "require_transform",
]  # fmt: skip
__public_module__ = "neonlike.layers.layer"

CLOSED = frozenset(("init", "bias", "prev_layer", "next_layer", "neighbours", "replays", "_desc"))
"""Attributes that must stay the same objects, but whose insides no pass reads; see ``Layer.depends_on``."""
Shape = int | tuple[int, ...]
ShapeSource: TypeAlias = "Layer | int | tuple[Any, ...] | list[Any] | HasShape"
"""What tells a layer the shape of its input: the layer before, a shape or several, a tensor, or data."""
Layers: TypeAlias = "Layer | Iterable[Any]"
"""What containers take: layers, in lists that may be nested, or one of them."""
Bprop = TypeVar("Bprop", bound=Callable[..., Any])


class AccumulationError(NeonlikeError, BufferError):
    """Gradient accumulation was requested for a layer that was not allocated for it."""


def interpret_in_shape(shape: Any) -> tuple[int, int]:
    """Read an input shape as (features, steps).

    An int n is ``(n, 1)``, a pair is used as it is, any other tuple is flattened to ``(prod, 1)``.

    Parameters
    ----------
    shape : int or tuple of int
        Shape of a sample: ``(features, steps)``, or any other, which is one step of all its elements.

    Returns
    -------
    tuple of int
        (features, steps).

    Examples
    --------
    >>> from neonlike.layers.layer import interpret_in_shape
    >>> interpret_in_shape(3), interpret_in_shape((3, 5)), interpret_in_shape((2, 4, 4))
    ((3, 1), (3, 5), (32, 1))
    """
    if isinstance(shape, int | np.integer):
        return int(shape), 1
    if not isinstance(shape, tuple | list) or not all(isinstance(size, int | np.integer) for size in shape):
        raise ShapeError(f"the layer before must have one output of known shape, an int or a tuple; got {shown(shape)}")
    if len(shape) == 2:
        return int(shape[0]), int(shape[1])
    return math.prod(map(int, shape)), 1


class Layer(OnVariables, NervanaObject):
    """Base of layers.

    Parameters
    ----------
    name : str, optional
        Name, unique by default.
    parallelism : str
        Kept for compatibility: "Unknown", "Disabled", "Data" or "Model".

    Attributes
    ----------
    inputs, outputs, deltas : Tensor or None
        Buffers: last input, output, and error, the gradient for the previous layer.
    in_shape, out_shape : int or tuple
        Shapes without the batch, known after ``configure``.
    prev_layer, next_layer : Layer or None
        Neighbours.
    owns_output, owns_delta, needs_outputs : bool
        Whether the layer has an output (error) buffer of its own, and whether it reads its outputs again. Layers that
        work in place use a buffer of their own after a layer that does.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.layers.layer import Layer
    >>> be = gen_backend("cpu", batch_size=2)
    >>> class Double(Layer):
    ...     def configure(self, in_obj):
    ...         super().configure(in_obj)
    ...         self.out_shape = self.in_shape
    ...         return self
    ...     def fprop(self, inputs, inference=False):
    ...         self.outputs[:] = 2 * inputs
    ...         return self.outputs
    ...     def bprop(self, error):
    ...         self.deltas[:] = 2 * error
    ...         return self.deltas
    >>> Double()(be.ones((1, 2))).tolist()
    [[2.0, 2.0]]
    """

    is_branch_node = nests_deltas = needs_outputs = False
    several_inputs = False  # whether inputs are a list of tensors
    nglayer: Any = None
    overwrites_error = False  # does bprop change its error
    repeatable = False  # does a class say that its passes may be repeated, see depends_on
    set_forward: frozenset[str] = frozenset(("inputs",))
    """Attributes that ``fprop`` sets and does not read before; of users' classes those that they name themselves."""
    folded: tuple[Layer, ...] = ()  # see folding.py
    folded_into: Layer | None = None
    neighbours: Sequence[Layer] = ()  # all layers of the chain, if it is folded
    finished: Any = None
    sums_left = takes_sums = False
    batch_sum_shape: Any = None

    def __init__(self, name: str | None = None, parallelism: str = "Unknown") -> None:
        super().__init__(name)
        self.outputs: Any = None
        self.inputs: Any = None
        self.deltas: Any = None
        self.has_params = False
        self.owns_output = True
        self.owns_delta = False
        self.parallelism = parallelism
        self.revert_list: list[Tensor] = []
        self.prev_layer: Any = None
        self.next_layer: Any = None
        self.in_shape: Any = None
        self.out_shape: Any = None
        self.actual_bsz: int | None = None
        self.actual_seq_len: int | None = None
        self.acc_on = False
        self.is_mklop = False

    def __str__(self) -> str:
        return f"{self.classnm} Layer '{self.name}': {self.in_shape} -> {self.out_shape}"

    def nested_str(self, level: int = 0) -> str:
        """Text of the layer indented by ``level`` steps.

        Parameters
        ----------
        level : int
            Number of indentations.
        """
        return "  " * level + str(self)

    def depends_on(self) -> Depends | None:
        """How a repeated pass depends on the layer's attributes; None unless its class itself is ``repeatable``.

        The flag is for classes of the library. A user's class has to define this method, whatever its flag says.
        """
        if not vars(type(self)).get("repeatable", False):
            return None
        kind = type(self)
        ours = is_in_package(kind.__module__) or "set_forward" in vars(kind)
        return Depends(closed=CLOSED, free=frozenset(("_kept_views",)), sets=self.set_forward if ours else frozenset())

    # -- life cycle ----------------------------------------------------------------------------------------

    def configure(self, in_obj: ShapeSource) -> Layer:
        """Read the input shape and compute the output shape.

        Parameters
        ----------
        in_obj : Layer, int, tuple, Tensor or dataset
            The layer before, a shape, a tensor ``(features, N)``, or an object with a ``shape``.

        Returns
        -------
        Layer
            The layer itself.
        """
        if isinstance(in_obj, Layer):
            self.prev_layer = in_obj
            self.in_shape = in_obj.out_shape
            if self.parallelism == "Unknown":
                self.parallelism = in_obj.parallelism
            return self
        self.prev_layer = None
        self.in_shape = self.input_shape(in_obj)
        return self

    def input_shape(self, in_obj: ShapeSource) -> Any:
        """Read the shape of a sample from a shape, a layer, a tensor ``(features, N)`` or a dataset.

        Parameters
        ----------
        in_obj : shape, Layer, Tensor or dataset
            What has the shape.

        Raises
        ------
        DTypeError
            If ``in_obj`` is none of these.
        """
        if isinstance(in_obj, Layer):
            return in_obj.out_shape
        if isinstance(in_obj, Tensor):
            return in_obj.shape[0], in_obj.shape[1] // self.be.bsz
        if isinstance(in_obj, int | np.integer | tuple | list):
            return plain_shape(in_obj)
        shape = getattr(in_obj, "shape", getattr(in_obj, "lshape", None))
        if shape is None or isinstance(in_obj, np.ndarray):  # the shape of an array includes the samples
            raise DTypeError(
                f"{self.name}.configure: cannot read an input shape from a {type(in_obj).__name__}; give a layer, "
                "a shape, a tensor or a dataset"
            )
        return plain_shape(shape)

    def allocate(self, shared_outputs: Tensor | None = None) -> None:
        """Create the output buffer if the layer owns one and has none yet.

        Parameters
        ----------
        shared_outputs : Tensor, optional
            Memory to use for it instead of new memory.
        """
        if self.outputs is None and self.owns_output:
            if self.out_shape is None:
                raise ArgumentError(f"{self.name}.allocate: the layer does not know its shape; call configure first")
            self.outputs = self.be.iobuf(self.out_shape, shared=shared_outputs, parallelism=self.parallelism)

    def allocate_deltas(self, global_deltas: DeltasTree) -> None:
        """Register the size of this layer's error buffer with the :class:`DeltasTree`.

        Parameters
        ----------
        global_deltas : DeltasTree
            The tree of error buffers.
        """
        global_deltas.proc_layer(self)

    def set_deltas(self, delta_buffers: DeltasTree | list[Any]) -> None:
        """Take a view of the tree's current buffer as ``deltas``, and swap the tree's two buffers.

        The first layer and layers that modify the error in place have no deltas. A list of tensors is accepted as a
        tree.

        Parameters
        ----------
        delta_buffers : DeltasTree or list of Tensor
            The tree, or a pair of buffers.
        """
        if not (self.owns_delta and self.prev_layer):
            self.deltas = None
        elif getattr(self.prev_layer, "is_branch_node", False):
            self.deltas = self.prev_layer.deltas
        else:
            self.deltas = DeltasTree.of(delta_buffers).take_view(self)

    def fprop(self, inputs: Any, inference: bool = False) -> Any:
        """Forward pass.

        Parameters
        ----------
        inputs : Tensor
            ``(features, N)``.
        inference : bool
            Whether this is inference, not training.

        Returns
        -------
        Tensor
            ``outputs``.
        """
        raise NotDefined(f"{self.classnm} does not define fprop")

    def bprop(self, error: Any) -> Any:
        """Backward pass; overwrites the parameter gradients.

        Parameters
        ----------
        error : Tensor
            Gradient of the cost with respect to ``outputs``.

        Returns
        -------
        Tensor or None
            ``deltas``, the gradient with respect to the inputs; None for the first layer.
        """
        raise NotDefined(f"{self.classnm} does not define bprop")

    # -- gradient accumulation -----------------------------------------------------------------------------

    def set_acc_on(self, acc_on: bool) -> None:
        """Switch accumulation over the following backward passes on or off.

        Parameters
        ----------
        acc_on : bool
            Whether gradients are added to those of earlier passes.

        Raises
        ------
        AccumulationError
            If the layer does not support accumulation.
        """
        if not hasattr(self, "accumulate_updates"):
            raise AccumulationError(
                f"{self.name}: gradients cannot be accumulated; allocate(accumulate_updates=True) is for layers "
                "with parameters"
            )
        if acc_on and not self.accumulate_updates:
            logger.warning("%s: was not allocated with accumulate_updates=True; gradients do not add up", self.name)
        self.acc_on = acc_on and self.accumulate_updates

    @staticmethod
    def accumulates(bprop: Bprop) -> Bprop:
        """Decorator for a layer's ``bprop``: while ``acc_on``, gradients in ``acc_params`` are accumulated."""

        @functools.wraps(bprop)
        def accumulating(self: Any, *args: Any, **kwargs: Any) -> Any:
            if not isinstance(self, Layer):
                raise DTypeError(
                    f"Layer.accumulates: decorates a method of {type(self).__name__}, which is not a layer"
                )
            if not self.acc_on:
                return bprop(self, *args, **kwargs)
            pairs = self.acc_params  # type: ignore[attr-defined]
            for saved, grad in pairs:
                saved[:] = grad
            result = bprop(self, *args, **kwargs)
            for saved, grad in pairs:
                grad[:] = grad + saved
            return result

        return accumulating  # type: ignore[return-value]

    # -- description ---------------------------------------------------------------------------------------

    def get_terminal(self) -> Any:
        """The layer or layers with the outputs of this one."""
        return self

    def serialize(self) -> Any:
        """Parameters and states, if there are any."""
        return self.get_params() if self.has_params else None  # type: ignore[attr-defined]

    def get_params_serialize(self, keep_states: bool = True) -> Description:
        """Description with weights, on the host.

        Parameters
        ----------
        keep_states : bool
            Whether optimizer states are part of it.
        """
        return self.get_description(get_weights=True, keep_states=keep_states)

    def get_description(  # type: ignore[override]
        self, get_weights: bool = False, keep_states: bool = True, **kwargs: Any
    ) -> Description:
        """Describe the layer; layers with parameters add them with ``get_weights``.

        Parameters
        ----------
        get_weights : bool
            Whether the weights are part of it.
        keep_states : bool
            Whether optimizer states are part of it.
        """
        return super().get_description(**kwargs)

    def set_params(self, pdict: Description) -> None:
        """Load parameters from a description; this layer has none."""

    def set_states(self, pdict: Description) -> None:
        """Load optimizer states from a description; this layer has none."""

    def load_weights(self, pdict: Description, load_states: bool = True) -> None:
        """Restore parameters (and optimizer states) from a description; nothing to do without parameters.

        Parameters
        ----------
        pdict : dict
            A description.
        load_states : bool
            Whether optimizer states are restored, too.
        """

    def check_weights(self, pdict: Description) -> None:
        """Raise if the parameters in a description do not fit this layer; changes nothing."""

    @property
    def inf_params(self) -> list[Any]:
        """Running statistics, which training gathers for inference; this layer has none."""
        return []

    # -- bookkeeping ---------------------------------------------------------------------------------------

    def products(self, backward: bool = False) -> list[tuple[Any, str]]:
        """Arguments of ``be.factors_of`` for each product of the forward or backward pass."""
        return []

    def takes_over(self, following: Layer) -> bool:
        """Whether this layer's calls can include the work of ``following``; see :mod:`neonlike.layers.core.folding`."""
        return False

    def set_next(self, layer: Layer | None) -> None:
        """Set the layer after this one.

        Parameters
        ----------
        layer : Layer or None
            The next layer.
        """
        self.next_layer = layer

    def set_batch_size(self, N: int | None) -> None:
        """Set the number of samples in use, at most ``be.bsz``.

        Parameters
        ----------
        N : int, optional
            Number of samples; None: all.
        """
        self.actual_bsz = N

    def set_seq_len(self, S: int | None) -> None:
        """Set the number of time steps in use.

        Parameters
        ----------
        S : int, optional
            Number of steps; None: all.
        """
        self.actual_seq_len = S

    def get_param_attrs(self) -> dict[str, bool]:
        """Keyword arguments for creating parameter tensors."""
        return {"parallel": self.parallelism in ("Data", "Model"), "distributed": self.parallelism == "Model"}

    def get_is_mklop(self) -> bool:
        """Whether the last operation ran in MKL's layout; kept for compatibility."""
        return self.is_mklop

    def set_is_mklop(self) -> None:
        """Mark the layer as computed in MKL's layout; kept for compatibility."""
        self.is_mklop = True

    def set_not_mklop(self) -> None:
        """Undo ``set_is_mklop``."""
        self.is_mklop = False

    def revert_tensors(self) -> None:
        """Undo the backend's distribution of the layer's tensors."""
        for tensor in self.revert_list:
            self.be.revert_tensor(tensor)


admit(Layer, "a layer")


def require_tensor(operation: str, name: str, value: Any) -> None:
    """Raise DTypeError unless ``value`` is a tensor.

    Parameters
    ----------
    operation, name : str
        What is called and which argument it is, for the message.
    value : object
        The argument.
    """
    if not isinstance(value, Tensor):
        raise DTypeError(f"{operation}: {name} must be a tensor, got {shown(value)}; make one with be.array")


def require_layer(layer: Any, where: str) -> Layer:
    """Return ``layer``, or raise if it is not a layer."""
    if not isinstance(layer, Layer):
        what = f"the class {layer.__name__}" if isinstance(layer, type) else f"a {type(layer).__name__}"
        raise DTypeError(f"{where}: expected a layer, got {what}; construct one, e.g. Linear(10, init=Gaussian())")
    return layer


def require_size(value: Any, where: str) -> int:
    """Return ``value`` as a positive int, or raise an error."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise DTypeError(f"{where}: got {brief(value)} of type {type(value).__name__}; expected an integer")
    if value < 1:
        raise ShapeError(f"{where}: got {value}; expected a positive number")
    return int(value)


def require_input(layer: Layer, inputs: Any, expected_rows: int, inference: bool = False) -> tuple[Tensor, Tensor]:
    """Return the inputs, and the layer's output buffer with as many columns as the inputs.

    Inference accepts fewer columns than a batch: the outputs are then a part of the layer's buffer. Sequences may be
    ``(features * steps, N)`` as data iterators yield them, which are the same numbers in the same order; in neon's
    dialect, all inputs with the same number of elements but other rows and columns are reshaped.

    Parameters
    ----------
    layer : Layer
        The layer whose ``fprop`` is called.
    inputs : Tensor
        ``(expected_rows, columns)``, or sequences, each in a column.
    expected_rows : int
        Rows that the layer was configured for.
    inference : bool
        Accept fewer columns than a batch has.

    Returns
    -------
    inputs, outputs : Tensor
        The inputs, and the part of ``layer.outputs`` with their columns.

    Raises
    ------
    ShapeError
        If ``inputs`` has the wrong number of features or columns.
    ArgumentError
        If the layer is not configured or not allocated.
    """
    outputs: Tensor = layer.outputs
    if outputs is not None and isinstance(inputs, Tensor):
        rows, columns = inputs.shape[0], inputs.shape[1]
        if rows == expected_rows and columns == outputs.shape[1]:
            return inputs, outputs
    if outputs is None:
        missing = "configure and allocate" if layer.in_shape is None else "allocate"
        raise ArgumentError(
            f"{layer.name}.fprop: the layer is not set up; call model.initialize(data), or {missing} on the layer"
        )
    require_tensor(f"{layer.name}.fprop", "inputs", inputs)
    if inputs.shape[0] != expected_rows and _may_be_reshaped(layer, inputs, expected_rows):
        inputs = reshaped(layer, "inputs in rows", inputs, expected_rows)
    if inputs.shape[0] != expected_rows:
        raise ShapeError(
            f"{layer.name}.fprop: input has shape {tuple(inputs.shape)}, but the layer was configured for "
            f"{expected_rows} features ({layer.in_shape}); configure it for the new shape"
        )
    columns = outputs.shape[1]
    if layer.actual_bsz is not None or layer.actual_seq_len is not None:
        return inputs, outputs
    if inference and inputs.shape[1] < columns:
        return inputs, part_of(layer, "outputs", outputs, inputs.shape[1])
    if inputs.shape[1] == columns:
        return inputs, outputs
    raise ShapeError(
        f"{layer.name}.fprop: input has shape {tuple(inputs.shape)}, but the layer was allocated for "
        f"{columns} columns; if the batch size was changed since, set the network up again"
        + ("" if inference else " (fewer columns are for fprop(x, inference=True))")
    )


def _may_be_reshaped(layer: Layer, inputs: Tensor, expected_rows: int) -> bool:
    """Whether inputs with other rows are the layer's: whole sequences in columns, in neon's dialect any that fit."""
    if dialect.is_neon():
        return inputs.size % expected_rows == 0
    shape = layer.in_shape
    whole = isinstance(shape, tuple) and len(shape) == 2 and shape[0] == expected_rows
    return whole and inputs.shape[0] == math.prod(shape)


def require_transform(transform: Any, where: str) -> Any:
    """Return ``transform``, or raise if it is not a transform object."""
    if isinstance(transform, type | Layer) or not callable(transform):
        raise DTypeError(f"{where}: {brief(transform)} is not a transform object; construct one, e.g. Rectlin()")
    return transform


def plain_shape(shape: Any) -> Any:
    """Convert a shape to an int or a tuple of ints; a list of shapes (several inputs) stays a list.

    Raises
    ------
    ShapeError
        If an entry is not an integer, or below 1.
    """
    if isinstance(shape, int | np.integer) and shape > 0:
        return int(shape)
    if isinstance(shape, list | tuple) and shape:
        entries = [plain_shape(entry) for entry in shape]
        return tuple(entries) if all(isinstance(entry, int) for entry in entries) else shape
    raise ShapeError(f"configure: an input shape is made of positive integers, got {shown(shape)}")
