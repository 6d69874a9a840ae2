"""Faults in recurrent layers: parts of the weight, states, extents of a batch, gradients, lengths of sequences."""

# ruff: noqa: E501  (one fault, one line: the tables read across)

from __future__ import annotations

from tests.planted.table import LAYERS, Mutant

SEQUENCE, STEPS, PADDING = LAYERS + "recurrent/sequence.py", LAYERS + "recurrent/steps.py", LAYERS + "recurrent/padding.py"
SIMPLE, LSTM, GRU = LAYERS + "recurrent/simple_recurrent.py", LAYERS + "recurrent/lstm.py", LAYERS + "recurrent/gru.py"
BOTH, BOTH_LSTM, BOTH_NORM = (LAYERS + f"recurrent/bidirectional{name}.py" for name in ("", "_lstm", "_norm"))
OUTPUT, DEEP = LAYERS + "recurrent/recurrent_output.py", LAYERS + "recurrent/deep.py"


def fault(name: str, file: str, old: str, new: str) -> Mutant:
    """A row of this family."""
    return Mutant("recurrent", name, file, old, new)


MUTANTS = (
    fault("an image's first entry is the steps", STEPS, "return int(np.prod(shape[:-1])), int(shape[-1])", "return int(np.prod(shape[1:])), int(shape[0])"),
    fault("steps begin a sample late", STEPS, "x[:, t * samples : (t + 1) * samples]", "x[:, t * samples + (t > 1) : (t + 1) * samples + (t > 1)]"),
    fault("more samples than allocated are taken", STEPS, "if odd or samples > most or", "if odd or"),
    fault("two buffers of one shape are the same", STEPS, "        and a.ptr == b.ptr\n", ""),
    fault("init_inner is ignored", SEQUENCE, "= self.init_inner if inner else self.init", "= self.init"),
    fault("all gates are filled at once", SEQUENCE, "slice(gate * self.nout, (gate + 1) * self.nout)", "slice(0, self.ngates * self.nout)"),
    fault("the last gate is not filled", SEQUENCE, "for gate in range(self.ngates):", "for gate in range(self.ngates - (self.ngates > 1)):"),
    fault("parts of dW are those of W", SEQUENCE, 'setattr(self, f"d{name}", self.dW[', 'setattr(self, f"d{name}", self.W['),
    fault("an in-place layer behind is not noticed", SEQUENCE, 'return self.next_layer is not None and not getattr(self.next_layer, "owns_output", True)', "return False"),
    fault("db is not computed", SEQUENCE, "        self.be.sum(D, axis=1, out=self.db)\n", ""),
    fault("alpha of the deltas ignored", SEQUENCE, "self.be.compound_dot(self._W_input_T, D, deltas, alpha=alpha, beta=beta)", "self.be.compound_dot(self._W_input_T, D, deltas, beta=beta)"),
    fault("beta of the deltas ignored", SEQUENCE, "self.be.compound_dot(self._W_input_T, D, deltas, alpha=alpha, beta=beta)", "self.be.compound_dot(self._W_input_T, D, deltas, alpha=alpha)"),
    fault("weights of all extents are kept", OUTPUT, "if len(self._weightings) >= MOST_VIEWS:", "if False:"),
    fault("weights of the lengths before are kept", OUTPUT, "        self._extent = None\n        self._weightings.clear()\n", "        self._extent = None\n"),
    fault("views of all extents are kept", SEQUENCE, "if len(self._views) >= MOST_VIEWS:", "if False:"),
    fault("another number of samples keeps the state", SEQUENCE, "known and before is not None and before.extent.samples == extent.samples", "known and before is not None"),
    fault("the state is never carried over", SIMPLE, "elif carry and not self.reset_cells:", "elif False:"),
    fault("reset_cells ignored", SIMPLE, "elif carry and not self.reset_cells:", "elif carry:"),
    fault("init_state ignored where there is a state", SIMPLE, "if tensor is not None:\n                initial", "if tensor is not None and not carry:\n                initial"),
    fault("set_state ignored", SIMPLE, "init_state = self._next_state if init_state is None else init_state", "pass"),
    fault("set_state goes on for ever", SIMPLE, "self._next_state, self._states_given = None, len(given)", "self._states_given = len(given)"),
    fault("the final state is that of the first step", SIMPLE, "final[:] = states[:, -samples:]", "final[:] = states[:, :samples]"),
    fault("errors passed to the initial state add up", SIMPLE, "        views.h_passed.fill(0)\n", ""),
    fault("the first step counts without a state", SIMPLE, "return self._states_given > 0", "return True"),
    fault("the first step never counts", SIMPLE, "return self._states_given > 0", "return False"),
    fault("of a single step, dW_recur stays", SIMPLE, "                gradient.fill(0)\n", "                pass\n"),
    fault("outputs are not copied from the states", SIMPLE, "            views.outputs[:] = views.h_all\n", "            pass\n"),
    fault("an empty sequence has a final state of 0", SIMPLE, "final[:] = final + initial * masks.empty", "pass"),
    fault("padded outputs are not cleared", SIMPLE, "views.h_all[:] = self.be.where(masks.valid, views.h_all, 0)", "pass"),
    fault("padded outputs are multiplied by 0", SIMPLE, "self.be.where(masks.valid, views.h_all, 0)", "views.h_all * masks.valid"),
    fault("padded errors are used", SIMPLE, "            views.e[:] = views.e * masks.valid\n", "            pass\n"),
    fault("LSTM: cells start from the last batch in the backward pass", LSTM, "views.c_prev if self._first_step_counts else views.c_prev_back", "views.c_prev"),
    fault("LSTM: errors of cells add up", LSTM, "0 if self._cell_error is None else", "views.c_passed if self._cell_error is None else"),
    fault("LSTM: h alone counts in the gradient", LSTM, "return self._states_given == 2", "return self._states_given > 0"),
    fault("LSTM: the cell is not carried over", LSTM, "        views.states.append((initial, c_all, final))\n", "        views.states.append((initial, views.h_all, final))\n"),
    fault("LSTM: activations exchanged", LSTM, "self.nout, steps, steps, self.activation, self.gate_activation,\n        )  # fmt: skip\n\n    def _unroll_int8", "self.nout, steps, steps, self.gate_activation, self.activation,\n        )  # fmt: skip\n\n    def _unroll_int8"),
    fault("GRU: the gradient of the candidate sees h, not r h", GRU, 'recurrent_product(views, "_dW_n", views.D_n, reset_h_all)', 'recurrent_product(views, "_dW_n", views.D_n)'),
    fault("GRU: h of the last batch counts in the backward pass", GRU, "views.h_prev if self._states_given else views.h_prev_back", "views.h_prev"),
    fault("GRU: what is passed on lacks the update gate", GRU, "views.e * (1.0 - gates[n : 2 * n])", "views.e"),
    fault("both ways: the second runs forward", BOTH, "self.activation, reverse=way.backward,", "self.activation, reverse=False,"),
    fault("both ways: errors of the second run backward", BOTH, "            reverse=not way.backward,\n", "            reverse=True,\n"),
    fault("both ways: one shares the input of the other", BOTH, "zip(views.ways, self._halves(self._x_used), self._halves(views.sums), strict=True)", "zip(views.ways, (self._halves(self._x_used)[0],) * 2, self._halves(views.sums), strict=True)"),
    fault("both ways: the boundary step counts", BOTH, "before = rows[:, 2 * samples : -samples] if way else rows[:, samples : -2 * samples]", "before = rows[:, 2 * samples : -samples] if way else rows[:, : -3 * samples]"),
    fault("both ways: the state is never carried over", BOTH, "            if carry and not self.reset_cells:\n                initial[:] = last", "            if False:\n                initial[:] = last"),
    fault("both ways: part batches begin at the buffer's", BOTH, "first = self.allocated_samples - samples", "first = 0"),
    fault("both ways: the bias is not cancelled behind a sequence", BOTH, "views.sums * masks.valid + self.b * (masks.valid - 1.0)", "views.sums * masks.valid"),
    fault("both ways: errors in the padding count", BOTH, "            views.D[:] = views.D * masks.valid\n", "            pass\n"),
    fault("both ways: lengths with any activation", BOTH, "if np.any(at_zero.get()):", "if False:"),
    fault("both ways, LSTM: errors of cells add up", BOTH_LSTM, "        way.c_delta.fill(0)\n", ""),
    fault("both ways, LSTM: cells are not carried over", BOTH_LSTM, "return [*super()._states(views), *((way.c_initial, way.c_last) for way in views.ways)]", "return super()._states(views)"),
    fault("both ways, normalized: biases get the wrong errors", BOTH_NORM, "        self.be.sum(D, axis=1, out=self.db)  #", "        #"),
    fault("both ways, normalized: inference uses the batch", BOTH_NORM, "compute_batch_sum=True, inference=bool(inference),", "compute_batch_sum=True,"),
    fault("both ways, normalized: gamma is not trained", BOTH_NORM, ", (self.gamma, self.grad_gamma)\n", ", (self.gamma, self._xvar)\n"),
    fault("both ways, normalized: the mean is not saved", BOTH_NORM, 'return "W", "beta", "gamma", "gmean", "gvar"', 'return "W", "beta", "gamma", "gvar"'),
    fault("deep: inputs are not split", DEEP, "split = level > 0 and not bi_sum", "split = False"),
    fault("mean of all steps is their sum", OUTPUT, "1.0 / extent.steps if masks is None", "1.0 if masks is None"),
    fault("the last step is the last but one", OUTPUT, "last[0, -1] = 1", "last[0, -2 if extent.steps > 1 else 0] = 1"),
    fault("weights of steps are kept for other lengths", OUTPUT, "        self._extent = None\n        self._weightings.clear()\n", "        self._weightings.clear()\n"),
    fault("beta of a step's deltas ignored", OUTPUT, "deltas[:] = spread + beta * deltas if beta else spread", "deltas[:] = spread"),
    fault("mean over padding too", PADDING, "used / np.maximum(lengths, 1)", "used / extent.steps"),
    fault("lengths of another batch are taken", PADDING, "if self.lengths.size != extent.samples or longest > extent.steps:", "if self.lengths.size != extent.samples:"),
)  # fmt: skip
