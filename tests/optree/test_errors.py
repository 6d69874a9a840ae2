"""Bad input: the right error, a message with the value and the remedy, and an unchanged target."""

from __future__ import annotations

import operator
import pickle
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from neonlike import errors
from neonlike.backends import Autodiff, Backend
from neonlike.errors import (
    AliasError,
    ArgumentError,
    BackendUnavailable,
    DTypeError,
    GradientError,
    IndexRangeError,
    IndexTypeError,
    KernelCompileError,
    NeonlikeError,
    ShapeError,
)
from tests.support.engines import ON_GPU, new_backend, refused_after_cleanup

pytestmark = pytest.mark.optree

JUNK: dict[str, Any] = {
    "None": None, "str": "text", "bytes": b"text", "list": [1.0, 2.0], "tuple": (1.0,), "dict": {}, "set": {1},
    "object": object(), "complex": 1j, "function": len, "class": int, "ellipsis": ...,
    "string array": np.array([["a"]]),
    "complex array": np.ones((3, 4), complex), "object array": np.array([[None]]), "NumPy str": np.str_("a"),
}  # fmt: skip


@pytest.fixture
def t(be: Backend) -> Any:
    """(3, 4), the target of every failing call; holds nan and -0.0 so that bits are compared."""
    host = np.arange(12, dtype=np.float32).reshape(3, 4)
    host[0, :2] = np.nan, -0.0
    return be.array(host)


# The classes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "builtins"),
    [
        (ShapeError, (ValueError, AssertionError)), (DTypeError, (TypeError, AssertionError)),
        (AliasError, (ValueError, AssertionError)),
        (BackendUnavailable, (RuntimeError,)), (KernelCompileError, (RuntimeError,)), (GradientError, (ValueError,)),
        (IndexRangeError, (IndexError,)), (IndexTypeError, (IndexError, TypeError)),
        (ArgumentError, (ValueError, AssertionError)),
    ],
)  # fmt: skip
def test_errors_derive_from_what_callers_would_catch(
    error: type[Exception], builtins: tuple[type[Exception], ...]
) -> None:
    assert issubclass(error, NeonlikeError)
    for builtin in builtins:
        assert issubclass(error, builtin)
    again = pickle.loads(pickle.dumps(error("words")))
    assert (type(again), str(again)) == (error, "words")


def test_every_error_class_says_when_it_is_raised() -> None:
    classes = [c for c in vars(errors).values() if isinstance(c, type) and issubclass(c, NeonlikeError)]
    assert len(classes) > 10
    assert all(c.__doc__ for c in classes)


# Operands -----------------------------------------------------------------------------------------------------------

UNARY = ["exp", "sqrt", "absolute", "sig", "safelog", "relu", "rint", "logical_not", "reciprocal", "gelu", "Relu"]
BINARY = ["add", "subtract", "divide", "power", "maximum", "equal", "greater", "logical_and"]
REDUCTIONS = ["sum", "max", "argmax", "mean", "var", "std", "prod", "norm2", "logsumexp"]


@pytest.mark.parametrize("junk", JUNK)
def test_things_that_are_no_operands(be: Backend, t: Any, junk: str) -> None:
    thing = JUNK[junk]
    before = t.get().tobytes()
    attempts: list[Callable[[], Any]] = []
    attempts += [lambda n=n: getattr(be, n)(thing, out=t) for n in (*UNARY, *REDUCTIONS)]
    attempts += [lambda n=n: getattr(be, n)(t, thing, out=t) for n in BINARY]
    attempts += [lambda n=n: getattr(be, n)(thing, t, out=t) for n in BINARY]
    attempts += [
        lambda: be.clip(thing, 0, 1, t),
        lambda: be.where(thing, t, t), lambda: be.where(t, t, thing),
        lambda: be.dot(t, thing), lambda: be.dot(thing, t),
        lambda: be.take(thing, [0], 0), lambda: be.transpose(thing), lambda: be.fprop_softmax(thing, 0),
        lambda: be.shift(t, thing, out=t), lambda: be.binarize(thing, t), lambda: be.copy_transpose(thing, t),
        lambda: t + thing, lambda: thing - t, lambda: t * thing, lambda: thing / t, lambda: t**thing,
        lambda: t < thing, lambda: t >= thing, lambda: (t + 1) * thing, lambda: thing * (t + 1), lambda: t @ thing,
        lambda: be.prepare(t, thing), lambda: be.assign_many([(t, thing)]),
    ]  # fmt: skip
    if thing is not None:  # no bound
        attempts += [lambda: be.clip(t, thing, 1, t), lambda: be.clip(t, 0, thing, t)]
    if not isinstance(thing, (list, tuple)):  # which are data, here of another size
        attempts += [lambda: t.copy(thing), lambda: t.fill(thing), lambda: be.assign(t, thing)]
    for number, attempt in enumerate(attempts):
        with pytest.raises(DTypeError) as caught:
            attempt()
        assert re.match(r"[A-Za-z_0-9.]+: ", str(caught.value)), f"attempt {number}: {caught.value}"
    assert t.get().tobytes() == before


