"""Faults in the lazy forms of primitives: their nodes, gradient rules and stages, and in the check of gradients."""

# ruff: noqa: E501  (one fault, one line: the tables read across)

from __future__ import annotations

from tests.planted.table import EXPRESSIONS, KERNELS, PRIMITIVES, Mutant

REQUESTS, LAZY, NORM = (PRIMITIVES + f"lazy/{name}.py" for name in ("requests", "family", "norms"))
GRADIENTS, CHECK = EXPRESSIONS + "gradients.py", EXPRESSIONS + "grad_check.py"
ATTENTION = PRIMITIVES + "attention/lazy.py"
STAGE, ACTIVATION = KERNELS + "run/call_stage.py", EXPRESSIONS + "activation.py"


def fault(name: str, file: str, old: str, new: str) -> Mutant:
    """A row of this family."""
    return Mutant("lazy", name, file, old, new)


MUTANTS = (
    fault("data gradient of conv twice as large", REQUESTS, 'gradients = conv_node("bprop", g, (d, second), first.shape), conv_node("update", g, (first, d), second.shape)', 'gradients = conv_node("bprop", g, (d * 2, second), first.shape), conv_node("update", g, (first, d), second.shape)'),
    fault("filter gradient of deconv twice as large", REQUESTS, 'conv_node("fprop", g, (d, second), first.shape), conv_node("update", g, (d, first), second.shape)', 'conv_node("fprop", g, (d, second), first.shape), conv_node("update", g, (d, first * 2), second.shape)'),
    fault("second derivative of conv by the error twice as large", REQUESTS, 'conv_node("bprop", g, (second, d), first.shape), conv_node("fprop", g, (first, d), second.shape)', 'conv_node("bprop", g, (second, d), first.shape), conv_node("fprop", g, (first, d * 2), second.shape)'),
    fault("gradient of the bias over one axis too few", REQUESTS, "sums = F.sum(d, axis=tuple(range(1, len(d.shape))))", "sums = F.sum(d[..., :1], axis=tuple(range(1, len(d.shape))))"),
    fault("gradients of gamma and beta swapped", NORM, "return node, part(node, 1), part(node, 2)", "return node, part(node, 2), part(node, 1)"),
    fault("sums and variances swapped", NORM, "(d, x, part(z, 1), part(z, 2), gamma)", "(d, x, part(z, 2), part(z, 1), gamma)"),
    fault("denominator of lrn is its output", NORM, "(x, z, d, part(z, 1))", "(x, z, d, z)"),
    fault("second derivatives of batchnorm without the spread", NORM, "e - (by_beta + away * inverse * by_gamma) *", "e - (by_beta + away * 0 * by_gamma) *"),
    fault("second derivatives of lrn by the denominator alone", NORM, "- 2 * power * scale * x *", "- 0 * power * scale * x *"),
    fault("second derivatives of attention of weights that do not add up", ATTENTION, "slopes = weights * (of_weights - F.sum(weights * of_weights, 2))", "slopes = weights * (of_weights - F.sum(of_weights, 2))"),
    fault("second derivatives of max pooling a row further on", REQUESTS, "np.arange(count) * step - margin", "np.arange(count) * step"),
    fault("second derivatives of l2 pooling with means for sums", REQUESTS, "pool_node(mean, x * x, error.shape) * counts", "pool_node(mean, x * x, error.shape)"),
    fault("gradient of a batched product half as large again", REQUESTS, "matmul_node(F.transpose(a), d, b.shape, dtype)", "matmul_node(F.transpose(a), d * 1.5, b.shape, dtype)"),
    fault("eps of the gradient", NORM, 'z.attrs["request"].eps, ((x.shape, kind)', '1e-3, ((x.shape, kind)'),
    fault("gradients of a user's function unchecked", REQUESTS, "        check_increment(f\"backward of the primitive {name}\", operand, gradient)\n", "        pass\n"),
    fault("a user's function writes into the target", REQUESTS, "    direct: ClassVar[bool] = False\n", ""),
    fault("filters of other channels are let through", LAZY, '        _same_size("conv", "w", w.shape, (g.dimF[0], *w.shape[1:]))\n', ""),
    fault("strides and padding swapped", LAZY, '{"padding": padding, "strides": strides, "dilation": dilation}', '{"padding": padding, "strides": dilation, "dilation": strides}'),
    fault("a stride of the window where strides are given", LAZY, "steps = frame if strides is None else", "steps = frame if strides else"),
    fault("an operand is not converted", STAGE, "tensor if wanted is None or tensor.dtype == wanted else", "tensor if tensor is not None else"),
    fault("the target is written although it is read", STAGE, "if not store.buffered and not target.rounding", "if not target.rounding"),
    fault("a result is not widened for later stages", STAGE, "wide = be.fresh(result.shape, compute_dtype(result.dtype))\n            copies.append((wide, result))", "pass"),
    fault("a failing call changes targets", KERNELS + "planning/planner.py", "return stage.kind is StageKind.CALL\n", "return False\n"),
    fault("an argument that is passed twice counts twice", GRADIENTS, "_itself(arguments[position]) if lazy else _stand_in(self, arguments[position])", "_itself(arguments[position]) if lazy else arguments[position]"),
    fault("nested gradients are tensors", GRADIENTS, "lazy = is_differentiating()", "lazy = False"),
    fault("the gradient by what is not there is 1", GRADIENTS, "found.append(be.zeros(", "found.append(be.ones("),
    fault("argnums in the order of arguments", GRADIENTS, "at = [n + len(arguments) if n < 0 else n for n in wanted]", "at = sorted(n + len(arguments) if n < 0 else n for n in wanted)"),
    fault("an element that is wrong is within the tolerance", CHECK, "rtol * size + 10 * doubt", "rtol * 1e5 * size + 10 * doubt"),
    fault("the check leaves its step in the values", CHECK, "            point.set(start)\n", "            pass\n"),
    fault("kinks are called errors", CHECK, "doubt = max(doubt, case.bend(position, direction))", "doubt = max(doubt, 0.0)"),
    Mutant("activation", "inputs are passed where outputs are named", ACTIVATION, '(("inputs", inputs), ("outputs", outputs))', '(("inputs", inputs), ("outputs", inputs))'),
    Mutant("activation", "inputs that are not kept are not refused", ACTIVATION, '    if inputs is None:\n        refuse_inputs("derivative", transform)\n', ""),
)
