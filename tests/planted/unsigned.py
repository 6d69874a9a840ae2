"""Faults in tensors of uint64: where they are stored, compared and computed with."""

# ruff: noqa: E501  (one fault, one line: the tables read across)

from __future__ import annotations

from tests.planted.table import BACKENDS, KERNELS, OPTREE, C, Mutant

INTMATH, SMALL = C + "intmath.h", C + "vecmath/vecmath_small.h"
CONVERT, PROGRAM, EMIT = (KERNELS + f"{name}.py" for name in ("run/convert", "numpy_engine/program", "codegen/emit"))
NODE, DTYPES = OPTREE + "node.py", OPTREE + "dtypes.py"


def fault(name: str, file: str, old: str, new: str) -> Mutant:
    """A row of this family."""
    return Mutant("uint64", name, file, old, new)


MUTANTS = (
    fault("C: less than negative numbers", INTMATH, "return b < 0 ? 1 :", "return b < 0 ? -1 :"),
    fault("C: negative numbers are as large as their bits", INTMATH, "return b < 0 ? 1 : (a >", "return (a >"),
    fault("C: negative numbers wrap when stored", INTMATH, "{ return a < 0 ? 0 : (uint64_t)a; }", "{ return (uint64_t)a; }"),
    fault("C: int64 wraps when stored", INTMATH, "(TYPE)(a > (uint64_t)(HIGH) ? (uint64_t)(HIGH) : a)", "(TYPE)a"),
    fault("C: the larger one by sign", INTMATH, "nl_max_nan_u64(uint64_t a, uint64_t b) { return a > b", "nl_max_nan_u64(uint64_t a, uint64_t b) { return (int64_t)a > (int64_t)b"),
    fault("C: division by 0", INTMATH, "nl_floordiv_u64(uint64_t a, uint64_t b) { return b == 0 ? 0 :", "nl_floordiv_u64(uint64_t a, uint64_t b) { return b == 0 ? a :"),
    fault("C: signed shift to the right", INTMATH, "b < 64 ? a >> b : 0; }\n\n/* -1", "b < 64 ? (uint64_t)((int64_t)a >> b) : 0; }\n\n/* -1"),
    fault("C: floats from 2^64 are not the largest", SMALL, "return x >= 0x1p64 ? UINT64_MAX : whole;", "return whole;"),
    fault("C: floats below 0 are not 0", SMALL, "double inside = x > 0 ? x : 0.0;", "double inside = x < 0 ? -x : x;"),
    fault("C: bits lost on the way to 16", SMALL, "((size & 0xfffffu) != 0 ? 1u : 0u)", "0u"),
    fault("lines: stored in 16 bits as int64", EMIT, "{'whole' if have == I64 else 'unsigned'}", "whole"),
    fault("lines: compared the wrong way round", EMIT, 'return [f"nl_compared_u64({texts[0]}, {texts[1]})", "0"]', 'return ["0", f"nl_compared_u64({texts[0]}, {texts[1]})"]'),
    fault("lines: compared with integers as float64", EMIT, "if value.spec.name in ORDERS and U64 in typed and", "if False and"),
    fault("lines: numbers from 2^63 are negative", EMIT, 'ctype = "int64_t" if number < 2**63 else "uint64_t"', 'ctype = "int64_t"'),
    fault("plans of smaller numbers for larger ones", KERNELS + "planning/graph.py", "(NUMBER_INT if value < 2**63 else NUMBER_UNSIGNED)", "NUMBER_INT"),
    fault("NumPy: less than negative numbers", PROGRAM, "        np.copyto(out, function(1, 0), where=b_below)\n", ""),
    fault("NumPy: negative numbers on the left are greater", PROGRAM, "        np.copyto(out, function(0, 1), where=below)\n", ""),
    fault("NumPy: stores by way of int64", CONVERT, "wide = U64 if U64 in (values.dtype, out.dtype) else I64", "wide = I64"),
    fault("NumPy: stores of int64 wrap", CONVERT, "least, largest = I64.type(info.min),", "least, largest = I64.type(I64_LEAST := -(2**63)),"),
    fault("numbers beyond all integers are least", NODE, "math.inf if o > high else -math.inf for o", "-math.inf if o > high else math.inf for o"),
    fault("mixed with integers of other dtypes", DTYPES, "if whole is I64 and U64 in dtypes:", "if False:"),
    fault("mixed with negative numbers", DTYPES, "if not (0 <= number < 2**64 if whole is U64 else -(2**63) <= number < 2**63):", "if False:"),
    fault("computed as int64", DTYPES, "return U64 if U64 in dtypes and all(dtype == U64 for dtype in dtypes) else I64", "return I64"),
    fault("positions beyond int64", DTYPES, 'return dtype.kind in "iu" and dtype != U64', 'return dtype.kind in "iu"'),
    fault("lists of whole numbers as floats", BACKENDS + "hostdata.py", "        host = _unsigned_integers(host, value)\n", "        pass\n"),
    fault("softmax wraps below the maximum", OPTREE + "functions.py", "if a.dtype is F32 or a.dtype != U64:", "if True:"),
    fault("numbers fill by way of floats", BACKENDS + "backend.py", "not -(2**63) <= operand < 2**64:", "not -(2**63) <= operand < 2**63:"),
)