@pytest.mark.parametrize("junk", JUNK)
def test_things_that_are_no_target(be: Backend, t: Any, junk: str) -> None:
    thing = JUNK[junk]
    attempts: list[Callable[[], Any]] = [
        lambda: be.assign(thing, t), lambda: be.assign(thing, t + 1), lambda: be.assign_many([(thing, t)]),
        lambda: be.make_binary_mask(thing), lambda: be.fill_normal(thing), lambda: be.compound_dot(t, t.T, thing),
        lambda: be.copy_transpose(t, thing), lambda: be.binarize(t, thing),
    ]  # fmt: skip
    if thing is not None:
        attempts += [lambda: be.exp(t, out=thing), lambda: be.sum(t, out=thing), lambda: be.dot(t, t.T, thing)]
        attempts += [lambda: be.rand(out=thing), lambda: be.onehot([0], 0, out=thing), lambda: be.prepare(thing, t)]
        attempts += [lambda: t.take([0], 0, thing), lambda: t.transpose(thing), lambda: (t + 1).transpose(thing)]
    for attempt in attempts:
        with pytest.raises(DTypeError) as caught:
            attempt()
        assert "tensor" in str(caught.value)


@pytest.mark.parametrize("junk", [*JUNK, "float tensor", "float"])
def test_things_that_are_no_indices(be: Backend, t: Any, junk: str) -> None:
    thing = {**JUNK, "float tensor": be.ones((1, 2)), "float": 1.5}[junk]
    before = t.get().tobytes()
    for attempt in (lambda: be.take(t, thing, 0, t), lambda: t.take(thing, 0), lambda: be.onehot(thing, 0, t)):
        with pytest.raises(DTypeError, match=r"(index|take|onehot)"):
            attempt()
    assert t.get().tobytes() == before


# Shapes and axes ----------------------------------------------------------------------------------------------------

