"""Dynamic graphs: gradients, steps of optimizers, pictures."""

from __future__ import annotations

import gc
import io
import re

import numpy as np
import pytest

from neonlike.autograd import FreedError
from neonlike.autograd.dynamic import commands
from neonlike.errors import ArgumentError, DTypeError, GradientError, ShapeError
from neonlike.optimizers import Adam, GradientDescentMomentum

pytestmark = [pytest.mark.engines("numpy", "c"), pytest.mark.samples(4), pytest.mark.compiles(2)]

X = np.array([[1.0, -2.0, 3.0], [4.0, 5.0, -6.0]], np.float32)
ADD, MUL, SQR = (commands.ewise(name) for name in ("add", "mul", "sqr"))


@pytest.fixture
def g(be):
    with be.dynamic_graph() as graph:
        yield graph


# A walk through the functions of the document, in its order -----------------------------------------------------------


def test_a_walk_through_all_functions(be, tmp_path):
    g = be.dynamic_graph()  # new
    unknown, x = g.variable(name="unknown"), g.variable((2, 3), name="x")  # variables without and with a shape
    one, two = g.constant(name="one"), g.constant((2, 3), name="two")  # constants likewise
    mine = be.array(X)
    one.set(mine)  # tensor_variable_set: the life of the tensor is ours
    g.exec(commands.set_to(2.0), [], [two])  # exec without inputs
    x.tensor[:] = X  # tensor_from_variable: allocated here
    part = g.alias(x, ofs := (0, 1), (2, 2), inc=(2, 3))  # alias_new
    assert part.tensor.get().tolist() == X[:, ofs[1] :].tolist()
    product = g.exec(MUL, [g.exec(ADD, [x, one]), two], [unknown])  # exec, into a variable that gets its shape
    assert product is unknown and product.get().tolist() == (4 * X).tolist()
    df, out = g.constant(value=np.full((2, 3), 0.5)), g.variable((2, 3))
    g.backward(product, [x], df, [out])  # backward
    assert out.get().tolist() == np.ones((2, 3)).tolist()
    optimizer, aux = GradientDescentMomentum(0.25, 0.5), [[]]
    for _ in range(2):
        g.minimize(optimizer, [g.exec(SQR, [x])], [x], saved_aux=aux)  # minimize
    first = X - 0.25 * 2 * X
    assert np.allclose(x.get(), first + 0.5 * (first - X) - 0.25 * 2 * first) and part.get()[0, 0] == x.get()[0, 1]
    g.to_dot(long=True, file=tmp_path / "graph.dot")  # dot
    assert "2x3 float32" in (tmp_path / "graph.dot").read_text()
    unknown.free()  # tensor_variable_free
    with pytest.raises(FreedError, match="variable unknown was freed"):
        g.exec(SQR, [unknown])
    g.close()  # free
    with pytest.raises(FreedError, match="graph was closed"):
        x.get()
    assert mine.get().tolist() == X.tolist()


# Gradients ------------------------------------------------------------------------------------------------------------


def test_gradients_by_any_variables_and_of_gradients(g):
    x, y = g.variable(value=X), g.variable(value=2 * X)
    product = g.exec(MUL, [x, y])
    z = g.exec(SQR, [product])
    by_x, by_product = g.backward(z, [x, product])
    assert by_x.get().tolist() == (2 * X * 2 * X * 2 * X).tolist()
    assert by_product.get().tolist() == (4 * X * X).tolist()
    (second,) = g.backward(by_x, [x])
    assert second.get().tolist() == (2 * (2 * X) ** 2).tolist()


def test_gradients_of_what_was_written_into_a_part_of_memory(g):
    """A part of memory that no command wrote has no gradient."""
    x, whole = g.variable(value=X), g.variable((3, 3))
    g.exec(SQR, [x], [g.alias(whole, (1, 0), (2, 3))])
    (slope,) = g.backward(g.exec(commands.sum_of(), [whole]), [x])
    assert slope.get().tolist() == (2 * X).tolist()


def test_an_incoming_gradient_and_outputs(g, be):
    x, df, out = g.variable(value=X), g.constant(value=X + 1, name="df"), g.variable((2, 3))
    y = g.exec(SQR, [x])
    mine = be.zeros((2, 3))
    out.set(mine)
    assert g.backward(y, x, df, [out]) == (out,)
    assert mine.get().tolist() == (2 * X * (X + 1)).tolist()
    with pytest.raises(ShapeError, match="df needs the shape of variable"):
        g.backward(y, [x], g.variable((1, 3)))
    with pytest.raises(ArgumentError, match="1 inputs need as many outputs, got 2"):
        g.backward(y, [x], None, [g.variable(), g.variable()])
    with pytest.raises(GradientError, match=r"backward: variable v[0-9]+ does not depend on variable other"):
        g.backward(y, [g.variable(value=X, name="other")])
    with pytest.raises(ArgumentError, match="constant df cannot be an output"):
        g.backward(y, [x], None, [df])
    assert df.get().tolist() == (X + 1).tolist()


def test_gradients_that_need_overwritten_values_are_refused(g, be):
    x = g.variable(name="x").set(be.array(X))
    y = g.exec(SQR, [x], [g.variable(name="y")])
    waiting = g.exec(ADD, [y, x])
    g.exec(commands.set_to(1.0), [], [x])
    assert waiting.get().tolist() == (X * X + X).tolist(), "what is still to be computed is computed first"
    assert x.get().tolist() == np.ones((2, 3)).tolist()
    with pytest.raises(GradientError, match="the values of variable x that it was computed from were overwritten"):
        g.backward(y, [x])
    assert g.backward(g.exec(SQR, [x]), [x])[0].get().tolist() == np.full((2, 3), 2.0).tolist()


