"""Faults in the nodes that the extension builds."""

# ruff: noqa: E501  (one fault, one line: the tables read across)

from __future__ import annotations

from tests.planted.table import C, Mutant

NODES = C + "fastpath/fastpath_nodes.h"

MUTANTS = tuple(
    Mutant("nodes", name, NODES, old, new)
    for name, old, new in (
        ("results of integers have the dtype of an operand", "Py_SETREF(traits.dtype, own(whole));", "(void)whole;"),
        ("integers of ops that ask for values are built, too", "!numeric_traits(first, &traits, whole != Py_None)", "!numeric_traits(first, &traits, 1)"),
        ("numbers beyond int64 beside integers", "return !integer_of(operand, &integer);", "return 1;"),
        ("a fraction leaves integers as they are", "    Py_SETREF(traits->dtype, own(float32));\n    return 1;", "    return 1;"),
        ("integers are not promoted to floats beside them", "        if (promoted)\n            Py_SETREF", "        if (0)\n            Py_SETREF"),
        ("two kinds of floats are one", "const int known = its.dtype == traits->dtype || promoted || is_integer(its.dtype);", "const int known = 1;"),
        ("shapes are not joined", "Py_SETREF(traits->shape, shape);", "Py_DECREF(shape);"),
        ("tensors of another backend are taken", "known && its.backend == traits->backend ?", "known ?"),
    )
)  # fmt: skip
