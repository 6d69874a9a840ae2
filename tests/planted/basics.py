"""Faults in layers without compound primitives, costs as layers, activations, and the loops of a model."""

# ruff: noqa: E501  (one fault, one line: the tables read across)

from __future__ import annotations

from tests.planted.table import LAYERS, MODELS, Mutant

ELEMENTWISE, BIAS, BASE, COST, MULTICOST, DELTAS, STRUCTURE, PARAMETER = (
    LAYERS + f"core/{name}.py" for name in ("elementwise", "bias", "base", "cost", "multicost", "deltas", "structure", "parameter")
)
LINEAR, CHAIN, CONTAINER = LAYERS + "dense/linear.py", LAYERS + "container/sequential.py", LAYERS + "container/sequential.py"
ACTIVATION = "neonlike/transforms/activation.py"
MODEL, EVALUATION, SAVING, RESUMED, DIVERGENCE = (
    MODELS + f"{name}.py" for name in ("model", "evaluation", "saving", "progress", "divergence")
)
RECORDING, HOOKS, STOPPING, BAR = (f"neonlike/callbacks/{name}.py" for name in ("recording", "callback", "control", "progress"))


def layer(name: str, file: str, old: str, new: str) -> Mutant:
    return Mutant("basics", name, file, old, new)


def activation(name: str, old: str, new: str) -> Mutant:
    return Mutant("activations", name, ACTIVATION, old, new)


def model(name: str, file: str, old: str, new: str) -> Mutant:
    return Mutant("models", name, file, old, new)


def recorded(name: str, file: str, old: str, new: str) -> Mutant:
    return Mutant("recorded", name, file, old, new)


def in_place(name: str, file: str, old: str, new: str) -> Mutant:
    return Mutant("in_place", name, file, old, new)