# Minimisation ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [GradientDescentMomentum, Adam])
def test_minimisation_steps_as_written_out(g, kind):
    optimizer = Adam(learning_rate=0.05) if kind is Adam else GradientDescentMomentum(0.05, 0.9)
    w, c = g.variable(value=X, name="w"), g.constant(value=X + 1)
    theirs, memory = X.astype(np.float64), w.tensor
    velocity, mean, square = np.zeros((3, 2, 3))
    for step in range(3):
        away = g.exec(commands.ewise("sub"), [w, c])
        losses = g.exec(commands.sum_of(), [g.exec(SQR, [away])]), g.exec(SQR, [away])
        slope = 4 * (theirs - (X + 1))
        if kind is Adam:
            mean, square = 0.9 * mean + 0.1 * slope, 0.999 * square + 0.001 * slope**2
            rate = 0.05 * np.sqrt(1 - 0.999 ** (step + 1)) / (1 - 0.9 ** (step + 1))
            theirs = theirs - rate * mean / (np.sqrt(square) + optimizer.epsilon)
        else:
            velocity = 0.9 * velocity - 0.05 * slope
            theirs = theirs + velocity
        g.minimize(optimizer, losses, [w])
        assert np.allclose(w.get(), theirs, atol=1e-5) and w.tensor is memory, "updated in place"


def test_minimisation_with_weights_and_saved_auxiliaries(g, be):
    w = g.variable(value=X)
    loss = g.exec(SQR, [w])
    weights = g.constant(value=np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 0.5]]))
    saved = [[]]
    g.minimize(GradientDescentMomentum(0.1, 0.5), loss, w, [weights], saved)
    expected = X - 0.1 * 2 * X * weights.get()
    assert np.allclose(w.get(), expected, atol=1e-6) and len(saved[0]) == 1
    assert np.allclose(saved[0][0].get(), expected - X, atol=1e-6), "the velocity"
    with pytest.raises(GradientError, match="overwritten"):
        g.minimize(GradientDescentMomentum(0.1, 0.5), loss, w)


def test_what_cannot_be_minimised(g):
    w, c = g.variable(value=X, name="w"), g.constant(value=X, name="c")
    y = g.exec(SQR, [w])
    optimizer = GradientDescentMomentum(0.1, 0.9)
    for wrong in (c, y, g.alias(w, shape=(1, 3))):
        with pytest.raises(GradientError, match="is no parameter"):
            g.minimize(optimizer, y, [wrong])
    with pytest.raises(ArgumentError, match="stands twice"):
        g.minimize(optimizer, y, [w, w])
    with pytest.raises(ArgumentError, match="needs losses and parameters"):
        g.minimize(optimizer, y, [])
    with pytest.raises(ArgumentError, match="saved_aux must be a list of 1 lists"):
        g.minimize(optimizer, y, [w], saved_aux=[])
    with pytest.raises(GradientError, match="minimize: the loss does not depend on variable other"):
        g.minimize(optimizer, y, [w, g.variable(value=X, name="other")])
    with pytest.raises(DTypeError, match="optimize"):
        g.minimize("sgd", y, [w])
    with pytest.raises(ShapeError, match="needs the shape of"):
        g.minimize(optimizer, y, [w], [g.constant(value=[[1.0]])])
    assert w.get().tolist() == X.tolist(), "nothing has changed"
    g.minimize(optimizer, y, [w])


def test_a_network_of_commands_learns(g, be):
    rng = np.random.default_rng(1)
    inputs = rng.standard_normal((4, 64)).astype(np.float32)
    target = np.sin(inputs.sum(0, keepdims=True)).astype(np.float32)
    x, t = g.constant(value=inputs), g.constant(value=target)
    w1, b1 = g.variable(value=rng.standard_normal((32, 4)) * 0.5), g.variable(value=np.zeros((32, 1)))
    w2 = g.variable(value=rng.standard_normal((1, 32)) * 0.2)
    tanh, loss_of = commands.ewise("tanh"), commands.function(lambda y, t: be.mean(be.square(y - t)), "loss", 2)
    optimizer = Adam(learning_rate=0.02)
    costs = []
    for _ in range(150):
        hidden = g.exec(tanh, [g.exec(commands.gemm(), [w1, x, b1])])
        loss = g.exec(loss_of, [g.exec(commands.gemm(), [w2, hidden]), t])
        costs.append(float(loss.get()[0, 0]))
        g.minimize(optimizer, loss, [w1, b1, w2])
    assert costs[-1] < 0.1 * costs[0]
    gc.collect()
    assert len(g._storages) < 12, "steps leave nothing behind"


# Pictures -------------------------------------------------------------------------------------------------------------


def test_pictures_short_and_long(g, tmp_path):
    x, c = g.variable(value=X, name="x"), g.constant(value=X, name="c")
    y = g.exec(MUL, [x, c], [g.variable(name="y")])
    z = g.exec(commands.sum_of(1), [y], [g.variable(name="z")])
    y.free()
    short, long = g.to_dot(), g.to_dot(long=True)
    assert 'label="mul"' in short and 'label="y"' in short and "2x3" not in short
    assert r'label="x\n2x3 float32"' in long and 'label="sum(axis=1)"' in long
    assert short.startswith("digraph") and short.count("->") == 5 == long.count("->")
    assert re.search(r'label="c", style=dashed', short)
    file, stream = tmp_path / "graph.dot", io.StringIO()
    g.to_dot(file=file)
    g.to_dot(long=True, file=stream)
    assert file.read_text() == short and stream.getvalue() == long
    assert z.get().tolist() == (X * X).sum(1, keepdims=True).tolist()
