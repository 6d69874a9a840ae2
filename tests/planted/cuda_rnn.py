"""Faults in recurrent unrolls on the GPU: the CUDA templates, and how the steps are bound, kept and recorded."""

# ruff: noqa: E501  (one fault, one line: the tables read across)

from __future__ import annotations

from planted.table import FAMILIES, KERNELS, Mutant

HOST, FORMULA = "neonlike/backends/gpu/primitives/rnn.py", FAMILIES + "rnn_formula.py"
CELL, SIMPLE, LSTM, GRU = (KERNELS + f"templates/cuda/rnn/{name}" for name in ("cell.j2", "simple.cu.j2", "lstm.cu.j2", "gru.cu.j2"))


def fault(name: str, file: str, old: str, new: str) -> Mutant:
    """A row of this family."""
    return Mutant("cuda_rnn", name, file, old, new)


MUTANTS = (
    fault("the last thread of a block too few", HOST, "-(-self.size[0] // THREADS), 1, 1", "self.size[0] // THREADS or 1, 1, 1"),
    fault("threads beyond the last one write", SIMPLE, "    nl_add_inputs(state, ff, bias, unit, at);", "    nl_add_inputs(state, ff, bias, 0 * unit, at);"),
    fault("the bias of the first gate for all", CELL, "bias.at[row * bias.step]", "bias.at[row % 20 * bias.step]"),
    fault("rows of the product as far apart as the tensors'", CELL, "(int64_t)row * size.samples + place.sample", "(int64_t)row * (size.samples + (size.samples > 3 && row > 2)) + place.sample"),
    fault("a missing tensor counts as 1", CELL, "            x.v[i] = 0;", "            x.v[i] = 1;"),
    fault("vectors at rows that are not aligned", HOST, "array.address % nbytes or array.strides[0] % nbytes", "array.strides[0] % nbytes"),
    fault("vectors begin one sample too far", CELL, "(thread - unit * size.vectors) * VECTOR", "(thread - unit * size.vectors) * VECTOR + (VECTOR > 1 && thread == 1)"),
    fault("LSTM: the candidate through the gates' activation", LSTM, "g < 3 ?", "g < 4 ?"),
    fault("LSTM: forget gate swapped", LSTM, "gate[1].v[i] * cell.v[i] + gate[0].v[i] * gate[3].v[i]", "gate[0].v[i] * cell.v[i] + gate[1].v[i] * gate[3].v[i]"),
    fault("LSTM: error of the cell replaced", LSTM, "cell.v[i] += slope", "cell.v[i] = slope"),
    fault("LSTM: error of the cell before kept", LSTM, "cell.v[i] *= forget.v[i];", "cell.v[i] *= in.v[i];"),
    fault("GRU: reset not applied", GRU, "        r.v[i] *= before.v[i];", "        r.v[i] = before.v[i];"),
    fault("GRU: update gate turned round", GRU, "(1 - z.v[i]) * before.v[i] + z.v[i] * n.v[i]", "z.v[i] * before.v[i] + (1 - z.v[i]) * n.v[i]"),
    fault("GRU: error through the reset gate dropped", GRU, " + r.v[i] * q.v[i];", ";"),
    fault("error before a step replaced", HOST, "to.multiply(layer.weight, delta, delta_prev, 1.0)", "to.multiply(layer.weight, delta, delta_prev, 0.0)"),
    fault("GRU: the candidate's product of the gates' weight", HOST, "to.multiply(layer.weight[2 * n :], reset", "to.multiply(layer.weight[:n], reset"),
    fault("numbers of the first call kept", HOST, "wanted = (*formulas, backend.product_precision)", "wanted = (formulas[0], backend.product_precision)"),
    fault("precision of the first call kept", HOST, "wanted = (*formulas, backend.product_precision)", "wanted = formulas"),
    fault("the graph of the old activation kept", HOST, "wanted, binder.calls, None", "wanted, binder.calls, self._graph"),
    fault("a graph is recorded within another", HOST, "if self.layer.device.recorder.is_busy:", "if False:"),
    fault("recorded at the first pass", HOST, "if known and self._graph is None", "if self._graph is None"),
    fault("partly overlapping projection computed in place", HOST, '_simple_forward, (("h_s", "h_ff_s"),))', "_simple_forward)"),
    fault("an error passed to itself by one product", HOST, ', apart=("delta_prev_s", "delta_s"))', ")"),
    fault("activations that work in place taken for others", FORMULA, "look = x.live_host or not _only_reads(function)", "look = x.live_host"),
)
