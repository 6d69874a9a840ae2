"""Nodes built by the extension agree with those of Python's builders, errors included, for every replaced function."""

from __future__ import annotations

import itertools
import operator
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.backends.cpu.backend import NervanaCPU
from neonlike.backends.cpu.tensor import CPUTensor
from neonlike.kernels.c import fastbuild, fastpath
from neonlike.kernels.c.compositions import (
    CONVERTED,
    ELEMENTWISE,
    REDUCED,
    RULED,
    NoComposition,
    same_in_halves,
    steps_of,
)
from neonlike.optree import functions
from neonlike.optree.dtypes import bfloat16
from neonlike.optree.forms import owners
from neonlike.optree.functions import F
from neonlike.optree.node import Expression
from neonlike.optree.operators import OPERATORS
from neonlike.optree.ops import OPS
from neonlike.optree.tape import Rule, ruled
from tests.support.replaying import both, by, extension, fast, put_back, told  # noqa: F401

pytestmark = [
    pytest.mark.skipif(bool(fastpath.obstacle()), reason=fastpath.obstacle()),
    pytest.mark.cpu_only("nodes of the CPU's tensors"),
    pytest.mark.usefixtures("put_back"),
]


# The same nodes --------------------------------------------------------------------------------------------------


def pool(be: Backend) -> list[Any]:
    """Operands of every kind: common ones, unusual ones and wrong ones."""
    a = be.array([[1.5, -2, 0.25], [3, 4, -5]])
    wide, whole = be.array(a.get(), dtype=np.float64), be.array(a.get(), dtype=np.int32)
    cube = be.ones((2, 2, 3))
    halves = [be.array(a.get(), dtype=dtype) for dtype in (np.float16, bfloat16())]
    found = [a, a[:1], a[:, :1], a.T, a * 2, be.sum(a, axis=1), wide, whole, *halves]
    found += [half[:, :1] * 2 for half in halves]
    found += [whole * 2, be.array([[0, 255, 7]], dtype=np.uint8), be.array([[True], [False]], dtype=np.bool_)]
    found += [be.array([[1 << 63, 2, 3]], dtype=np.uint64), be.array([[1], [-7]], dtype=np.int64)]
    found += [(1 << 63) - 1, 1 << 63]
    found += [cube, cube + 1, be.ones((1, 1, 1)), be.empty((0, 3)), be.ones((1,) * 9), be.rand() * 1, F.add(1, 2)]
    found += [2, -1.5, 0, True, 1 << 80, np.float32(2), np.int64(3), np.ones((2, 3), np.float32), np.ones(3)]
    found += [np.float64(0.5), np.float16(-2), np.uint64(1 << 63), np.bool_(True), np.complex64(1)]
    return [*found, None, "text", 1j, [1, 2], NervanaCPU(rng_seed=0).ones((2, 3))]


UNARY = {"neg": operator.neg, "abs": operator.abs, "invert": operator.invert}
BINARY: dict[str, Callable[[Any, Any], Any]] = {
    name: getattr(operator, name)
    for name in "add sub mul truediv floordiv mod pow lt le eq ne gt ge matmul and_ or_ xor lshift rshift".split()
}


@pytest.mark.parametrize("name", [*UNARY, *BINARY])
def test_operators_build_what_python_builds(fast: Backend, extension: Any, name: str) -> None:
    things = pool(fast)
    if name in UNARY:
        calls = [lambda a=a: UNARY[name](a) for a in things if isinstance(a, Expression)]
    else:
        pairs = [(a, b) for a, b in itertools.product(things, things) if any(isinstance(x, Expression) for x in (a, b))]
        calls = [lambda a=a, b=b: BINARY[name](a, b) for a, b in pairs]  # type: ignore[misc]
    assert_equal(extension, calls)


def assert_equal(extension: Any, calls: list[Callable[[], Any]]) -> None:
    in_c, in_python = both(extension, calls)
    for ours, its in zip(in_c, in_python):
        assert ours == its
    assert any(len(found) == 5 for found in in_c), "nodes among errors"


MARKED = sorted(
    {
        (cls.__name__, name)
        for cls, name, _, function in fastbuild._marked(*owners)
        if function.form.kind not in ("recalled", "assign", "set item", "view", "call", "pinned call")
    }
)


def test_most_builders_are_stood_in_for() -> None:
    names = {name for _, name in MARKED}
    assert {"sig", "exp", "tanh", "add", "where", "sum", "max", "mean", "greater", "sqrt", "square"} <= names
    assert {"var", "std", "norm2", "softmax", "log_softmax", "logsumexp", "fprop_softmax"} <= names
    assert not names & {"argmax", "bitwise_and", "dot", "transpose"}  # the last but one are recalled