SHAPES: dict[str, Callable[[Backend, Any], Any]] = {
    "operands": lambda be, t: t.__setitem__(np.s_[:], t + be.ones((4, 3))),
    "operands of an expression": lambda be, t: be.exp(t * 2 - be.ones((3, 5)), out=t),
    "three operands": lambda be, t: be.where(t, t, be.ones((2, 4))),
    "array operand": lambda be, t: t * np.ones((2, 4)),
    "vector operand": lambda be, t: t * np.ones(4),
    "tensor to target": lambda be, t: t.__setitem__(np.s_[:], be.ones((4, 3))),
    "expression to target": lambda be, t: t.__setitem__(np.s_[:], be.ones((4, 3)) * 2),
    "larger expression to target": lambda be, t: t.__setitem__(np.s_[0:1], t * 2),
    "more dimensions": lambda be, t: t.__setitem__(np.s_[:], be.ones((2, 3, 4)) * 2),
    "array to target": lambda be, t: t.__setitem__(np.s_[:], np.ones((2, 3))),
    "list to target": lambda be, t: t.__setitem__(np.s_[:], [1.0, 2.0]),
    "in place": lambda be, t: operator.iadd(t, be.ones((2, 4))),
    "larger in place": lambda be, t: operator.imul(t[0:1], t),
    "set": lambda be, t: t.set(np.ones(11)),
    "fill": lambda be, t: t.fill(be.ones((2, 2))),
    "copy": lambda be, t: t.copy(be.ones((5, 5))),
    "copy_from": lambda be, t: t.copy_from(np.ones((5, 5))),
    "out": lambda be, t: be.exp(be.ones((5, 5)), out=t),
    "out of a reduction": lambda be, t: be.sum(be.ones((5, 5)), axis=1, out=t),
    "out of a product": lambda be, t: be.dot(be.ones((3, 2)), be.ones((2, 3)), out=t),
    "assign_many": lambda be, t: be.assign_many([(t, t * 0), (be.zeros((2, 2)), t)]),
    "prepare": lambda be, t: be.prepare(t, be.ones((4, 3)) + 1)(),
    "axis too large": lambda be, t: be.sum(t, axis=2, out=t),
    "axis too small": lambda be, t: be.max(t, axis=-3, out=t),
    "axis twice": lambda be, t: be.sum(t, axis=(0, -2), out=t),
    "axis in a tuple": lambda be, t: be.mean(t, axis=(0, 5), out=t),
    "axis of the wrong type": lambda be, t: be.sum(t, axis="rows", out=t),
    "axis between": lambda be, t: be.sum(t, axis=0.5, out=t),
    "axis of argmax": lambda be, t: be.argmax(t, axis=2, out=t),
    "two axes for argmin": lambda be, t: be.argmin(t, axis=(0, 1), out=t),
    "axis of softmax": lambda be, t: t.__setitem__(np.s_[:], be.fprop_softmax(t, 7)),
    "axis of onehot": lambda be, t: be.onehot([0, 1, 2, 0], axis=2, out=t),
    "labels of onehot": lambda be, t: be.onehot([0, 1], axis=0, out=t),
    "axes of transpose": lambda be, t: be.transpose(t, axes=(0, 0)),
    "axis of take": lambda be, t: be.take(t, [0], 3, t),
    "take to target": lambda be, t: be.take(t, [0, 1], 0, t),
    "maximum of nothing": lambda be, t: be.max(be.zeros((0, 4)), axis=0, out=t),
    "number to reduce": lambda be, t: be.sum(3, out=t),
    "free shape to reduce": lambda be, t: be.sum(be.rand(), axis=0, out=t),
    "reshape": lambda be, t: t.reshape(5, 3),
    "share": lambda be, t: t.share((4, 4)),
    "negative size": lambda be, t: be.empty((3, -1)),
    "size of no integer": lambda be, t: be.zeros((3, 1.5)),
    "mask": lambda be, t: be.binarize(be.ones((5, 5)), t),
    "rand at two shapes": lambda be, t: [be.assign(t, t * r + be.sum(be.ones((2, 2)) * r)) for r in [be.rand()]],
}  # fmt: skip


@pytest.mark.parametrize("case", ["operands", "operands of an expression", "tensor to target", "expression to target"])
@pytest.mark.parametrize("error", [ValueError, TypeError])
def test_shapes_that_do_not_broadcast_are_the_errors_of_both_backends(
    be: Backend, t: Any, case: str, error: type[Exception]
) -> None:
    """neon raises ValueError on the CPU, TypeError on a GPU."""
    with pytest.raises(error):
        SHAPES[case](be, t)


@pytest.mark.parametrize("case", SHAPES)
def test_shapes_and_axes_that_do_not_fit(be: Backend, t: Any, case: str) -> None:
    before = t.get().tobytes()
    with pytest.raises(ShapeError) as caught:
        SHAPES[case](be, t)
    assert t.get().tobytes() == before
    words = str(caught.value)
    assert re.match(r"[a-z_0-9]+: .{10,}", words), words
    assert len(words) < 600


@pytest.mark.parametrize("name", ["mean", "var", "std", "norm2"])
@pytest.mark.parametrize("axis", [2, (0, 2)])
def test_errors_name_the_reduction_that_was_called(be: Backend, name: str, axis: Any) -> None:
    with pytest.raises(ShapeError, match=rf"^{name}: axis 2 is out of range for shape \(3, 4\)"):
        getattr(be, name)(be.ones((3, 4)), axis)


