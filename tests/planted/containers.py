"""Faults in containers: branches, error buffers, adversarial networks, encoders and decoders, beam search."""

# ruff: noqa: E501  (one fault, one line: the tables read across)

from __future__ import annotations

from tests.planted.table import LAYERS, MODELS, Mutant

MERGE, BRANCHES, TREE, CHAIN = (LAYERS + f"container/{name}.py" for name in ("merge", "branches", "tree", "sequential"))
ADVERSARIAL, CODERS, SEQ2SEQ, SKIPTHOUGHT = (
    LAYERS + f"container/{name}.py" for name in ("adversarial", "coders", "seq2seq", "skipthought")
)
GAN, BEAM = MODELS + "gan.py", MODELS + "beam.py"


def merge(name: str, file: str, old: str, new: str) -> Mutant:
    """A row about branches."""
    return Mutant("containers", name, file, old, new)


def gan(name: str, file: str, old: str, new: str) -> Mutant:
    """A row about adversarial networks."""
    return Mutant("gan", name, file, old, new)


def seq2seq(name: str, file: str, old: str, new: str) -> Mutant:
    """A row about encoders and decoders."""
    return Mutant("seq2seq", name, file, old, new)


MUTANTS = (
    merge("shared delta buffer: nested containers use the child of the tree around", MERGE, "first.set_deltas(delta_buffers, nested.decend())", "first.set_deltas(delta_buffers)"),
    merge("shared delta buffer: no swap after a container", MERGE, "        if self.deltas is not None and swaps:\n            delta_buffers.swap()\n", ""),
    merge("shared delta buffer: branches take turns with the outer pair", MERGE, "            for layer in others:\n                layer.set_deltas(nested)\n            note_deltas(run.branch)", "            for layer in others:\n                layer.set_deltas(delta_buffers)\n            note_deltas(run.branch)"),
    merge("first layers of branches do not share a buffer", MERGE, "            if took := delta_buffers.buffers[0] is not current:\n                delta_buffers.swap()\n", "            took = delta_buffers.buffers[0] is not current\n"),
    merge("inner layers not registered", MERGE, "            for layer in others:\n                layer.allocate_deltas(nested)\n\n", "\n"),
    merge("sum: the second branch replaces the first", MERGE, "run.fprop(inputs, inference, 0.0 if outputs is None else 1.0)", "run.fprop(inputs, inference, 0.0)"),
    merge("sum: branches that end in place share the buffer", BRANCHES, 'and "beta" in get_args(layer.fprop)', "or True"),
    merge("sum: a branch that stands apart is left out", MERGE, "outputs[:] = sum(terms, outputs)", "outputs[:] = sum(terms[1:], outputs)"),
    merge("sum: errors are not copied for branches that change them", MERGE, "run.copies_error = overwrites_error(run.branch)", "run.copies_error = False"),
    merge("dropout and recurrent layers not known to change errors", BRANCHES, "return bool(layer.overwrites_error)", "return False"),
    merge("no copy of the input for a branch that begins in place", BRANCHES, "None if alone else", "None if True else"),
    merge("alpha lost at the head of a branch", BRANCHES, "return self.head.bprop(inner, alpha, beta)", "return self.head.bprop(inner, 1.0, beta)"),
    merge("old errors kept behind a transform of the data", BRANCHES, "deltas[:] = deltas * beta if beta else 0", "deltas[:] = deltas"),
    merge("broadcast: alphas ignored", MERGE, "alpha, beta, self.alphas, self.betas", "alpha, beta, self.betas, self.betas"),
    merge("broadcast: parts of the error not renewed", MERGE, "if error is not self._error:", "if self._error is None:"),
    merge("broadcast: columns of the error not copied again", MERGE, "            if view is not part:\n                view[:] = part\n", "            pass\n"),
    merge("broadcast: results of their own not copied", MERGE, "            view[:] = y.viewed(view.shape)\n", ""),
    merge("broadcast: fewer samples than a batch at the place of a whole one", MERGE, "part.start // bsz * samples : part.stop // bsz * samples", "part.start : part.start + y.shape[1]"),
    merge("broadcast: depth does not add up", MERGE, "self.out_shape = (sum(shape[0] for shape in shapes), *shapes[0][1:])", "self.out_shape = (shapes[0][0] * len(shapes), *shapes[0][1:])"),
    merge("streams: the first input for all", MERGE, "            )\n        return inputs\n", "            )\n        return [inputs[0]] * len(inputs)\n"),
    merge("tree: the first branch at a junction adds to old errors", TREE, "float(root in roots[i + 1 :])", "float(root in roots)"),
    merge("tree: each branch at a junction replaces the error", TREE, "float(root in roots[i + 1 :])", "0.0"),
    merge("tree: alphas ignored", TREE, "bprop(error[i], self.alphas[i],", "bprop(error[i], 1.0,"),
    merge("tree: junctions without branches keep old errors", CHAIN, "1.0 if node is not None and node.has_branches else beta", "1.0 if node is not None else beta"),
    merge("tree: the trunk does not add at inner junctions", TREE, "            root.has_branches = True\n", "            pass\n"),
    merge("tree: inference computes all branches", TREE, "        if not inference:\n            return super()", "        if True:\n            return super()"),
    merge("chain: one that begins at a junction replaces its error", CHAIN, "inside = self.layers[1:] if in_obj is None else self.layers", "inside = self.layers[1:]"),
    merge("chain: alpha goes to all layers", CHAIN, "if node is None and (layer is not first or (alpha == 1 and not beta)):", "if not layer.owns_delta or (node is None and alpha == 1 and not beta):"),
    gan("gradients of made and real samples do not add up", GAN, "discriminator.set_acc_on(True)", "discriminator.set_acc_on(False)"),
    gan("gradients go on adding up", GAN, "            discriminator.set_acc_on(False)\n", "            pass\n"),
    gan("the discriminator learns from the generator's update", GAN, "            self._step(generator_layers)\n", "            self._step(generator_layers + discriminator_layers)\n"),
    gan("outputs on made samples read after they are overwritten", GAN, "cost.get_cost(y_data, self.ybuf,", "cost.get_cost(y_data, y_noise,"),
    gan("gradients of noise and data swapped", GAN, "cost.costfunc.bprop_noise(y_noise)", "cost.costfunc.bprop_data(y_noise)"),
    gan("generator one minibatch late", GAN, "self.current_batch >= self.last_gen_batch", "self.current_batch > self.last_gen_batch"),
    gan("schedule off by one", GAN, "(giter < 25 or", "(giter <= 25 or"),
    gan("uniform noise from 0", GAN, "2.0 * self.be.rand() - 1.0", "self.be.rand()"),
    gan("counters not restored", GAN, "setattr(self, name, int(saved.get(name, 0)))", "setattr(self, name, 0)"),
    gan("discriminator without sums of gradients", ADVERSARIAL, "layer.allocate(accumulate_updates=True)", "pass"),
    seq2seq("the decoder begins from 0", SEQ2SEQ, "return self.decoder.fprop(z, init_state=self.initial_states())", "return self.decoder.fprop(z)"),
    seq2seq("errors of states not handed to the encoder", SEQ2SEQ, "errors[source].append(target.get_final_hidden_error())", "pass"),
    seq2seq("defect 43: errors of states to the top layer", CODERS, "layer.add_final_error(error, final)", "self.recurrent[-1] is layer and layer.add_final_error(error, final)"),
    seq2seq("connections ignored", SEQ2SEQ, "self.encoder.recurrent[i].final_state() for i in self.decoder_connections", "self.encoder.recurrent[i and 0].final_state() for i in self.decoder_connections"),
    seq2seq("cells carried over from the batch before", SEQ2SEQ, "[h, h.backend.zeros(h.shape, dtype=h.dtype)] if h is not None and isinstance(layer, LSTM) else h", "h"),
    seq2seq("states of a step not carried to the next", SEQ2SEQ, "states, z = decoder.states(), decoder.as_inputs(y)", "z = decoder.as_inputs(y)"),
    seq2seq("outputs not fed back", SEQ2SEQ, "states, z = decoder.states(), decoder.as_inputs(y)", "states = decoder.states()"),
    seq2seq("old errors enter the encoder", CODERS, "error = self._no_error.fill(0)", "error = self._no_error"),
    seq2seq("single steps are left on", CODERS, "            self.switch_mode(False)\n", "            pass\n"),
    seq2seq("single steps with buffers of the training", CODERS, "twin = copy.copy(layer)", "twin = layer"),
    seq2seq("beams: scores of the beam not added", BEAM, "be.safelog(y) + self.scores[i : i + 1]", "be.safelog(y)"),
    seq2seq("beams: states of the first beam for all", BEAM, "self.be.where(self.be.equal(of_beam, i), tensor, expression)", "expression"),
    seq2seq("beams: histories of the beam's own place", BEAM, "histories[parent, :, samples]", "histories[parent * 0, :, samples]"),
    seq2seq("beams: the worst last", BEAM, "(places[::-1], positions)", "(places, positions)"),
    seq2seq("beams: start index ignored", BEAM, "words = None if start is None", "words = None if True"),
    seq2seq("tied gradients are sums", SKIPTHOUGHT, " * (1.0 / (len(others) + 1))", ""),
    seq2seq("tied parameters begin different", SKIPTHOUGHT, "                    layer.W[:] = first.W\n", "                    pass\n"),
)
