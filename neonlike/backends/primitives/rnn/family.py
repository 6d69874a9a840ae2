"""Recurrent unrolls: ``compound_rnn_unroll_fprop``, ``compound_rnn_unroll_bprop`` and their bidirectional forms.

Unrolls of LSTM and GRU layers are in ``gated.py``. An unroll takes lists with one tensor per step; a layer passes
column views of its buffers. Activations are transforms: ``f(x)`` builds an expression, and ``f.bprop(y)`` its
derivative as a function of the output.
"""

from __future__ import annotations

from typing import Any

from neonlike.backends.primitives.rnn.gated import GatedFamily
from neonlike.backends.primitives.rnn.steps import (
    Steps,
    Unroll,
    check_activation,
    check_overlaps,
    check_parameters,
    gather_steps,
    pairs,
)
from neonlike.kernels.run import calls
from neonlike.kernels.run.calls import repeatable
from neonlike.optree.builders import dot
from neonlike.optree.dtypes import compute_dtype
from neonlike.optree.forms import owner


@owner
class RecurrentFamily(GatedFamily):
    """Unrolls of simple recurrent layers, forward and backward.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> callable(be.compound_rnn_unroll_fprop)
    True
    """

    @repeatable(pinned=True)
    def compound_rnn_unroll_fprop(
        self,
        W_recur: Any,
        h_prev_s: Any,
        h_ff_s: Any,
        h_s: Any,
        bias: Any,
        nout: int,
        num_steps: int,
        num_used_steps: int | None,
        activation: Any,
        reverse: bool = False,
    ) -> Any:
        """Forward unroll of a simple recurrent layer: h = activation(W_recur . h_prev + h_ff + bias) per step.

        Parameters
        ----------
        W_recur : tensor (nout, nout)
        h_prev_s, h_ff_s, h_s : lists of at least ``num_steps`` tensors (nout, N)
            State before each step, input projection, and computed state; surplus tensors are ignored. ``h_ff_s`` may be
            ``h_s``: the projection is then overwritten.
        bias : tensor (nout, 1) or None
        nout : int
            Units of the layer.
        num_steps : int
            Number of steps.
        num_used_steps : int or None
            Number of leading steps to compute.
        activation : callable
            A transform, or a function that builds an expression.
        reverse : bool
            Compute the last step first.

        Raises
        ------
        DTypeError, ShapeError, ArgumentError
            If tensors, lists or arguments do not fit; nothing is computed then.
        AliasError
            If a state shares memory with ``W_recur`` or ``bias``.

        Notes
        -----
        Elman, "Finding structure in time" (1990). On the CPU all steps are one call of a compiled kernel:
        W_recur is packed once; bias, projection and an elementwise activation are applied while a part of the product
        is in registers or the nearest cache.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> from neonlike.transforms import Identity
        >>> weight, start, inputs = be.eye(2), be.zeros((2, 1)), [be.ones((2, 1)), be.ones((2, 1))]
        >>> states = [be.empty((2, 1)), be.empty((2, 1))]
        >>> before = [start, states[0]]
        >>> be.compound_rnn_unroll_fprop(weight, before, inputs, states, None, 2, 2, None, Identity())
        >>> states[1].T.tolist()
        [[2.0, 2.0]]
        """
        name = "compound_rnn_unroll_fprop"
        steps = self._fprop_steps(
            name, W_recur, h_prev_s, h_ff_s, h_s, bias, nout, num_steps, num_used_steps, activation, reverse
        )
        self._run_unroll(self._rnn_fprop, steps, ("h_s",), (activation,), W_recur, bias)

    @repeatable(pinned=True)
    def compound_rnn_unroll_bprop(
        self,
        W_recur: Any,
        delta_prev_s: Any,
        delta_s: Any,
        h_s: Any,
        nout: int,
        num_steps: int,
        num_used_steps: int | None,
        activation: Any,
        reverse: bool = True,
    ) -> Any:
        """Backward unroll: delta = activation.bprop(h) * delta in place, then delta_prev += W_recur . delta, per step.

        Parameters
        ----------
        W_recur : tensor (nout, nout)
            The **transposed** weight: the caller passes ``W_recur.T``.
        delta_prev_s, delta_s, h_s : lists of ``num_steps`` tensors (nout, N)
            Errors at the state before each step and at each step's state, and the states. An entry of ``delta_prev_s``
            may be None: no error is passed on from that step.
        nout : int
            Units of the layer.
        num_steps : int
            Number of steps.
        num_used_steps : int or None
            Number of leading steps to compute.
        activation : object with ``bprop``
        reverse : bool
            Compute the last step first.

        Raises
        ------
        DTypeError, ShapeError, ArgumentError
            If tensors, lists or arguments do not fit; nothing is computed then.
        AliasError
            If an error shares memory with ``W_recur`` or the step's state.

        Notes
        -----
        Werbos, "Backpropagation through time" (1990).

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> from neonlike.transforms import Identity
        >>> weight, states = be.eye(2), [be.ones((2, 1)), be.ones((2, 1))]
        >>> errors = [be.ones((2, 1)), be.ones((2, 1))]
        >>> be.compound_rnn_unroll_bprop(weight.T, [None, errors[0]], errors, states, 2, 2, None, Identity())
        >>> errors[0].T.tolist()
        [[2.0, 2.0]]
        """
        name = "compound_rnn_unroll_bprop"
        steps = self._bprop_steps(
            name, W_recur, delta_prev_s, delta_s, h_s, nout, num_steps, num_used_steps, activation, reverse
        )
        outputs = ("delta_s", "delta_prev_s")
        self._run_unroll(self._rnn_bprop, steps, outputs, (activation,), W_recur)

    def compound_rnn_unroll_fprop_bibnrnn(
        self,
        ngLayer: Any,
        h_buffer_all: Any,
        h_ff_buffer: Any,
        W_recur_f: Any,
        h_prev: Any,
        h_ff_f: Any,
        h_f: Any,
        b_f: Any,
        W_recur_b: Any,
        h_next: Any,
        h_ff_b: Any,
        h_b: Any,
        b_b: Any,
        nout: int,
        nsteps: int,
        used_nsteps: int | None,
        activation: Any,
    ) -> None:
        """Forward unrolls of a bidirectional layer: one forward, and one from the last step to the first.

        Parameters
        ----------
        ngLayer, h_buffer_all, h_ff_buffer
            Accepted but ignored.
        W_recur_f, h_prev, h_ff_f, h_f, b_f
            Weight, lists and bias of the forward direction, as in :meth:`compound_rnn_unroll_fprop`.
        W_recur_b, h_next, h_ff_b, h_b, b_b
            The same for the backward direction; its state before step t is that of step t + 1.
        nout, nsteps, used_nsteps, activation
            As in :meth:`compound_rnn_unroll_fprop`.

        Raises
        ------
        DTypeError, ShapeError, ArgumentError, AliasError
            As in :meth:`compound_rnn_unroll_fprop`, before any step of either direction.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> from neonlike.transforms import Identity
        >>> weight, inputs, zero = be.eye(1), [be.ones((1, 1)), be.ones((1, 1))], be.zeros((1, 1))
        >>> ahead, back = [be.empty((1, 1)) for _ in range(2)], [be.empty((1, 1)) for _ in range(2)]
        >>> forward = weight, [zero, ahead[0]], inputs, ahead, None
        >>> backward = weight, [back[1], zero], inputs, back, None
        >>> be.compound_rnn_unroll_fprop_bibnrnn(None, None, None, *forward, *backward, 1, 2, None, Identity())
        >>> [t.item() for t in ahead], [t.item() for t in back]
        ([1.0, 2.0], [2.0, 1.0])
        """
        name = "compound_rnn_unroll_fprop_bibnrnn"
        common = nout, nsteps, used_nsteps, activation
        ahead = self._fprop_steps(name, W_recur_f, h_prev, h_ff_f, h_f, b_f, *common, False)
        back = self._fprop_steps(name, W_recur_b, h_next, h_ff_b, h_b, b_b, *common, True)
        self._run_unroll(self._rnn_fprop, ahead, ("h_s",), (activation,), W_recur_f, b_f)
        self._run_unroll(self._rnn_fprop, back, ("h_s",), (activation,), W_recur_b, b_b)

    def compound_rnn_unroll_bprop_bibnrnn(
        self,
        ngLayer: Any,
        error: Any,
        in_deltas_f: Any,
        prev_in_deltas: Any,
        in_deltas_b: Any,
        next_in_deltas: Any,
        W_recur_f: Any,
        W_recur_b: Any,
        h_f: Any,
        h_b: Any,
        nout: int,
        nsteps: int,
        used_nsteps: int | None,
        activation: Any,
        h_buffer_all: Any,
    ) -> None:
        """Backward unrolls of both directions; the backward one starts at the first step.

        Parameters
        ----------
        ngLayer, error, h_buffer_all
            Accepted but ignored.
        in_deltas_f, prev_in_deltas, W_recur_f, h_f
            Errors at the states and at the previous states, weight and states of the forward direction. The weights are
            those of the forward pass: they are transposed here.
        in_deltas_b, next_in_deltas, W_recur_b, h_b
            The same for the backward direction.
        nout, nsteps, used_nsteps, activation
            As in :meth:`compound_rnn_unroll_bprop`.

        Raises
        ------
        DTypeError, ShapeError, ArgumentError, AliasError
            As in :meth:`compound_rnn_unroll_bprop`, before any step of either direction.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> from neonlike.transforms import Identity
        >>> weight, states = be.eye(1), [be.ones((1, 1)), be.ones((1, 1))]
        >>> ahead, back = [be.ones((1, 1)) for _ in range(2)], [be.ones((1, 1)) for _ in range(2)]
        >>> errors = ahead, [None, ahead[0]], back, [back[1], None]
        >>> be.compound_rnn_unroll_bprop_bibnrnn(
        ...     None, None, *errors, weight, weight, states, states, 1, 2, None, Identity(), None
        ... )
        >>> [t.item() for t in ahead], [t.item() for t in back]
        ([2.0, 1.0], [1.0, 2.0])
        """
        name = "compound_rnn_unroll_bprop_bibnrnn"
        for weight in (W_recur_f, W_recur_b):
            check_parameters(self, name, None, (nout, nout), weight)
        w_f, w_b, common = W_recur_f.T, W_recur_b.T, (nout, nsteps, used_nsteps, activation)
        ahead = self._bprop_steps(name, w_f, prev_in_deltas, in_deltas_f, h_f, *common, True)
        back = self._bprop_steps(name, w_b, next_in_deltas, in_deltas_b, h_b, *common, False)
        outputs = ("delta_s", "delta_prev_s")
        self._run_unroll(self._rnn_bprop, ahead, outputs, (activation,), w_f)
        self._run_unroll(self._rnn_bprop, back, outputs, (activation,), w_b)

    # Checks

    def _fprop_steps(
        self,
        name: str,
        weight: Any,
        h_prev_s: Any,
        h_ff_s: Any,
        h_s: Any,
        bias: Any,
        nout: int,
        num_steps: int,
        num_used_steps: int | None,
        activation: Any,
        reverse: bool,
    ) -> Steps:
        lists = {"h_prev_s": (h_prev_s, nout), "h_ff_s": (h_ff_s, nout), "h_s": (h_s, nout)}
        steps = gather_steps(self, name, lists, nout, num_steps, num_used_steps, reverse)
        check_parameters(self, name, steps.dtype, (nout, nout), weight, bias)
        check_activation(name, False, activation=activation)
        check_overlaps(steps, ("h_s",), pairs(("h_s", "h_prev_s"), ("h_s", "h_ff_s")), W_recur=weight, bias=bias)
        return steps

    def _bprop_steps(
        self,
        name: str,
        weight: Any,
        delta_prev_s: Any,
        delta_s: Any,
        h_s: Any,
        nout: int,
        num_steps: int,
        num_used_steps: int | None,
        activation: Any,
        reverse: bool,
    ) -> Steps:
        lists = {"delta_prev_s": (delta_prev_s, nout), "delta_s": (delta_s, nout), "h_s": (h_s, nout)}
        steps = gather_steps(self, name, lists, nout, num_steps, num_used_steps, reverse, ("delta_prev_s",))
        check_parameters(self, name, steps.dtype, (nout, nout), weight, hint=" (the transposed weight)")
        check_activation(name, True, activation=activation)
        check_overlaps(steps, ("delta_prev_s", "delta_s"), pairs(("delta_prev_s", "delta_s")), W_recur=weight)
        return steps

    # Hooks, with the definitions, as in gated.py

    def _rnn_fprop(self, request: Unroll, steps: Steps, weight: Any, bias: Any) -> calls.Unrolled | None:
        before = self.fresh((request.units, request.samples), dtype=compute_dtype(request.dtype))
        for h_prev, h_ff, h in steps.each("h_prev_s", "h_ff_s", "h_s"):
            total = dot(weight, h_prev) + h_ff
            self.assign(before, total if bias is None else total + bias.reshape(request.units, 1))
            self.assign(h, request.activation(before))
        return None

    def _rnn_bprop(self, request: Unroll, steps: Steps, weight: Any) -> calls.Unrolled | None:
        for delta_prev, delta, h in steps.each("delta_prev_s", "delta_s", "h_s"):
            self.assign(delta, request.activation.bprop(h) * delta)
            if delta_prev is not None:
                self.assign(delta_prev, delta_prev + dot(weight, delta))
        return None
