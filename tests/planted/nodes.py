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
        ("NumPy's numbers on the left are left to Python", "else if ((number = value_of_scalar(a)))", "else if ((number = NULL))"),
    )
) + tuple(
    Mutant("nodes", name, C + "fastpath/fastpath_views.h", old, new)
    for name, old, new in (
        ("views lose the mark of values that need not survive", "if (!failed && !kept)", "if (0)"),
        ("views have no name", "if (!failed && name != Py_None)", "if (0)"),
        ("views keep one more reference to what they have", "    Py_XDECREF(value);\n    return failed;", "    return failed;"),
        ("views are their own memory", "PyObject_GenericGetAttr(tensor, name_root)))", "PyTuple_Pack(1, array)))"),
        ("views of a user's class are of the class that they derive from", "if (!is_tensor(Py_TYPE(tensor)))", "if (!tensor_class[0])"),
    )
) + (
    Mutant("nodes", "an index counts from the first element where it is negative", "neonlike/optree/indexing.py", "position = item % size\n", "position = item if removable <= 0 else item % size\n"),
    Mutant("nodes", "wrong ends of slices are NumPy's errors", "neonlike/backends/cpu/tensor.py", "        except (TypeError, ValueError):  # ends", "        except ZeroDivisionError:  # ends"),
    Mutant("nodes", "borders of -0.0 are those of 0.0", "neonlike/optree/arrange.py", "constants.get(repr(number))\n", "constants.get(repr(number + 0.0))\n"),
)  # fmt: skip
