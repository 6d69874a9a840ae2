"""Faults in blueprints: their shapes and workspaces, and the layers' results."""

# ruff: noqa: E501  (one fault, one line: the tables read across)

from __future__ import annotations

from tests.planted.table import LAYERS, Mutant

BUILT, WRAPPED, STREAMS, RECURRENT, NETWORK, COST, DESCRIPTION, ACTIVATIONS, BASE, FACTORY = (
    LAYERS + f"blueprint/{name}.py"
    for name in "built wrapped streams recurrent network cost description activations base factory".split()
)
LINEAR, CONVOLUTION, PARAMETER, ELEMENTWISE, BOTH_WAYS, LSTM = (
    LAYERS + f"{name}.py"
    for name in "dense/linear images/convolution core/parameter core/elementwise recurrent/both_ways recurrent/lstm".split()
)


def fault(name: str, file: str, old: str, new: str) -> Mutant:
    """A row of this family."""
    return Mutant("blueprints", name, file, old, new)


MUTANTS = (
    fault("batch size of the backend is left changed", BASE, "_set_current(be, *before)", "_set_current(be, before[0], be.bsz, before[2])"),
    fault("batch size is the backend's", BASE, "be, be, desc.shape[-1], desc.dtype", "be, be, be.bsz, desc.dtype"),
    fault("current backend is used", BASE, "_set_current(be, be, desc", "_set_current(be, NervanaObject.be, desc"),
    fault("linear part: old bias ignored", BUILT, "self.db * gradient + self.b * bias if self.b else self.db * gradient", "self.db * gradient"),
    fault("linear part: bias moved without being asked", BUILT, "self._backward_diff(Scales())", "self._backward_diff(Scales(1.0, 0.0, 1.0, 0.0))"),
    fault("gradient of the input not that of the source", BUILT, "self._new(desc) if gradient is None else fitting(str(self.blueprint), desc, gradient)", "self._new(desc)"),
    fault("small workspace accepted", BUILT, "if given.nbytes < needed:", "if False:"),
    fault("init fills biases as weights", BUILT, "            bias(self.bias)\n", "            fn(self.bias)\n"),
    fault("inner product: old gradient ignored", LINEAR, "C=self.dW, alpha=dW_alpha, beta=dW_beta)", "C=self.dW, alpha=dW_alpha)"),
    fault("inner product: factor of the gradient ignored", LINEAR, "C=self.dW, alpha=dW_alpha, beta=dW_beta)", "C=self.dW, beta=dW_beta)"),
    fault("convolution: old gradient ignored", CONVOLUTION, "self.dW, alpha=dW_alpha, beta=dW_beta)", "self.dW, alpha=dW_alpha)"),
    fault("inference takes gradients", PARAMETER, "if self.takes_gradients else None", "if True else None"),
    fault("inference of wrapped layers takes gradients", WRAPPED, "layer.takes_gradients = self.train", "layer.takes_gradients = True"),
    fault("inference of recurrent layers takes gradients", RECURRENT, "cell.takes_gradients = self.train", "cell.takes_gradients = True"),
    fault("activation: input of the layer overwritten", WRAPPED, "    needs_outputs = True\n", ""),
    fault("activation: inference needs no workspace", WRAPPED, "return room(self.dst_desc) if self.activation.keeps_inputs and self.recipe else 0", "return 0"),
    fault("activation: error left to the cost is not", ELEMENTWISE, "            gradient = error * alpha\n", "            gradient = derivative(self.transform, self.outputs, kept) * error * alpha\n"),
    fault("activation: left to the cost unless told", WRAPPED, "in_rows(self._diff_z, dst.shape[:-1]), False", "in_rows(self._diff_z, dst.shape[:-1]), None"),
    fault("activation: derivative in the place of the outputs' gradient", WRAPPED, "self._new(dst) if self._linear else self.diff_input", "self.diff_output if self._linear else self.diff_input"),
    fault("activation: of the error after it", WRAPPED, "            self._act.bprop(self._error)\n", "            self._act.bprop(self._error_z)\n"),
    fault("sequences in rows of all steps", WRAPPED, "tensor.viewed(rows_of(shape), -1)", "tensor.viewed(-1, tensor.shape[-1])"),
    fault("convolution: dilation ignored", FACTORY, "padding=padding, dilation=dilation)\n        fshape", "padding=padding, dilation=1)\n        fshape"),
    fault("convolution: groups ignored", FACTORY, "**sizes, groups=groups, init", "**sizes, groups=1, init"),
    fault("pooling: strides of 1 by default", FACTORY, "steps = kernel if strides is None else", "steps = 1 if strides is None else"),
    fault("pooling: padding ignored", FACTORY, "strides=steps, padding=padding)", "strides=steps, padding=0)"),
    fault("normalization: statistics of the batch in inference", WRAPPED, "self._chain.fprop(self._x, inference)", "self._chain.fprop(self._x, False)"),
    fault("normalization: scale and shift exchanged", WRAPPED, "return super().get_params()[::-1]", "return super().get_params()"),
    fault("normalization: scalars of the scale ignored", WRAPPED, "            scales.apply(self.diff_weights, old)\n", ""),
    fault("normalization: rho and eps exchanged", FACTORY, "rho=float(rho), eps=float(eps)", "rho=float(eps), eps=float(rho)"),
    fault("dropout: mean of 0", STREAMS, "= 1 + self.blueprint.sd * self.be.randn()", "= self.blueprint.sd * self.be.randn()"),
    fault("dropout: noise in inference", STREAMS, "        if not inference:\n            self.mask", "        if self.train:\n            self.mask"),
    fault("sum: gradient divided", STREAMS, "[(one, dy) for one in dx]", "[(one, dy / len(dx)) for one in dx]"),
    fault("split: gradient of the first output alone", STREAMS, "[(dx, reduce(add, dy))]", "[(dx, dy[0])]"),
    fault("parts in another order", STREAMS, "for size, end in zip(sizes, accumulate(sizes))]", "for size, end in reversed([*zip(sizes, accumulate(sizes))])]"),
    fault("last step: gradients of others left", STREAMS, "[(dx, 0), (dx[:, -1], dy)]", "[(dx[:, -1], dy)]"),
    fault("normalization: derivative of the rectifier left to it", WRAPPED, "        BuiltLayer._backward(self)\n", "        super()._backward()\n"),
    fault("network: gradients in the order of the forward pass", NETWORK, "        for layer in reversed(self.layers):\n            layer._backward()\n", "        for layer in self.layers:\n            layer._backward()\n"),
    fault("rnn: the error that is given is overwritten", RECURRENT, "        self._error = buffers[0].share((bp.dst_desc.shape[0], columns))\n", "        self._error = in_rows(self.diff_output, bp.dst_desc.shape[:-1])\n"),
    fault("rnn: gradient by the last state ignored", RECURRENT, "            if self.diff_dst_iter is not None:\n", "            if False:\n"),
    fault("rnn: gradient by the last cell ignored", LSTM, "        self.set_final_cell_error(finals[1])\n", ""),
    fault("rnn: states before the first step ignored", RECURRENT, "            cell.set_state(list(states))\n", "            pass\n"),
    fault("rnn: old gradient ignored", RECURRENT, "scales.apply(self.diff_weights[level], old)", "scales._replace(g=0.0).apply(self.diff_weights[level], old)"),
    fault("rnn: bias filled as a weight", RECURRENT, "            bias(biases)\n", "            fn(biases)\n"),
    fault("rnn: carries its state over", RECURRENT, '"activation": self.activation.make(), "reset_cells": True}', '"activation": self.activation.make(), "reset_cells": False}'),
    fault("rnn: both ways read forward", BOTH_WAYS, "self._steps(self._reversed)[:] = self._steps(inputs)[:, ::-1]", "self._steps(self._reversed)[:] = self._steps(inputs)"),
    fault("rnn: errors of both ways are not added up", BOTH_WAYS, "whole[:] = whole + self._steps(self._back)[:, ::-1]", "whole[:] = self._steps(self._back)[:, ::-1]"),
    fault("network: outputs in one buffer", NETWORK, "found[position] = turn % 2", "found[position] = 0"),
    fault("network: outputs where layers work", NETWORK, "start = bp.inner_bytes + (bp", "start = 0 + (bp"),
    fault("network: its output in the workspace", NETWORK, "enumerate(writing[:-1])", "enumerate(writing)"),
    fault("network: activations left out of the backward pass", NETWORK, "            if layer is not self.layers[-1]:\n                layer._backward_activation()\n", ""),
    fault("network: normalization drawn at random", WRAPPED, "    draws_weights: ClassVar[bool] = False\n", ""),
    fault("cost: derivative of the activation twice", COST, "self.layer.leave_to_cost(self._is_entropy)", "self.layer.leave_to_cost(False)"),
    fault("cost: one cross-entropy for all", COST, '"logistic": (CrossEntropyBinary', '"logistic": (CrossEntropyMulti'),
    fault("optimizer: steps counted together", "neonlike/optimizers/adaptive.py", "            self.t = calls if dialect.is_neon() else count.steps\n", ""),
    fault("activation: transform shared by layers", ACTIVATIONS, "else copy.copy(self.transform)", "else self.transform"),
    fault("activation: alpha ignored", ACTIVATIONS, "return NAMES[self.name][0](**dict(self.given)) if", "return NAMES[self.name][0]() if"),
    fault("description: another batch accepted", DESCRIPTION, "if found.shape[-1] != src.shape[-1]:", "if False:"),
    fault("description: another order of axes accepted", DESCRIPTION, "if desc.batch_axis != desc.ndim - 1:", "if False:"),
    fault("description: another shape accepted", DESCRIPTION, "if shape is not None and found.shape != tuple(shape):", "if False:"),
    fault("branch: parts need not make up the whole", FACTORY, "!= given.shape[where]:\n", "> given.shape[where]:\n"),
)
