"""Unrolls of LSTM and GRU layers, forward and backward, in the form of ``compound_rnn_unroll_fprop``.

A layer keeps the gates of a step in one tensor: rows i, f, o, g of an LSTM, or r, z, n of a GRU, ``nout`` rows each.
Input projections of all steps are computed before, in one product; weight gradients are computed after.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from neonlike.backends.family import Family
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
from neonlike.kernels.run.trace import Pinned
from neonlike.optree.builders import dot
from neonlike.optree.dtypes import compute_dtype
from neonlike.optree.forms import owner

TRANSPOSED = " (the transposed weight)"


@owner
class GatedFamily(Family):
    """Unrolls of gated recurrent layers, an addition to neon, whose layers call op-trees step by step.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> callable(be.compound_lstm_unroll_fprop)
    True
    """

    @repeatable(pinned=True)
    def compound_lstm_unroll_fprop(
        self,
        W_recur: Any,
        h_prev_s: Any,
        c_prev_s: Any,
        ifog_ff_s: Any,
        ifog_s: Any,
        c_s: Any,
        c_act_s: Any,
        h_s: Any,
        bias: Any,
        nout: int,
        num_steps: int,
        num_used_steps: int | None,
        activation: Any,
        gate_activation: Any,
        reverse: bool = False,
    ) -> Any:
        """Forward unroll of an LSTM: gates i, f, o, g; c = f c_prev + i g, c_act = activation(c), h = o c_act per step.

        [i f o] = gate_activation and g = activation of W_recur . h_prev + ifog_ff + bias.

        Parameters
        ----------
        W_recur : tensor (4 nout, nout)
        h_prev_s, c_prev_s, c_s, c_act_s, h_s : lists of ``num_steps`` tensors (nout, N)
            State and cell before each step; computed cell, activated cell and state. An entry of ``c_prev_s`` may be
            that of ``c_s``.
        ifog_ff_s, ifog_s : lists of ``num_steps`` tensors (4 nout, N)
            Input projection, and computed gates; may be the same tensors.
        bias : tensor (4 nout, 1) or None
        nout : int
            Units of the layer.
        num_steps : int
            Number of steps.
        num_used_steps, reverse
            As in :meth:`compound_rnn_unroll_fprop`.
        activation, gate_activation : callable
            Transforms, or functions that build an expression.

        Raises
        ------
        DTypeError, ShapeError, ArgumentError
            If tensors, lists or arguments do not fit; nothing is computed then.
        AliasError
            If outputs of a step share memory with each other or with data still needed.

        Notes
        -----
        Gers et al., "Learning to forget" (2000).

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> from neonlike.transforms import Logistic, Tanh
        >>> weight, h0, c0, inputs = be.zeros((4, 1)), be.zeros((1, 1)), be.zeros((1, 1)), be.zeros((4, 1))
        >>> gates, c, act, h = be.empty((4, 1)), be.empty((1, 1)), be.empty((1, 1)), be.empty((1, 1))
        >>> lists = [h0], [c0], [inputs], [gates], [c], [act], [h]
        >>> be.compound_lstm_unroll_fprop(weight, *lists, None, 1, 1, None, Tanh(), Logistic())
        >>> gates.T.tolist(), h.item()
        ([[0.5, 0.5, 0.5, 0.0]], 0.0)
        """
        name, n = "compound_lstm_unroll_fprop", nout
        lists = {
            "h_prev_s": (h_prev_s, n), "c_prev_s": (c_prev_s, n), "ifog_ff_s": (ifog_ff_s, 4 * n),
            "ifog_s": (ifog_s, 4 * n), "c_s": (c_s, n), "c_act_s": (c_act_s, n), "h_s": (h_s, n),
        }  # fmt: skip
        steps = gather_steps(self, name, lists, n, num_steps, num_used_steps, reverse)
        check_parameters(self, name, steps.dtype, (4 * n, n), W_recur, bias)
        check_activation(name, False, activation=activation, gate_activation=gate_activation)
        outputs = ("ifog_s", "c_s", "c_act_s", "h_s")
        in_place = pairs(("h_s", "h_prev_s"), ("c_s", "c_prev_s"), ("ifog_s", "ifog_ff_s"))
        check_overlaps(steps, outputs, in_place, W_recur=W_recur, bias=bias)
        self._run_unroll(self._lstm_fprop, steps, outputs, (activation, gate_activation), W_recur, bias)

    @repeatable(pinned=True)
    def compound_lstm_unroll_bprop(
        self,
        W_recur: Any,
        delta_prev_s: Any,
        delta_s: Any,
        c_delta_prev_s: Any,
        c_delta_s: Any,
        ifog_delta_s: Any,
        ifog_s: Any,
        c_prev_s: Any,
        c_act_s: Any,
        nout: int,
        num_steps: int,
        num_used_steps: int | None,
        activation: Any,
        gate_activation: Any,
        reverse: bool = True,
    ) -> Any:
        """Backward unroll of an LSTM: errors of cell and gates, passed on to the previous cell and state, per step.

        c_delta += activation.bprop(c_act) o delta; the gates' errors before their activations are
        di = gate.bprop(i) c_delta g, df = gate.bprop(f) c_delta c_prev, do = gate.bprop(o) delta c_act,
        dg = activation.bprop(g) c_delta i; then delta_prev += W_recur . [di; df; do; dg], c_delta_prev = c_delta f.

        Parameters
        ----------
        W_recur : tensor (nout, 4 nout)
            The **transposed** weight: the caller passes ``W_recur.T``.
        delta_prev_s, delta_s, c_delta_prev_s, c_delta_s : lists of ``num_steps`` tensors (nout, N)
            Errors at states and cells before each step and at each step. Entries of the first and third may be None: no
            error is passed on. An entry of ``c_delta_prev_s`` may be that of ``c_delta_s``, so one tensor serves all
            steps; it must be 0 before the first computed step.
        ifog_delta_s, ifog_s : lists of ``num_steps`` tensors (4 nout, N)
            Computed errors, and the gates.
        c_prev_s, c_act_s : lists of ``num_steps`` tensors (nout, N)
            Cells before each step (None counts as 0) and activated cells.
        nout : int
            Units of the layer.
        num_steps : int
            Number of steps.
        num_used_steps, activation, gate_activation, reverse
            As in :meth:`compound_rnn_unroll_bprop`.

        Raises
        ------
        DTypeError, ShapeError, ArgumentError, AliasError
            As in :meth:`compound_lstm_unroll_fprop`.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> from neonlike.transforms import Logistic, Tanh
        >>> weight, gates, dgates = be.zeros((4, 1)), be.array([0.5, 0.5, 0.5, 0.]), be.empty((4, 1))
        >>> delta, dc, act = be.ones((1, 1)), be.zeros((1, 1)), be.zeros((1, 1))
        >>> lists = [None], [delta], [None], [dc], [dgates], [gates], [None], [act]
        >>> be.compound_lstm_unroll_bprop(weight.T, *lists, 1, 1, None, Tanh(), Logistic())
        >>> dgates.T.tolist()
        [[0.0, 0.0, 0.0, 0.25]]
        """
        name, n = "compound_lstm_unroll_bprop", nout
        lists = {
            "delta_prev_s": (delta_prev_s, n), "delta_s": (delta_s, n), "c_delta_prev_s": (c_delta_prev_s, n),
            "c_delta_s": (c_delta_s, n), "ifog_delta_s": (ifog_delta_s, 4 * n), "ifog_s": (ifog_s, 4 * n),
            "c_prev_s": (c_prev_s, n), "c_act_s": (c_act_s, n),
        }  # fmt: skip
        optional = ("delta_prev_s", "c_delta_prev_s", "c_prev_s")
        steps = gather_steps(self, name, lists, n, num_steps, num_used_steps, reverse, optional)
        check_parameters(self, name, steps.dtype, (n, 4 * n), W_recur, hint=TRANSPOSED)
        check_activation(name, True, activation=activation, gate_activation=gate_activation)
        outputs = ("ifog_delta_s", "c_delta_s", "c_delta_prev_s", "delta_s", "delta_prev_s")
        in_place = pairs(("delta_prev_s", "delta_s"), ("c_delta_prev_s", "c_delta_s"))
        check_overlaps(steps, outputs, in_place, W_recur=W_recur)
        self._run_unroll(self._lstm_bprop, steps, outputs, (activation, gate_activation), W_recur)

    @repeatable(pinned=True)
    def compound_gru_unroll_fprop(
        self,
        W_recur: Any,
        h_prev_s: Any,
        rzn_ff_s: Any,
        rzn_s: Any,
        reset_h_s: Any,
        h_s: Any,
        bias: Any,
        nout: int,
        num_steps: int,
        num_used_steps: int | None,
        activation: Any,
        gate_activation: Any,
        reverse: bool = False,
    ) -> Any:
        """Forward unroll of a GRU: gates r and z, candidate n, then h = (1 - z) h_prev + z n per step.

        [r z] = gate_activation(W_rz . h_prev + rz_ff + b_rz), n = activation(W_n . (r h_prev) + n_ff + b_n), with the
        rows of W_recur in the order r, z, n.

        Parameters
        ----------
        W_recur : tensor (3 nout, nout)
        h_prev_s, reset_h_s, h_s : lists of ``num_steps`` tensors (nout, N)
            State before each step; computed r h_prev, for the gradient of W_n, and state. Entries of ``reset_h_s`` may
            be None: not kept.
        rzn_ff_s, rzn_s : lists of ``num_steps`` tensors (3 nout, N)
            Input projection, and computed gates and candidate; may be the same tensors.
        bias : tensor (3 nout, 1) or None
        nout : int
            Units of the layer.
        num_steps : int
            Number of steps.
        num_used_steps, activation, gate_activation, reverse
            As in :meth:`compound_lstm_unroll_fprop`.

        Raises
        ------
        DTypeError, ShapeError, ArgumentError, AliasError
            As in :meth:`compound_lstm_unroll_fprop`.

        Notes
        -----
        Cho et al., "Learning phrase representations using RNN encoder-decoder" (2014).

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> from neonlike.transforms import Logistic, Tanh
        >>> weight, h0, inputs = be.zeros((3, 1)), be.ones((1, 1)), be.zeros((3, 1))
        >>> gates, h = be.empty((3, 1)), be.empty((1, 1))
        >>> lists = [h0], [inputs], [gates], [None], [h]
        >>> be.compound_gru_unroll_fprop(weight, *lists, None, 1, 1, None, Tanh(), Logistic())
        >>> gates.T.tolist(), h.item()
        ([[0.5, 0.5, 0.0]], 0.5)
        """
        name, n = "compound_gru_unroll_fprop", nout
        lists = {
            "h_prev_s": (h_prev_s, n), "rzn_ff_s": (rzn_ff_s, 3 * n), "rzn_s": (rzn_s, 3 * n),
            "reset_h_s": (reset_h_s, n), "h_s": (h_s, n),
        }  # fmt: skip
        steps = gather_steps(self, name, lists, n, num_steps, num_used_steps, reverse, ("reset_h_s",))
        check_parameters(self, name, steps.dtype, (3 * n, n), W_recur, bias)
        check_activation(name, False, activation=activation, gate_activation=gate_activation)
        outputs = ("rzn_s", "reset_h_s", "h_s")
        check_overlaps(steps, outputs, pairs(("h_s", "h_prev_s"), ("rzn_s", "rzn_ff_s")), W_recur=W_recur, bias=bias)
        self._run_unroll(self._gru_fprop, steps, outputs, (activation, gate_activation), W_recur, bias)

    @repeatable(pinned=True)
    def compound_gru_unroll_bprop(
        self,
        W_recur: Any,
        delta_prev_s: Any,
        delta_s: Any,
        rzn_delta_s: Any,
        rzn_s: Any,
        h_prev_s: Any,
        nout: int,
        num_steps: int,
        num_used_steps: int | None,
        activation: Any,
        gate_activation: Any,
        reverse: bool = True,
    ) -> Any:
        """Backward unroll of a GRU: errors before the gates' activations, passed on to the previous state, per step.

        dn = activation.bprop(n) delta z, dz = gate.bprop(z) delta (n - h_prev), q = W_n . dn, dr = gate.bprop(r) q
        h_prev; then delta_prev += delta (1 - z) + W_rz . [dr; dz] + r q.

        Parameters
        ----------
        W_recur : tensor (nout, 3 nout)
            The **transposed** weight: the caller passes ``W_recur.T``; its columns are W_rz, then W_n.
        delta_prev_s, delta_s : lists of ``num_steps`` tensors (nout, N)
            Errors at the state before each step (None: not passed on) and at each step's state.
        rzn_delta_s, rzn_s : lists of ``num_steps`` tensors (3 nout, N)
            Computed errors, and gates and candidate.
        h_prev_s : list of ``num_steps`` tensors (nout, N)
            States before each step; None counts as 0.
        nout : int
            Units of the layer.
        num_steps : int
            Number of steps.
        num_used_steps, activation, gate_activation, reverse
            As in :meth:`compound_rnn_unroll_bprop`.

        Raises
        ------
        DTypeError, ShapeError, ArgumentError, AliasError
            As in :meth:`compound_lstm_unroll_fprop`.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> from neonlike.transforms import Logistic, Tanh
        >>> weight, gates, dgates = be.zeros((3, 1)), be.array([0.5, 0.5, 0.]), be.empty((3, 1))
        >>> lists = [None], [be.ones((1, 1))], [dgates], [gates], [be.ones((1, 1))]
        >>> be.compound_gru_unroll_bprop(weight.T, *lists, 1, 1, None, Tanh(), Logistic())
        >>> dgates.T.tolist()
        [[0.0, -0.25, 0.5]]
        """
        name, n = "compound_gru_unroll_bprop", nout
        lists = {
            "delta_prev_s": (delta_prev_s, n), "delta_s": (delta_s, n), "rzn_delta_s": (rzn_delta_s, 3 * n),
            "rzn_s": (rzn_s, 3 * n), "h_prev_s": (h_prev_s, n),
        }  # fmt: skip
        optional = ("delta_prev_s", "h_prev_s")
        steps = gather_steps(self, name, lists, n, num_steps, num_used_steps, reverse, optional)
        check_parameters(self, name, steps.dtype, (n, 3 * n), W_recur, hint=TRANSPOSED)
        check_activation(name, True, activation=activation, gate_activation=gate_activation)
        outputs = ("rzn_delta_s", "delta_s", "delta_prev_s")
        check_overlaps(steps, outputs, pairs(("delta_prev_s", "delta_s")), W_recur=W_recur)
        self._run_unroll(self._gru_bprop, steps, outputs, (activation, gate_activation), W_recur)

    def _run_unroll(
        self,
        hook: Callable[..., calls.Unrolled | None],
        steps: Steps,
        outputs: Sequence[str],
        activations: tuple[Any, ...],
        weight: Any,
        *bias: Any,
    ) -> None:
        """Run an unroll that passed its checks, unless there is nothing to compute."""
        if not len(steps) or not steps.units or not steps.samples:
            return
        request = Unroll(len(steps), steps.units, steps.samples, steps.dtype, *activations)
        written = [tensor for name in outputs for tensor in steps.roles[name]]
        shapes = [weight.shape, (steps.units, steps.samples)]
        flops = 2 * len(steps) * weight.size * steps.samples
        nbytes = weight.nbytes + sum(
            len(role) * role[-1].nbytes for role in steps.roles.values() if role[-1] is not None
        )
        pinned = Pinned((*(tensor for role in steps.roles.values() for tensor in role), weight, *bias))

        def run() -> calls.Unrolled | None:
            return hook(request, steps, weight, *bias)

        self._run_primitive(steps.operation, run, written, shapes, nbytes, flops, "product", operands=pinned)

    # Hooks, with the definitions; they return the object that repeats the call, if it was a single kernel

    def _lstm_fprop(self, request: Unroll, steps: Steps, weight: Any, bias: Any) -> calls.Unrolled | None:
        act, gate_act = request.activation, request.gate_activation
        n = request.units
        before = self.fresh((4 * n, request.samples), dtype=compute_dtype(request.dtype))
        names = ("h_prev_s", "c_prev_s", "ifog_ff_s", "ifog_s", "c_s", "c_act_s", "h_s")
        for h_prev, c_prev, ff, ifog, c, c_act, h in steps.each(*names):
            total = dot(weight, h_prev) + ff
            self.assign(before, total if bias is None else total + bias.reshape(4 * n, 1))
            self.assign(ifog[: 3 * n], gate_act(before[: 3 * n]))
            self.assign(ifog[3 * n :], act(before[3 * n :]))
            i, f, o, g = (ifog[k * n : (k + 1) * n] for k in range(4))
            self.assign(c, f * c_prev + i * g)
            self.assign(c_act, c)  # an activation may work in place
            self.assign(c_act, act(c_act))
            self.assign(h, o * c_act)
        return None

    def _lstm_bprop(self, request: Unroll, steps: Steps, weight: Any) -> calls.Unrolled | None:
        act, gate_act = request.activation, request.gate_activation
        n = request.units
        names = (
            "delta_prev_s",
            "delta_s",
            "c_delta_prev_s",
            "c_delta_s",
            "ifog_delta_s",
            "ifog_s",
            "c_prev_s",
            "c_act_s",
        )
        for delta_prev, delta, dc_prev, dc, d, ifog, c_prev, c_act in steps.each(*names):
            i, f, o, g = (ifog[k * n : (k + 1) * n] for k in range(4))
            di, df, do, dg = (d[k * n : (k + 1) * n] for k in range(4))
            self.assign(dc, dc + act.bprop(c_act) * o * delta)
            self.assign(di, gate_act.bprop(i) * dc * g)
            self.assign(df, gate_act.bprop(f) * dc * (0.0 if c_prev is None else c_prev))
            self.assign(do, gate_act.bprop(o) * delta * c_act)
            self.assign(dg, act.bprop(g) * dc * i)
            if dc_prev is not None:
                self.assign(dc_prev, dc * f)
            if delta_prev is not None:
                self.assign(delta_prev, delta_prev + dot(weight, d))
        return None

    def _gru_fprop(self, request: Unroll, steps: Steps, weight: Any, bias: Any) -> calls.Unrolled | None:
        act, gate_act = request.activation, request.gate_activation
        n = request.units
        reset_here, before = (self.fresh((k * n, request.samples), dtype=compute_dtype(request.dtype)) for k in (1, 3))
        b_rz, b_n = (0.0, 0.0) if bias is None else (bias.reshape(3 * n, 1)[: 2 * n], bias.reshape(3 * n, 1)[2 * n :])
        for h_prev, ff, rzn, reset_h, h in steps.each("h_prev_s", "rzn_ff_s", "rzn_s", "reset_h_s", "h_s"):
            self.assign(before[: 2 * n], dot(weight[: 2 * n], h_prev) + ff[: 2 * n] + b_rz)
            self.assign(before[2 * n :], ff[2 * n :] + b_n)
            self.assign(rzn[: 2 * n], gate_act(before[: 2 * n]))
            r, z, candidate = (rzn[k * n : (k + 1) * n] for k in range(3))
            self.assign(reset_here, r * h_prev)
            if reset_h is not None:
                self.assign(reset_h, reset_here)
            self.assign(before[2 * n :], dot(weight[2 * n :], reset_here) + before[2 * n :])
            self.assign(candidate, act(before[2 * n :]))
            self.assign(h, (1.0 - z) * h_prev + z * candidate)
        return None

    def _gru_bprop(self, request: Unroll, steps: Steps, weight: Any) -> calls.Unrolled | None:
        act, gate_act = request.activation, request.gate_activation
        n = request.units
        q = self.fresh((n, request.samples), dtype=compute_dtype(request.dtype))
        names = ("delta_prev_s", "delta_s", "rzn_delta_s", "rzn_s", "h_prev_s")
        for delta_prev, delta, d, rzn, h_prev in steps.each(*names):
            r, z, candidate = (rzn[k * n : (k + 1) * n] for k in range(3))
            before = 0.0 if h_prev is None else h_prev
            self.assign(d[2 * n :], act.bprop(candidate) * delta * z)
            self.assign(d[n : 2 * n], gate_act.bprop(z) * delta * (candidate - before))
            self.assign(q, dot(weight[:, 2 * n :], d[2 * n :]))
            self.assign(d[:n], gate_act.bprop(r) * q * before)
            if delta_prev is not None:
                passed = delta * (1.0 - z) + dot(weight[:, : 2 * n], d[: 2 * n]) + r * q
                self.assign(delta_prev, delta_prev + passed)
        return None
