"""Faults in the layers on compound primitives: their calls of the backend, buffers, parameters, folding."""

# ruff: noqa: E501  (one fault, one line: the tables read across)

from __future__ import annotations

from tests.planted.table import Mutant

LAYERS = "neonlike/layers/"
CONV, DECONV, POOL, WINDOWS = (LAYERS + f"{name}.py" for name in ("images/convolution", "images/deconvolution", "images/pooling", "images/windows"))
NORM, SCALE, SAMPLE, LRN = (LAYERS + f"{name}.py" for name in ("norm/normalization", "norm/scaleshift", "norm/samplenorm", "images/lrn"))
LOOKUP, BINARY, ROI, ATTENTION = (LAYERS + f"{name}.py" for name in ("dense/lookup", "dense/binary", "images/roi", "dense/attention"))
FOLDING, EPILOGUE, BIAS, OLD = (LAYERS + f"{name}.py" for name in ("core/folding", "core/epilogue", "core/bias", "core/oldformats"))
DEPTHWISE, RESIDUAL = LAYERS + "images/depthwise.py", LAYERS + "container/residual.py"
AUTODIFF = LAYERS + "norm/batchnorm_autodiff.py"


def fault(name: str, file: str, old: str, new: str) -> Mutant:
    """A row of this family."""
    return Mutant("layers", name, file, old, new)


