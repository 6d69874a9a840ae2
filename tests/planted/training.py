"""Faults in training: optimizers, schedules, initializers, costs and metrics, saved models, callbacks."""

# ruff: noqa: E501  (one fault, one line: the tables read across)

from __future__ import annotations

from tests.planted.table import Mutant

BASE, SGD, ADAPTIVE, STEP, STATES, SCHEDULES, MASTERS = (
    f"neonlike/optimizers/{name}.py" for name in ("base", "sgd", "adaptive", "step", "states", "schedules", "masters")
)
INITIALIZER = "neonlike/initializers/initializer.py"
COST, METRIC, BLEU = (f"neonlike/transforms/{name}.py" for name in ("cost", "metric", "bleu"))
ARCHIVE, PERSIST, ATOMIC = (f"neonlike/util/{name}.py" for name in ("archive", "persist", "atomic"))
CONTROL, SHOWING, DECONV, PROGRESS = (f"neonlike/callbacks/{name}.py" for name in ("control", "showing", "deconv", "progress"))
CALLBACKS, EVALUATION = "neonlike/callbacks/callbacks.py", "neonlike/models/evaluation.py"
FIRST = "neonlike/distributed/first.py"
VISUAL = "neonlike/visualizations/data.py"


def optimizer(name: str, file: str, old: str, new: str) -> Mutant:
    return Mutant("optimizers", name, file, old, new)


def initializer(name: str, old: str, new: str) -> Mutant:
    return Mutant("initializers", name, INITIALIZER, old, new)


def cost(name: str, file: str, old: str, new: str) -> Mutant:
    return Mutant("costs", name, file, old, new)


def saving(name: str, file: str, old: str, new: str) -> Mutant:
    return Mutant("saving", name, file, old, new)


def ranks(name: str, file: str, old: str, new: str) -> Mutant:
    return Mutant("ranks", name, file, old, new)


def callback(name: str, file: str, old: str, new: str) -> Mutant:
    return Mutant("callbacks", name, file, old, new)


SCALING, ACCUMULATION, MULTI = (f"neonlike/optimizers/{name}.py" for name in ("loss_scaling", "accumulation", "multi"))


def scaling(name: str, old: str, new: str) -> Mutant:
    return Mutant("loss_scaling", name, SCALING, old, new)


def accumulation(name: str, file: str, old: str, new: str) -> Mutant:
    return Mutant("accumulation", name, file, old, new)


def master(name: str, file: str, old: str, new: str) -> Mutant:
    return Mutant("masters", name, file, old, new)