def test_steps_are_read_off_the_function() -> None:
    def spread(a: Any, axis: int) -> Any:
        most = F.max(a, axis)
        return F.div(F.sub(most, F.min(a, axis)), F.add(most, 7))

    named = [(spec.name, operands, kind) for spec, operands, kind, _ in steps_of(spread)]
    kinds = (REDUCED, REDUCED, ELEMENTWISE, ELEMENTWISE, ELEMENTWISE)
    given = ((0,), (0,), (1, 2), (1, (7,)), (3, 4))
    assert named == list(zip(("max", "min", "sub", "add", "div"), given, kinds))
    assert [operands for _, operands, *_ in steps_of(functions.mean)] == [(0,), (1, None)]
    kinds = (CONVERTED, ELEMENTWISE, REDUCED, ELEMENTWISE, CONVERTED, RULED)
    assert tuple(kind for _, _, kind, _ in steps_of(functions.norm2)) == kinds


def of_two_parents(a: Any, axis: int) -> Any:
    return ruled(F.sum(a, axis), Rule("half", (a, a), F.sum))


@pytest.mark.parametrize("function", [of_two_parents, lambda a, axis: F.max(a), lambda a, axis: a.T])
def test_steps_of_other_nodes_are_refused(function: Any) -> None:
    with pytest.raises(NoComposition, match="is no step of a composition"):
        steps_of(function)


@pytest.mark.parametrize(("owner", "name"), MARKED)
def test_builders_build_what_python_builds(fast: Backend, extension: Any, owner: str, name: str) -> None:
    space: Any = F if owner == "F" else fast
    form = getattr(space, name).form
    things = pool(fast)
    if form.kind in ("reduction", "composed"):
        axes: list[Any] = [
            None,
            0,
            1,
            -1,
            -2,
            2,
            -3,
            9,
            (0,),
            (0, 1),
            [1],
            (),
            True,
            1.0,
            "x",
            1 << 80,
            np.int64(1),
            (0, 0),
        ]
        calls = [lambda a=a, k=k: getattr(space, name)(a, k) for a in things for k in axes]
        calls += [lambda a=a, k=k: getattr(space, name)(a, axis=k) for a in things[:4] for k in axes]
    else:
        arity = form.specs[0].arity
        few = things if arity < 3 else [*things[:3], *things[4:8], *things[9:10], *things[14:18], things[-1], None]
        calls = [lambda given=given: getattr(space, name)(*given) for given in itertools.product(few, repeat=arity)]
    a = things[0]
    calls += [
        lambda: getattr(space, name)(), lambda: getattr(space, name)(a=a), lambda: getattr(space, name)(a, wrong=1),
        lambda: getattr(space, name)(a, a, a, a, a, a, a), lambda: getattr(space, name)(a, out=3),
        lambda: getattr(space, name)(a, keepdims=False), lambda: getattr(space, name)(wrong=a),
    ]  # fmt: skip
    assert_equal(extension, calls)


class Refused(Exception):
    """Python was asked."""


def refuse(*given: Any) -> Any:
    raise Refused


@pytest.mark.parametrize(
    ("kind", "name", "operands"),
    [
        ("unary", "exp", "a"), ("unary", "exp", "e"), ("binary", "add", "ab"), ("binary", "add", "2e"),
        ("binary", "add", "a1"), ("binary", "gt", "ar"), ("binary", "mul", "rk"), ("binary", "mul", "kr"),
        ("binary", "mul", "ca"), ("ternary", "where", "abe"), ("ternary", "where", "a2r"),
        ("ternary", "where", "ab1"), ("reduction", "sum", "a"), ("reduction", "max", "a1"),
        ("composed", "mean", "e"), ("composed", "softmax", "a1"), ("composed", "logsumexp", "e"),
        ("composed", "norm2", "a"), ("composed", "norm2", "e1"), ("composed", "std", "a1"), ("composed", "std", "c"),
    ],
)  # fmt: skip
def test_common_nodes_are_built_without_python(
    fast: Backend, extension: Any, kind: str, name: str, operands: str
) -> None:
    a, b, cube = fast.ones((2, 3)), fast.ones((2, 3)), fast.ones((4, 2, 3))
    things = {"a": a, "b": b, "e": a * b, "r": a[:1], "k": a[:, :1], "c": cube, "1": 1, "2": 2.5}
    what = steps_of(getattr(functions, name)) if kind == "composed" else OPS[name]
    node = (builder := extension.Builder(kind, refuse, what))(*[things[letter] for letter in operands])
    assert node.spec is (what[-1][0] if isinstance(what, tuple) else what)
    assert node.backend is fast and node.dtype == np.float32
    with pytest.raises(Refused):
        builder(None)


