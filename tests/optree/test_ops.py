"""Every elementwise row of the op table, and the other kinds one by one, against NumPy float64.

The tests are parametrised over the table: a new row is tested without being named here.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.kernels.numpy_engine.blocks import BLOCK_ELEMENTS
from neonlike.optree import functions, node
from neonlike.optree.dtypes import FLOATS, INTEGERS, DTypeRule, compute_dtype
from neonlike.optree.functions import F
from neonlike.optree.ops import OPS, Kind, OpSpec
from tests.support.dtype_cases import each_float
from tests.support.engines import ON_GPU
from tests.support.float64.reference import (
    BF16,
    BROADCASTS,
    LAYOUTS,
    SHAPES,
    TOLERANCE,
    assert_close,
    domains,
    evaluate,
    formula,
    plain,
    reordered,
    rows,
    sample,
    strided,
)

pytestmark = [pytest.mark.optree, pytest.mark.engines("numpy")]

each_row = pytest.mark.parametrize("spec", rows(Kind.ELEMENTWISE), ids=lambda spec: spec.name)
EVERY_ROW = rows(Kind.ELEMENTWISE) + rows(Kind.ELEMENTWISE, whole=True)


def check(be: Backend, spec: OpSpec, hosts: list[Any], layouts: Any = (plain,), slack: float = 1.0) -> None:
    """``spec`` of ``hosts``, laid out in memory each way, agrees with float64 and leaves its operands alone."""
    wide = [h.astype(np.float64) for h in hosts]
    with np.errstate(all="ignore"):
        expected = np.asarray(formula(spec)(*wide)).astype(np.float64)
    for layout in layouts:
        operands = [layout(be, host) for host in hosts]
        expression = node.apply(spec, tuple(operands), be)
        actual = expression.asnumpyarray()
        what = f"{spec.name} {layout.__name__} {[h.shape for h in hosts]}"
        assert expression.shape == expected.shape
        assert actual.dtype == expression.dtype
        assert_close(actual, expected, slack, what)
        for operand, host in zip(operands, hosts):
            np.testing.assert_array_equal(operand.get(), host, err_msg=f"{what}: an operand changed")


@each_float
@each_row
def test_each_row_on_each_shape_and_layout(be: Backend, rng: Any, spec: OpSpec, dtype: Any) -> None:
    for shape in SHAPES:
        hosts = [sample(domain, shape, dtype, rng) for domain in domains(spec)]
        check(be, spec, hosts, LAYOUTS)


@each_float
@each_row
def test_each_row_broadcasts(be: Backend, rng: Any, spec: OpSpec, dtype: Any) -> None:
    for shapes in BROADCASTS:
        for order in set(itertools.permutations(shapes[: spec.arity])):
            hosts = [sample(domain, shape, dtype, rng) for domain, shape in zip(domains(spec), order)]
            check(be, spec, hosts, (plain, strided))


@each_float
@each_row
def test_each_row_at_nan_inf_and_zero(be: Backend, spec: OpSpec, dtype: Any) -> None:
    special = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, 0.5, -2.5, 3.0], dtype)
    hosts = []
    for position in range(spec.arity):
        shape = [1] * max(2, spec.arity)
        shape[position] = special.size
        hosts.append(special.reshape(shape))
    check(be, spec, hosts)


@pytest.mark.parametrize("spec", [s for s in rows(Kind.ELEMENTWISE) if s.arity > 1], ids=lambda spec: spec.name)
def test_each_row_with_numbers_for_operands(be: Backend, rng: Any, spec: OpSpec) -> None:
    """Python and NumPy scalars, on either side, are weak: the result has the tensor's dtype."""
    for dtype in FLOATS:
        hosts = [sample(domain, (3, 4), dtype, rng) for domain in domains(spec)]
        for position, make in itertools.product(range(spec.arity), (float, np.float32, np.float64, np.asarray)):
            operands: list[Any] = [plain(be, h) for h in hosts]
            wide: list[Any] = [h.astype(np.float64) for h in hosts]
            number = np.float32(hosts[position].flat[0])
            operands[position], wide[position] = make(number), np.float64(number)
            expression = node.apply(spec, tuple(operands), be)
            assert expression.dtype == dtype
            assert_close(expression.asnumpyarray(), np.asarray(formula(spec)(*wide), np.float64), 1, spec.name)


@each_row
def test_each_row_of_numbers_only(be: Backend, rng: Any, spec: OpSpec) -> None:
    numbers = [float(sample(domain, (1, 1), np.float64, rng)[0, 0]) for domain in domains(spec)]
    expression = node.apply(spec, tuple(numbers), be)
    expected = np.asarray(formula(spec)(*map(np.float64, numbers)), np.float64)
    assert_close((be.zeros((2, 3)) + expression).asnumpyarray(), np.full((2, 3), expected), 1, spec.name)


