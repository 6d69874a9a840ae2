"""Faults in local response normalisation: the NumPy definition, the C templates, checks."""

# ruff: noqa: E501  (one fault, one line: the tables read across)

from __future__ import annotations

from tests.planted.table import CPU, PRIMITIVES, C, Mutant

FAMILY, FORWARD, BACKWARD, POWER = PRIMITIVES + "lrn.py", C + "lrn_fprop.c.j2", C + "lrn_bprop.c.j2", C + "lrn_power.h"


def fault(name: str, file: str, old: str, new: str) -> Mutant:
    """A row of this family."""
    return Mutant("lrn", name, file, old, new)


MUTANTS = (
    fault("definition: window one channel short", FAMILY, "min(window // 2 + 1, len(values))", "min(window // 2, len(values))"),
    fault("definition: window reaches to one side only", FAMILY, "        total[step:] += values[:-step]\n", ""),
    fault("definition: denominator without 1", FAMILY, "            d += 1\n", ""),
    fault("definition: bpower has the wrong sign", FAMILY, "_store(y, x * d**-request.bpower, request)", "_store(y, x * d**request.bpower, request)"),
    fault("definition: gradient through the window added", FAMILY, "e * d**-request.bpower - share * x", "e * d**-request.bpower + share * x"),
    fault("definition: beta ignored", FAMILY, "out * request.beta if request.beta != 0 else 0", "out if request.beta != 0 else 0"),
    fault("definition: alpha scales the old value too", FAMILY, "    np.multiply(result, request.alpha, out=result)\n    np.add(result, out * request.beta if", "    np.multiply(result, request.alpha, out=result)\n    np.add(result, request.alpha * out * request.beta if"),
    fault("ascale not divided by the window", FAMILY, "beta, ascale / layer.J, bpower)", "beta, ascale, bpower)"),
    fault("gradient through the window without its 2", FAMILY, "return 2 * self.bpower * self.scale", "return self.bpower * self.scale"),
    fault("alias check removed", FAMILY, '        check_apart(name, {"O": O, "denom": denom}, {"I": I})\n', ""),
    fault("C forward: window shifted", FORWARD, "row = c + j - HALF;", "row = c + j - HALF + 1;"),
    fault("C forward: denominator without 1", FORWARD, "(real)1 + scale * total", "scale * total"),
    fault("C forward: alpha ignored without beta", FORWARD, "if (a->alpha != 1 || a->beta != 0)", "if (a->beta != 0)"),
    fault("C forward: denominator of what is stored past the caches", FORWARD, "nl_stream(denom, d, width", "nl_stream(denom, o, width"),
    fault("C backward: channels past the last keep the first's shares", BACKWARD, "            memset(shares, 0, sizeof *ring);\n", "            (void)shares;\n"),
    fault("C backward: gradient through the window without the input", BACKWARD, "- slope * x[b] * total", "- slope * total"),
    fault("C backward: beta ignored", BACKWARD, "a->alpha * out[b] + a->beta * delta[b]", "a->alpha * out[b] + delta[b]"),
    fault("C: power 3/4 is 1", POWER, "(root * nl_sqrt_##S(root))", "(root * root)"),
    fault("C: bpower has the wrong sign", POWER, "nl_pow_##S(x, -bpower)", "nl_pow_##S(x, bpower)"),
    fault("C backward is passed the forward scale", CPU + "primitives/lrn.py", "request.slope, *request.rest", "request.scale, *request.rest"),
)
