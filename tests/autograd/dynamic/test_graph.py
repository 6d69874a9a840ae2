"""Dynamic graphs: variables, constants, aliases and commands, each as a program uses it, and their errors."""

from __future__ import annotations

import gc
import re

import numpy as np
import pytest

from neonlike.autograd import FreedError
from neonlike.autograd.dynamic import Hint, commands
from neonlike.errors import ArgumentError, DTypeError, GradientError, IndexRangeError, ShapeError
from neonlike.optimizers import GradientDescentMomentum

pytestmark = [pytest.mark.engines("numpy", "c"), pytest.mark.samples(4), pytest.mark.compiles(2)]

X = np.array([[1.0, -2.0, 3.0], [4.0, 5.0, -6.0]], np.float32)
ADD, MUL, SQR = (commands.ewise(name) for name in ("add", "mul", "sqr"))


@pytest.fixture
def g(be):
    with be.dynamic_graph() as graph:
        yield graph


# Variables ------------------------------------------------------------------------------------------------------------


def test_graphs_are_made_and_closed(be):
    graph = be.dynamic_graph()
    x = graph.variable(value=X, name="x")
    graph.close()
    assert graph.closed and "freed" in repr(x)
    for use in (lambda: x.tensor, lambda: graph.variable(), lambda: graph.exec(SQR, [x]), lambda: x.shape):
        with pytest.raises(FreedError, match="graph was closed"):
            use()
    with be.dynamic_graph() as another, pytest.raises(ArgumentError, match="belongs to another graph"):
        another.exec(SQR, [be.dynamic_graph().variable(value=X)])


def test_memory_is_allocated_on_first_need(g):
    x = g.variable((2, 3))
    assert x.shape == (2, 3) and x.storage("test").memory is None
    assert x.tensor.get().tolist() == np.zeros((2, 3)).tolist()
    assert x.tensor is x.tensor and x.storage("test").memory is x.tensor


def test_a_shape_may_come_from_the_command_that_writes(g):
    x, y = g.variable(value=X), g.variable(name="y")
    assert y.shape is None and y.dtype is None
    with pytest.raises(ShapeError, match=re.escape("variable y: nothing was written to it")):
        y.tensor  # noqa: B018
    assert g.exec(SQR, [x], [y]) is y
    assert y.shape == (2, 3) and y.get().tolist() == (X * X).tolist()


def test_shapes_and_dtypes_that_do_not_fit(g):
    x = g.variable(value=X, name="x")
    narrow, double = g.variable((1, 3), name="narrow"), g.variable((2, 3), dtype=np.float64, name="double")
    for target, error in ((narrow, ShapeError), (double, DTypeError)):
        with pytest.raises(error, match=f"sqr: variable {target.name} "):
            g.exec(SQR, [x], [target])
        assert target.storage("test").node is None, "nothing was written"
    with pytest.raises(ShapeError, match=r"do not broadcast.*of variable x \(2, 3\), variable wide \(5, 5\)$"):
        g.exec(ADD, [x, g.variable((5, 5), name="wide")])
    with pytest.raises(ShapeError, match="the value has the shape"):
        g.variable((3, 3), value=X)
    with pytest.raises(ShapeError):
        g.variable((2, -3))


def test_set_lets_commands_write_the_callers_tensor(g, be):
    mine = be.zeros((2, 3))
    x, out = g.variable(value=X), g.variable(name="out").set(mine)
    assert out.tensor is mine
    g.exec(SQR, [x], [out])
    assert mine.get().tolist() == (X * X).tolist() and out.tensor is mine
    (slope,) = g.backward(out, [x])
    assert slope.get().tolist() == (2 * X).tolist()
    g.close()
    assert mine.get().tolist() == (X * X).tolist(), "the caller's tensor outlives the graph"


def test_set_refuses_what_does_not_fit(g, be):
    x = g.variable((2, 3), name="x")
    with pytest.raises(ShapeError, match=re.escape("variable x has the shape (2, 3), what it is to hold has (3, 2)")):
        x.set(be.zeros((3, 2)))
    with pytest.raises(DTypeError, match="contiguous tensor of its backend"):
        x.set(X)
    with pytest.raises(DTypeError, match="contiguous"):
        g.variable().set(be.zeros((2, 6))[:, ::2])
    with pytest.raises(ArgumentError, match="is an alias"):
        g.alias(x, shape=(1, 3)).set(be.zeros((1, 3)))


