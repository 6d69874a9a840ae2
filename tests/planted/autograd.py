"""Faults in variables: the tape, its kept values, its backward pass, ops and lifetimes."""

# ruff: noqa: E501  (one fault, one line: the tables read across)

from __future__ import annotations

from tests.planted.table import OPTREE, Mutant

AUTOGRAD = "neonlike/autograd/"
TAPE, KEEPING, BACKWARD, SWEEP = (OPTREE + name for name in ("tape.py", "keeping.py", "backward.py", "sweep.py"))
VARIABLE, BLOCKS, SCOPES, OP = (AUTOGRAD + name for name in ("variable.py", "blocks.py", "lifetimes.py", "op.py"))
JOINING, FUNCTIONS, RULES = OPTREE + "joining.py", OPTREE + "functions.py", OPTREE + "ops.py"
ELEMENTWISE, SHAPE, REDUCTION, LOSS = (AUTOGRAD + f"ops/{name}.py" for name in ("elementwise", "shape", "reduction", "loss"))


def fault(name: str, file: str, old: str, new: str) -> Mutant:
    """A row of this family."""
    return Mutant("autograd", name, file, old, new)


MUTANTS = (
    fault("constants of a parameter's tensor get derivatives", BACKWARD, " and (one if one.base is None else memory_of(one)).is_parameter", ""),
    fault("all parameters are differentiated by", BACKWARD, "            return id(memory_of(one)) in self.wanted\n", "            pass\n"),
    fault("a gradient of its own is not used", SWEEP, "grad: Any = step.node.spec.grad if step.rule is None else step.rule.grad", "grad: Any = step.node.spec.grad"),
    fault("broadcasting is not undone", SWEEP, "if increment.shape != operand.shape:", "if increment.shape != operand.shape and False:"),
    fault("the last use of a value counts alone", SWEEP, "self.total = increment if self.total is None else self.total + increment", "self.total = increment"),
    fault("a parameter used in two stages gets the last one's derivative", BACKWARD, "pairs.append((before, before + gradient))", "pairs.append((before, gradient))"),
    fault("kept values stay after the pass", BACKWARD, "            kept.pop(id(entry.node), None)\n", "            pass\n"),
    fault("entries hold on to kept values", BACKWARD, "        entry.now = None\n", ""),
    fault("constants beside the way are visited", SWEEP, "if increment is not None and to is not None and to.lead:", "if increment is not None and to is not None:"),
    fault("the gradient at an op that passes none on is 0", SWEEP, "(lead or self._wants(node)) and node.shape", "lead and node.shape"),
    fault("rules lead nowhere beside the value", TAPE, "(*operands, *passed_to)", "operands"),
    fault("gradients pass through the ends of a block", SWEEP, "by_id if stop else ()", "()"),
    fault("nothing is computed on the way", BACKWARD, "    return deep > 0 if entry.heavy else", "    return False if entry.heavy else"),
    fault("products are kept besides what is cheap above them", KEEPING, "    elif entry.forced and entry.forced >= node_bytes(entry.node):", "    elif False:"),
    fault("parts that lie at one place are joined", JOINING, "            and offset == start * strides[axis]\n", ""),
    fault("parts are joined in the order of their use", JOINING, "    terms.sort(key=_offset)\n", ""),
    fault("a view has no layout in its rule", BACKWARD, "z = entry.now if entry.now.__class__ is OpTreeNode else stand_in(node, entry.now)", "z = entry.now"),
    fault("windows of tensors turned round", TAPE, "return slice(start, stop if stop >= 0 else None, step)", "return slice(start, stop, step)"),
    fault("further results of primitives are not kept", KEEPING, "    return [part(entry.now, position) for position in range(count)]", "    return [part(entry.now, position) for position in range(min(count, 1))]"),
    fault("views are copied and kept", KEEPING, "(entry.node.spec.name in CHEAP_MOVES and rule_of(entry.node) is None)", "False"),
    fault("everything is kept", KEEPING, '    return entry.why != ""', "    return True"),
    fault("linear rules count as readers", KEEPING, "        if not needed or goes_to is None or not goes_to.lead:\n            continue\n", "        needed = needed or (-1,)\n"),
    fault("a graph can be used twice", VARIABLE, "            self._spent = True\n", ""),
    fault("derivatives do not accumulate", VARIABLE, "        if variable._derivative is None:\n            first", "        if variable._derivative is not gradient:\n            first"),
    fault("assigned values reach back", VARIABLE, "        tensor = be.fresh(self.shape, self.dtype)\n", "        tensor = self.value\n"),
    fault("a detached value passes derivatives on", VARIABLE, "tape.ruled(self._expr, _NOTHING)", "self._expr"),
    fault("absent inputs are no error", BLOCKS, '            if absent == "error" and id(variable._expr) not in made_of:\n', "            if False:\n"),
    fault("a block's inside is kept", BLOCKS, "return made(name, tape.ruled(result._expr, rule), tuple(parents))", "return result"),
    fault("a scope frees what is kept", SCOPES, "            if id(variable) not in staying:\n", "            if True:\n"),
    fault("a scope frees nothing", SCOPES, "                variable.free()\n", "                pass\n"),
    fault("increments are not checked", OP, '            check_increment(f"increments() of {self.name}", parent, increment)\n', "            pass\n"),
    fault("the cap is outside the exponential", ELEMENTWISE, "return F.exp(F.where(F.less_equal(a, shift), 0, shift - a))", "return F.where(F.less_equal(a, shift), 1, F.exp(shift))"),
    fault("softplus without its threshold", ELEMENTWISE, "F.where(F.greater(scaled, threshold), a, F.softplus(scaled) * (1 / beta))", "F.softplus(scaled) * (1 / beta)"),
    fault("dropout does not scale", ELEMENTWISE, "(1 / keep if keep else 0.0)", "1.0"),
    fault("the derivative of a cast stays in its type", ELEMENTWISE, "(_cast(d, a.dtype),)", "(d,)"),
    fault("variance divides by the number", REDUCTION, "- bool(unbiased)", "- 0"),
    fault("log_softmax forgets the sum", REDUCTION, "return (d - F.exp(z) * F.sum(d, axis),)", "return (d - F.exp(z) * d,)"),
    fault("a norm of nothing has an infinite slope", FUNCTIONS, "(a * (d / F.where(F.equal(z, 0), math.inf, z)),)", "(a * (d / z),)"),
    fault("all of a tie goes to each", RULES, "d if dialect.is_neon() else 0.5 * d, 0)", "d, 0)"),
    fault("every maximum gets all of a tie", RULES, "d if dialect.is_neon() else d / F.maximum(F.sum(same, z.attrs[\"axis\"]), 1)", "d"),
    fault("a product of two zeros has no curvature", RULES, "F.sum(none, axis=axis) - none, 0))", "0, 0))"),
    fault("relu passes 0 times infinity", RULES, "lambda F, d, z, x: (F.where(F.greater(z, 0), d, 0),)", "lambda F, d, z, x: (d * F.greater(z, 0),)"),
    fault("a derivative that ends is an error", BLOCKS, " and id(variable._expr) not in made_of:", ":"),
    fault("diagonals below the main one are above", SHAPE, "down, right = max(-offset, 0), max(offset, 0)", "down, right = max(offset, 0), max(-offset, 0)"),
    fault("the abandoned variable stands", SHAPE, "    return kept\n", "    return abandoned\n"),
    fault("class weights count in no mean", LOSS, "one = be.ones((1, 1), dtype=a.dtype) if weight is None else weight", "one = be.ones((1, 1), dtype=a.dtype)"),
    fault("an ignored class counts", LOSS, "return F.where(F.equal(classes, ignore), 0, there) if 0 <= ignore < shape[1] else there", "return there"),
    fault("impossible classes spoil a loss", LOSS, "there = F.where(F.onehot(classes, 1, be, checked=False), values, 0)", "there = F.onehot(classes, 1, be, checked=False) * values"),
    fault("weights of positive targets count for all", LOSS, "wrong = wrong * (1 + (weight - 1) * t)", "wrong = wrong * weight"),
)
