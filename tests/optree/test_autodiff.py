"""Gradients against float64 differences along random directions: rows, trees, views, second derivatives."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.backends.autodiff import Autodiff
from neonlike.optree import builders, node
from neonlike.optree.functions import COMPOSED, F
from neonlike.optree.node import OpTreeNode
from neonlike.optree.ops import NON_DIFFERENTIABLE, OPS, Kind, OpSpec
from neonlike.optree.walk import postorder
from tests.support import differences
from tests.support.float64.reference import BROADCASTS, LAYOUTS, domains, plain, rows, sample
from tests.support.trees import Grower

pytestmark = [pytest.mark.optree, pytest.mark.engines("numpy")]

STEP = 1e-4
JUMPS = ("mod", "fmod")
"""Rows tested apart, at points away from their jumps."""
differentiable = [s for s in rows(Kind.ELEMENTWISE) if s.grad is not NON_DIFFERENTIABLE and s.name not in JUMPS]
SMOOTH = [s for s in differentiable if s.name not in ("abs", "relu", "leaky_relu", "maximum", "minimum", "where")]


def slope(compute: Callable[[], float], tensor: Any, direction: Any) -> tuple[float, float]:
    """Derivative of ``compute()`` along ``direction`` in ``tensor``, and how sure it is (Richardson extrapolation).

    Where the function bends too much for the first step, shorter ones are tried.
    """
    found = []
    for step in (STEP, STEP / 10, STEP / 100):
        coarse, fine = (differences.slope(compute, tensor, direction, h) for h in (step, step / 2))
        found.append((abs(fine - coarse), (4 * fine - coarse) / 3))
        if found[-1][0] <= 1e-4 * (1 + abs(fine)):
            break
    doubt, value = min(found)
    return value, doubt


def check(be: Backend, expression: Any, tensors: list[Any], rng: Any, rtol: float = 1e-7) -> list[Any]:
    """Gradients of ``sum(expression * error)`` for a random error agree with differences; returns the gradients."""
    error = be.array(rng.standard_normal(expression.shape), dtype=np.float64)
    out = be.empty(expression.shape, dtype=np.float64)

    def compute() -> float:
        out[:] = expression
        return float((out.get() * error.get()).sum())

    gradients = Autodiff(expression, be, error).get_grad_tensor(tensors)
    for tensor, gradient in zip(tensors, gradients):
        assert gradient.shape == tensor.shape
        direction = rng.standard_normal(tensor.shape)
        wanted, doubt = slope(compute, tensor, direction)
        found = float((gradient.get() * direction).sum())
        size = float((np.abs(gradient.get()) * np.abs(direction)).sum())
        bound = rtol * (1 + size) + 10 * doubt
        assert bound < 1e-2 * (1 + size), f"the differences are too rough to tell: {doubt:g} of {wanted:g}"
        assert abs(found - wanted) <= bound, f"{expression}: gradient {found!r}, differences {wanted!r}"
    return gradients


def operands_of(be: Backend, spec: OpSpec, shapes: Any, rng: Any, layout: Any = plain) -> list[Any]:
    """Tensors in the row's domain, away from kinks at 0 and from ties."""
    hosts = [sample(domain, shape, np.float64, rng) for domain, shape in zip(domains(spec), shapes)]
    for host in hosts:
        host[np.abs(host) < 0.02] += 0.05
    return [layout(be, host) for host in hosts]


@pytest.mark.parametrize("spec", differentiable, ids=lambda spec: spec.name)
def test_each_elementwise_row(be64: Backend, rng: Any, spec: OpSpec) -> None:
    cases = [((shape,) * spec.arity, layout) for shape in ((1, 1), (4, 3), (2, 3, 2)) for layout in LAYOUTS]
    cases += [(shapes[: spec.arity], plain) for shapes in BROADCASTS]
    for shapes, layout in cases:
        tensors = operands_of(be64, spec, shapes, rng, layout)
        wanted = tensors[1:] if spec.name == "where" else tensors
        check(be64, node.apply(spec, tuple(tensors)), wanted, rng)


@pytest.mark.parametrize("name", JUMPS)
def test_remainders_between_their_jumps(be64: Backend, rng: Any, name: str) -> None:
    by = rng.uniform(0.5, 3, (4, 5)) * rng.choice((-1, 1), (4, 5))
    host = by * (rng.integers(-4, 4, (4, 5)) + rng.uniform(0.1, 0.9, (4, 5)))
    a, b = be64.array(host), be64.array(by)
    check(be64, node.apply(OPS[name], (a, b)), [a, b], rng)
    check(be64, node.apply(OPS[name], (a, 20.0)), [a], rng)