def test_a_freed_variable_cannot_be_used_and_consumers_can(g):
    x = g.variable(value=X, name="x")
    y = g.exec(SQR, [x])
    x.free()
    for use in (lambda: x.tensor, lambda: g.exec(SQR, [x]), lambda: g.backward(y, [x]), lambda: x.shape):
        with pytest.raises(FreedError, match="variable x was freed"):
            use()
    z = g.variable(value=X, name="z")
    loss = g.exec(SQR, [z])
    g.minimize(GradientDescentMomentum(0.1, 0.9), loss, [z])  # whose gradients would be of other values, besides
    z.free()
    with pytest.raises(FreedError, match="variable z was freed"):
        g.backward(loss, [z])
    assert y.get().tolist() == (X * X).tolist(), "what its consumers need stays"


def test_nothing_is_held_of_what_was_dropped(g):
    for _ in range(3):
        x = g.variable(value=X)
        y = g.exec(SQR, [g.exec(MUL, [x, x])])
        y.tensor  # noqa: B018
    del x, y
    gc.collect()
    assert len(g._storages) == 0


# Constants ------------------------------------------------------------------------------------------------------------


def test_constants_have_no_gradient_and_are_no_outputs(g):
    c, x = g.constant(value=X, name="c"), g.variable(value=X)
    y = g.exec(MUL, [c, x])
    assert g.backward(y, [x])[0].get().tolist() == X.tolist()
    with pytest.raises(GradientError, match="constant c has no gradient"):
        g.backward(y, [c])
    with pytest.raises(ArgumentError, match="constant c cannot be an output of a command with inputs"):
        g.exec(SQR, [x], [c])
    assert c.get().tolist() == X.tolist()


def test_commands_without_inputs_write_constants(g):
    c = g.constant((2, 3))
    g.exec(commands.set_to(2.5), [], [c])
    assert c.get().tolist() == np.full((2, 3), 2.5).tolist()
    low = g.constant((64, 64))
    g.exec(commands.random_uniform(-1, 1), outputs=[low])
    drawn = low.get()
    assert -1 <= drawn.min() < -0.9 < 0.9 < drawn.max() < 1
    normal = g.exec(commands.random_normal(3.0, 0.5), [], [g.variable((64, 64))]).get()
    assert abs(normal.mean() - 3) < 0.05 and abs(normal.std() - 0.5) < 0.05
    with pytest.raises(ArgumentError, match="its output needs a shape"):
        g.exec(commands.set_to(1.0))


def test_a_variable_computed_from_constants_alone_has_a_gradient(g):
    y = g.exec(SQR, [g.constant(value=X)])
    z = g.exec(SQR, [y])
    assert g.backward(z, [y])[0].get().tolist() == (2 * X * X).tolist()


# Aliases --------------------------------------------------------------------------------------------------------------


def test_an_alias_reads_and_writes_through(g):
    x = g.variable(value=X, name="x")
    part = g.alias(x, (0, 1), (2, 2))
    assert part.shape == (2, 2) and part.get().tolist() == X[:, 1:].tolist()
    squares = g.exec(SQR, [part])
    g.exec(commands.set_to(9.0), [], [part])
    expected = X.copy()
    expected[:, 1:] = 9
    assert x.get().tolist() == expected.tolist() and part.get().tolist() == expected[:, 1:].tolist()
    assert squares.get().tolist() == (X[:, 1:] ** 2).tolist(), "computed from what was there"


