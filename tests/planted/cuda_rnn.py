"""Faults in recurrent unrolls on the GPU: the CUDA templates, and how the steps are bound, kept and captured."""

# ruff: noqa: E501  (one fault, one line: the tables read across)

from __future__ import annotations

from tests.planted.table import KERNELS, PRIMITIVES, Mutant

HOST, FORMULA = "neonlike/backends/gpu/primitives/rnn.py", PRIMITIVES + "rnn/formula.py"
CELL, STEP, FORWARD, LSTM, GRU, WHOLE = (
    KERNELS + f"templates/cuda/rnn/{name}" for name in ("cell.j2", "step.j2", "forward.j2", "lstm.cu.j2", "gru.cu.j2", "persistent.cu.j2")
)
FORM, STEPS = "neonlike/backends/gpu/primitives/rnn_persistent.py", PRIMITIVES + "rnn/steps.py"
GRAPHS, RUNNER = "neonlike/backends/gpu/device/graphs.py", KERNELS + "cuda/step.py"


def fault(name: str, file: str, old: str, new: str) -> Mutant:
    """A row of this family."""
    return Mutant("cuda_rnn", name, file, old, new)


MUTANTS = (
    fault("the last thread of a block too few", HOST, "-(-self.size[0] // THREADS), 1, 1", "self.size[0] // THREADS or 1, 1, 1"),
    fault("the bias of the first unit for all", FORWARD, "    nl_add_inputs(state, ff, bias, at.unit, at);", "    nl_add_inputs(state, ff, bias, 0 * at.unit, at);"),
    fault("the bias of the first gate for all", CELL, "bias.at[row * bias.step]", "bias.at[row % 20 * bias.step]"),
    fault("rows of the product as far apart as the tensors'", STEP, "(int64_t)row * size.samples + place.sample", "(int64_t)row * (size.samples + (size.samples > 3 && row > 2)) + place.sample"),
    fault("a missing tensor counts as 1", CELL, "            x.v[i] = 0;", "            x.v[i] = 1;"),
    fault("vectors at rows that are not aligned", HOST, "array.address % nbytes or array.strides[0] % nbytes", "array.strides[0] % nbytes"),
    fault("vectors begin one sample too far", STEP, "(thread - unit * size.vectors) * VECTOR", "(thread - unit * size.vectors) * VECTOR + (VECTOR > 1 && thread == 1)"),
    fault("LSTM: the candidate through the gates' activation", FORWARD, "g < 3 ?", "g < 4 ?"),
    fault("LSTM: forget gate swapped", FORWARD, "gate[1].v[i] * cell.v[i] + gate[0].v[i] * gate[3].v[i]", "gate[0].v[i] * cell.v[i] + gate[1].v[i] * gate[3].v[i]"),
    fault("LSTM: error of the cell replaced", LSTM, "cell.v[i] += slope", "cell.v[i] = slope"),
    fault("LSTM: error of the cell before kept", LSTM, "cell.v[i] *= forget.v[i];", "cell.v[i] *= in.v[i];"),
    fault("GRU: reset not applied", FORWARD, "        r.v[i] *= before.v[i];", "        r.v[i] = before.v[i];"),
    fault("GRU: update gate turned round", FORWARD, "(1 - z.v[i]) * before.v[i] + z.v[i] * n.v[i]", "z.v[i] * before.v[i] + (1 - z.v[i]) * n.v[i]"),
    fault("GRU: error through the reset gate dropped", GRU, " + r.v[i] * q.v[i];", ";"),
    fault("error before a step replaced", HOST, "to.multiply(layer.weight, delta, delta_prev, 1.0)", "to.multiply(layer.weight, delta, delta_prev, 0.0)"),
    fault("GRU: the candidate's product of the gates' weight", HOST, "to.multiply(layer.weight[2 * n :], reset", "to.multiply(layer.weight[:n], reset"),
    fault("numbers of the first call kept", HOST, "wanted = (*formulas, backend", "wanted = (formulas[0], backend"),
    fault("precision of the first call kept", HOST, "wanted = (*formulas, backend.product_precision)", "wanted = formulas"),
    fault("the program of the old activation kept", HOST, "if self._run is None or wanted != self._made_for:", "if self._run is None:"),
    fault("a graph is captured within another", RUNNER, "if not self._capture.is_active:", "if True:"),
    fault("captured at the first pass", RUNNER, "self._graph is None and self._has_run and", "self._graph is None and"),
    fault("a graph of few steps", RUNNER, " and len(steps) >= GRAPH_FROM", ""),
    fault("a driver without graphs asked again and again", RUNNER, "            self._may_capture = False\n", ""),
    fault("partly overlapping projection computed in place", HOST, '_simple_forward, (("h_s", "h_ff_s"),), whole', "_simple_forward, whole"),
    fault("an error passed to itself by one product", HOST, ', apart=("delta_prev_s", "delta_s"))', ")"),
    fault("activations that work in place taken for others", FORMULA, "look = x.live_host or not _only_reads(function)", "look = x.live_host"),
    *(
        Mutant("persistent_cuda", f"all steps at once: {name}", file, old, new)
        for name, file, old, new in (
            # Blocks that wait for each other.
            ("no barrier after a step", WHOLE, "        if (step < steps - 1)\n", "        if (step < steps - 1 && step != 1)\n"),
            ("no barrier between a GRU's products", WHOLE, "        nl_meet(counter, 2 * step + 2);\n", "        __syncthreads();\n"),
            ("no barrier before the first step", WHOLE, "    nl_meet(counter, 1);", "    __syncthreads();"),
            ("a barrier that waits for one block more", WHOLE, "< times * gridDim.x)", "< times * gridDim.x + (times == 3))"),
            ("a barrier that waits for one block less", WHOLE, "< times * gridDim.x)", "< times * gridDim.x - 1)"),
            ("a barrier's count is that of the one before", WHOLE, '"2 * step + 3" if cell == "gru" else "step + 2"', '"2 * step + 2" if cell == "gru" else "step + 1"'),
            ("the count of the barrier before between a GRU's products", WHOLE, "nl_meet(counter, 2 * step + 2);", "nl_meet(counter, 2 * step + 1);"),
            ("counter set back while a block waits", WHOLE, "gridDim.x - 1) == gridDim.x - 1)", "gridDim.x - 1) == gridDim.x - 2)"),
            ("counter not set back", WHOLE, "atomicExch(counter, 0u);", "atomicAdd(counter, 0u);"),
            ("blocks that left counted on and on", WHOLE, "atomicInc(counter + 1, gridDim.x - 1)", "atomicAdd(counter + 1, 1u)"),
            ("a block arrives before its threads wrote", WHOLE, "    __syncthreads();\n    if (threadIdx.x == 0) {\n        __threadfence();", "    if (threadIdx.x == 0) {\n        __threadfence();"),
            ("threads go on before the block may", WHOLE, "        }\n    }\n    __syncthreads();\n}", "        }\n    }\n}"),
            ("no fence before a block arrives (checked)", WHOLE, "        __threadfence();\n", ""),
            ("a state read through the L1 cache (checked)", WHOLE, "__ldcg((const {{ vector_type }} *)(from + k * SAMPLES + column))", "*(const {{ vector_type }} *)(from + k * SAMPLES + column)"),
            ("groups share a counter", WHOLE, "counter = o.counters + 2 * blockIdx.y", "counter = o.counters"),
            # Sums
            ("the last warp's part left out", WHOLE, "for (int warp = 0; warp < WARPS; warp++)", "for (int warp = 0; warp < WARPS - 1; warp++)"),
            ("a share added twice", WHOLE, "for (int other = 16;", "for (int other = 32;"),
            ("elements beyond what is on its way at once", WHOLE, "k + (AHEAD - 1) * APART < units", "k + (AHEAD - 2) * APART < units"),
            ("the rest of the elements left out", WHOLE, "    for (; k < units; k += APART)", "    for (; k + APART < units; k += APART)"),
            ("parts read before they are there", WHOLE, "(int32_t)o.units);\n        __syncthreads();", "(int32_t)o.units);"),
            # Places
            ("gates in another order", WHOLE, "first_gate + row % GATES", "first_gate + (GATES - 1 - row % GATES)"),
            ("the weight's steps exchanged", FORM, "for stride in weight.strides)", "for stride in weight.strides[::-1])"),
            ("the candidate of the first gate's weight", WHOLE, "(kept_candidate, o, 2, first)", "(kept_candidate, o, 1, first)"),
            ("a step's tensors those of the step before", WHOLE, "(step - 1) * role.apart", "(step - 2) * role.apart"),
            ("the last step's tensor like the others", WHOLE, "step == steps - 1)\n        return role.last", "step == steps)\n        return role.last"),
            ("buffers not exchanged", WHOLE, "        from = to, to = read;", "        from = read;"),
            ("samples of the first group in all", WHOLE, "const int32_t first_sample = (int32_t)blockIdx.y * SAMPLES;", "const int32_t first_sample = 0;"),
            ("rows of the first tile in all", WHOLE, "kept + tile * ROWS", "kept"),
            ("units of the first tile in all", WHOLE, "own = tile * UNITS + here;", "own = here;"),
            ("units of the last tile that the block has not", WHOLE, "if (own >= OWN || ", "if ("),
            ("the next tile's parts in those that are read", WHOLE, "            __syncthreads(); /* the parts are read */", "            ;"),
            ("samples that there are not", WHOLE, " || at.sample >= o.samples)", ")"),
            ("a state that is not the step's before", FORM, "rows_of(mine) == rows_of(its) for", "True for"),
            ("steps that are not evenly apart", FORM, "if any(each != (rest[0]", "if False and any(each != (rest[0]"),
            ("elements that change places", STEPS, "    return all(a[:2] != b[:2] or", "    return True or all(a[:2] != b[:2] or"),
            # When it is chosen
            ("the method of the first call kept", HOST, "if backend.recurrent_method != self._method:", "if False:"),
            ("taken without being asked for", "neonlike/settings.py", '_one_of(*RECURRENT_METHODS), "steps"', '_one_of(*RECURRENT_METHODS), "persistent"'),
            ("tensor cores not asked for", HOST, 'dtype == F32 and backend.product_precision == "float32"', "dtype == F32"),
            ("float16 as well", HOST, "not self._may_meet or not precise:", "not self._may_meet:"),
            ("more blocks than the GPU runs", FORM, "most = device.multiprocessors // groups", "most = device.multiprocessors"),
            ("more shared memory than there is", FORM, "shared <= device.shared_bytes_optin", "True"),
            ("a refused launch is an error", HOST, "except (DeviceError, OutOfMemory) as error:", "except ArgumentError as error:"),
            ("counters cleared by the graph", GRAPHS, "            tickets_of(self.device)", "            # tickets_of(self.device)"),
        )
    ),
)
