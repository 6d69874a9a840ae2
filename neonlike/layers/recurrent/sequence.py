"""The base of all recurrent layers: one weight with named parts, inputs as steps, buffers cut to the extent in use."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from neonlike.backends.backend import Tensor
from neonlike.backends.geometry.products import ProductSizes, UnrollSizes
from neonlike.checks import shown
from neonlike.errors import DTypeError, NotDefined, ShapeError
from neonlike.kernels.run.depends import Dependent, Depends
from neonlike.layers.core.base import Layer, first_part, require_size, require_transform
from neonlike.layers.core.deltas import DeltasTree
from neonlike.layers.core.parameter import ParameterLayer
from neonlike.layers.core.parts import apart, copied
from neonlike.layers.recurrent.padding import Masks, Padding, padding_of
from neonlike.layers.recurrent.steps import (
    MOST_VIEWS,
    Extent,
    extent_of,
    first_columns,
    get_steps,
    in_rows,
    interpret_in_shape,
    require_error,
    same_memory,
)

if TYPE_CHECKING:
    from neonlike.initializers.initializer import Init
    from neonlike.layers.core.base import ShapeSource
    from neonlike.transforms.transform import Transform

__public_module__ = "neonlike.layers.recurrent"


class Views(Dependent, SimpleNamespace):
    """A layer's buffers, cut to the extent of a call; layers add their own buffers and lists of steps.

    Parameters
    ----------
    extent : Extent
        Steps and samples in use.
    result : Tensor
        The result of the forward pass.

    Attributes
    ----------
    result : Tensor
        The result of the forward pass.
    outputs : Tensor
        Its columns in use.
    extent : Extent
        Steps and samples in use.
    """

    def __init__(self, extent: Extent, result: Tensor) -> None:
        super().__init__(extent=extent, result=result, outputs=first_columns(result, extent.columns))

    def cut(self, buffer: Tensor) -> tuple[Any, list[Any]]:
        """The columns of ``buffer`` in use, and their steps.

        For partial batches in inference there are no gaps between rows; with one sample the values of a step are
        adjacent, because unrolls read and write them together.
        """
        rows, columns = buffer.shape[0], self.extent.columns
        if not self.result.shape[1] == columns < buffer.shape[1]:
            used = first_columns(buffer, columns)
        elif self.extent.samples == 1:
            used = first_part(buffer, columns, rows).T
        else:
            used = first_part(buffer, rows, columns)
        return used, get_steps(used, (used.shape[0], self.extent.steps))


class SequenceLayer(ParameterLayer):
    """Base of recurrent layers.

    All parameters are rows of one weight ``W`` with named parts: ``W_input``, ``W_recur`` and ``b``, two of each in a
    bidirectional layer. A part is its rows *reshaped* to ``(gates * nout, rows)``.

    Parameters
    ----------
    output_size : int
        Units of the layer (per direction).
    init : Initializer or array
        Initializer of the weights, applied gate by gate; or the values of all of ``W``. Biases start from 0.
    init_inner : Initializer, optional
        Initializer of the recurrent weights; ``init`` by default.
    activation : Transform
        Activation of the states.
    reset_cells : bool
        Start each batch from a state of 0, not from the last state of the previous batch.
    name : str, optional
        Name in listings and model files; by default the class's with a number.
    parallelism : str
        Kept for compatibility, see :class:`~neonlike.layers.layer.Layer`.

    Attributes
    ----------
    nin, nout, nsteps : int
        Features per step of the input, units, steps.
    W, dW : Tensor
        Weight and gradient ``(rows of all parts, gates * nout)``.
    x : Tensor or None
        Inputs of the last forward pass.
    out_deltas_buffer : Tensor or None
        The error for the previous layer, another name of ``deltas``.
    """

    overwrites_error = True
    ngates: ClassVar[int] = 1
    directions: ClassVar[int] = 1
    W_input: Any
    dW_input: Any  # noqa: N815  neon's name, as all of these
    W_recur: Any
    dW_recur: Any  # noqa: N815
    b: Any
    db: Any
    _W_input_T: Any
    _W_recur_T: Any

    starts: dict[str, int] | None = None
    """First rows of the parts in a weight that several layers share; None: the parts lie one after the other."""

    def __init__(
        self,
        output_size: int,
        init: Init,
        init_inner: Init | None = None,
        activation: Transform | None = None,
        reset_cells: bool = False,
        name: str | None = None,
        parallelism: str = "Unknown",
    ) -> None:
        super().__init__(init, name, parallelism)
        self.output_size = self.nout = require_size(output_size, f"{self.classnm}: output_size")
        self.activation = require_transform(activation, f"{self.classnm}: activation")
        if init_inner is not None and not hasattr(init_inner, "fill"):
            raise DTypeError(f"{self.classnm}: init_inner must be an initializer, got {shown(init_inner)}")
        self.init_inner = init_inner
        self.reset_cells = reset_cells
        self.nin, self.nsteps = 0, 1
        self.allocated_samples = 0
        self.out_deltas_buffer: Any = None
        self.padding: Padding | None = None
        self._named: Any = (None, None)
        self._forget()

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return copied(self, memo, self.W is not None)

    def depends_on(self) -> Depends | None:
        """Repeated passes do not look into the views of the last call, which are among those that are kept."""
        said = super().depends_on()
        return None if said is None else said._replace(closed=said.closed | {"_last"})

    @property
    def set_forward(self) -> frozenset[str]:  # type: ignore[override]
        """Attributes that fprop sets and does not read before: none if it continues the states of the last inputs."""
        return frozenset(("inputs", "x", "_x_used", "_last") if self.reset_cells else ())

    def _forget(self) -> None:
        """Drop the cached views of earlier calls' tensors, and the state."""
        self.x: Any = None
        self._last: Any = None
        self._x_used: Any = None
        self._error: Any = None
        self._error_views: Any = None
        self._views: dict[Any, Views] = {}

    def __str__(self) -> str:
        return f"{self.classnm} Layer '{self.name}': {self.nin} inputs, {self.nout} outputs, {self.nsteps} steps"

    # -- life cycle ----------------------------------------------------------------------------------------

    def configure(self, in_obj: ShapeSource) -> Layer:
        """Set the shapes for an input ``(nin, steps)``, an int (one step) or an image ``(C, H, W)`` (W steps)."""
        super().configure(in_obj)
        self.nin, self.nsteps = interpret_in_shape(self.in_shape)
        self._configure_sizes()
        self.weight_shape = (sum(self._part_rows().values()), self.ngates * self.nout)
        return self

    def products(self, backward: bool = False) -> list[tuple[Any, str]]:
        """See :meth:`Layer.products`: that of all inputs, and those of the unroll."""
        rows, samples, dtype = self.ngates * self.nout, self.be.bsz, self.be.default_np_dtype
        of_inputs = ProductSizes(self.directions * rows, self.nin, self.nsteps * samples, dtype)
        return [(of_inputs, ""), (UnrollSizes(rows, self.nout, samples, dtype), "")]

    def _configure_sizes(self) -> None:
        """Set the attributes that depend on the input's features and steps."""
        self.out_shape = (self.nout, self.nsteps)

    def _features(self) -> int:
        """Number of rows of the input."""
        return self.nin

    def allocate(self, shared_outputs: Tensor | None = None) -> None:  # type: ignore[override]
        """Create buffers, and the parameters unless they exist.

        Parameters
        ----------
        shared_outputs : Tensor, optional
            Memory for the outputs.
        """
        fresh = self.outputs is None
        apart = shared_outputs is not None or self._is_followed_in_place()
        if fresh and self.out_shape is not None:
            self._allocate_outputs(shared_outputs, apart)
        super().allocate(shared_outputs)
        self._name_parts()
        if fresh:
            self.allocated_samples = self.outputs.shape[1] // self.nsteps
            self._forget()
            self._allocate_steps(apart)

    def _allocate_outputs(self, shared_outputs: Tensor | None, apart: bool) -> None:
        """Create the outputs, unless they are a plain buffer of ``out_shape``."""

    def _is_followed_in_place(self) -> bool:
        """Whether the next layer overwrites the outputs, which the backward pass needs unchanged."""
        return self.next_layer is not None and not getattr(self.next_layer, "owns_output", True)

    def _allocate_steps(self, apart: bool) -> None:
        """Create the buffers of steps; ``apart``: states are not kept in ``outputs``, because others write there."""
        raise NotDefined(f"{self.classnm} does not define _allocate_steps")

    def _step_buffer(self, rows: int) -> Tensor:
        """Zeros ``(rows, steps * N)``; with one sample the values of a step are adjacent, as in ``Views.cut``."""
        alone = self.allocated_samples == 1
        made: Tensor = self.be.zeros((self.nsteps, rows)).T if alone else self.be.iobuf((rows, self.nsteps))
        return made

    def set_deltas(self, delta_buffers: DeltasTree | list[Any]) -> None:
        """Take an error buffer for the previous layer, unless this is the first layer."""
        super().set_deltas(delta_buffers)
        self.out_deltas_buffer = self.deltas

    # -- parameters ----------------------------------------------------------------------------------------

    def _part_rows(self) -> dict[str, int]:
        """Parts of the weight and their rows, in order."""
        return {"W_input": self.nin, "W_recur": self.nout, "b": 1}

    def _part_starts(self) -> dict[str, int]:
        """The first row of each part."""
        if self.starts is not None:
            return self.starts
        rows = self._part_rows()
        return dict(zip(rows, itertools.accumulate(rows.values(), initial=0)))

    def init_params(self, shape: Any) -> None:
        """Create the weight and its gradient; fill the parts gate by gate, and biases with 0."""
        if shape is None or isinstance(self.init, Tensor | np.ndarray):
            super().init_params(shape)
            return
        self.W = self.be.zeros(shape, **self.get_param_attrs())
        self.dW = self.gradient_of(self.W)
        self.states = []
        self._name_parts()
        for name in self._part_rows():
            if name.startswith("W"):
                inner = self.init_inner is not None and "recur" in name
                init: Any = self.init_inner if inner else self.init
                for gate in range(self.ngates):
                    rows = slice(gate * self.nout, (gate + 1) * self.nout)
                    init.fill(getattr(self, name)[rows])

    def _name_parts(self) -> None:
        """Create the views ``W_input``, ``dW_input``, ... of ``W`` and ``dW``, and transposed ``_W_input_T``, ..."""
        gates, starts = self.ngates * self.nout, self._part_starts()
        for name, rows in self._part_rows().items():
            places = slice(starts[name], starts[name] + rows)
            setattr(self, name, self.W[places].viewed(gates, rows))
            setattr(self, f"_{name}_T", getattr(self, name).T)
            if self.dW is not None:
                setattr(self, f"d{name}", self.dW[places].viewed(gates, rows))
        self._named = self.W, self.dW

    # -- a call --------------------------------------------------------------------------------------------

    @property
    def xs(self) -> Any:
        """Steps of the last inputs."""
        return None if self._x_used is None else get_steps(self._x_used, (self._x_used.shape[0], self._last.extent[0]))

    @xs.setter
    def xs(self, value: None) -> None:
        self._x_used = value

    def _begin(self, inputs: Any, inference: bool) -> tuple[Views, bool]:
        """Take the inputs; return their views, and whether they use the same memory as in the previous call."""
        features = self._features()
        extent = extent_of(self, inputs, features, inference)
        if self._named[0] is not self.W or self._named[1] is not self.dW:
            self._name_parts()
        views = self._views_for(extent)
        before = self._last
        known = self.x is not None and self._x_used is not None and same_memory(inputs, self.x)
        if not known or before is not views:
            self._x_used = first_columns(in_rows(inputs, features), extent.columns)
        self.x = self.inputs = inputs
        self._last = views
        return views, known and before is not None and before.extent.samples == extent.samples

    def _views_for(self, extent: Extent) -> Views:
        in_part = self.actual_bsz is not None or self.actual_seq_len is not None
        key = extent, in_part
        views = self._views.get(key)
        if views is None:
            if len(self._views) >= MOST_VIEWS:
                self._views.clear()
            result = self.outputs
            if not in_part and extent.columns < result.shape[1]:
                result = first_part(result, result.shape[0], extent.columns)
            views = self._views[key] = Views(extent, result)
            self._cut_buffers(views)
        return views

    def _cut_buffers(self, views: Views) -> None:
        """Add the layer's buffers to ``views``."""
        raise NotDefined(f"{self.classnm} does not define _cut_buffers")

    def _take_error(self, error: Any, views: Views | None) -> Views:
        """Take the error at the outputs as ``views.e`` and ``views.e_steps``, copied if it is still read elsewhere."""
        used = require_error(self, error, self.outputs.shape[0], None if views is None else views.extent)
        assert views is not None
        used = apart(self, used, self.outputs, self.x)
        if views is not self._error_views or not same_memory(used, self._error):
            self._error, self._error_views = used, views
            self._cut_error(views, used)
        return views

    def _cut_error(self, views: Views, error: Tensor) -> None:
        """Add the error at the outputs to ``views``."""
        raise NotDefined(f"{self.classnm} does not define _cut_error")

    def _deltas(self, views: Views) -> Any:
        """The error for the previous layer as ``(features, columns in use)``; None for a first layer."""
        if self.deltas is None:
            return None
        return first_columns(in_rows(self.deltas, self._x_used.shape[0]), views.extent.columns)

    def _input_gradients(self, views: Views, D: Tensor, alpha: float, beta: float) -> None:
        """Compute the input side's gradients, and the previous layer's error, from ``D``, the errors of the sums."""
        self.be.compound_dot(D, self._x_used.T, self.dW_input)
        self.be.sum(D, axis=1, out=self.db)
        deltas = self._deltas(views)
        if deltas is not None:
            self.be.compound_dot(self._W_input_T, D, deltas, alpha=alpha, beta=beta)

    # -- sequences of different lengths --------------------------------------------------------------------

    def set_lengths(self, lengths: Any) -> None:
        """Set the length of each sample in the following batches; None: all steps.

        Outputs after a sample's last step are 0 and their errors are ignored; its final state is the state of its last
        step. A backward direction starts at the last step. Inputs after it must be finite, but have no effect.

        Parameters
        ----------
        lengths : sequence of N int, or None
            From 0 to the number of steps.
        """
        self.padding = padding_of(lengths, self)

    def _masks(self, views: Views) -> Masks | None:
        return None if self.padding is None else self.padding.masks(self.name, self.outputs, views.extent)


def require_state(layer: Layer, given: Any, shape: tuple[int, int], count: int) -> list[Tensor]:
    """Check an initial state and return its tensors: h alone, or a list of all states.

    Parameters
    ----------
    layer : Layer
        The layer; its name is in messages.
    given : Tensor or list of Tensor
        The state: h alone, or all states.
    shape : tuple of int
        Shape of each, ``(nout, N)``.
    count : int
        Number of states that the layer has.

    Raises
    ------
    DTypeError
        If one is no tensor.
    ShapeError
        If their number or a shape differs.
    """
    tensors = list(given) if isinstance(given, list | tuple) else [given]
    where = f"{layer.name}.fprop: init_state"
    if len(tensors) not in (1, count):
        raise ShapeError(f"{where}: got {len(tensors)} tensors; expected h alone, or all {count} of get_state()")
    for tensor in tensors:
        if not isinstance(tensor, Tensor):
            raise DTypeError(f"{where}: expected a tensor {shape}, got {shown(tensor)}; make one with be.array")
        if tuple(tensor.shape) != shape:
            raise ShapeError(f"{where}: got shape {tuple(tensor.shape)}; expected {shape}, (units, samples)")
    return tensors