@pytest.mark.parametrize("spec", [s for s in differentiable if s.arity == 2], ids=lambda spec: spec.name)
def test_each_binary_row_with_a_number(be64: Backend, rng: Any, spec: OpSpec) -> None:
    for position in range(2):
        tensors: list[Any] = operands_of(be64, spec, ((3, 4), (3, 4)), rng)
        number = float(tensors[position].get()[0, 0])
        kept = [tensors[1 - position]]
        tensors[position] = number
        if spec.name not in ("maximum", "minimum"):
            check(be64, node.apply(spec, tuple(tensors)), kept, rng)


@pytest.mark.parametrize("shape", ((1, 1), (5, 1), (4, 3), (2, 3, 2)), ids=str)
@pytest.mark.parametrize(
    "spec", [s for s in rows(Kind.REDUCTION) if s.grad is not NON_DIFFERENTIABLE], ids=lambda spec: spec.name
)
def test_each_reduction_row(be64: Backend, rng: Any, spec: OpSpec, shape: Any) -> None:
    for layout, axis in itertools.product(LAYOUTS, (0, 1, -1, (0, 1), None)):
        (x,) = operands_of(be64, spec, (shape,), rng, layout)
        check(be64, builders.reduce(spec, x, axis), [x], rng)
        check(be64, builders.reduce(spec, F.sin(x) * x, axis), [x], rng)


def test_a_slope_counts_in_full_precision(be64: Backend) -> None:
    """A choice between two numbers alone is one of float32."""
    x = be64.array([[-1.0, 2.0]])
    (gradient,) = Autodiff(be64.leaky_relu(x, 0.1), be64).get_grad_tensor([x])
    assert gradient.get().tolist() == [[0.1, 1.0]]


def test_prod_where_factors_are_zero(be64: Backend, rng: Any) -> None:
    host = rng.standard_normal((4, 5))
    host[0, 2] = host[1, :2] = host[2] = 0
    x = be64.array(host)
    for axis in (0, 1, None):
        check(be64, be64.prod(x, axis=axis), [x], rng)


def moves(x: Any, y: Any, be: Backend) -> dict[str, Any]:
    """Expressions of every differentiable row that is neither elementwise nor a reduction; x is (4, 3), y (3, 5)."""
    index = be.array([[2, 0, 2, 1]], dtype=np.int32)
    along = be.array([[2, 0, -1], [1, 1, 1], [0, 1, 2], [0, 0, 2]], dtype=np.int32)
    return {
        "dot": F.dot(x, y),
        "dot of expressions": F.dot(F.sin(x), F.exp(y) + 1),
        "dot with itself": F.dot(x, x.T),
        "transpose": F.transpose(F.sin(x)),
        "transpose of axes": F.transpose(F.sin(x.reshape(2, 2, 3)), (2, 0, 1)),
        "broadcast": F.broadcast_to(F.sin(x[:, :1]), (2, 4, 3)),
        "concat": F.concat([F.sin(x), x, y[:, :3]], 0),
        "concat inside": F.exp(F.concat([x, F.sin(x), x * x], 1)) * 0.1,
        "take": F.take(F.sin(x), index, 1),
        "take_along": F.take_along(F.sin(x), along, 1),
        "untake_along": F.untake_along(F.sin(x), along, (4, 5), 1),
        "cumsum": F.cumsum(F.sin(x), 0),
        "cumsum from the end": F.cumsum(x * x, 1, True),
        "cumprod": F.cumprod(x + 0.1, 0) + F.cumprod(F.sin(x), 1, True),
        "take of a tensor": F.take(x, [3, 3, -1], 0),
        "untake": F.untake(F.sin(x), index.T, (3, 3), 0),
        "view": F.view(F.sin(x), ((2, 2), (3, 2), 1)),
        "unview": F.unview(F.sin(x), (5, 4), ((4, 3), (4, 1), 1)),
    }


def test_products_and_moves(be64: Backend, rng: Any) -> None:
    for first, second in itertools.product(LAYOUTS, repeat=2):
        x, y = first(be64, rng.standard_normal((4, 3))), second(be64, rng.standard_normal((3, 5)))
        if first is not plain:
            x = be64.array(x.get())  # reshape needs contiguous elements
        made = moves(x, y, be64)
        tested = {n.spec.name for e in made.values() for n in postorder(e)}
        others = rows(Kind.MOVE, Kind.CONTRACTION, Kind.SCAN)
        assert tested >= {s.name for s in others if s.grad is not NON_DIFFERENTIABLE}
        for expression in made.values():
            check(be64, expression, [x, y], rng)