MUTANTS = (
    master("master weights: another optimizer begins new ones", STATES, "(states[:-1], states[-1:]) if has_master(states) else (states[:], [])", "states[:], []"),
    master("master weights: an overflow changes them", BASE, "scale.masked(updates(param, scale.unscaled(grad), states, *numbers))", "updates(param, scale.unscaled(grad), states, *numbers)"),
    master("master weights: the parameter is updated by itself", MASTERS, "updates(exact, grad, own, *numbers):\n            found += [(master, value), (param, value)] if target is exact", "updates(param, grad, own, *numbers):\n            found += [(master, value), (param, value)] if target is param"),
    master("master weights: what else sets a parameter is lost", MASTERS, "<= distance, master, param)", "<= 2 * distance, master, param)"),
    master("master weights: the next number passes for a rounded one", MASTERS, "be.maximum(be.absolute(master - near), least)", "be.absolute(master) * 2.0 ** (bits - 23)"),
    master("master weights: small numbers of float16 have none", MASTERS, "be.maximum(be.absolute(master - near), least)", "be.absolute(master - near)"),
    master("master weights: float16 splits as bfloat16 does", MASTERS, '"float16": (13,', '"float16": (16,'),
    master("master weights: those of a file are lost", "neonlike/layers/core/parameter.py", '            restore_masters(self.states, pdict.get("masters"))\n', ""),
    master("master weights: a CPU's stochastic rounding has none", BASE, "(self.stochastic_round and self.be.device_type)", "self.stochastic_round"),
    master("master weights: a GPU's stochastic rounding has them too", BASE, "self.master_weights and not (self.stochastic_round and self.be.device_type)", "self.master_weights"),
    master("master weights: ShiftAdaMax has its own way", ADAPTIVE, "self.be.assign_many(self._assignments(", "self.be.assign_many(self._updates("),
    optimizer("a mapping that was written counts for new lists alone", MULTI, "        chosen_by += [*mapping, *mapping.values()]\n", ""),
    optimizer("all lists of layers are kept", MULTI, "keep(self._map_cache, id(layer_list), (chosen_by, groups))", "self._map_cache[id(layer_list)] = chosen_by, groups"),
    optimizer("steps: parts of a group that was split are kept", ADAPTIVE, "if part.count.parameters != len(part):", "if False:"),
    optimizer("steps: a count is shared by what is not updated", STATES, "if not others and count.parameters == len(entries):", "if not others:"),
    optimizer("steps: those of a file are lost", "neonlike/layers/core/parameter.py", '            restore_steps(self.states, pdict.get("steps"))\n', ""),
    optimizer("steps: a file without them begins anew", STATES, "states[0].count = Count(steps)", "states[0].count = Count(0)"),
    optimizer("steps: a number that was set is forgotten", ADAPTIVE, "if calls != self.t_left:", "if False:"),
    optimizer("steps: what replaces the states of another optimizer counts on", STATES, "        if fresh and own:\n            own[0].count = Count()\n", ""),
    scaling("gradients are not divided", "return grad * self.inverse", "return grad * 1"),
    scaling("states of a skipped step change", "for target, value in updates]", "if target is updates[-1][0] else (target, value) for target, value in updates]"),
    scaling("only the first gradient is checked", "in param_list]\n        key", "in param_list[:1]]\n        key"),
    scaling("steps count on after an overflow", "good = self.finite * (self.good + 1)", "good = self.good + 1"),
    scaling("a fixed scale changes", "        if interval is None:\n            return counted\n", "        interval = interval or 1\n"),
    scaling("the steps since the last change are forgotten", '"good": good, "skipped"', '"good": 0.0, "skipped"'),
    scaling("the gradient's norm is that of the scaled loss", "        self.optimizer.use_scale(scale)\n", "        self.optimizer.use_scale(scale)\n        self.optimizer.clip_gradient_norm = lambda layers, norm: 1.0\n"),
    accumulation("steps take sums", ACCUMULATION, "(grad, total / count)", "(grad, 1 * total)"),
    accumulation("means are over whole groups", ACCUMULATION, 'self._count if what == "mean" else 0', 'self.minibatches if what == "mean" else 0'),
    accumulation("a group goes on from the one before", ACCUMULATION, '"add" if self._count else "begin"', '"add"'),
    accumulation("sums are of the dtype of gradients", ACCUMULATION, "dtype=compute_dtype(grad.dtype)", "dtype=grad.dtype"),
    accumulation("variables keep the gradient of the last minibatch", ACCUMULATION, "        store_gradients(layer_list)\n", ""),
    accumulation("the last minibatches of an epoch take no step", "neonlike/models/model.py", "        self._end_group(to_optimize)\n", ""),
    accumulation("minibatches of another training count", "neonlike/models/model.py", "                self.optimizer.forget()\n", "                pass\n"),
    accumulation("the sums of a saved group are lost", ACCUMULATION, '"sums": sums,', '"sums": [0 * one for one in sums],'),
    accumulation("the minibatches of a saved group are lost", ACCUMULATION, "self._count, self._loaded = int(count), ", "self._count, self._loaded = 1, "),
    accumulation("a restored group is not of a scaled loss", ACCUMULATION, "        self.scale_errors([])", "        self"),
    ranks("each rank's samples are those of the first", EVALUATION, "dataset.ndata - start - ranks.rank * share", "dataset.ndata - start"),
    ranks("the next batch begins behind this rank's share", EVALUATION, "start += ranks.size * share", "start += share"),
    ranks("sums are those of one rank", EVALUATION, "zip(*everyone, strict=True)", "zip(everyone[0], strict=True)"),
    ranks("outputs are ordered by rank", EVALUATION, "for batch in zip_longest(*everyone) for part", "for batch in everyone for part"),
    ranks("running statistics stay those of a rank", EVALUATION, "    average_statistics(model)\n", ""),
    ranks("running statistics are summed", "neonlike/models/statistics.py", "mean=True", "mean=False"),
    ranks("tuned statistics stay those of a rank", CONTROL, "        average_statistics(model)\n", ""),
    ranks("a saved batch is that of a rank", "neonlike/models/progress.py", '"batch_size": model.be.global_bsz', '"batch_size": model.be.bsz'),
    ranks("every rank writes models", "neonlike/models/saved.py", "by_first(lambda: saving.save_model(described(), fn))", "saving.save_model(described(), fn)"),
    ranks("records have room for batches of a rank", CALLBACKS, "-(-model.ndata // model.be.global_bsz)", "-(-model.ndata // model.be.bsz)"),
    ranks("the first rank meets its error alone", FIRST, "    if told is not None:\n", "    if False:\n"),
    ranks("the others never hear of an error", FIRST, "except BaseException as error:", "except ArithmeticError as error:"),
    ranks("errors travel as they are", FIRST, "pickle.dumps(copy.copy(error))", "pass"),
    ranks("every rank works", FIRST, "    if ranks.rank == 0:\n", "    if True:\n"),
    optimizer("momentum sign", SGD, "self.momentum_coef * states[0] - lr * gradient", "self.momentum_coef * states[0] + lr * gradient"),
    optimizer("nesterov as momentum", SGD, "if self.nesterov else velocity", "if False else velocity"),
    optimizer("weight decay left out", SGD, "gradient = gradient + self.wdecay * param", "gradient = gradient + 0 * param"),
    optimizer("parameters not clipped", SGD, "(param, self.clip_value(param + move, self.param_clip_value))", "(param, param + move)"),
    optimizer("defect 35: plain descent does not clip", SGD, "self.clip_value(param - lr * gradient, self.param_clip_value)", "param - lr * gradient"),
    optimizer("gradient not divided by the batch size", BASE, "grad / self.be.global_bsz", "grad / 1"),
    optimizer("norm clipping enlarges small gradients", BASE, "max(norm, clip_norm)", "norm"),
    optimizer("norm of the sums, not of the means", STEP, "be.sqrt(total) / be.global_bsz", "be.sqrt(total)"),
    optimizer("numbers of a step written once", STEP, "if numbers != self._values:", "if self._values is None:"),
    optimizer("a changed batch size is not noticed", BASE, "return be, be.engine, be.num_threads, be.bsz", "return be, be.engine, be.num_threads"),
    optimizer("other gradients are not noticed", STEP, "found += pair\n", "found += pair[:1]\n"),
    optimizer("changed hyperparameters are not noticed", BASE, "(*self._situation(), *map(_hashable, self._settings()), self._scale, identity(param_list), own)", "(*self._situation(), self._scale, identity(param_list), own)"),
    optimizer("states of another kind of optimizer stay", STATES, "            own.clear()\n", "            pass\n"),
    optimizer("states of 16 bits", STATES, ", dtype=compute_dtype(param.dtype)", ""),
    optimizer("states of a file are anybody's", STATES, "        if kind is not None:\n", "        if False:\n"),
    optimizer("prepared steps pile up", BASE, "if len(prepared) >= MOST_STEPS:", "if False:"),
    optimizer("rmsprop epsilon inside only", ADAPTIVE, "(be.sqrt(mean_square + eps) + eps)", "be.sqrt(mean_square + eps)"),
    optimizer("adagrad forgets", ADAPTIVE, "states[0] + be.square(clipped)", "0.9 * states[0] + be.square(clipped)"),
    optimizer("adadelta: states in another order", ADAPTIVE, "(states[2], move)", "(states[2], mean_move)"),
    optimizer("adam counts from 0", ADAPTIVE, "self.t += 1\n        rate = self._rate(epoch) * math.sqrt(1.0 - self.beta_2**self.t)", "rate = self._rate(epoch) * math.sqrt(1.0 - self.beta_2**(self.t + 1))"),
    optimizer("adamw: decay scaled by the averages", ADAPTIVE, "kept * param - rate * first", "param - rate * first"),
    optimizer("adamw: no correction of the second average", ADAPTIVE, "1.0 / math.sqrt(second), 1.0 - rate", "1.0, 1.0 - rate"),
    optimizer("adamw: norm not clipped", ADAPTIVE, "gradient = scale * gradient", "gradient = 1.0 * gradient"),
    optimizer("adamax: parameters not clipped", ADAPTIVE, "be.clip(param - move, -1.0, 1.0)", "be.clip(param - move, -2.0, 2.0)"),
    optimizer("schedule one epoch late", SCHEDULES, "sum(step <= epoch for step in self.step_config)", "sum(step < epoch for step in self.step_config)"),
    optimizer("step schedule one epoch late", SCHEDULES, "if step <= epoch]", "if step < epoch]"),
    optimizer("defect 30: poly schedule floors", SCHEDULES, "1.0 - epoch / self.total_epochs", "1.0 - epoch // self.total_epochs"),
    optimizer("cosine without its floor", SCHEDULES, "self.floor + (learning_rate - self.floor)", "(learning_rate - self.floor)"),
    optimizer("cosine rises again", SCHEDULES, "min(epoch / self.total_epochs, 1.0)", "epoch / self.total_epochs"),
    optimizer("warm-up from 0", SCHEDULES, "learning_rate * (epoch + 1) / (self.warmup_epochs + 1)", "learning_rate * epoch / self.warmup_epochs"),
    optimizer("warm-up counted in the schedule after it", SCHEDULES, "get_learning_rate(learning_rate, epoch - self.warmup_epochs)", "get_learning_rate(learning_rate, epoch)"),
    initializer("glorot range", "np.sqrt(6.0 / (param.shape[0] + param.shape[1]))", "np.sqrt(3.0 / (param.shape[0] + param.shape[1]))"),
    initializer("xavier fan", "np.sqrt(3.0 / self._fan_in(param))", "np.sqrt(3.0 / param.shape[1])"),
    initializer("kaiming variance", "np.sqrt(2.0 / self._fan_in(param))", "2.0 / self._fan_in(param)"),
    initializer("fan-in of linear weights", 'param.shape[0] if getattr(self, "local", False) else param.shape[1]', "param.shape[0]"),
    initializer("orthonormal without its scale", "self.scale * (left if", "1.0 * (left if"),
    cost("cross-entropy without the other class", COST, "t * be.safelog(y) + (1 - t) * be.safelog(1 - y)", "t * be.safelog(y)"),
    cost("label smoothing without the classes", COST, "(1 - a) * t + a / t.shape[0]", "(1 - a) * t + a"),
    cost("mean squared gradient not divided", COST, "return (y - t) / y.shape[0]", "return y - t"),
    cost("smooth L1 gradient without sigma", COST, "clip(x * self.sigma**2, -1, 1", "clip(x, -1, 1"),
    cost("hinge gradient sign", COST, "(-2.0 / y.shape[0])", "(2.0 / y.shape[0])"),
    cost("defect 28: gan costs swapped", COST, 'return self.be.safelog(1 - y) if self.func == "original"', 'return self.be.safelog(1 - y) if self.func == "modified"'),
    cost("top k without ties", METRIC, "be.minimum(share, 1)", "be.minimum(places, 1)"),
    cost("defect 29: multimetric without the target", METRIC, "return outputs, t if getattr(t, \"shape\", None) == outputs.shape else t[self.index]", "return outputs, outputs"),
    cost("detection without the mask", METRIC, "smooth_l1(be, mask * (boxes - wanted_boxes))", "smooth_l1(be, boxes - wanted_boxes)"),
    cost("another smooth L1", "neonlike/transforms/transform.py", "+ (size - near)\n", "+ size\n"),
    cost("bleu: unknown words match", BLEU, "if self.unk not in ngram", "if True"),
    cost("bleu: words count as often as they are said", BLEU, "min(count, most[ngram])", "count * (most[ngram] > 0)"),
    cost("bleu: the farthest reference's length", BLEU, "for one in known)[1]", "for one in known)[0]"),
    cost("bleu: what follows the end counts", BLEU, "return words[: words.index(END)] if END in words else words", "return words"),
    saving("arrays not compared with their sums", ARCHIVE, "if hashlib.sha256(content).hexdigest() != digest:", "if False:"),
    saving("content not compared with its sum", ARCHIVE, "if hashlib.sha256(text).hexdigest() != comment.removeprefix(COMMENT):", "if False:"),
    saving("members larger than the file", ARCHIVE, "> archive.fp.tell():", "> 1 << 62:"),
    saving("tuples come back as lists", ARCHIVE, "return CONTAINERS[kind]([", "return list(["),
    saving("newer versions are read", ARCHIVE, 'described["version"] > VERSION', 'described["version"] > 99'),
    saving("dates of members", ARCHIVE, 'zipfile.ZipInfo(f"{name}.npy", EPOCH)', 'zipfile.ZipInfo(f"{name}.npy", (1980 + len(name) % 3, 1, 1, 0, 0, id(array) % 60))'),
    saving("objects in arrays", ARCHIVE, "if dtype.hasobject or", "if"),
    saving("pickles not compared with their sum", PERSIST, "if digest.hexdigest().encode() != end[len(SUM) :]:", "if False:"),
    saving("every name is an archive", PERSIST, "_pickle if pickled else archive.write", "archive.write"),
    saving("files not flushed", ATOMIC, "            os.fsync(file.fileno())\n", ""),
    saving("what others write is removed", ATOMIC, "if process.isdigit() and not _is_running(int(process)):", "if process.isdigit():"),
    saving("what killed processes left stays", ATOMIC, "    _tidy(folder)\n", ""),
    callback("batch statistics not corrected", CONTROL, "if batches > 1:", "if False:"),
    callback("defect 44: a single minibatch divides by zero", CONTROL, "if batches > 1:", "if True:"),
    callback("the rate of batch statistics stays", CONTROL, "                layer.rho = rho\n", "                pass\n"),
    callback("minibatches do not count alike", CONTROL, "batches / (batches + 1)", "batches / (batches + 2)"),
    callback("labels of a short batch count as whole", SHOWING, "columns = slice(0, valid * steps)", "columns = slice(0, None)"),
    callback("steps behind the last are shown", SHOWING, "values[:, used]", "values"),
    callback("the bar averages all minibatches", PROGRESS, "maxlen=AVERAGED", "maxlen=1000"),
    callback("guided backpropagation lets negative errors through", DECONV, "* be.maximum(error, 0)", "* error"),
    callback("images of the first minibatch", DECONV, "one.batch_img[better, 0] = batch", "one.batch_img[better, 0] = 0"),
    callback("weaker responses taken", DECONV, "strongest[:, 0] > one.activation[:, 0]", "strongest[:, 0] < one.activation[:, 0]"),
    callback("pictures upside down for bokeh", VISUAL, "img_data[::-1]", "img_data"),
    callback("epochs drawn at their begin", VISUAL, "epochs + 1 - 1 / np.maximum(sizes[known], 1)", "epochs"),
)