@pytest.mark.parametrize("dtype", (*INTEGERS, np.dtype(bool)), ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("spec", EVERY_ROW, ids=lambda spec: spec.name)
def test_each_row_on_integers(be: Backend, rng: Any, spec: OpSpec, dtype: Any) -> None:
    """Arithmetic on integers is exact in int64, or in uint64; what has fractions is float32."""
    if spec.logical and dtype.kind == "b":
        spec = OPS[spec.logical]
    for shape in ((4, 5), (2, 3, 2)):
        hosts = [sample(domain, shape, dtype, rng) for domain in domains(spec)]
        exact = spec.dtype in (DTypeRule.SAME, DTypeRule.WHOLE)
        wide = [h.astype(compute_dtype(dtype) if exact else np.int64) for h in hosts]
        with np.errstate(all="ignore"):
            expected = np.asarray(formula(spec)(*wide))
        expression = node.apply(spec, tuple(plain(be, h) for h in hosts), be)
        assert expression.dtype == (compute_dtype(dtype) if exact else np.float32)
        assert_close(expression.asnumpyarray(), expected, 1, spec.name)


@each_row
def test_each_row_in_blocks(be: Backend, rng: Any, spec: OpSpec) -> None:
    """More elements than a block holds: contiguous, strided, and stretched along either axis."""
    tall, wide = (BLOCK_ELEMENTS // 64 + 3, 129), (5, BLOCK_ELEMENTS // 3 + 1)
    for shape, layout in ((tall, plain), (wide, strided), (tall, reordered)):
        hosts = [sample(domain, shape, np.float32, rng) for domain in domains(spec)]
        check(be, spec, hosts, (layout,))
        hosts[-1] = hosts[-1][:1]
        hosts[0] = hosts[0][:, :1]
        check(be, spec, hosts, (layout,))


@each_float
def test_each_dtype_in_blocks(be: Backend, rng: Any, dtype: Any) -> None:
    hosts = [sample((-4.0, 4.0), (3, BLOCK_ELEMENTS), dtype, rng) for _ in range(2)]
    check(be, OPS["mul"], hosts, (plain, strided))


@each_row
def test_each_builder_is_lazy_without_out_and_immediate_with_it(be: Backend, rng: Any, spec: OpSpec) -> None:
    operands = [plain(be, sample(domain, (2, 3), np.float32, rng)) for domain in domains(spec)]
    wanted = node.apply(spec, tuple(operands), be).asnumpyarray()
    for name in {"leaky_relu": ("leaky_relu",)}.get(spec.name, spec.builders):
        builder = getattr(be, name)
        if name == "shift":  # immediate, as in neon
            continue
        assert isinstance(builder(*operands), node.OpTreeNode)
        out = be.empty((2, 3))
        assert builder(*operands, out=out) is out
        np.testing.assert_array_equal(out.get(), wanted)
        assert builder.__doc__


# What is not elementwise or a reduction -------------------------------------------------------------------------


def gathered(be: Backend, host: Any, other: Any, dtype: Any) -> list[Any]:
    """Expressions of kind MOVE and CONTRACTION over a matrix, one or more for each row."""
    x, y = plain(be, host), strided(be, other)
    index = be.array([[2, 0, 2]], dtype=np.int32)
    places = be.array([[2, 0, -1]] * x.shape[0], dtype=np.int16)
    return [
        F.dot(x, y),
        F.dot(x + 1, y.T.T),
        F.transpose(x + 1),
        F.transpose(x.reshape(1, *x.shape) * 2, (2, 0, 1)),
        F.broadcast_to(x[:, :1], x.shape),
        F.broadcast_to(x + 1, (2, *x.shape)),
        F.concat([x, x * 2, x[:, :2]], 1),
        F.take(x, [1, -1, 0], 0),
        F.take_along(x * 2, [[0, 1, -1, 2, 3]], 0),
        F.untake_along(F.take_along(x, places, 1), places, x.shape, 1),
        F.cumsum(x, 0),
        F.cumprod(x * 2, 1, True),
        F.take(x * 2, index, 1),
        F.untake(F.take(x, index, 0), index, x.shape, 0),
        F.view(x * 2, ((2, 2), (x.shape[1], 2), 1)),
        F.unview(x[:2, :2] + 1, x.shape, ((2, 2), (x.shape[1], 2), 1)),
    ]


@each_float
def test_products_and_moves(be: Backend, rng: Any, dtype: Any) -> None:
    host, other = (rng.standard_normal(shape).astype(dtype) for shape in ((4, 5), (5, 3)))
    expressions = gathered(be, host, other, dtype)
    known = {s.name for s in rows(Kind.MOVE, Kind.CONTRACTION, Kind.SCAN)}
    assert {e.spec.name for e in expressions} == known - {"argsort", "classes"}  # whose results are positions
    for expression in expressions:
        assert expression.dtype == dtype
        assert_close(expression.asnumpyarray(), evaluate(expression), 10, str(expression))


DOTS = (((1, 1), (1, 1)), ((3, 1), (1, 4)), ((1, 5), (5, 1)), ((0, 3), (3, 2)), ((2, 0), (0, 3)), ((70, 33), (33, 65)))


@each_float
@pytest.mark.parametrize("shapes", DOTS, ids=str)
def test_dot(be: Backend, rng: Any, shapes: Any, dtype: Any) -> None:
    a, b = (rng.standard_normal(shape).astype(dtype) for shape in shapes)
    expected = a.astype(np.float64) @ b.astype(np.float64)
    for layouts in itertools.product(LAYOUTS, repeat=2):
        x, y = layouts[0](be, a), layouts[1](be, b)
        assert_close(be.dot(x, y).asnumpyarray(), expected, 20)
        assert_close((x @ y).T.asnumpyarray(), expected.T, 20)
        out = be.empty(expected.shape, dtype=dtype)
        assert be.dot(x, y, out=out) is out
        assert_close(out.get(), expected, 20)


def test_dot_of_mixed_dtypes_and_integers(be: Backend, rng: Any) -> None:
    whole = [rng.integers(-50, 50, shape).astype(np.int32) for shape in ((4, 5), (5, 3))]
    half = rng.standard_normal((5, 3)).astype(np.float16)
    x, y, z = (plain(be, h) for h in (*whole, half))
    assert_close(be.dot(x, y).asnumpyarray(), whole[0].astype(np.int64) @ whole[1])
    assert_close(be.dot(x, z).asnumpyarray(), whole[0].astype(np.float64) @ half.astype(np.float64), 10)
    with pytest.raises(ValueError, match=r"dot.*\(4, 5\).*\(4, 5\)"):
        be.dot(x, x)


@pytest.mark.parametrize("axis", (0, 1))
@pytest.mark.parametrize("width", (6, BLOCK_ELEMENTS // 3))
def test_onehot(be: Backend, rng: Any, axis: int, width: int) -> None:
    classes = 5
    host = rng.integers(0, classes, width)
    expected = (np.arange(classes)[:, None] == host[None, :]).astype(np.float64)
    expected = expected if axis == 0 else expected.T
    for dtype, layout in itertools.product((np.int32, np.uint8), (plain, strided)):
        row = layout(be, host.reshape(1, -1).astype(dtype))
        for indices in (row, row.T):
            out = be.empty(expected.shape)
            out[:] = be.onehot(indices, axis=axis)
            assert_close(out.get(), expected)
            assert be.onehot(indices, axis=axis, out=out) is out
            doubled = be.empty(expected.shape)
            doubled[:] = 2 * be.onehot(indices, axis=axis) + 1
            assert_close(doubled.get(), 2 * expected + 1)
    transposed = be.empty(expected.T.shape)
    transposed[:] = (be.onehot(row, axis=axis) + out * 0).T
    assert_close(transposed.get(), expected.T)


def test_take_and_its_errors(be: Backend, rng: Any) -> None:
    host = rng.standard_normal((4, 3, 2)).astype(np.float32)
    x = plain(be, host)
    for axis, indices in itertools.product((0, 1, 2, -1), ([0], [1, 0, -1], [], [1] * 7)):
        expected = np.take(host, np.array(indices, int), axis)
        assert_close(be.take(x * 2, np.array(indices, int), axis).asnumpyarray(), 2 * expected)
    out = be.empty((2, 3, 2))
    assert be.take(x, [3, 1], 0, out=out) is out
    assert_close(out.get(), host[[3, 1]])
    with pytest.raises(IndexError, match=r"4.*size 4"):
        be.take(x, [4], 0)
    with pytest.raises(TypeError, match="integers"):
        be.take(x, [0.5], 0)
    with pytest.raises(ValueError, match="axis 3"):
        be.take(x, [0], 3)


def test_take_with_a_bad_index_tensor_leaves_the_target_alone(be: Backend) -> None:
    x, bad, out = be.ones((3, 2)), be.array([[0, 7]], dtype=np.int32), be.zeros((2, 2))
    with pytest.raises(IndexError):
        out[:] = be.take(x, bad, 0)
        be.synchronize()  # a GPU tells it then
    assert ON_GPU or not out.get().any()


# Functions made of rows -----------------------------------------------------------------------------------------

COMPOSED: dict[str, tuple[Any, Any]] = {
    "reciprocal": (lambda be, x: be.reciprocal(x + 9), lambda x: 1 / (x + 9)),
    "clip": (lambda be, x: be.clip(x, -1, 0.5), lambda x: np.minimum(np.maximum(x, -1), 0.5)),
    "silu": (lambda be, x: be.swish(x), lambda x: x / (1 + np.exp(-x))),
    "gelu": (lambda be, x: be.gelu(x), lambda x: x * 0.5 * (1 + formula(OPS["erf"])(x / np.sqrt(2)))),
}
OVER_AXES: dict[str, Any] = {
    "mean": lambda x, axis: x.mean(axis=axis, keepdims=True),
    "var": lambda x, axis: x.var(axis=axis, keepdims=True),
    "std": lambda x, axis: x.std(axis=axis, keepdims=True),
    "norm2": lambda x, axis: np.sqrt((x * x).sum(axis=axis, keepdims=True)),
    "logsumexp": lambda x, axis: np.log(np.exp(x).sum(axis=axis, keepdims=True)),
    "softmax": lambda x, axis: np.exp(x) / np.exp(x).sum(axis=axis, keepdims=True),
    "log_softmax": lambda x, axis: x - np.log(np.exp(x).sum(axis=axis, keepdims=True)),
}


def test_every_composed_function_is_in_these_tables() -> None:
    assert {*COMPOSED, *OVER_AXES} == set(functions.COMPOSED)


@each_float
@pytest.mark.parametrize("name", COMPOSED)
def test_composed_elementwise_functions(be: Backend, rng: Any, name: str, dtype: Any) -> None:
    build, expected = COMPOSED[name]
    for shape, layout in itertools.product(SHAPES, LAYOUTS):
        host = sample((-4.0, 4.0), shape, dtype, rng)
        assert_close(build(be, layout(be, host)).asnumpyarray(), expected(host.astype(np.float64)), 4, name)


@each_float
def test_gelu_far_below_0_is_0(be: Backend, dtype: Any) -> None:
    """There 1 + erf must be 0 and no unit in the last place, which x multiplies."""
    x = be.array(np.array([-8.0, -100.0, -60000.0]), dtype=dtype)
    assert np.abs(be.gelu(x).get().astype(np.float64)).max() < 1e-13


def test_clip_between_tensors(be: Backend, rng: Any) -> None:
    x, low, high = (rng.standard_normal(shape) for shape in ((4, 5), (4, 1), (1, 5)))
    out = be.clip(*(be.array(h, dtype=np.float64) for h in (x, low, high))).asnumpyarray()
    np.testing.assert_array_equal(out, np.minimum(np.maximum(x, low), high))


@each_float
@pytest.mark.parametrize("name", OVER_AXES)
def test_composed_functions_over_axes(be: Backend, rng: Any, name: str, dtype: Any) -> None:
    build = getattr(be, name)
    for shape, layout in itertools.product(((1, 1), (5, 7), (2, 3, 4)), LAYOUTS):
        host = sample((-4.0, 4.0), shape, dtype, rng)
        for axis in (None, 0, 1, -1, (0, 1)):
            expected = OVER_AXES[name](host.astype(np.float64), axis)
            assert_close(build(layout(be, host), axis=axis).asnumpyarray(), expected, 4, f"{name} {shape} {axis}")


def test_composed_functions_at_the_edges(be: Backend) -> None:
    x = be.array([[1000.0, -np.inf], [1000.0, -np.inf]])
    assert_close(be.logsumexp(x, axis=0).asnumpyarray(), np.array([[1000 + np.log(2), -np.inf]]))
    assert_close(be.fprop_softmax(x[:, :1], axis=0).asnumpyarray(), np.full((2, 1), 0.5))
    assert np.isnan(be.mean(be.empty((0, 3)), axis=0).asnumpyarray()).all()
    assert be.norm2(be.empty((0, 3)), axis=0).asnumpyarray().tolist() == [[0, 0, 0]]


def test_var_with_binary_shifts(be: Backend, rng: Any) -> None:
    host = rng.standard_normal((4, 6)).astype(np.float32)
    centred = host.astype(np.float64) - host.astype(np.float64).mean(1, keepdims=True)
    power = np.sign(centred) * 2.0 ** np.rint(np.log2(np.abs(centred)))
    assert_close(be.var(plain(be, host), axis=1, binary=True).asnumpyarray(), (centred * power).mean(1, keepdims=True))


def test_every_float_type_has_a_tolerance() -> None:
    assert set(TOLERANCE) == {*FLOATS, BF16}
