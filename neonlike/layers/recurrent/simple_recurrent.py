"""Recurrent layer with steps h = activation(W_input · x + W_recur · h_prev + b); base of LSTM and GRU."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

from neonlike.backends.backend import Tensor
from neonlike.errors import ArgumentError
from neonlike.layers.core.bias import EXPRESSIONS
from neonlike.layers.core.int8 import Int8Layer
from neonlike.layers.recurrent.sequence import SequenceLayer, Views, require_state
from neonlike.layers.recurrent.steps import Extent, first_columns, get_steps

if TYPE_CHECKING:
    from neonlike.initializers.initializer import Init
    from neonlike.transforms.transform import Transform

__public_module__ = "neonlike.layers.recurrent"


def activate(target: Tensor, activation: Transform, value: Any) -> None:
    """target = activation(value), of an expression; an activation of a user's own gets a tensor, as it expects.

    Parameters
    ----------
    target : Tensor
    activation : Transform
    value : expression
    """
    if type(activation) in EXPRESSIONS:
        target[:] = activation(value)
    else:
        target[:] = value
        target[:] = activation(target)


class Recurrent(Int8Layer, SequenceLayer):
    """Simple recurrent layer: h_t = activation(W_input · x_t + W_recur · h_(t-1) + b).

    Parameters
    ----------
    output_size : int
        Units.
    init : Initializer or array
        Initializer of the weights; an array holds all of ``W``.
    init_inner : Initializer, optional
        Initializer of the recurrent weights.
    activation : Transform
        Activation of the states.
    reset_cells : bool
        Start each batch from a state of 0. Otherwise the initial state is the last state of the previous batch, as long
        as inputs come in the same buffer with the same number of samples; else it is 0.
    name : str, optional
        Name in listings and model files; by default the class's with a number.

    Attributes
    ----------
    h, h_prev, h_ff : lists of Tensor ``(nout, N)``
        State, previous state and input projection of each step.
    h_delta : list of Tensor ``(nout, N)``
        The error that each step of the last backward pass propagated to the previous state.
    final_state_buffer, final_hidden_error : Tensor ``(nout, N)``
        The last state, and the first of ``h_delta``.

    Notes
    -----
    The backward pass is truncated at the first step of the batch: the initial state counts as 0, unless it was passed
    as ``init_state``. It overwrites its error argument.

    Source: Elman, "Finding structure in time" (1990).

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.initializers import Constant
    >>> from neonlike.layers import Recurrent
    >>> from neonlike.transforms import Identity
    >>> be = gen_backend("cpu", batch_size=2)
    >>> layer = Recurrent(output_size=1, init=Constant(1.0), activation=Identity())
    >>> layer(be.ones((1, 3, 2))).get()[0, :, 0].tolist()  # the three steps of a sample
    [1.0, 2.0, 3.0]
    """

    repeatable = takes_int8 = True
    int8_steps = ("int8_step", "int8_state_step")
    int8_state_step: Any = None
    """Size of the steps to which states are rounded where they are multiplied in int8; None: they are not."""
    _int8_recur: Any = None
    step_lists: ClassVar[tuple[str, ...]] = ("h", "h_prev", "h_ff")
    """Views of all steps, also available as layer attributes."""

    def __init__(
        self,
        output_size: int,
        init: Init,
        init_inner: Init | None = None,
        activation: Transform | None = None,
        reset_cells: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__(output_size, init, init_inner, activation, reset_cells, name)

    # -- buffers -------------------------------------------------------------------------------------------

    def _forget(self) -> None:
        super()._forget()
        self._next_state: list[Tensor] | None = None
        self._states_given = 0

    def _allocate_steps(self, apart: bool) -> None:
        self.h_buffer = self.be.zeros_like(self.outputs) if apart else self.outputs
        self.final_state_buffer, self._h_initial, self.final_hidden_error = (self._state_buffer() for _ in range(3))
        self._allocate_gates()
        views = self._views_for(Extent(self.nsteps, self.allocated_samples))
        for name in self.step_lists:
            setattr(self, name, getattr(views, name))

    def _state_buffer(self) -> Tensor:
        made: Tensor = self.be.zeros((self.nout, self.allocated_samples), dtype=self.outputs.dtype)
        return made

    def _allocate_gates(self) -> None:
        self.h_ff_buffer = self._step_buffer(self.nout)

    def _cut_buffers(self, views: Views) -> None:
        views.h_all = views.outputs if self.h_buffer is self.outputs else views.cut(self.h_buffer)[0]
        views.h = get_steps(views.h_all, (self.nout, views.extent.steps))
        samples = views.extent.samples
        initial, final = (first_columns(buffer, samples) for buffer in (self._h_initial, self.final_state_buffer))
        views.h_initial, views.h_prev = initial, [initial, *views.h[:-1]]
        views.states = [(initial, views.h_all, final)]
        views.h_passed = first_columns(self.final_hidden_error, samples)
        self._cut_gates(views)

    def _cut_gates(self, views: Views) -> None:
        """Add gate buffers to ``views``, and ``sums``, the destination of the input projection."""
        views.sums, views.h_ff = views.cut(self.h_ff_buffer)

    def _cut_error(self, views: Views, error: Tensor) -> None:
        views.e = error
        views.e_steps = get_steps(error, (self.nout, views.extent.steps))
        views.e_prev = [views.h_passed, *views.e_steps[:-1]]
        self._cut_gate_errors(views)

    def _cut_gate_errors(self, views: Views) -> None:
        """Add ``D``, the errors before the activations, and the products for gradients of recurrent weights."""
        views.D = views.e
        views.products = [recurrent_product(views, "dW_recur", views.D)]

    # -- state ---------------------------------------------------------------------------------------------

    def final_state(self) -> Tensor:
        """A copy of the state h after the last step, ``(nout, N)``."""
        return self.get_state()[0]

    def get_state(self) -> list[Tensor]:
        """Copies of all states after the last step, h first, each ``(nout, N)``.

        ``fprop(x, init_state=state)`` continues from there.
        """
        if self._last is None:
            raise ArgumentError(f"{self.name}: there is no state yet; call fprop first")
        return [self.be.array(final) for _, _, final in self._last.states]

    def set_state(self, state: Any) -> None:
        """Start the next forward pass as with ``init_state=state``, regardless of its input buffer; None: from 0.

        Parameters
        ----------
        state : Tensor, list of Tensor or None
            h, or all states of :meth:`get_state`.
        """
        if state is None:
            self.x = None
        self._next_state = state

    def get_final_hidden_error(self) -> Tensor:
        """Error propagated to the state before the first step by the last backward pass, ``(nout, N)``."""
        passed: Tensor = self.final_hidden_error if self._last is None else self._last.h_passed
        return passed

    def add_final_error(self, error: Tensor, final: Tensor) -> None:
        """Add the final state's error to the error at the outputs, before ``bprop``.

        Parameters
        ----------
        error : Tensor ``(nout, steps * N)``
            Changed in place at the last step, or at each sample's last step if there are lengths. Without lengths
            the columns of the last step are enough, ``(nout, N)``.
        final : Tensor
            The error of the final state, ``(nout, N)``.
        """
        views = self._last
        if views is None:
            raise ArgumentError(f"{self.name}: there is no state yet; call fprop first")
        (steps, samples), masks = views.extent, self._masks(views)
        used = first_columns(error, views.extent.columns)
        if masks is None:
            last = used[:, -samples:]
            last[:] = last + final
        else:
            by_step = used.reshape(self.nout, steps, samples)
            added = final.reshape(self.nout, 1, samples) * masks.last.reshape(1, steps, samples)
            by_step[:] = by_step + added

    def add_final_errors(self, error: Tensor, finals: Sequence[Tensor]) -> None:
        """As :meth:`add_final_error`, of all states of :meth:`get_state`.

        Parameters
        ----------
        error : Tensor
            Error at the outputs, ``(nout, steps * N)``, changed in place.
        finals : list of Tensor
            The error of each state, ``(nout, N)``.
        """
        self.add_final_error(error, finals[0])

    def errors_passed(self) -> list[Tensor]:
        """Gradients by the states before the first step, in the order of :meth:`get_state`; buffers of the layer."""
        return [self.final_hidden_error]

    def _set_initial_states(self, views: Views, carry: bool, init_state: Any) -> None:
        """Fill the states before the first step: given states, states carried over from the last batch, or 0."""
        given: list[Tensor] = []
        init_state = self._next_state if init_state is None else init_state
        if init_state is not None:
            given = require_state(self, init_state, (self.nout, views.extent.samples), len(views.states))
        for (initial, _, final), tensor in zip(views.states, given + [None] * len(views.states), strict=False):
            if tensor is not None:
                initial[:] = tensor
            elif carry and not self.reset_cells:
                initial[:] = final
            else:
                initial.fill(0)
        self._next_state, self._states_given = None, len(given)

    def _keep_final_states(self, views: Views) -> None:
        masks = self._masks(views)
        steps, samples = views.extent
        for initial, states, final in views.states:
            if masks is None:
                final[:] = states[:, -samples:]
            else:
                shape = self.nout, steps, samples
                at_last = self.be.where(masks.last.reshape(1, steps, samples), states.reshape(shape), 0)
                final.viewed(self.nout, 1, samples)[:] = self.be.sum(at_last, axis=1)
                final[:] = final + initial * masks.empty

    def int8_weight(self) -> Tensor:
        """The weight of the inputs, which is multiplied in int8; see :meth:`_unroll_int8` for that of the states."""
        weight: Tensor = self.W_input
        return weight

    def measured(self) -> list[tuple[Any, ...]]:
        """The inputs, and the states, of the last pass; see :meth:`Int8Layer.measured`."""
        views = self._last
        return [*super().measured(), () if views is None else (views.h_initial, views.h_all)]

    def notes(self) -> list[str]:
        """Notes for ``model.explain``."""
        only_inputs = self.int8_step is not None and self.int8_state_step is None
        return ["multiplies its inputs in int8"] if only_inputs else super().notes()

    def products(self, backward: bool = False) -> list[tuple[Any, str]]:
        """See :meth:`Layer.products`."""
        return super().products(backward) if self.int8_state_step is None else []  # it notes int8 itself

    def _changed(self) -> None:
        super()._changed()
        self._int8_recur = None

    def _quantized_parts(self, *starts: int) -> Any:
        """Quantized weights of the states, for the rows from each of ``starts`` to the next."""
        if self._int8_recur is None:
            step = float(self.int8_state_step.item())
            rows = pairwise((*starts, self.ngates * self.nout))
            self._int8_recur = [self.be.int8_weights(self.W_recur[first:last], step) for first, last in rows]
        return self._int8_recur

    # -- passes --------------------------------------------------------------------------------------------

    def fprop(self, inputs: Any, inference: bool = False, init_state: Any = None) -> Tensor:
        """Outputs ``(nout, steps * N)``: the states of all steps.

        Parameters
        ----------
        inputs : Tensor
            ``(nin, steps * N)``.
        inference : bool
            Partial batches are accepted.
        init_state : Tensor ``(nout, N)`` or list of Tensor, optional
            h before the first step; or the whole of :meth:`get_state`, for an LSTM h and c.

        Raises
        ------
        ShapeError, DTypeError
            If inputs or state do not fit.
        """
        views, carry = self._begin(inputs, inference)
        masks = self._masks(views)
        self._set_initial_states(views, carry, init_state)
        if self.int8_step is not None:
            self.multiply_int8(self._x_used, views.sums, inference)
        else:
            self.be.compound_dot(self.W_input, self._x_used, views.sums)
        if self.int8_state_step is None:
            self._unroll(views)
        else:
            self._unroll_int8(views)
        if masks is not None:
            views.h_all[:] = self.be.where(masks.valid, views.h_all, 0)  # steps in the padding may be infinite
        self._keep_final_states(views)
        if views.h_all is not views.outputs:
            views.outputs[:] = views.h_all
        result: Tensor = views.result
        return result

    def bprop(self, deltas: Any, alpha: float = 1.0, beta: float = 0.0) -> Any:
        """Gradients of the parameters, and the error for the previous layer.

        Parameters
        ----------
        deltas : Tensor ``(nout, steps * N)``
            Gradient of the cost with respect to the outputs; **overwritten**.
        alpha, beta : float
            deltas = alpha · gradient + beta · deltas.

        Returns
        -------
        Tensor or None
            ``deltas`` of the layer: the gradient with respect to the inputs; None for the first layer.
        """
        views = self._take_error(deltas, self._last)
        masks = self._masks(views)
        if masks is not None:
            views.e[:] = views.e * masks.valid
        views.h_passed.fill(0)
        self._unroll_back(views)
        self._recurrent_gradient(views)
        self._input_gradients(views, views.D, alpha, beta)
        return self.deltas

    def _unroll(self, views: Views) -> None:
        """Run all steps, from the input projections in ``views.sums``."""
        steps = views.extent.steps
        self.be.compound_rnn_unroll_fprop(
            self.W_recur, views.h_prev, views.h_ff, views.h, self.b, self.nout, steps, steps, self.activation
        )

    def _unroll_int8(self, views: Views) -> None:
        """As :meth:`_unroll`, with products in int8: a kernel for each, and for each assignment of a step."""
        (weights,) = self._quantized_parts(0)
        total = self.be.fresh((self.nout, views.extent.samples))
        for h_prev, ff, h in zip(views.h_prev, views.h_ff, views.h):
            self.be.int8_product(weights, h_prev, total, bias=self.b)
            activate(h, self.activation, total + ff)

    def _unroll_back(self, views: Views) -> None:
        """Compute the errors of all steps in ``views.D``, and the error propagated to the initial state."""
        steps = views.extent.steps
        self.be.compound_rnn_unroll_bprop(
            self._W_recur_T, views.e_prev, views.e_steps, views.h, self.nout, steps, steps, self.activation
        )

    @property
    def _first_step_counts(self) -> bool:
        """Whether gradients include the state before the first step."""
        return self._states_given > 0

    def _recurrent_gradient(self, views: Views) -> None:
        """dW_recur = D · h_prevᵀ."""
        for name, later, before, first, initial in views.products:
            gradient = getattr(self, name)
            if before is not None:
                self.be.compound_dot(later, before, gradient)
            elif not self._first_step_counts:
                gradient.fill(0)
            if self._first_step_counts:
                self.be.compound_dot(first, initial, gradient, beta=float(before is not None))

    # -- errors passed on ----------------------------------------------------------------------------------

    @property
    def h_delta(self) -> Any:
        """Errors propagated to each previous step by the backward pass, until its error buffer is overwritten."""
        if self._error_views is None:
            return None
        views = self._error_views
        passed = self.be.empty((self.nout, views.extent.columns), dtype=views.D.dtype)
        passed[:] = self._passed_back(views)
        return get_steps(passed, (self.nout, views.extent.steps))

    def _passed_back(self, views: Views) -> Any:
        return self.be.dot(self._W_recur_T, views.D)


def recurrent_product(views: Views, gradient: str, D: Tensor, factor: Any = None) -> tuple[Any, ...]:
    """The product D · factorᵀ over all steps, with the first step apart, for ``_recurrent_gradient``.

    Parameters
    ----------
    views : Views
        The buffers of the layer.
    gradient : str
        Attribute for the result.
    D : Tensor
        Errors before the activation, ``(gates * nout, steps * N)``.
    factor : Tensor ``(nout, steps * N)``, optional
        The factor of ``D`` in each step; by default the previous state.

    Returns
    -------
    tuple
        ``gradient``, then the factors of all steps but the first, then those of the first.
    """
    samples = views.extent.samples
    if factor is None:
        before, initial = views.h_all[:, :-samples], views.h_initial
    else:
        before, initial = factor[:, samples:], factor[:, :samples]
    return gradient, D[:, samples:], before.T if views.extent.steps > 1 else None, D[:, :samples], initial.T
