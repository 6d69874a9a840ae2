"""Matrix products against float64 NumPy: in expressions, compound and batched, every argument, layout and dtype."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.errors import AliasError, DTypeError, ShapeError

pytestmark = [pytest.mark.optree, pytest.mark.checked]

TOLERANCE = {"float16": 4e-3, "float32": 2e-5, "float64": 1e-12}


def make(
    be: Backend, rng: np.random.Generator, shape: tuple[int, ...], layout: str = "plain", dtype: str = "float32"
) -> Any:
    """A random tensor of ``shape``: contiguous, a transposed view, or every other element of a larger one."""
    if layout == "transposed":
        return be.array(rng.normal(size=(*shape[:-2], shape[-1], shape[-2])), dtype=dtype).T
    if layout == "strided":
        whole = be.array(rng.normal(size=(*shape[:-2], 2 * shape[-2], 3 * shape[-1])), dtype=dtype)
        return whole[(*[slice(None)] * (len(shape) - 2), slice(1, None, 2), slice(None, None, 3))]
    return be.array(rng.normal(size=shape), dtype=dtype)


def exact(t: Any) -> np.ndarray:
    return t.get().astype(np.float64)


def assert_close(got: np.ndarray, wanted: np.ndarray, dtype: str = "float32", inner: int = 1) -> None:
    scale = np.abs(wanted).max(initial=1.0)
    assert got.shape == wanted.shape
    assert np.abs(got.astype(np.float64) - wanted).max(initial=0.0) <= TOLERANCE[dtype] * scale * max(1, inner) ** 0.5


LAYOUTS = ["plain", "transposed", "strided"]


# dot ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("layouts", list(itertools.product(LAYOUTS, LAYOUTS)))
@pytest.mark.parametrize("sizes", [(3, 4, 5), (1, 7, 1), (65, 33, 17)])
def test_dot(be: Backend, rng: np.random.Generator, sizes: tuple[int, int, int], layouts: Any, dtype: str) -> None:
    m, k, n = sizes
    a, b = make(be, rng, (m, k), layouts[0], dtype), make(be, rng, (k, n), layouts[1], dtype)
    wanted = exact(a) @ exact(b)
    assert be.dot(a, b).shape == (m, n)
    assert_close(be.dot(a, b).asnumpyarray(), wanted, dtype, k)
    assert_close((a @ b).asnumpyarray(), wanted, dtype, k)
    out = be.zeros((n, m), dtype=dtype).T
    assert be.dot(a, b, out) is out
    assert_close(out.get(), wanted, dtype, k)


IN_TREES: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "epilogue": (
        lambda be, a, b, c: be.tanh(be.dot(a, b) + c) * 2,
        lambda a, b, c: np.tanh(a @ b + c) * 2,
    ),
    "prologue": (lambda be, a, b, c: be.dot(a * 2 - 1, be.exp(b)), lambda a, b, c: (a * 2 - 1) @ np.exp(b)),
    "chain": (lambda be, a, b, c: be.dot(be.dot(a, b), c.T), lambda a, b, c: a @ b @ c.T),
    "of a product": (
        lambda be, a, b, c: be.dot(be.sig(be.dot(a, b)), c.T),
        lambda a, b, c: 1 / (1 + np.exp(-a @ b)) @ c.T,
    ),
    "transposed": (lambda be, a, b, c: be.dot(a, b).T + c.T, lambda a, b, c: (a @ b).T + c.T),
    "twice": (lambda be, a, b, c: (lambda p: p * p + p.T.T)(be.dot(a, b)), lambda a, b, c: (a @ b) ** 2 + a @ b),
    "reduced": (
        lambda be, a, b, c: be.sum(be.dot(a, b) * c, axis=1),
        lambda a, b, c: (a @ b * c).sum(1, keepdims=True),
    ),
    "of reductions": (
        lambda be, a, b, c: be.dot(be.sum(a, axis=0), be.mean(b, axis=1)),
        lambda a, b, c: a.sum(0, keepdims=True) @ b.mean(1, keepdims=True),
    ),
    "two": (lambda be, a, b, c: be.dot(a, b) + be.dot(c, c.T) @ c, lambda a, b, c: a @ b + c @ c.T @ c),
    "lazy transposes": (lambda be, a, b, c: be.dot((b + 1).T, (a - 1).T), lambda a, b, c: (b + 1).T @ (a - 1).T),
    "array operand": (lambda be, a, b, c: be.dot(a.get(), b), lambda a, b, c: a @ b),
}  # fmt: skip


@pytest.mark.parametrize("case", IN_TREES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_dot_anywhere_in_an_expression(be: Backend, rng: np.random.Generator, case: str, layout: str) -> None:
    expression, reference = IN_TREES[case]
    a, b, c = (make(be, rng, shape, layout) for shape in ((6, 5), (5, 4), (6, 4)))
    wanted = reference(exact(a), exact(b), exact(c))
    node = expression(be, a, b, c)
    assert node.shape == wanted.shape
    out = be.zeros(wanted.shape)
    out[:] = node
    assert_close(out.get(), wanted, inner=30)


def test_dot_into_its_own_operands(be: Backend, rng: np.random.Generator) -> None:
    for write in (
        lambda a, dot: a.__setitem__(np.s_[:], dot(a, a)),
        lambda a, dot: a.__setitem__(np.s_[:], dot(a, a.T) + a),
        lambda a, dot: a.__setitem__(np.s_[2:], dot(a[:3], a)),
        lambda a, dot: a.T.__setitem__(np.s_[:], dot(a, a)),
    ):
        t = make(be, rng, (5, 5))
        host = exact(t)
        write(t, be.dot)
        write(host, lambda x, y: x.copy() @ y.copy())
        assert_close(t.get(), host, inner=5)


def test_empty_products(be: Backend) -> None:
    assert be.dot(be.zeros((0, 3)), be.zeros((3, 2))).asnumpyarray().shape == (0, 2)
    out = be.ones((2, 3))
    out[:] = be.dot(be.zeros((2, 0)), be.zeros((0, 3)))
    assert not out.get().any()


# compound_dot ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("beta", [0.0, 1.0, -0.5])
@pytest.mark.parametrize("alpha", [1.0, 0.0, 2.5])
@pytest.mark.parametrize("with_sums", [False, True])
def test_compound_dot_honours_every_argument(
    be: Backend, rng: np.random.Generator, alpha: float, beta: float, relu: bool, with_sums: bool, dtype: str
) -> None:
    a, b, c = (make(be, rng, shape, dtype=dtype) for shape in ((9, 5), (5, 7), (9, 7)))
    product = alpha * (exact(a) @ exact(b))
    wanted = (np.maximum(product, 0) if relu else product) + beta * exact(c)
    sums = be.zeros((9, 1), dtype=dtype) if with_sums else None
    assert be.compound_dot(a, b, c, alpha=alpha, beta=beta, relu=relu, bsum=sums) is c
    assert_close(c.get(), wanted, dtype, 5)
    if sums is not None:
        assert_close(sums.get(), exact(c).sum(1, keepdims=True), dtype, 7)


@pytest.mark.parametrize("layouts", list(itertools.product(LAYOUTS, LAYOUTS, LAYOUTS)))
def test_compound_dot_on_any_layout(be: Backend, rng: np.random.Generator, layouts: tuple[str, str, str]) -> None:
    a, b, c = (make(be, rng, shape, layout) for shape, layout in zip(((9, 5), (5, 7), (9, 7)), layouts))
    wanted = 2 * (exact(a) @ exact(b)) + 0.5 * exact(c)
    rest = c._original_base.get().sum() - c.get().sum()
    be.compound_dot(a, b, c, alpha=2.0, beta=0.5)
    assert_close(c.get(), wanted, inner=5)
    assert np.isclose(c._original_base.get().sum() - c.get().sum(), rest, rtol=1e-4, atol=1e-4)  # nothing beside C


def test_compound_dot_without_beta_ignores_what_c_held(be: Backend, rng: np.random.Generator) -> None:
    a, b = make(be, rng, (3, 4)), make(be, rng, (4, 2))
    for junk in (np.nan, np.inf):
        c = be.empty((3, 2)).fill(junk)
        be.compound_dot(a, b, c, alpha=3.0, beta=0)
        assert_close(c.get(), 3 * exact(a) @ exact(b), inner=4)


def test_compound_dot_may_write_over_an_operand(be: Backend, rng: np.random.Generator) -> None:
    for pick in (lambda t: (t, t), lambda t: (t, t.T), lambda t: (t.T, t), lambda t: (t[::-1], t)):
        t = make(be, rng, (4, 4))
        a, b = (exact(x) for x in pick(t))
        wanted = np.maximum(2 * a @ b, 0) - exact(t)
        be.compound_dot(*pick(t), t, alpha=2, beta=-1, relu=True)
        assert_close(t.get(), wanted, inner=4)


def test_compound_dot_accepts_the_tuning_arguments(be: Backend, rng: np.random.Generator) -> None:
    a, b, c = make(be, rng, (3, 4)), make(be, rng, (4, 2)), be.zeros((3, 2))
    assert be.compound_dot(a, b, c, size="128x64") is c
    assert be.cublas_dot(a, b, c, alpha=2.0, beta=1.0) is c
    assert_close(c.get(), 3 * exact(a) @ exact(b), inner=4)


def test_integer_products_are_exact_and_saturate(be: Backend) -> None:
    a, c = be.array([[100, 100], [-100, 1]], dtype=np.int8), be.zeros((2, 2), dtype=np.int8)
    be.compound_dot(a, a, c)
    assert c.get().tolist() == [[0, 127], [-128, -128]]


def test_half_precision_accumulates_wider(be: Backend) -> None:
    a, b = be.ones((1, 4096), dtype=np.float16), be.ones((4096, 1), dtype=np.float16)
    c = be.zeros((1, 1), dtype=np.float16)
    assert be.compound_dot(a, b, c).get()[0, 0] == 4096  # a float16 sum sticks at 2048
    batch = be.ones((4096, 1, 1), dtype=np.float16)
    assert be.batched_dot(batch, batch, c).get()[0, 0] == 4096


BAD: dict[str, tuple[type[Exception], Callable[[Backend, Any, Any, Any, Any], Any]]] = {
    "inner sizes": (ShapeError, lambda be, a, b, c, s: be.compound_dot(a, a, c)),
    "size of C": (ShapeError, lambda be, a, b, c, s: be.compound_dot(b.T, a.T, c)),
    "size of bsum": (ShapeError, lambda be, a, b, c, s: be.compound_dot(a, b, c, bsum=be.zeros((1, 3)))),
    "bsum in C": (AliasError, lambda be, a, b, c, s: be.compound_dot(a, b, c, bsum=c[:, 0])),
    "bsum is no tensor": (DTypeError, lambda be, a, b, c, s: be.compound_dot(a, b, c, bsum=np.zeros((3, 1)))),
    "dtypes": (DTypeError, lambda be, a, b, c, s: be.compound_dot(a, be.ones((4, 2), dtype=np.float64), c)),
    "array": (DTypeError, lambda be, a, b, c, s: be.compound_dot(a, b.get(), c)),
    "None": (DTypeError, lambda be, a, b, c, s: be.compound_dot(None, b, c)),
    "expression as C": (DTypeError, lambda be, a, b, c, s: be.compound_dot(a, b, c * 1)),
    "3-D": (ShapeError, lambda be, a, b, c, s: be.compound_dot(s, b, c)),
    "batched: no batch": (ShapeError, lambda be, a, b, c, s: be.batched_dot(a, b, c)),
    "batched: sizes": (ShapeError, lambda be, a, b, c, s: be.batched_dot(s, s, c)),
    "batched: batches": (ShapeError, lambda be, a, b, c, s: be.batched_dot(s, be.zeros((3, 4, 2)), c)),
    "batched: C": (ShapeError, lambda be, a, b, c, s: be.batched_dot(s, b, be.zeros((3, 3, 2)))),
    "batched: 4-D": (ShapeError, lambda be, a, b, c, s: be.batched_dot(s, b, be.zeros((1, 2, 3, 2)))),
    "batched: dtypes": (DTypeError, lambda be, a, b, c, s: be.batched_dot(s, be.zeros((4, 2), dtype=np.int8), c)),
    "transpose: shape": (ShapeError, lambda be, a, b, c, s: be.copy_transpose(a, c)),
    "transpose: axes": (ShapeError, lambda be, a, b, c, s: be.copy_transpose(a, c, axes=(0, 2))),
    "xnor: sizes": (ShapeError, lambda be, a, b, c, s: be.xnor_compound_dot(a, a, c)),
    "dot: inner sizes": (AssertionError, lambda be, a, b, c, s: be.dot(a, a, c)),
    "dot: 3-D": (ShapeError, lambda be, a, b, c, s: be.dot(s, b, c)),
    "dot: number": (ShapeError, lambda be, a, b, c, s: be.dot(a, 2, c)),
    "dot: list": (DTypeError, lambda be, a, b, c, s: be.dot(a, [[1]], c)),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_products_raise_and_leave_c(be: Backend, case: str) -> None:
    error, call = BAD[case]
    c = be.array(np.arange(6.0).reshape(3, 2))
    with pytest.raises(error, match=r"dot|transpose|assignment"):
        call(be, be.ones((3, 4)), be.ones((4, 2)), c, be.ones((2, 3, 4)))
    assert np.array_equal(c.get(), np.arange(6.0).reshape(3, 2))


# batched_dot, xnor_compound_dot, copy_transpose -----------------------------------------------------------------------


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("ranks", [(3, 3, 3), (2, 3, 3), (3, 2, 3), (3, 3, 2), (2, 3, 2), (3, 2, 2)])
@pytest.mark.parametrize(("alpha", "beta", "relu"), [(1, 0, False), (2.5, 0.5, True), (0.5, -1, False), (3, 0, True)])
def test_batched_dot_follows_the_general_rule(
    be: Backend,
    rng: np.random.Generator,
    ranks: tuple[int, int, int],
    alpha: float,
    beta: float,
    relu: bool,
    dtype: str,
) -> None:
    a, b, c = (
        make(be, rng, (6, *shape)[3 - rank :], dtype=dtype) for rank, shape in zip(ranks, ((3, 4), (4, 2), (3, 2)))
    )
    product = np.matmul(exact(a), exact(b))
    product = alpha * (product.sum(0) if c.ndim == 2 else product)
    wanted = (np.maximum(product, 0) if relu else product) + beta * exact(c)
    if beta == 0:
        c.fill(np.nan)
    assert be.batched_dot(a, b, c, alpha=alpha, beta=beta, relu=relu, size=64) is c
    assert_close(c.get(), wanted, dtype, 24)


@pytest.mark.parametrize("layouts", list(itertools.product(LAYOUTS, LAYOUTS, LAYOUTS)))
def test_batched_dot_on_any_layout(be: Backend, rng: np.random.Generator, layouts: tuple[str, str, str]) -> None:
    a, b, c = (make(be, rng, shape, layout) for shape, layout in zip(((3, 4, 5), (3, 5, 2), (3, 4, 2)), layouts))
    wanted = np.matmul(exact(a), exact(b)) + exact(c)
    be.batched_dot(a, b, c, beta=1.0)
    assert_close(c.get(), wanted, inner=5)


def test_batched_dot_may_write_over_an_operand(be: Backend, rng: np.random.Generator) -> None:
    a, b = make(be, rng, (3, 4, 4)), make(be, rng, (3, 4, 4))
    wanted = np.matmul(exact(a), exact(b)) + exact(a)
    be.batched_dot(a, b, a, beta=1.0)
    assert_close(a.get(), wanted, inner=4)
    square = make(be, rng, (4, 4))
    wanted = np.matmul(exact(square), exact(b)).sum(0)
    be.batched_dot(square, b, square)
    assert_close(square.get(), wanted, inner=12)


@pytest.mark.parametrize("sizes", [(3, 5, 4), (17, 33, 9), (4, 700, 2)])
def test_xnor_compound_dot_is_the_exact_product_of_signs(
    be: Backend, rng: np.random.Generator, sizes: tuple[int, int, int]
) -> None:
    m, k, n = sizes
    a, b = be.array(rng.integers(-2, 3, size=(m, k))), be.array(rng.normal(size=(k, n)))
    c, sums = be.ones((m, n)), be.zeros((m, 1))
    signs = np.where(exact(a) >= 0, 1, -1) @ np.where(exact(b) >= 0, 1, -1)
    assert be.xnor_compound_dot(a, b, c, bsum=sums) is c
    assert np.array_equal(c.get(), signs)
    assert np.array_equal(sums.get(), signs.sum(1, keepdims=True))
    be.xnor_compound_dot(a, b, c, beta=2.0)
    assert np.array_equal(c.get(), 3 * signs)


@pytest.mark.parametrize("shape", [(3, 4), (2, 3, 4), (2, 3, 4, 5), (2, 1, 3, 2, 2)])
def test_copy_transpose_takes_any_rank_and_order(be: Backend, rng: np.random.Generator, shape: tuple[int, ...]) -> None:
    t = be.array(rng.normal(size=shape))
    reverse = be.zeros(shape[::-1])
    assert be.copy_transpose(t, reverse) is None
    assert np.array_equal(reverse.get(), t.get().transpose())
    for axes in itertools.permutations(range(len(shape))):
        wanted = t.get().transpose(axes)
        out = be.zeros(wanted.shape)
        be.copy_transpose(t, out, axes)
        assert np.array_equal(out.get(), wanted)
    square = be.array(rng.normal(size=(5, 5)))
    wanted = square.get().T
    be.copy_transpose(square, square)
    assert np.array_equal(square.get(), wanted)