@pytest.mark.parametrize("name", COMPOSED)
def test_composed_functions(be64: Backend, rng: Any, name: str) -> None:
    x = be64.array(rng.uniform(0.5, 2, (4, 3)))
    if name in ("reciprocal", "silu", "gelu"):
        check(be64, COMPOSED[name](x), [x], rng)
    elif name == "clip":
        check(be64, COMPOSED[name](x, 0.8, 1.7), [x], rng)
    else:
        for axis in (0, 1):
            check(be64, COMPOSED[name](x, axis), [x], rng)


# Trees ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(60))
def test_random_trees(be64: Backend, seed: int) -> None:
    rng = np.random.default_rng(7000 + seed)
    graph = Grower(be64, rng, smooth=True)
    root = graph.grow(int(rng.choice((6, 12, 25, 50))))
    check(be64, root.node, [leaf.tensor for leaf in graph.leaves], rng, 1e-6)
    check(be64, root.node, [leaf.base for leaf in graph.leaves], rng, 1e-6)


@pytest.mark.parametrize("seed", range(40))
def test_random_trees_twice(be64: Backend, seed: int) -> None:
    """The gradient is a tree, and its own gradient agrees with differences of it."""
    rng = np.random.default_rng(8000 + seed)
    graph = Grower(be64, rng, smooth=True)
    root = graph.grow(int(rng.choice((4, 8, 16))))
    tensors = [leaf.tensor for leaf in graph.leaves]
    first = Autodiff(F.sum(root.node), be64).get_grad_op_tree(tensors)
    for gradient in first:
        if isinstance(gradient, OpTreeNode):
            check(be64, gradient, tensors, rng, 1e-5)


@pytest.mark.parametrize("spec", SMOOTH, ids=lambda spec: spec.name)
def test_second_derivatives_of_each_row(be64: Backend, rng: Any, spec: OpSpec) -> None:
    tensors = operands_of(be64, spec, ((3, 2),) * spec.arity, rng)
    cubed = node.apply(spec, tuple(tensors)) * tensors[0] * tensors[0]
    for gradient in Autodiff(F.sum(cubed), be64).get_grad_op_tree(tensors):
        check(be64, gradient, tensors, rng, 1e-6)


def test_third_derivative(be64: Backend) -> None:
    x = be64.array([[0.5, 1.0, 2.0]])
    tree: Any = x * x * x * x
    for wanted in ("4*x**3", "12*x**2", "24*x"):
        (tree,) = Autodiff(F.sum(tree), be64).get_grad_op_tree([x])
        np.testing.assert_allclose(tree.asnumpyarray(), eval(wanted, {"x": x.get()}), 1e-12)


# Views of one tensor ---------------------------------------------------------------------------------------------


VIEWS: dict[str, Callable[[Any], Any]] = {
    "slice": lambda x: F.sin(x[1:3]),
    "column": lambda x: x[:, 2] * x[:, 2],
    "transposed": lambda x: F.sin(x.T),
    "transposed and not": lambda x: F.dot(x.T, x),
    "overlapping slices": lambda x: x[:3] * x[1:],
    "every second": lambda x: F.exp(x[::2, ::-1]),
    "reshaped": lambda x: F.sin(x.reshape(2, 8)) * 2,
    "reshaped to more axes": lambda x: F.sum(F.sin(x.reshape(2, 2, 2, 2)), axis=(1, 3)),
    "rows times rows": lambda x: x[0] * x[1],
    "base and view": lambda x: F.dot(x, x[:, :2]) + x[:, :1],
    "slice of a slice": lambda x: F.sqr(x[1:][:, 1:][1:]),
    "permuted": lambda x: F.transpose(x.reshape(2, 2, 4), (2, 0, 1)) * 2,
}
"""Expressions that read a (4, 4) tensor through views."""


@pytest.mark.parametrize("name", VIEWS)
def test_gradients_through_views(be64: Backend, rng: Any, name: str) -> None:
    """With respect to the tensor itself, and to other views of it."""
    x = be64.array(rng.standard_normal((4, 4)))
    for tensor in (x, x.T, x[1:3], x[:, ::2], x.reshape(2, 8), x[::-1]):
        check(be64, VIEWS[name](x), [tensor], rng)