def test_messages_hold_both_shapes_and_the_rule(be: Backend) -> None:
    a, b = be.ones((3, 4)), be.ones((3, 5))
    with pytest.raises(ShapeError, match=r"add: shapes \(3, 4\) and \(3, 5\) do not broadcast.*equal or 1"):
        a + b
    with pytest.raises(ShapeError, match=r"dot: \(3, 4\) x \(3, 5\).*4 and 3 differ.*\.T"):
        be.dot(a, b)
    with pytest.raises(ShapeError, match=r"assignment: cannot store \(3, 5\) in a tensor of shape \(3, 4\)"):
        a[:] = b * 2
    with pytest.raises(ShapeError, match=r"sum: axis 2 is out of range for shape \(3, 4\); use -2 to 1"):
        be.sum(a, axis=2)
    with pytest.raises(DTypeError, match=r"mul: cannot use 'text' as an operand; expected a tensor"):
        a * "text"
    with pytest.raises(DTypeError, match=r"empty: tensors cannot hold complex64; supported are float16"):
        be.empty((1, 1), dtype=np.complex64)


# dtypes ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "dtype", ["nothing", np.complex64, "U3", object, np.longdouble, "datetime64[s]"]
)
def test_dtypes_that_tensors_cannot_hold(be: Backend, dtype: Any) -> None:
    for make in (be.empty, be.zeros, be.ones):
        with pytest.raises(DTypeError, match=r"empty: "):
            make((2, 2), dtype=dtype)
    with pytest.raises(DTypeError):
        be.array([[1]], dtype=dtype)
    with pytest.raises(DTypeError):
        be.zeros((2, 2)).share((1, 1), dtype=dtype)
    with pytest.raises(AssertionError):
        be.iobuf(2, dtype=dtype)


def test_host_data_that_is_no_numbers(be: Backend, t: Any) -> None:
    before = t.get().tobytes()
    for data in ([[1, 2], [3]], ["a"] * 12, [None] * 12, np.ones(12, complex), {}, object(), "x" * 12, [object()]):
        for attempt in (lambda d=data: be.array(d), lambda d=data: t.set(d), lambda d=data: be.zeros_like(d)):
            with pytest.raises(DTypeError):
                attempt()
    assert t.get().tobytes() == before


# Indices inside expressions -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("rest", ["alone", "epilogue", "prologue", "reduced", "transposed", "first", "last"])
def test_positions_out_of_range_found_while_computing(be: Backend, t: Any, rest: str) -> None:
    before = t.get().tobytes()
    indices = be.array([[0, 1, 3]], dtype=np.int32)
    ones = be.ones((3, 4))
    picked = be.take(ones * 2 if rest == "prologue" else ones, indices, axis=0)
    value = {
        "epilogue": lambda: be.exp(picked) + ones, "reduced": lambda: be.sum(picked, axis=0),
        "transposed": lambda: (picked.T * 2).T,
    }.get(rest, lambda: picked)()  # fmt: skip
    with pytest.raises(IndexRangeError, match="take: index 3 is out of range for an axis of size 3"):
        if rest in ("first", "last"):
            pairs = [(be.zeros((3, 4)), value), (t, ones + 1)]
            be.assign_many(pairs if rest == "first" else pairs[::-1])
        else:
            t[:] = value
        be.synchronize()  # a GPU tells it then
    assert ON_GPU or t.get().tobytes() == before
    t[:] = be.take(ones, be.array([[0, 1, 2]], dtype=np.int32), 0)  # the same plan still works
    assert (t.get() == 1).all()


# Aliases, closed backends, several backends -------------------------------------------------------------------------


