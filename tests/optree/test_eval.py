"""``be.eval``: expressions from texts, which may be hostile."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.backends.autodiff import Autodiff
from neonlike.errors import ArgumentError, DTypeError, NeonlikeError, ShapeError
from neonlike.optree import text
from neonlike.optree.dialect import neon_dialect
from neonlike.optree.functions import F, register, unregister
from neonlike.optree.node import OpTreeNode
from neonlike.optree.ops import OPS, Kind
from tests.support.engines import new_backend

pytestmark = pytest.mark.optree

A = np.array([[1.0, 2.0, -0.5], [3.0, -4.0, 0.25]], np.float32)
B = np.array([[2.0, 0.5, 1.0]], np.float32)

TEXTS: list[tuple[str, Any]] = [
    ("a", A),
    (" a + b ", A + B),
    ("a - b*2", A - B * 2),
    ("a/b", A / B),
    ("a // b + a % b", A // B + A % B),
    ("-a**2", -(A**2)),
    ("2**-1 * a", A / 2),
    ("+a", A),
    ("(a > 0) & (b < 2)", (A > 0) & (B < 2)),
    ("(a > 0) | ~(b < 2) ^ (a == b)", (A > 0) | ~(B < 2) ^ (A == B)),
    ("a != b", A != B),
    ("0 < a <= b", (A > 0) & (A <= B)),
    ("-5 < a < b < 5", (A > -5) & (A < B) & (B < 5)),
    ("1 < 2 < a", A > 2),
    ("sqrt(abs(a))", np.sqrt(np.abs(A))),
    ("where(a > b, a, b)", np.maximum(A, B)),
    ("maximum(a, 1) + minimum(b, 1)", np.maximum(A, 1) + np.minimum(B, 1)),
    ("arctan2(a, b)", np.arctan2(A, B)),
    ("sum(a)", A.sum(keepdims=True)),
    ("sum(a, 0)", A.sum(0, keepdims=True)),
    ("sum(a, axis=-1)", A.sum(-1, keepdims=True)),
    ("mean(a, axis=(0, 1))", A.mean(keepdims=True)),
    ("max(a, axis=None)", A.max(keepdims=True)),
    ("argmax(a)", A.argmax(1, keepdims=True)),
    ("argmax(a, axis=0)", A.argmax(0, keepdims=True)),
    ("clip(a, -1, 1)", np.clip(A, -1, 1)),
    ("softmax(a, axis=1)", np.exp(A) / np.exp(A).sum(1, keepdims=True)),
    ("a @ transpose(b)", A @ B.T),
    ("a[0]", A[:1]),
    ("(a + b)[:, 1]", (A + B)[:, 1:2]),
    ("(a * 2)[1, -2:]", (A * 2)[1:, -2:]),
    ("a[..., ::-1] * 1", A[:, ::-1]),
    ("cumsum(a, axis=1)", A.cumsum(1)),
    ("sig(a*b + 1)", 1 / (1 + np.exp(-(A * B + 1)))),
    ("a * 1e3 + True", A * 1000 + 1),
]


@pytest.mark.parametrize("text, wanted", TEXTS, ids=[t for t, _ in TEXTS])
def test_a_text_means_what_it_says(be: Backend, text: str, wanted: Any) -> None:
    operands = {name: be.array(host) for name, host in (("a", A), ("b", B)) if name in text.replace("abs", "")}
    for dialect in (False, True):
        if dialect:
            with neon_dialect():
                made = be.eval(text, **operands)
        else:
            made = be.eval(text, **operands)
        np.testing.assert_allclose(np.asarray(made.asnumpyarray(), np.float64), wanted, rtol=1e-5, atol=1e-6)
    out = be.empty(wanted.shape)
    assert be.eval(text, **operands, out=out) is out
    np.testing.assert_allclose(out.get(), wanted, rtol=1e-5, atol=1e-6)


def test_it_builds_the_nodes_that_python_builds(be: Backend) -> None:
    x, y = be.array(A), be.array(B)
    assert str(be.eval("sig(x*y + 1)", x=x, y=y)) == str(be.sig(x * y + 1))
    integers = be.array([[1, 2]], dtype=np.int32)
    assert be.eval("i * (2 + 1) << 1", i=integers).dtype == np.int64
    assert be.eval("i & 3 | 4", i=integers).asnumpyarray().tolist() == [[5, 6]]
    (found,) = Autodiff(be.eval("sum(x*x)", x=x), be).get_grad_asnumpyarray([x])
    np.testing.assert_allclose(found, 2 * A)


def test_operands_of_other_kinds(be: Backend) -> None:
    x = be.array(A)
    assert be.eval("out_ + e + n + self", out_=x, e=x * 2, n=np.float32(2), self=A).asnumpyarray().tolist() == (
        (4 * A + 2).tolist()
    )
    assert be.eval("text * 2", text=3) == 6
    assert be.eval("2 + 3 * 4") == 14
    assert be.eval("1 < 2") is True
    out = be.zeros((2, 2))
    assert be.eval("2 + 3", out=out) is out
    assert out.get().tolist() == [[5, 5], [5, 5]]
    assert be.eval("sqrt(4) * x", x=x).asnumpyarray().tolist() == (2 * A).tolist()


def test_a_text_is_parsed_once(be: Backend) -> None:
    x = be.array(A)
    be.eval("x + 12.5", x=x)
    before = text.parse.cache_info().misses
    assert isinstance(be.eval("x + 12.5", x=x), OpTreeNode)
    assert text.parse.cache_info().misses == before


def test_every_function_of_one_operand_can_be_called(be: Backend) -> None:
    x = be.array(np.abs(A) / 10)
    names = [s.builders[0] for s in OPS.values() if s.kind is Kind.ELEMENTWISE and s.arity == 1 and s.builders]
    for name in names:
        operand = be.array([[1, 2]], dtype=np.int32) if name == "invert" else x
        assert be.eval(f"{name}(a)", a=operand).spec is getattr(F, name)(operand).spec


def test_registered_ops_can_be_called(be: Backend) -> None:
    import dataclasses

    register(dataclasses.replace(OPS["sqr"], name="squared_anew", builders=("squared_anew",)))
    try:
        assert be.eval("squared_anew(a)", a=be.array(B)).asnumpyarray().tolist() == (B * B).tolist()
    finally:
        unregister("squared_anew")
    with pytest.raises(ArgumentError, match="squared_anew"):
        be.eval("squared_anew(a)", a=be.array(B))


REFUSED: list[tuple[str, str]] = [
    ("__import__('os').system('true')", "no function that a text can call"),
    ("a.T", r"attributes are not read.*transpose\(a\)"),
    ("a.__class__.__mro__", "attributes"),
    ("a.get()", "no function"),
    ("(lambda: a)()", "no function"),
    ("lambda: a", "no meaning"),
    ("[a for a in a]", "no meaning"),
    ("[a]", "no meaning"),
    ("{a}", "no meaning"),
    ("(a, a)", "no meaning"),
    ("f'{a}'", "no meaning"),
    ("a if a else a", r"where\(condition"),
    ("(a > 0) and a", "with & and |"),
    ("not a", "write ~"),
    ("a in a", "compare with"),
    ("a is a", "compare with"),
    ("a := 3", "invalid syntax"),
    ("a = 3", "invalid syntax"),
    ("a; a", "invalid syntax"),
    ("import os", "invalid syntax"),
    ("", "invalid syntax"),
    ("a +", "invalid syntax"),
    ("\x00", "null byte"),
    ("'x' + a", "no number"),
    ("b'x' + a", "no number"),
    ("1j * a", "no number"),
    ("None", "no number"),
    ("10**30 * a", "no number"),
    ("1" * 30 + " * a", "no number"),
    ("1" * 5000 + " * a", "digits|no number"),
    ("9**9**9**9**9 * a", "pow of"),
    ("a + (1 << 99) * 0 + 2**63 * 2", "no number"),
    ("a + 1/0", "truediv of 1, 0"),
    ("a + 1 % 0", "mod of 1, 0"),
    ("a + (-8)**0.5", "no number"),
    ("a + (1 << -1)", "lshift of 1, -1"),
    ("a + (1.5 & 1)", "and_ of 1.5, 1"),
    ("a @ 2 + 1 @ 2", "dot: needs a tensor|matmul"),
    ("(" * 300 + "a" + ")" * 300, "nested"),
    ("-" * 100_000 + "a", "characters|nested"),
    *([("+".join(["a"] * 30_000), "nested")] if (3, 11) <= sys.version_info < (3, 14) else []),  # others parse it
    ("a" * 200_000, "200000 characters"),
    ("print(a)", "no function.*did you mean rint"),
    ("sigg(a)", "did you mean sig"),
    ("view(a, 1)", "no function"),
    ("rand()", "no function"),
    ("a(a)", "no function"),
    ("sig(a, a)", "no way to call sig"),
    ("sig() + a", "no way to call sig"),
    ("sig(a, out=a)", "calls take no out"),
    ("sum(a, **a)", r"calls take no \*\*"),
    ("sum(*a)", "no meaning"),
    ("sum(a, axis=a)", "must be a constant"),
    ("sum(a, (0, 1))", "axis="),
    ("sum(a, rows=1)", r"sum\(\.\.\., rows=1\)"),
    ("a[a]", "must be a constant"),
    ("a[sum]", "must be a constant"),
    ("a['x']", "no number"),
    ("a + 5[0]", "number 5 has no elements"),
    ("sum + a", r"sum is a function; call it"),
    ("bb + a", "no operand bb"),
]


@pytest.mark.parametrize("text, words", REFUSED, ids=[t[:30].encode("unicode_escape").decode() for t, _ in REFUSED])
def test_other_texts_are_refused(be: Backend, text: str, words: str) -> None:
    with pytest.raises((ArgumentError, ShapeError), match=words):
        be.eval(text, a=be.array(A))


def test_errors_of_operations_are_theirs(be: Backend) -> None:
    x = be.array(A)
    with pytest.raises(ShapeError, match=r"add.*\(2, 3\)"):
        be.eval("a + b", a=x, b=be.ones((4, 5)))
    with pytest.raises(DTypeError, match="bitwise_and: takes integers"):
        be.eval("a & a", a=x)
    with pytest.raises(ShapeError, match="axis 7"):
        be.eval("sum(a, axis=7)", a=x)
    with pytest.raises(IndexError):
        be.eval("a[9]", a=x)
    with pytest.raises(DTypeError, match="eval: a: cannot use 'x'"):
        be.eval("a + 1", a="x")
    with pytest.raises(ArgumentError, match="must be a string, got b'a'"):
        be.eval(b"a", a=x)
    with pytest.raises(DTypeError, match="two backends"):
        be.eval("a + b", a=x, b=new_backend().array(A))


def test_operands_are_missing_or_too_many(be: Backend) -> None:
    x = be.array(A)
    with pytest.raises(ArgumentError, match=r"no operand weigth; pass it by name: weigth=\.\.\.; did you mean weight"):
        be.eval("weigth + 1", weight=x)
    with pytest.raises(ArgumentError, match="b, c is given, and the text has no such name"):
        be.eval("a + 1", a=x, b=x, c=x)
    outside = x
    with pytest.raises(ArgumentError, match="no operand outside"):
        be.eval("outside + 1")
    assert outside is x


def test_nothing_is_written_when_a_text_is_refused(be: Backend) -> None:
    x, out = be.array(A), be.ones((2, 3))
    for bad in ("a +", "sig(a, a)", "a + nothing", "a[9]"):
        with pytest.raises(NeonlikeError):
            be.eval(bad, a=x, out=out)
    assert out.get().tolist() == [[1] * 3] * 2
    np.testing.assert_array_equal(x.get(), A)
