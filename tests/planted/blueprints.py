"""Faults in blueprints: their shapes and workspaces, and the layers' results."""

# ruff: noqa: E501  (one fault, one line: the tables read across)

from __future__ import annotations

from tests.planted.table import LAYERS, Mutant

BUILT, DENSE, IMAGES, ELEMENTWISE, STREAMS, RECURRENT, NETWORK, COST, DESCRIPTION, ACTIVATIONS, BASE, FACTORY = (
    LAYERS + f"blueprint/{name}.py"
    for name in "built dense images elementwise streams recurrent network cost description activations base factory".split()
)


def fault(name: str, file: str, old: str, new: str) -> Mutant:
    """A row of this family."""
    return Mutant("blueprints", name, file, old, new)


MUTANTS = (
    fault("batch size of the backend is left changed", BASE, "NervanaObject.be, be.bsz, be.default_dtype = before", "NervanaObject.be, _, be.default_dtype = before"),
    fault("batch size is the backend's", BASE, "be, desc.shape[-1], desc.dtype", "be, be.bsz, desc.dtype"),
    fault("current backend is used", BASE, "NervanaObject.be, be.bsz, be.default_dtype = be,", "NervanaObject.be, be.bsz, be.default_dtype = NervanaObject.be,"),
    fault("linear part: old bias ignored", BUILT, "scaled if beta == 0 else scaled + (target if beta == 1 else beta * target)", "scaled"),
    fault("linear part: bias moved without being asked", BUILT, "self._backward_diff(1.0, 0.0, 0.0, 1.0)", "self._backward_diff(1.0, 0.0, 1.0, 0.0)"),
    fault("gradient of the input not that of the source", BUILT, "self._new(desc) if gradient is None else fitting(str(self.blueprint), desc, gradient)", "self._new(desc)"),
    fault("small workspace accepted", BUILT, "if given.nbytes < needed:", "if False:"),
    fault("init fills biases as weights", BUILT, "            bias(self.bias)\n", "            fn(self.bias)\n"),
    fault("inner product: old gradient ignored", DENSE, "self.diff_weights, alpha=scale_dw, beta=scale_g)", "self.diff_weights, alpha=scale_dw)"),
    fault("inner product: factor of the gradient ignored", DENSE, "self.diff_weights, alpha=scale_dw, beta=scale_g)", "self.diff_weights, beta=scale_g)"),
    fault("activation: inputs overwritten though the derivative asks for them", DENSE, "if activation.keeps_inputs:", "if False:"),
    fault("activation: inference needs no workspace", DENSE, "return room(self.dst) if self.activation.keeps_inputs else 0", "return 0"),
    fault("softmax of a sequence over its steps", DENSE, "return self.dst.shape[0] if self.dst.layout == SEQUENCE else None", "return None"),
    fault("convolution: old gradient ignored", IMAGES, "alpha=scale_dw, beta=scale_g, grad_bias", "alpha=scale_dw, grad_bias"),
    fault("convolution: dilation ignored", IMAGES, '("dil_", "dilation", dilation, 1)', '("dil_", "dilation", 1, 1)'),
    fault("convolution: groups ignored", IMAGES, "K=maps, groups=groups, **sizes)", "K=maps, **sizes)"),
    fault("pooling: strides of 1 by default", IMAGES, "steps = kernel if strides is None else", "steps = (1, 1, 1) if strides is None else"),
    fault("pooling: padding ignored", IMAGES, 'per_axis(where, "padding", padding, axes, 0))\n    sizes |= by_name("DHW"', 'per_axis(where, "padding", 0, axes, 0))\n    sizes |= by_name("DHW"'),
    fault("normalization: statistics of the batch in inference", ELEMENTWISE, "bp.eps, bp.rho, True, inference=inference,", "bp.eps, bp.rho, True,"),
    fault("normalization: scale starts at 0", ELEMENTWISE, "        self.weights.fill(1)\n", ""),
    fault("normalization: scalars of the scale ignored", ELEMENTWISE, "blend(self.diff_weights, self._diff_gamma, scale_dw, scale_g)", "blend(self.diff_weights, self._diff_gamma, 1.0, 0.0)"),
    fault("normalization: error of a first layer overwritten", ELEMENTWISE, "self._target = self._new(bp.src_desc) if", "self._target = self._diff_z if"),
    fault("dropout: mean of 0", ELEMENTWISE, "= 1 + self.blueprint.sd * self.be.randn()", "= self.blueprint.sd * self.be.randn()"),
    fault("dropout: noise in inference", ELEMENTWISE, "        if not inference:\n            self.mask", "        if self.train:\n            self.mask"),
    fault("sum: gradient divided", STREAMS, "            gradient[:] = self.diff_output\n", "            gradient[:] = self.diff_output / len(self.input)\n"),
    fault("split: gradient of the first output alone", STREAMS, "self.diff_input[:] = reduce(add, self.diff_output)", "self.diff_input[:] = self.diff_output[0]"),
    fault("parts in another order", STREAMS, "(slice(end - size, end),)] for size, end in zip(sizes, ends)]", "(slice(end - size, end),)] for size, end in reversed([*zip(sizes, ends)])]"),
    fault("last step: gradients of others left", STREAMS, "            self.diff_input.fill(0)\n", ""),
    fault("rnn: the error that is given is overwritten", RECURRENT, "        self._error = buffers[0].share((bp.dst.shape[0], columns))\n", "        self._error = flat(self.diff_output, bp.dst.shape[0])\n"),
    fault("rnn: gradient by the last state ignored", RECURRENT, "            if self.diff_dst_iter is not None:\n", "            if False:\n"),
    fault("rnn: states before the first step ignored", RECURRENT, "if self.src_iter is not None and layer in self.cells:", "if False:"),
    fault("rnn: old gradient ignored", RECURRENT, "scale_dw * gradient + scale_g * before", "scale_dw * gradient"),
    fault("rnn: bias filled as a weight", RECURRENT, "            bias(biases)\n", "            fn(biases)\n"),
    fault("rnn: carries its state over", RECURRENT, 'bp.activation.make(), "reset_cells": True}', 'bp.activation.make(), "reset_cells": False}'),
    fault("network: outputs in one buffer", NETWORK, "found[position] = turn % 2", "found[position] = 0"),
    fault("network: outputs where layers work", NETWORK, "start = bp.inner_bytes + (bp", "start = 0 + (bp"),
    fault("network: its output in the workspace", NETWORK, "enumerate(writing[:-1])", "enumerate(writing)"),
    fault("network: activations left out of the backward pass", NETWORK, "            if layer is not self.layers[-1]:\n                layer._backward_activation()\n", ""),
    fault("network: normalization drawn at random", ELEMENTWISE, "    draws_weights = False\n", ""),
    fault("cost: derivative of the activation twice", COST, "self.layer.leave_to_cost(crossentropy)", "self.layer.leave_to_cost(False)"),
    fault("cost: one cross-entropy for all", COST, '"logistic": CrossEntropyBinary', '"logistic": CrossEntropyMulti'),
    fault("optimizer: steps counted together", "neonlike/optimizers/adaptive.py", "            self.t = calls if dialect.is_neon() else count.steps\n", ""),
    fault("activation: derivative of softmax left out", ACTIVATIONS, "isinstance(transform, Softmax) and not self.left_to_cost", "False"),
    fault("activation: transform shared by layers", ACTIVATIONS, "return copy.copy(self.transform)", "return self.transform"),
    fault("activation: alpha ignored", ACTIVATIONS, "return NAMES[self.name][0](**dict(self.given))", "return NAMES[self.name][0]()"),
    fault("description: another batch accepted", DESCRIPTION, "if found.shape[-1] != src.shape[-1]:", "if False:"),
    fault("description: another order of axes accepted", DESCRIPTION, "if desc.batch_axis != desc.ndim - 1:", "if False:"),
    fault("description: another shape accepted", DESCRIPTION, "if shape is not None and found.shape != tuple(shape):", "if False:"),
    fault("branch: parts need not make up the whole", FACTORY, "!= given.shape[where]:\n", "> given.shape[where]:\n"),
)