MUTANTS = (
    in_place("activations are overwritten", ELEMENTWISE, "    repeatable = needs_outputs = True\n", "    repeatable = True\n"),
    in_place("an activation overwrites", ELEMENTWISE, '"inputs" in asks_for(self.transform) or changes_needed(self)', '"inputs" in asks_for(self.transform)'),
    in_place("a bias overwrites", BIAS, "own_outputs(self, changes_needed(self))", "pass"),
    in_place("dropout that divides overwrites", ELEMENTWISE, "self.caffe_mode and changes_needed(self)", "False"),
    in_place("any dropout has a buffer", ELEMENTWISE, "self.caffe_mode and changes_needed(self)", "changes_needed(self)"),
    in_place("dropout that divides has no outputs in inference", ELEMENTWISE, "            elif outputs is not inputs:\n", "            elif False:\n"),
    in_place("what dropout passes on is overwritten", ELEMENTWISE, "return not self.owns_output and changes_needed(self)", "return False"),
    in_place("what a view shows is overwritten", STRUCTURE, 'bool(getattr(self.prev_layer, "needs_outputs", False))', "False"),
    in_place("what other branches begin with is overwritten", STRUCTURE, "    is_branch_node = needs_outputs = True\n", "    is_branch_node = True\n"),
    in_place("the end of a chain is overwritten", CHAIN, "bool(self._layers[-1].needs_outputs)", "False"),
    in_place("the end of a chain does not know what follows", CHAIN, "        self._layers[-1].set_next(layer)\n", ""),
    in_place("what branches made is overwritten", LAYERS + "container/merge.py", "any(branch.needs_outputs for branch in self.layers)", "False"),
    in_place("normalized responses are overwritten", LAYERS + "images/lrn.py", "    repeatable = needs_outputs = True\n", "    repeatable = True\n"),
    in_place("normalized responses are differentiated blended", LAYERS + "images/lrn.py", "self.inputs, self._unblended(), error", "self.inputs, self.outputs, error"),
    in_place("alpha of the outputs has no derivative", LAYERS + "images/lrn.py", "alpha * self.alpha if self.alpha != 1 else alpha", "alpha"),
    layer("dropout: not scaled in inference", ELEMENTWISE, "outputs[:] = inputs * self.keep", "outputs[:] = inputs"),
    layer("dropout: drops in inference too", ELEMENTWISE, "        if inference:\n            if not self.caffe_mode:\n", "        if False:\n            if not self.caffe_mode:\n"),
    layer("dropout: scaled in training and in inference", ELEMENTWISE, "1.0 / keep if self.caffe_mode else 1.0", "1.0 / keep"),
    layer("dropout: in Caffe mode inference scales", ELEMENTWISE, "            if not self.caffe_mode:\n", "            if True:\n"),
    layer("dropout: the error is not masked", ELEMENTWISE, "self.keep_mask * error if factor == 1", "error * 1 if factor == 1"),
    layer("dropout: alpha of the error ignored", ELEMENTWISE, "factor = alpha * self._train_scaling", "factor = self._train_scaling"),
    layer("activation: beta of the deltas ignored", ELEMENTWISE, "gradient + beta * self.deltas if beta else gradient", "gradient"),
    layer("linear: beta of the outputs ignored", LINEAR, "C=used, beta=beta, relu=relu", "C=used, relu=relu"),
    layer("linear: alpha of the deltas ignored", LINEAR, "C=self._used(self.deltas), alpha=alpha, beta=beta)", "C=self._used(self.deltas), beta=beta)"),
    layer("linear: columns behind a shorter sequence are used", LINEAR, "return buffer[:, : samples * steps]", "return buffer"),
    layer("linear: sums over the batch in inference", PARAMETER, "return None if inference or self.sums_left", "return None if self.sums_left"),
    layer("bias: the gradient is a mean", BIAS, "self.dW[:] = self.be.sum(", "self.dW[:] = self.be.mean("),
    layer("gradients do not add up", BASE, "grad[:] = grad + saved", "grad[:] = grad"),
    layer("shared delta buffer: neighbours take the same one", DELTAS, "self.buffers.reverse()", "pass"),
    layer("delta buffers as large as the last input", DELTAS, "max(self.max_shape, size)", "size"),
    layer("reshape: what is not contiguous is not copied", STRUCTURE, "if not inputs.is_contiguous:", "if False:"),
    layer("skip node: alpha and beta exchanged", STRUCTURE, "bprop_skipnode(error, self.deltas, alpha, beta)", "bprop_skipnode(error, self.deltas, beta, alpha)"),
    layer("branch nodes of one name are several", STRUCTURE, "if name not in cls.instances:", "if True:"),
    layer("cost: the sum, not the mean", COST, "self.be.mean(self.outputs if weights is None", "self.be.sum(self.outputs if weights is None"),
    layer("masked cost: weights ignored", COST, "self.costfunc(inputs * mask, target * mask) * self.weights", "self.costfunc(inputs * mask, target * mask)"),
    layer("masked cost: the gradient is not masked", COST, "self.costfunc.bprop(inputs, target) * mask * self.weights", "self.costfunc.bprop(inputs, target) * self.weights"),
    layer("several costs: weights of values ignored", MULTICOST, "total = total + weight * cost.get_cost(y, t)", "total = total + cost.get_cost(y, t)"),
    layer("several costs: weights of errors ignored", MULTICOST, "            if weight != 1:\n", "            if False:\n"),
    layer("several costs: an output without a target keeps its error", MULTICOST, "cost.deltas.fill(0) if t is None", "cost.deltas if t is None"),
    layer("weights: identity is trained", CONTAINER, 'elif layer.has_params and getattr(getattr(layer, "init", None), "name", None) != "Identity":', "elif layer.has_params:"),
    layer("weights: drawn in the order of the layers", CHAIN, "        if last_owner is not None:\n", "        last_owner = None\n        if last_owner is not None:\n"),
    model("states loaded though they are not wanted", PARAMETER, "        if load_states:\n            self.set_states(pdict)", "        if True:\n            self.set_states(pdict)"),
    activation("leaky rectifier: slope 1 backward", "slope * be.less(y, 0)", "be.less(y, 0)"),
    activation("clipped rectifier: learns beyond the cut", " * self.be.less(x, self.xcut)", ""),
    activation("exponential: derivative without its value", "be.greater(x, 0) + be.minimum(x, 0) + self.alpha", "be.greater(x, 0) + self.alpha"),
    activation("logistic: shortcut ignored", "return 1 if self.shortcut else y * (1.0 - y)", "return y * (1.0 - y)"),
    activation("tanh: derivative of the input", "1.0 - self.be.square(x)", "1.0 - self.be.square(self.be.tanh(x))"),
    activation("softmax along the features whatever the axis", "self.be.fprop_softmax(x, self.axis)", "self.be.fprop_softmax(x, 0)"),
    activation("sign: derivative everywhere", "self.be.less_equal(self.be.absolute(self.inputs), 1)", "self.be.less_equal(self.be.absolute(self.inputs), 100)"),
    activation("swish: beta not in the derivative", "return s + scaled * s * (1 - s)", "return s + inputs * s * (1 - s)"),
    model("schedules see epoch 0 only", MODEL, "        optimizer.optimize(layers, self.epoch_index)", "        optimizer.optimize(layers, 0)"),
    model("a training that diverged saves over the last good file", MODEL, "if self.finished and self.diverged and not self._epoch_is_done:", "if False:"),
    model("divergence: said again and again", DIVERGENCE, "    model.diverged = True\n", ""),
    model("divergence: the last layer is named", DIVERGENCE, "model.layers.layers_fprop():", "reversed(list(model.layers.layers_fprop())):"),
    model("rates below 0 are taken", "neonlike/optimizers/base.py", "        fine = bool(0 <= rate < math.inf)\n", "        fine = True\n"),
    model("any rows are sequences", BASE, "    if dialect.is_neon():\n        return inputs.size % expected_rows == 0", "    if True:\n        return inputs.size % expected_rows == 0"),
    model("dropout of sequences in columns", ELEMENTWISE, " and mask.size == inputs.size:", " and False:"),
    model("the epoch's cost is a sum", MODEL, "        total /= progress.minibatches\n", ""),
    model("finished is ignored", MODEL, "while self.epoch_index < num_epochs and not self.finished:", "while self.epoch_index < num_epochs:"),
    model("defect 37: epochs counted twice", MODEL, "return self.epoch_index + int(self._epoch_is_done)", "return self.epoch_index + 1"),
    model("padding of sequences counts", EVALUATION, "if valid < batch and steps > 1:", "if False:"),
    model("samples after the last one count", EVALUATION, "if start >= dataset.ndata:", "if False:"),
    model("evaluation goes on in the middle of the data", EVALUATION, "    dataset.reset()\n    for x, t in dataset:\n", "    for x, t in dataset:\n"),
    model("samples that complete a batch count", EVALUATION, "valid = min(dataset.ndata - start - ranks.rank * share, batch)", "valid = batch"),
    model("of the last batch, the steps of some samples", EVALUATION, "slice(0, valid * steps)", "slice(0, valid)"),
    model("of a data set, the last batch", EVALUATION, "total = total + measured(", "total = measured("),
    model("batches weigh alike", EVALUATION, "calcrange=columns)) * valid", "calcrange=columns)) * 1"),
    Mutant("resumed", "random state not restored", RESUMED, "        be.rng_set_state(state)\n", "        pass\n"),
    Mutant("resumed", "steps of the optimizer not restored", SAVING, "        optimizer.set_progress(progress)\n", "        pass\n"),
    Mutant("resumed", "the data begin anew", RESUMED, 'dataset.set_progress(saved.get("data", {}))', "pass"),
    recorded("loss: steps count as samples", RECORDING, ".sum(dtype=np.float64)) / steps", ".sum(dtype=np.float64))"),
    recorded("loss: samples that complete a batch count", RECORDING, "columns[:, : valid * steps]", "columns"),
    recorded("cost: of the minibatch, not the running mean", RECORDING, "sum(self.cost_history) / len(self.cost_history)", "self.cost_history[-1]"),
    recorded("hooks fire one too early", HOOKS, "(time + 1) % freq == 0", "time % freq == 0"),
    recorded("the best is the worst", STOPPING, "or loss < best:", "or loss > best:"),
    recorded("after a loss of nan nothing is best", STOPPING, " or math.isnan(best)", ""),
    recorded("the best of a resumed training is forgotten", STOPPING, "self.best_cost = None if best is None else float(best)", "self.best_cost = None"),
    recorded("early stopping asks with the first state always", STOPPING, "self.stop_func(self.stop_state, loss)", "self.stop_func(None, loss)"),
    recorded("one checkpoint more than asked for", STOPPING, "len(self.checkpoint_files) - self.history\n", "len(self.checkpoint_files) - self.history - 1\n"),
    recorded("foreign files among the checkpoints", STOPPING, "if ours.fullmatch(file))", "if ours.match(file) or file)"),
    recorded("the rate counts minibatches of an earlier run", BAR, "self._pace(done - self._first,", "self._pace(done,"),
)