@pytest.mark.parametrize("dtype", [np.dtype(np.float16), bfloat16()], ids=str)
def test_common_nodes_of_16_bits_are_built_without_python(fast: Backend, extension: Any, dtype: Any) -> None:
    a, r = fast.ones((2, 3), dtype=dtype), fast.ones((1, 3), dtype=dtype)
    softmax = steps_of(functions.softmax)
    for kind, what, operands in (
        ("unary", OPS["exp"], (a,)), ("binary", OPS["mul"], (a, r)), ("binary", OPS["lt"], (a * 2, 0.5)),
        ("ternary", OPS["where"], (a > r, a, 0)), ("reduction", OPS["sum"], (a, 1)), ("composed", softmax, (a, 0)),
    ):  # fmt: skip
        node = extension.Builder(kind, refuse, what, halves=True)(*operands)
        assert node.backend is fast and node.dtype is dtype
    with pytest.raises(Refused):
        extension.Builder("composed", refuse, softmax)(a)
    with pytest.raises(Refused):
        extension.Builder("binary", refuse, OPS["mul"])(a, fast.ones((2, 3)))


def test_common_nodes_of_integers_are_built_without_python(fast: Backend, extension: Any) -> None:
    n, m = fast.ones((2, 3), dtype=np.int32), fast.ones((1, 3), dtype=np.uint8)
    a, wide, yes = fast.ones((2, 1)), fast.ones((2, 3), dtype=np.float64), fast.ones((2, 3), dtype=np.bool_)
    for name, operands, dtype, rows in (
        ("neg", (n,), np.int64, 2), ("exp", (m,), np.float32, 1), ("add", (n, m), np.int64, 2),
        ("maximum", (yes, n * 2), np.int64, 2), ("div", (n, m), np.float32, 2), ("gt", (m, 3), np.float32, 1),
        ("mul", (-(2**63), n), np.int64, 2), ("add", (n, 0.5), np.float32, 2), ("mul", (a, m), np.float32, 2),
        ("mul", (yes, wide), np.float64, 2), ("lt", (n, a * 2), np.float32, 2),
    ):  # fmt: skip
        spec, kind = OPS[name], ("unary", "binary")[len(operands) - 1]
        node = extension.Builder(kind, refuse, spec, whole=fastbuild._whole(spec))(*operands)
        assert node.spec is spec and node.backend is fast and node.dtype == dtype and node.shape == (rows, 3)
        assert all(kept is given for kept, given in zip(node.operands, operands, strict=True))
        with pytest.raises(Refused):
            extension.Builder(kind, refuse, spec)(*operands)
    unsigned = fast.ones((2, 3), dtype=np.uint64)
    for wrong in ((n, 2**63), (unsigned, n), (n, unsigned), (n, None), (n, True)):
        with pytest.raises(Refused):
            extension.Builder("binary", refuse, OPS["add"], whole=np.dtype(np.int64))(*wrong)
    assert fastbuild._whole(OPS["bitwise_and"]) is None


NUMPYS = [np.float64(0.5), np.float32(-2), np.float16(3), np.int64(3), np.uint8(7)]


@pytest.mark.parametrize("number", NUMPYS, ids=repr)
def test_numbers_of_numpy_are_values_in_nodes_that_are_built_without_python(
    fast: Backend, extension: Any, number: Any
) -> None:
    a, add = fast.ones((2, 3)), extension.Builder("binary", refuse, OPS["add"])
    for node in (add(a, number), add(number, a), *both(extension, [lambda: a + number])[0]):
        operands = node.operands if isinstance(node, Expression) else node[2]
        (value,) = [one for one in operands if one is not a and one != told(a)]
        assert value in (number.item(), told(number.item())) and type(value) is not type(number)
    for wrong in (np.bool_(True), np.complex64(1), np.longdouble(1)):
        with pytest.raises(Refused):
            add(a, wrong)