def test_line_sizes_cut_another_shape_out(g):
    values = np.arange(24, dtype=np.float32).reshape(4, 6)
    x = g.variable(value=values)
    for offset, shape, inc in (((1, 1), (2, 3), (1, 4)), ((0, 2), (3, 5), (1, 7)), ((0, 1, 0), (2, 2, 2), (1, 3, 4))):
        line = int(np.prod(inc[1:]))
        rows = values.reshape(-1)[: 24 // line * line].reshape(-1, *inc[1:])
        expected = rows[tuple(slice(o, o + n) for o, n in zip(offset, shape))]
        part = g.alias(x, offset, shape, inc)
        assert part.get().tolist() == expected.tolist()
        error = np.zeros(24)
        error[expected.astype(int).ravel()] = 2 * expected.ravel()
        assert g.backward(g.exec(SQR, [part]), [x])[0].get().ravel().tolist() == error.tolist()


def test_gradients_go_through_writes_of_aliases(g):
    x, y = g.variable(value=X, name="x"), g.variable(value=[[2.0], [3.0]], name="y")
    doubled = g.exec(ADD, [x, x])
    g.exec(SQR, [y], [g.alias(doubled, (0, 2), (2, 1))])
    total = g.exec(SQR, [doubled])
    expected = np.concatenate([2 * X[:, :2], [[4.0], [9.0]]], axis=1)
    assert doubled.get().tolist() == expected.tolist() and total.get().tolist() == (expected**2).tolist()
    by_x, by_y = g.backward(total, [x, y])
    assert by_x.get().tolist() == [[8.0, -16.0, 0.0], [32.0, 40.0, 0.0]]
    assert by_y.get().tolist() == [[4 * 8.0], [4 * 27.0]]
    part = g.alias(doubled, (0, 2), (2, 1))
    assert g.backward(g.exec(SQR, [part]), [part])[0].get().tolist() == [[8.0], [18.0]]


@pytest.mark.parametrize("show", [lambda x: x.T, lambda x: x[:, ::-1], lambda x: x.reshape((3, 2)), lambda x: x])
@pytest.mark.parametrize("asked", [False, True])
def test_results_that_are_views_keep_their_values(g, show, asked):
    """A view of overwritten memory keeps its values, also for later commands."""
    x = g.variable(value=X)
    y = g.exec(commands.function(show), [x])
    part = g.alias(y, shape=(1, 2))
    if asked:
        assert (y.get() == show(X)).all() and (part.get() == show(X)[:1, :2]).all()
    g.exec(commands.set_to(0.5), [], [g.alias(x, shape=(2, 3))])
    assert (y.get() == show(X)).all() and (part.get() == show(X)[:1, :2]).all()
    assert (g.exec(SQR, [y]).get() == show(X) ** 2).all() and (g.exec(SQR, [part]).get() == show(X)[:1, :2] ** 2).all()
    assert (x.get() == 0.5).all()


def test_results_that_are_views_of_constants_have_memory_of_their_own(g):
    c = g.constant(value=X)
    for show in (lambda x: x.reshape((3, 2)), lambda x: x):
        y = g.exec(commands.function(show), [c])
        g.exec(commands.set_to(0.5), [], [g.alias(y, shape=(1, 2))])
        assert (c.get() == X).all() and (y.get()[:1, :2] == 0.5).all()


def test_aliases_beyond_their_base(g):
    x = g.variable((2, 3), name="x")
    for offset, shape, inc in (((0, 1), (2, 3), None), ((1, 0), (2, 3), None), ((0, 0), (2, 4), (1, 4))):
        with pytest.raises(IndexRangeError, match="reach beyond variable x"):
            g.alias(x, offset, shape, inc)
    for offset, shape in (((0, -1), (2, 1)), ((0, 0), (2,)), ((0, 0), (0, 1)), ((0,), (1, 1))):
        with pytest.raises(ShapeError, match="alias: "):
            g.alias(x, offset, shape)
    with pytest.raises(ShapeError, match="has no shape yet"):
        g.alias(g.variable(), shape=(1, 1))
    with pytest.raises(ArgumentError, match="is one already"):
        g.alias(g.alias(x, shape=(1, 3)), shape=(1, 1))


# Commands -------------------------------------------------------------------------------------------------------------


def test_commands_are_values(g):
    assert commands.gemm() == commands.gemm() != commands.gemm(transpose_a=True)
    assert len({commands.ewise("add"), commands.ewise("add")}) == 1
    assert str(commands.pool(2, "avg")) == "pool(window=2, op='avg')"


def test_products(g):
    a, b, bias = (g.variable(value=v) for v in (X, X.T.copy(), [[1.0], [2.0]]))
    assert np.allclose(g.exec(commands.gemm(), [a, b]).get(), X @ X.T)
    assert np.allclose(g.exec(commands.gemm(transpose_a=True, transpose_b=True), [b, a]).get(), X @ X.T)
    assert np.allclose(g.exec(commands.gemm(transpose_b=True), [a, a, bias]).get(), X @ X.T + [[1.0], [2.0]])


def test_reductions_and_functions(g, be):
    x = g.variable(value=X)
    assert g.exec(commands.sum_of(), [x]).get().tolist() == [[5.0]]
    assert np.allclose(g.exec(commands.mean(1), [x]).get(), X.mean(1, keepdims=True))
    powers = np.exp(X - X.max(0))
    assert np.allclose(g.exec(commands.softmax(), [x]).get(), powers / powers.sum(0), atol=1e-6)
    lean = commands.function(lambda v: be.tanh(v) * 2, name="lean", inputs=1)
    y = g.exec(lean, [x])
    assert np.allclose(y.get(), 2 * np.tanh(X), atol=1e-6)
    assert np.allclose(g.backward(y, [x])[0].get(), 2 - 2 * np.tanh(X) ** 2, atol=1e-6)
    assert (g.exec(lambda v, w: v * w, [x, x]).get() == X * X).all()
    with pytest.raises(DTypeError, match="wrong: the function must return an expression"):
        g.exec(commands.function(lambda v: 3, name="wrong"), [x])


def test_windows_are_placed_by_hints(g, be):
    rng = np.random.default_rng(0)
    image, filters = (rng.standard_normal(s).astype(np.float32) for s in ((3, 6, 5, 4), (3, 3, 3, 8)))
    x, w, gamma, beta = (g.variable(value=v) for v in (image, filters, np.full((8, 1), 2.0), np.ones((8, 1))))
    y = g.exec(commands.conv(), [x, w], hint=Hint(strides=2, padding=1))
    expected = be.empty((8, 3, 3, 4))
    expected[:] = be.conv(be.array(image), be.array(filters), strides=2, padding=1)
    assert y.shape == (8, 3, 3, 4) and np.array_equal(y.get(), expected.get())
    z = g.exec(commands.batchnorm(), [y, gamma, beta])
    assert np.allclose(z.get().reshape(8, -1).mean(1), 1, atol=1e-4)
    p = g.exec(commands.pool(2, "avg"), [z], hint={"strides": 1})
    assert p.shape == (8, 2, 2, 4)
    slopes = g.backward(g.exec(commands.lrn(3), [p]), [x, w, gamma, beta])
    assert [s.shape for s in slopes] == [(3, 6, 5, 4), (3, 3, 3, 8), (8, 1), (8, 1)]
    assert g.exec(commands.deconv(), [y, w], hint=Hint(strides=2)).shape == (3, 7, 7, 4)
    for hint in ((1, 2, 3), {"stride": 2}):
        with pytest.raises(ArgumentError, match=r"hint must be commands\.Hint"):
            g.exec(commands.conv(), [x, w], hint=hint)
    with pytest.raises(ArgumentError, match="add: takes no hint"):
        g.exec(ADD, [x, x], hint=Hint(2))


def test_wrong_calls_name_the_command(g):
    x = g.variable(value=X)
    with pytest.raises(ArgumentError, match="add: takes 2 inputs, got 1"):
        g.exec(ADD, [x])
    with pytest.raises(ArgumentError, match="gemm: takes 2 to 3 inputs, got 4"):
        g.exec(commands.gemm(), [x] * 4)
    with pytest.raises(ArgumentError, match="gives 1 results, got 2 outputs"):
        g.exec(SQR, [x], [g.variable(), g.variable()])
    with pytest.raises(ArgumentError, match="flags are reserved"):
        g.exec(SQR, [x], flags=1)
    with pytest.raises(DTypeError, match="needs a command"):
        g.exec("sqr", [x])
    with pytest.raises(DTypeError, match="needs a command"):
        g.exec(np.ndarray, [x])
    with pytest.raises(DTypeError, match="forgot: the function must return an expression"):
        g.exec(commands.function(lambda v: None, "forgot"), [x])
    with pytest.raises(DTypeError, match="takes variables of the graph"):
        g.exec(SQR, [X])
    for op in ("dot", "nothing", 3):
        with pytest.raises(ArgumentError, match="must name an elementwise op"):
            commands.ewise(op)


def test_a_command_of_several_results(g):
    def both(be, hint, outcome, x):
        return x * 2, x * 3

    two = commands.Command("both", both, 1, 1, outputs=2)
    x = g.variable(value=X)
    doubled, tripled = g.exec(two, [x])
    assert doubled.get().tolist() == (2 * X).tolist() and tripled.get().tolist() == (3 * X).tolist()
    again = g.variable()
    with pytest.raises(ArgumentError, match="twice among the outputs"):
        g.exec(two, [x], [again, again])
    with pytest.raises(ArgumentError, match="made 2 results, says that it makes 1"):
        g.exec(commands.Command("one", both, 1, 1), [x])