MUTANTS = (
    fault("convolution: beta of the outputs ignored", CONV, "            beta=beta,\n            relu=relu,", "            relu=relu,"),
    fault("convolution: beta of the deltas ignored", CONV, "self.W, error, self.deltas, alpha=alpha, beta=beta)", "self.W, error, self.deltas, alpha=alpha)"),
    fault("convolution: gradient of the bias not computed", CONV, '        self.grad_bias[:] = self.be.sum(reshaped(self, "error", error, self.weight_bias.shape[0]), axis=1)\n', ""),
    fault("convolution: bias shares the states of the weight", CONV, "((self.weight_bias, self.grad_bias), self.states[1])", "((self.weight_bias, self.grad_bias), self.states[0])"),
    fault("convolution: bias filled as the weight", CONV, "self.new_parameter((self.nglayer.K, 1), self.bias)", "self.new_parameter((self.nglayer.K, 1), self.init)"),
    fault("convolution: depth dropped from the output shape", CONV, "keep_depth=g.M != 1)", "keep_depth=False)"),
    fault("convolution: saved without its bias", CONV, 'return (*super().parameter_names(), "weight_bias")', "return super().parameter_names()"),
    fault("deconvolution: padding not passed on", WINDOWS, '        **by_axis(f"{layer.classnm}: padding", padding, "pad"),\n', ""),
    fault("deconvolution: alpha ignored", DECONV, "error, self.W, self.deltas, alpha=alpha, beta=beta)", "error, self.W, self.deltas, beta=beta)"),
    fault("windows: strides for the height only", WINDOWS, 'given = {f"{prefix}_h": given, f"{prefix}_w": given}', 'given = {f"{prefix}_h": given}'),
    fault("windows: strides of 0 accepted", WINDOWS, 'if size < (prefix != "pad"):', "if size < 0:"),
    fault("pooling: beta of the deltas ignored", POOL, "alpha=alpha, beta=beta, inputs=values", "alpha=alpha, inputs=values"),
    fault("pooling: depth dropped from the output shape", POOL, "keep_depth=len(self.in_shape) == 4)", "keep_depth=g.M != 1)"),
    fault("normalization: running averages never move", NORM, "outputs, self.eps, self.rho,", "outputs, self.eps, 1.0,"),
    fault("normalization: statistics of the batch in inference", NORM, "binary=self.binary, inference=bool(inference),", "binary=self.binary,"),
    fault("normalization: rectifier's derivative forgotten", NORM, "y = self.outputs if self.error_left is error else None", "y = None"),
    fault("normalization: rectifier's derivative at each call", NORM, "y = self.outputs if self.error_left is error else None", "y = self.outputs if self.folded else None"),
    fault("normalization: leaky rectifiers taken over", NORM, "transform is not None and not transform.slope", "transform is not None"),
    fault("normalization: powers of two not asked for backward", NORM, "self.gamma, self.eps, binary=self.binary, y=y", "self.gamma, self.eps, y=y"),
    fault("scale: gamma starts at 0", SCALE, 'self.make("gamma", 1.0)', 'self.make("gamma", 0.0)'),
    fault("scale: gamma before beta", SCALE, "return [self.beta, self.gamma]", "return [self.gamma, self.beta]"),
    fault("autodiff: running variance of the deviation", AUTODIFF, "(1 - self.rho) * be.var(self.x, axis=1)", "(1 - self.rho) * be.std(self.x, axis=1)"),
    fault("sample: gradient of gamma without normalization", SAMPLE, "be.sum(e * normal, axis=axes)", "be.sum(e * x, axis=axes)"),
    fault("sample: means of another kernel mixed up", SAMPLE, "return kept[0], kept[1]", "return kept[1], kept[0]"),
    fault("sample: mean of the error kept", SAMPLE, "* e - mean - normal", "* e - normal"),
    fault("sample: means of a group without gamma", SAMPLE, "share * be.sum(gamma * by_map, axis=1)", "share * be.sum(by_map, axis=1)"),
    fault("sample: groups by channel only", SAMPLE, "    statistics_axes = (1, 2)", "    statistics_axes = (2,)"),
    fault("lrn: denominators of a part kept with the whole", LRN, "self.denom if outputs is self.outputs else part_of(self, \"denom\", self.denom, outputs.shape[1])", "self.be.empty_like(outputs)"),
    fault("lookup: gradients add up", LOOKUP, "            self.dW.fill(0)\n", ""),
    fault("lookup: padding word gets a gradient", LOOKUP, "self._error_t, self.dW, self.pad_idx\n", "self._error_t, self.dW, None\n"),
    fault("lookup: padding word does not start at 0", LOOKUP, "            self.W[self.pad_idx : self.pad_idx + 1] = 0\n", "            pass\n"),
    fault("binary: real weights backward", BINARY, "compound_dot(A=self.Wb.T, B=error", "compound_dot(A=self.W.T, B=error"),
    fault("binary: bits counted after any activation", BINARY, "and isinstance(before.transform, Sign)", ""),
    fault("regions: gradient of a disabled layer", ROI, "if not self.bprop_enabled:", "if False:"),
    fault("attention: causal ignored", ATTENTION, "steps, size, causal=layer.causal)", "steps, size)"),
    fault("attention: queries and keys exchanged", ATTENTION, "be.fprop_attention(w.sizes, w.queries, w.keys,", "be.fprop_attention(w.sizes, w.keys, w.queries,"),
    fault("attention: error taken of the means", ATTENTION, "w.mixed, w.lse, w.mixed_error, *w.errors", "w.mixed, w.lse, w.mixed, *w.errors"),
    fault("attention: input bias forgotten", ATTENTION, "w.projected + self.bias_in", "w.projected + 0"),
    fault("folding: a finished tensor counts forever", FOLDING, "        taker.finished = None\n", "        pass\n"),
    fault("folding: any tensor counts as finished", FOLDING, "or taker.finished is not inputs:", ":"),
    fault("epilogue: slope ignored", EPILOGUE, "0.0 if transform is None else float(transform.slope)", "0.0"),
    fault("epilogue: rectifies before sums", EPILOGUE, "self.batch_sum_shape is not None or any(", "any("),
    fault("epilogue: two biases", EPILOGUE, "self.folded or self.has_bias or following.owns_output", "self.folded or following.owns_output"),
    fault("bias: activation before the bias", BIAS, "following[0].transform(view + self.W)", "following[0].transform(view + 0) + self.W"),
    fault("old files: states of convolution and bias swapped", OLD, '[convolution["states"], bias["states"]]', '[bias["states"], convolution["states"]]'),
    fault("depthwise: without groups", DEPTHWISE, '"groups": given["C"]}', '"groups": 1}'),
    fault("residual: no activation after the sum", RESIDUAL, "        if activation is not None:\n            self.append(Activation", "        if False:\n            self.append(Activation"),
)