def test_arrays_are_tensors_over_their_memory_in_nodes_that_are_built_without_python(
    fast: Backend, extension: Any
) -> None:
    a, add = fast.ones((2, 3)), extension.Builder("binary", refuse, OPS["add"])
    for dtype in (np.float32, np.int32, np.bool_):
        array = np.ones((2, 3), dtype)
        for node in (add(a, array), add(array, a)) if dtype is np.float32 else ():
            (tensor,) = [one for one in node.operands if one is not a]
            array[0, 1] = 5
            assert tensor.backend is fast and tensor.array[0, 1] == 5 and tensor.array is not array
        assert (a + array).astensor().tolist() == (1.0 + array).tolist()
    for wrong in (np.ones(3), np.ones(()), np.ones((2, 3), np.complex64), np.ones((2, 3), object), np.ones((4, 3))):
        with pytest.raises(Refused):
            add(a, wrong)
    read_only, swapped = np.ones((2, 3), np.float32), np.ones((2, 3), ">f4")
    read_only.flags.writeable = False
    for array in (read_only, swapped, read_only.T.T, np.ones((6, 6), np.float32)[::3, ::2]):
        assert (a * array).astensor().tolist() == [[1.0] * 3] * 2
    with by(extension, "C"):
        before = sys.getrefcount(read_only), sys.getrefcount(fast)
        for _ in range(99):
            assert (a + read_only).shape == (2, 3)
        assert (sys.getrefcount(read_only), sys.getrefcount(fast)) == before


class Own(CPUTensor):
    """A user's class of tensors."""


@pytest.mark.parametrize("marks", [{}, {"name": "t"}, {"name": "t", "persist_values": False}], ids=str)
def test_views_are_those_that_python_makes(fast: Backend, extension: Any, marks: dict[str, Any]) -> None:
    t, wrapped = fast.array(np.arange(24).reshape(2, 3, 4), **marks), fast.wrap(np.ones((2, 3)))
    own = Own(fast, np.ones((2, 3)))
    views = [lambda: t[1], lambda: t[:, ::2], lambda: t.T, lambda: t.reshape(6, 4), lambda: t[1][0:2]]
    views += [lambda: wrapped[:1], lambda: own[1:]]
    made = []
    for builders in ("C", "Python"):
        with by(extension, builders):
            made.append([view() for view in views])
    for ours, its in zip(*made, strict=True):
        assert type(ours) is type(its) and list(vars(ours)) == list(vars(its))
        for name, value in vars(its).items():
            if name not in ("array", "base", "shape"):
                assert vars(ours)[name] is value
        assert ours.base is its.base or vars(ours.base).keys() == vars(its.base).keys()
        assert ours.array.__array_interface__ == its.array.__array_interface__ and ours.shape == its.shape


def test_views_keep_nothing_alive(fast: Backend, extension: Any) -> None:
    t = fast.ones((2, 3))
    with by(extension, "C"):
        before = [sys.getrefcount(one) for one in (t, t.backend, t.root, t.array, t.dtype)]
        for _ in range(100):
            assert t[1:].base is t
        assert [sys.getrefcount(one) for one in (t, t.backend, t.root, t.array, t.dtype)] == before


def test_compositions_of_16_bits_are_told() -> None:
    assert same_in_halves(functions.softmax) and same_in_halves(functions.mean)
    assert not same_in_halves(functions.norm2) and not same_in_halves(of_two_parents)


def test_builders_of_no_kind_are_refused(extension: Any) -> None:
    longest = (steps_of(functions.mean) * 9)[:17]
    wrong: list[tuple[Any, ...]] = [("none", refuse), ("unary", 3), ("assign", refuse), ("unary",), ()]
    steps: list[Any] = [(), longest, None, (1,), ((1, 2),), ((1, (2,), 0),), ((1, (-1,), 0),), ((1, ("x",), 0),)]
    steps = [tuple((*step, None) if isinstance(step, tuple) else step for step in one) if one else one for one in steps]
    one = steps_of(functions.mean)[0][0]
    steps += [((one, (0,), RULED, more),) for more in (None, 3, (1,), (3, 1, 1, 1), (dict, 1, 1, 1))]
    steps += [((one, (0,), CONVERTED, None),), ((one, (0,), ELEMENTWISE, {}),), ((one, (0,), ELEMENTWISE),)]
    steps += [((1, (0, 0, 0, 0), 0, None),), ((1, (0,), "x", None),)]
    for given in [*wrong, *(("composed", refuse, one) for one in steps)]:
        with pytest.raises(TypeError):
            extension.Builder(*given)
    for operators in (None, (), (refuse,) * len(OPERATORS), [1]):
        with pytest.raises(TypeError):
            extension.take_operators(operators)
    for cls in (3, int):
        with pytest.raises(TypeError):
            extension.attach(cls)
