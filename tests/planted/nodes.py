"""Faults in the nodes that the extension builds."""

# ruff: noqa: E501  (one fault, one line: the tables read across)

from __future__ import annotations

from tests.planted.table import C, Mutant

NODES, RECALLED, BUILDERS = (C + f"fastpath/fastpath_{name}.h" for name in ("nodes", "recalled", "builders"))
STEPS = "neonlike/kernels/c/compositions.py"

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
        ("NumPy's numbers on the left are left to Python", "else if ((instead = stand_in(a, b, backend)))", "else if ((instead = NULL))"),
        ("arrays are of the operand's backend, whichever method was called", "if (!backend || backend == traits.backend)", "if (1)"),
        ("arrays of one axis are columns", "PyLong_AsLong(ndim) > 1", "PyLong_AsLong(ndim) > 0"),
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
) + tuple(
    Mutant("nodes", name, RECALLED, old, new)
    for name, old, new in (
        ("nodes of other operands", "return number < 0 ? recalled.at[-1 - number] : made[number];", "return number < 0 ? recalled.at[0] : made[number];"),
        ("attributes are shared by nodes", "attrs == Py_None ? own(attrs) : PyDict_Copy(attrs)", "own(attrs)"),
        ("a function's name is not part of the key", "ask_word(&recalled, (int64_t)(intptr_t)call->function) || ask_word(&recalled, call->count)", "ask_word(&recalled, call->count)"),
        ("names of arguments are not part of the key", "for (Py_ssize_t k = 0; k < names && !failed; k++)", "for (Py_ssize_t k = 0; k < 0; k++)"),
        ("lists are tuples", "ask_word(asked, PyTuple_CheckExact(items) ? SEVERAL : LISTED)", "ask_word(asked, LISTED)"),
        ("how long a list is is not part of the key", "SEVERAL : LISTED) || ask_word(asked, count);", "SEVERAL : LISTED);"),
        ("ops on bits do not look at what was moved", "(call->looks && is_move(known->spec)) ||", "0 ||"),
        ("a number beside its own tensor is taken", "return may_be_given_again(asked->place[number]->shape) ? ask_word(asked, TENSOR + number) : -1;", "return ask_word(asked, TENSOR + number);"),
        ("Ctrl-C while nodes are learned is lost", "return failed ? -1 : 0;\n}\n\nstatic PyObject *call_python", "PyErr_Clear();\n    return 0;\n}\n\nstatic PyObject *call_python"),
        ("how long a text is is not part of the key", "|| bytes > MOST_TEXT || ask_word(asked, TEXT) || ask_word(asked, bytes))", "|| bytes > MOST_TEXT || ask_word(asked, TEXT))"),
        ("texts are known by their beginnings", "if (ask_word(asked, word))", "if (!at && ask_word(asked, word))"),
        ("sizes of nodes are not part of the key", "        ask_word(asked, sizes[axis]);\n", "        (void)sizes[axis];\n"),
        ("dtypes of nodes are not part of the key", "return recall_object(asked, SLOT(node, dtype_at));", "return 0;"),
        ("the op of a node is not part of the key", "is_move(known->spec)) || ask_word(asked, (int64_t)(intptr_t)known->spec) || ask", "is_move(known->spec)) || ask"),
        ("nodes of another backend are taken", "SLOT(node, backend_at) != call->backend || ask_word(asked, NODE)", "ask_word(asked, NODE)"),
        ("which operands are one is not part of the key", "? ask_word(asked, TENSOR + number) : -1;", "? ask_word(asked, TENSOR) : -1;"),
        ("operands of the call are held", "Py_DECREF(recalled.at[--recalled.parameters]);", "recalled.parameters--;"),
        ("what is told by its identity is not held", "!recalled.place[k] && Py_TYPE(recalled.at[k]) != node_type", "0"),
        ("expressions are held", "!recalled.place[k] && Py_TYPE(recalled.at[k]) != node_type", "!recalled.place[k]"),
        ("nothing is learned", "learns = entry && !entry->returned;", "learns = 0;"),
    )
) + tuple(
    Mutant("nodes", name, STEPS, old, new)
    for name, old, new in (
        ("values of operands do not matter", "if not all(-1 - k in used for k, one in enumerate(given) if isinstance(one, Expression)) or _are_nested(given):", "if _are_nested(given):"),
        ("operands that are parts of others are taken", " or _are_nested(given):", ":"),
        ("random numbers are drawn once", "or node.spec.name == \"rand\"", "or False"),
        ("large tensors are shared", "base.nbytes <= LARGEST_CONSTANT", "True"),
        ("parts of operands are shared", "and id(base) not in memory", ""),
        ("attributes of a recipe change with the first node's", "None if node.attrs is None else dict(node.attrs)", "node.attrs"),
        ("nodes without a backend are made in one", "if node.backend is not backend or node.spec.kind", "if node.spec.kind"),
    )
) + tuple(
    Mutant("nodes", name, BUILDERS, old, new)
    for name, old, new in (
        ("an operand behind others is taken for `out`", "!names && count == before + 1", "!names && count > self->skip + 1"),
        ("any name is taken for `out`", "PyTuple_GET_ITEM(named, names - 1) == name_out && count", "1 && count"),
        ("`out` may be given twice", "== name_out && count <= before;", "== name_out;"),
        ("`out` may be of another backend", "return ours ? last : NULL;", "return place ? last : NULL;"),
        ("other names are lost beside `out`", "names > 1 ? PyTuple_GetSlice(named, 0, names - 1) : NULL", "NULL"),
    )
) + (
    Mutant("nodes", "an index counts from the first element where it is negative", "neonlike/optree/indexing.py", "position = item % size\n", "position = item if removable <= 0 else item % size\n"),
    Mutant("nodes", "wrong ends of slices are NumPy's errors", "neonlike/backends/cpu/tensor.py", "        except (TypeError, ValueError):  # ends", "        except ZeroDivisionError:  # ends"),
    Mutant("nodes", "borders of -0.0 are those of 0.0", "neonlike/optree/arrange.py", "constants.get(repr(number))\n", "constants.get(repr(number + 0.0))\n"),
)  # fmt: skip
