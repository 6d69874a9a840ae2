"""Bidirectional recurrent layers: half of the units read the steps forward, the other half backward."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from neonlike.backends.backend import Tensor
from neonlike.errors import ArgumentError, ShapeError
from neonlike.kernels.run.depends import Dependent
from neonlike.layers.recurrent.sequence import SequenceLayer, Views
from neonlike.layers.recurrent.steps import Extent, get_steps

if TYPE_CHECKING:
    from neonlike.initializers.initializer import Init
    from neonlike.transforms.transform import Transform

__public_module__ = "neonlike.layers.recurrent"


class Way(Dependent, SimpleNamespace):
    """One direction: its steps in order of time, and their predecessors in the order of computation."""


class BiRNN(SequenceLayer):
    """Two simple recurrent layers side by side; the second reads the steps from last to first.

    Parameters
    ----------
    output_size : int
        Units per direction: the output has ``2 * output_size`` rows, forward direction first.
    init, init_inner, activation, reset_cells
        As of :class:`Recurrent`.
    split_inputs : bool
        The forward direction reads the first half of the features, the backward direction the second, as after another
        bidirectional layer.
    name : str, optional
        Name in listings and model files; by default the class's with a number.
    parallelism : str
        Kept for compatibility, see :class:`~neonlike.layers.layer.Layer`.

    Attributes
    ----------
    h_f, h_b, h_prev, h_next : lists of Tensor ``(nout, N)``
        States of each step, and their predecessors, which in the backward direction belong to the next step.
    h_buffer_all : Tensor ``(2 nout, (steps + 2) * N)``
        The states, including the one before the first and the one after the last step.
    h_buffer, outputs : Tensor ``(2 nout, steps * N)``
        View of the states without these two.

    Raises
    ------
    ShapeError
        If inputs of an odd number of features are to be split.

    Notes
    -----
    Without ``reset_cells`` a direction starts from its final state in the previous batch, as in :class:`Recurrent`.
    Gradients are truncated there.

    Source: Schuster & Paliwal, "Bidirectional recurrent neural networks" (1997).

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.initializers import Constant
    >>> from neonlike.layers import BiRNN
    >>> from neonlike.transforms import Identity
    >>> be = gen_backend("cpu", batch_size=2)
    >>> layer = BiRNN(output_size=1, init=Constant(1.0), activation=Identity())
    >>> layer(be.ones((1, 3, 2))).get()[:, :, 0].tolist()  # forward and backward, three steps
    [[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]]
    """

    repeatable = True

    directions = 2
    gate_lists: ClassVar[tuple[str, ...]] = ("h_ff",)
    """Per-direction lists that are also layer attributes, with suffixes ``_f`` and ``_b``."""

    def __init__(
        self,
        output_size: int,
        init: Init,
        init_inner: Init | None = None,
        activation: Transform | None = None,
        reset_cells: bool = False,
        split_inputs: bool = False,
        name: str | None = None,
        parallelism: str = "Data",
    ) -> None:
        super().__init__(output_size, init, init_inner, activation, reset_cells, name, parallelism)
        self.split_inputs = split_inputs

    def _configure_sizes(self) -> None:
        if self.split_inputs:
            if self.nin % 2:
                raise ShapeError(
                    f"{self.name}: split_inputs needs an even number of features, got {self.nin} of {self.in_shape}"
                )
            self.nin //= 2
        self.out_shape = (2 * self.nout, self.nsteps)

    def _features(self) -> int:
        return 2 * self.nin if self.split_inputs else self.nin

    def _part_rows(self) -> dict[str, int]:
        rows = {"W_input": self.nin, "W_recur": self.nout, "b": 1}
        return {f"{name}_{way}": count for name, count in rows.items() for way in "fb"}

    def _name_parts(self) -> None:
        """Name the parts, and the combined parts of both directions."""
        super()._name_parts()
        gates = 2 * self.ngates * self.nout
        for whole, prefix in ((self.W, ""), (self.dW, "d")):
            if whole is not None:
                setattr(self, f"{prefix}W_input", whole[: 2 * self.nin].viewed(gates, self.nin))
                setattr(self, f"{prefix}b", whole[-2:].viewed(gates, 1))
        self._W_input_T = self.W_input.T

    # -- buffers -------------------------------------------------------------------------------------------

    def _allocate_outputs(self, shared_outputs: Tensor | None, apart: bool) -> None:
        samples = self.be.bsz
        self.h_buffer_all = self.be.iobuf((2 * self.nout, self.nsteps + 2), parallelism=self.parallelism)
        self.h_buffer_all.fill(0)
        self.h_buffer = self.h_buffer_all[:, samples:-samples]
        if not apart:
            self.outputs = self.h_buffer

    def _allocate_steps(self, apart: bool) -> None:
        self._allocate_gates()
        views = self._views_for(Extent(self.nsteps, self.allocated_samples))
        forward, backward = views.ways
        self.h_f, self.h_prev, self.h_b, self.h_next = forward.h, forward.h_prev, backward.h, backward.h_prev
        for name in self.gate_lists:
            setattr(self, f"{name}_f", getattr(forward, name))
            setattr(self, f"{name}_b", getattr(backward, name))

    def _allocate_gates(self) -> None:
        self.h_ff_buffer = self._step_buffer(2 * self.nout)

    def _cut_buffers(self, views: Views) -> None:
        steps, samples = views.extent
        first = self.allocated_samples - samples
        padded = self.h_buffer_all[:, first : first + (steps + 2) * samples]
        views.h_all = padded[:, samples:-samples]
        views.apart = self.outputs is not self.h_buffer
        if views.result.shape[1] == views.extent.columns and not views.apart:
            views.result = views.outputs = views.h_all
        views.ways = [self._cut_way(views, padded, way) for way in (0, 1)]
        self._cut_gates(views)

    def _cut_way(self, views: Views, padded: Tensor, way: int) -> Way:
        steps, samples = views.extent
        rows = padded[way * self.nout : (way + 1) * self.nout]
        blocks = get_steps(rows, (self.nout, steps + 2))
        h = blocks[1:-1]
        cut = Way(suffix="fb"[way], backward=bool(way), h=h)
        cut.h_prev, cut.initial, cut.last = (blocks[2:], blocks[-1], h[0]) if way else (blocks[:-2], blocks[0], h[-1])
        before = rows[:, 2 * samples : -samples] if way else rows[:, samples : -2 * samples]
        cut.before = before if steps > 1 else None
        return cut

    def _cut_gates(self, views: Views) -> None:
        """Add gate buffers to ``views`` and its directions, and ``sums``, the destination of the input projection."""
        views.sums, _ = views.cut(self.h_ff_buffer)
        for way, rows in zip(views.ways, self._halves(views.sums), strict=True):
            way.h_ff = get_steps(rows, (self.nout, views.extent.steps))

    def _halves(self, buffer: Tensor) -> tuple[Tensor, Tensor]:
        """The rows of each direction."""
        half = buffer.shape[0] // 2
        return buffer[:half], buffer[half:]

    def _cut_error(self, views: Views, error: Tensor) -> None:
        views.e = error
        for way, rows in zip(views.ways, self._halves(error), strict=True):
            way.e = get_steps(rows, (self.nout, views.extent.steps))
            way.e_prev = [*way.e[1:], None] if way.backward else [None, *way.e[:-1]]
        self._cut_gate_errors(views)

    def _cut_gate_errors(self, views: Views) -> None:
        """Add ``D``, the errors before the activations."""
        self._set_gate_errors(views, views.e)

    def _set_gate_errors(self, views: Views, D: Tensor) -> None:
        samples = views.extent.samples
        views.D = D
        for way, rows in zip(views.ways, self._halves(D), strict=True):
            way.D = rows
            way.later = rows[:, :-samples] if way.backward else rows[:, samples:]

    # -- passes --------------------------------------------------------------------------------------------

    def _set_initial_states(self, views: Views, carry: bool) -> None:
        for initial, last in self._states(views):
            if carry and not self.reset_cells:
                initial[:] = last
            else:
                initial.fill(0)

    def _states(self, views: Views) -> list[tuple[Tensor, Tensor]]:
        """Initial and final state of each direction."""
        return [(way.initial, way.last) for way in views.ways]

    def fprop(self, inputs: Any, inference: bool = False) -> Tensor:
        """Outputs ``(2 nout, steps * N)``, forward states above backward states.

        Parameters
        ----------
        inputs : Tensor
            ``(features, steps * N)``.
        inference : bool
            True outside of training: batches may be partial.
        """
        before = self._last
        views, carry = self._begin(inputs, inference)
        masks = self._masks(views)
        self._set_initial_states(views, carry and before is views and masks is None)
        self._project(views, inference)
        if masks is not None:
            # A sum of 0 keeps the state at 0, so that the backward direction starts at a sample's last step.
            views.sums[:] = views.sums * masks.valid + self.b * (masks.valid - 1.0)
        for way in views.ways:
            self._unroll(views, way)
        if masks is not None:
            views.h_all[:] = self.be.where(masks.valid, views.h_all, 0)
        if views.apart:
            views.outputs[:] = views.h_all
        result: Tensor = views.result
        return result

    def _project(self, views: Views, inference: bool) -> None:
        """``views.sums`` = W_input · x of both directions."""
        if not self.split_inputs:
            self.be.compound_dot(self.W_input, self._x_used, views.sums)
            return
        for way, x, sums in zip(views.ways, self._halves(self._x_used), self._halves(views.sums), strict=True):
            self.be.compound_dot(self._part("W_input", way), x, sums)

    def _part(self, name: str, way: Any, form: str = "") -> Tensor:
        part: Tensor = getattr(self, f"{name}_{way.suffix}{form}")
        return part

    def _unroll(self, views: Views, way: Any) -> None:
        """Run all steps of one direction from the input projections."""
        steps = views.extent.steps
        self.be.compound_rnn_unroll_fprop(
            self._part("W_recur", way), way.h_prev, way.h_ff, way.h, self._part("b", way), self.nout, steps, steps,
            self.activation, reverse=way.backward,
        )  # fmt: skip

    def bprop(self, error: Any, alpha: float = 1.0, beta: float = 0.0) -> Any:
        """Gradients of the parameters, and the error for the previous layer; see :meth:`Recurrent.bprop`.

        Parameters
        ----------
        error : Tensor
            Gradient of the cost by the outputs, ``(2 nout, steps * N)``; **overwritten**.
        alpha, beta : float
            deltas = alpha · gradient + beta · deltas.

        Returns
        -------
        Tensor or None
            ``deltas``, the gradient by the inputs; None if no layer before needs it.
        """
        views = self._take_error(error, self._last)
        masks = self._masks(views)
        if masks is not None:
            views.e[:] = views.e * masks.valid
        for way in views.ways:
            self._unroll_back(views, way)
        if masks is not None:  # the backward direction propagated errors into the padding
            views.D[:] = views.D * masks.valid
        for way in views.ways:
            self._recurrent_gradient(way)
        self._input_gradients(views, views.D, alpha, beta)
        return self.deltas

    def _unroll_back(self, views: Views, way: Any) -> None:
        """Compute the errors of all steps of one direction, in its rows of ``views.D``."""
        steps = views.extent.steps
        self.be.compound_rnn_unroll_bprop(
            self._part("_W_recur", way, "_T"), way.e_prev, way.e, way.h, self.nout, steps, steps, self.activation,
            reverse=not way.backward,
        )  # fmt: skip

    def _recurrent_gradient(self, way: Any) -> None:
        gradient = self._part("dW_recur", way)
        if way.before is None:
            gradient.fill(0)
        else:
            self.be.compound_dot(way.later, way.before.T, gradient)

    def _input_gradients(self, views: Views, D: Tensor, alpha: float, beta: float) -> None:
        if not self.split_inputs:
            super()._input_gradients(views, D, alpha, beta)
            return
        self.be.sum(D, axis=1, out=self.db)
        deltas = self._deltas(views)
        halves = (None, None) if deltas is None else self._halves(deltas)
        for way, x, d, half in zip(views.ways, self._halves(self._x_used), self._halves(D), halves, strict=True):
            self.be.compound_dot(d, x.T, self._part("dW_input", way))
            if half is not None:
                self.be.compound_dot(self._part("_W_input", way, "_T"), d, half, alpha=alpha, beta=beta)

    def set_lengths(self, lengths: Any) -> None:
        """As :meth:`SequenceLayer.set_lengths`.

        Raises
        ------
        ArgumentError
            If activation(0) is not 0: the state after a sample's last step would not stay 0.
        """
        if lengths is not None:
            at_zero = self.be.empty((1, 1))
            at_zero[:] = self.be.zeros((1, 1))
            at_zero[:] = self.activation(at_zero)
            if np.any(at_zero.get()):
                raise ArgumentError(
                    f"{self.name}.set_lengths: {type(self.activation).__name__} of 0 is not 0, which lengths need in a "
                    "bidirectional layer; use Tanh or Rectlin, or sequences of one length"
                )
        super().set_lengths(lengths)