def test_targets_that_overlap(be: Backend, t: Any) -> None:
    before = t.get().tobytes()
    ones = be.ones((3, 4))
    for pairs in (
        [(t, ones), (t, ones * 2)], [(t, ones), (t[0], ones[0] * 2)], [(t[:2], ones[:2]), (t[1:], ones[1:] + 1)],
        [(t, ones), (t.T, ones.T)], [(t, ones), (t.reshape(2, 6), 1)],
    ):  # fmt: skip
        with pytest.raises(AliasError, match="share memory"):
            be.assign_many(pairs)
        with pytest.raises(AliasError, match="share memory"):
            be.prepare(pairs)
    assert t.get().tobytes() == before
    be.assign_many([(t[:2], 1), (t[2:], ones[2:] * 2)])
    assert t.get().tolist() == [[1] * 4] * 2 + [[2] * 4]


def test_closed_and_foreign_backends(t: Any) -> None:
    before = t.get().tobytes()
    other = new_backend()
    foreign = other.ones((3, 4))
    with pytest.raises(DTypeError, match="two backends"):
        t[:] = t + foreign
    other.cleanup_backend()
    with refused_after_cleanup("gen_backend"):
        foreign[:] = 1
    before = t.get().tobytes() if ON_GPU else foreign.get().tobytes()
    with refused_after_cleanup("gen_backend"):
        t[:] = foreign
    assert t.get().tobytes() == before


def test_a_failing_call_does_not_spoil_the_next(be: Backend, t: Any) -> None:
    for _ in range(3):
        with pytest.raises(ShapeError):
            t[:] = t + be.ones((4, 4))
        with pytest.raises(DTypeError):
            t[:] = t + "x"
        t[:] = be.ones((1, 4)) + 1
        assert (t.get() == 2).all()


def test_backends_and_errors_can_be_shown(be: Backend) -> None:
    assert ("NervanaGPU" if ON_GPU else "NervanaCPU") in repr(be)
    assert "closed" not in repr(be)
    other = new_backend()
    other.cleanup_backend()
    assert "closed" in repr(other)


def test_messages_show_tensors_on_one_line_without_their_values(be: Backend) -> None:
    t = be.array(np.full((7, 7), 12345.0), name="weights")
    calls: list[Callable[[], Any]] = [
        lambda: t[t, t, t], lambda: t[1.0, t], lambda: t[{"a": t}], lambda: t + {1: t}, lambda: t * [t, t],
        lambda: be.sum(t, axis=t), lambda: be.sum(t, axis=(0, t)), lambda: be.zeros(t), lambda: be.zeros((t, 2)),
        lambda: t.reshape(t), lambda: t.take([0], t), lambda: be.take(t, [0], t), lambda: be.repeat(t, t, 0),
        lambda: be.pad(t, t), lambda: be.pad(t, 1, t), lambda: be.tile(t, [t]), lambda: be.squeeze(t, t),
        lambda: be.transpose(t, t), lambda: be.softmax(t, axis=t), lambda: be.cumsum(t, t), lambda: be.sort(t, axis=t),
        lambda: be.full((2, 2), t), lambda: be.arange(t), lambda: be.gen_rng(t), lambda: be.dropout(t),
        lambda: be.onehot(t, axis=t), lambda: be.einsum(t, t), lambda: be.grad(t), lambda: be.check_grad(t, [t]),
        lambda: be.check_grad(be.sum, {"a": [t]}), lambda: be.grad(be.sum, argnums=t), lambda: be.primitive(t),
        lambda: Autodiff(be.sum(t * 2), be).get_grad_tensor([be.ones((7, 7), name="other")], absent="error"),
        lambda: Autodiff(t * 2, be).get_grad_tensor([[t]]), lambda: setattr(t, "shape", t), lambda: round(t, t),
        lambda: be.assign_many([(t, t[0] + 1), (t, t + 1)]), lambda: be.topk(t, t),
    ]  # fmt: skip
    for position, call in enumerate(calls):
        with pytest.raises(NeonlikeError) as caught:
            call()
        assert "\n" not in str(caught.value), (position, str(caught.value))
        assert "12345" not in str(caught.value), (position, str(caught.value))
    kind = type(t).__name__
    with pytest.raises(ShapeError, match=rf"tuple of ints or None, got {kind} 'weights' of shape \(7, 7\)"):
        be.sum(t, axis=t)
