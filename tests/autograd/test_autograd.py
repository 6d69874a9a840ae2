"""Variables: their derivatives, operands, ops of one's own, and errors."""

from __future__ import annotations

import copy
import pickle
import re
from typing import Any

import numpy as np
import pytest

from neonlike import autograd as ag
from neonlike.errors import ArgumentError, DTypeError, GradientError, NotDefined, ShapeError
from tests.support.numbers import numbers

pytestmark = pytest.mark.engines("numpy")


@pytest.mark.engines("numpy", "c")
def test_the_document_s_example(be: Any) -> None:
    x = ag.const(np.eye(3))  # depends on nothing, and gets no derivative
    y = ag.param(np.ones((3, 3)))
    z = x + y
    w = z.sum()
    w.backprop()
    assert x.partial_derivative is None
    assert y.partial_derivative.tolist() == [[1.0] * 3] * 3
    assert w.item() == 12.0
    assert [v.op for v in (x, y, z, w)] == [None, None, "add", "sum"]


# Derivatives ----------------------------------------------------------------------------------------------------------


def test_derivatives_accumulate_until_they_are_forgotten(be: Any) -> None:
    x = ag.param([[1.0, 2.0]])
    assert x.partial_derivative.tolist() == [[0.0, 0.0]]
    for times in (1, 2):
        (x * x).sum().backprop()
        assert x.partial_derivative.tolist() == [[2.0 * times, 4.0 * times]]
    ag.zero_grad([x])
    assert x.partial_derivative.tolist() == [[0.0, 0.0]]


def test_a_graph_is_used_up_unless_it_is_kept(be: Any) -> None:
    x = ag.param([[3.0]])
    trunk = x * x
    root = trunk * 2
    assert root.parents == (trunk,)
    root.backprop(keep_graph=True)
    root.backprop()
    assert x.partial_derivative.item() == 24.0
    assert root.parents == trunk.parents == ()
    for again in (root, trunk * 1, trunk + x):
        with pytest.raises(GradientError, match="keep_graph=True"):
            again.backprop()
    assert x.partial_derivative.item() == 24.0
    assert (trunk.item(), (trunk * 1).item()) == (9.0, 9.0)


def test_what_has_no_derivative_is_refused(be: Any) -> None:
    x = ag.param(numbers(2, 3))
    with pytest.raises(ShapeError, match=r"\(2, 3\); sum it first"):
        (x * 2).backprop()
    with pytest.raises(GradientError, match="no parameter"):
        ag.const([[1.0]]).backprop()
    with pytest.raises(DTypeError, match="floats"):
        ag.param(np.array([[1, 2]]))
    with pytest.raises(GradientError, match="computed"):
        (x * 2).assign(1)
    with pytest.raises(GradientError, match="no derivative"):
        ag.const([[1.0]]).keep_derivative()
    assert (ag.eq_where(x, 0).sum() + x.sum()).backprop() is None
    with pytest.raises(GradientError):
        ag.eq_where(ag.const(1.0), 0).backprop()


@pytest.mark.engines("numpy", "c")
def test_shared_broadcast_and_viewed_operands(be64: Any) -> None:
    """Each use adds, gradients of broadcast operands are summed, windows of parameters store derivatives in place."""
    a, b = ag.param(numbers(4, 3)), ag.param(numbers(1, 3, seed=1))

    def f(a: Any, b: Any) -> Any:
        total = a * b + b
        picked = a[1:3] * b[:, ::-1] + a[[0, 0]]
        return (total * total).sum() + (picked * a[2]).sum() + (a.T @ a).sum() + a.reshape(6, 2)[0, 1].sum()

    assert ag.check_gradient(f, a, b) < 1e-6


def test_a_constant_of_a_parameter_s_tensor_is_constant(be: Any) -> None:
    x = ag.param([[2.0, 3.0]])
    (x * ag.const(x.value) + x * x.detach() + x.value * x).sum().backprop()
    assert x.partial_derivative.tolist() == [[6.0, 9.0]]
    y = ag.param(x.value)  # another parameter in the same memory
    (x * y).sum().backprop()
    assert y.partial_derivative.tolist() == [[2.0, 3.0]]


def test_intermediate_derivatives_are_kept_on_request(be: Any) -> None:
    x = ag.param([[1.0, 2.0]])
    kept, other = (x * 3).keep_derivative(), x * x
    (kept * other).sum().backprop()
    assert kept.partial_derivative.tolist() == [[1.0, 4.0]]
    assert other.partial_derivative is None
    assert x.partial_derivative.tolist() == [[9.0, 36.0]]


def test_derivatives_by_chosen_variables(be64: Any) -> None:
    x, y = ag.param(numbers(2, 3)), ag.param(numbers(2, 3, seed=1))
    h = x * y
    root = h * h * x
    weights = numbers(2, 3, seed=2)
    by_h, by_x = ag.grad(root, [h, x], weights)
    np.testing.assert_allclose(by_h.get(), weights * 2 * h.get() * x.get())
    np.testing.assert_allclose(by_x.get(), weights * (2 * h.get() * y.get() * x.get() + h.get() ** 2))
    assert x.partial_derivative.get().max() == 0
    root.sum().backprop()  # the graph is still there
    (zero,) = ag.grad(x.sum(), [y], absent="zeros")
    assert zero.get().tolist() == np.zeros((2, 3)).tolist()
    with pytest.raises(ShapeError, match="6 elements"):
        ag.grad(x * 2, [x])
    with pytest.raises(GradientError, match="does not depend"):
        ag.grad(x.sum(), [y])
    with pytest.raises(ShapeError, match="incoming must have the shape"):
        ag.grad(x, [x], [[1.0]])
    with pytest.raises(DTypeError, match="variables"):
        ag.grad(x.sum(), [x.value])


def test_derivatives_can_be_differentiated(be64: Any) -> None:
    x = ag.param(numbers(3, 4))

    def penalty(x: Any) -> Any:
        score = (ag.tanh(x @ x.T) * ag.softmax(x @ x.T)).sum()
        (slope,) = ag.grad(score, [x], create_graph=True)
        return (slope * slope).sum()

    assert ag.check_gradient(penalty, x) < 1e-5
    (first,) = ag.grad((x * x * x * x).sum(), [x], create_graph=True)
    (second,) = ag.grad(first.sum(), [x], create_graph=True)
    (third,) = ag.grad(second.sum(), [x])
    np.testing.assert_allclose(third.get(), 24 * x.get())


def test_check_gradient_draws_the_same_random_numbers_again(be: Any) -> None:
    assert ag.check_gradient(lambda x: ag.dropout(x * x, 0.5), np.linspace(1, 2, 12).reshape(3, 4)) < 1e-5


def test_check_gradient_names_what_is_wrong(be: Any) -> None:
    wrong = ag.op(lambda x: x * x, lambda d, z, x: d * x, name="half")
    with pytest.raises(GradientError, match="tensor 0"):
        ag.check_gradient(wrong, [[1.0, 2.0]])
    with pytest.raises(DTypeError, match="nothing to differentiate"):
        ag.check_gradient(ag.exp, np.array([[1]]))
    with pytest.raises(DTypeError, match="float64"):
        ag.check_gradient(lambda x: ag.cast(x, "float32"), [[1.0]])


# Operands and values ------------------------------------------------------------------------------------------------


def test_assigned_values_do_not_reach_back(be: Any) -> None:
    x = ag.param([[1.0, 2.0]])
    before = x * 10
    x.assign([[5.0, 6.0]])
    after = x * 10
    assert (before.tolist(), after.tolist()) == ([[10.0, 20.0]], [[50.0, 60.0]])
    x.assign(x * 2)
    assert x.tolist() == [[10.0, 12.0]]
    x.value[:] = 1
    assert (x * 10).tolist() == [[10.0, 10.0]]
    with pytest.raises(ShapeError):
        x.assign([[1.0, 2.0, 3.0]])


@pytest.mark.engines("numpy", "c")
def test_operands_may_be_anything_that_holds_numbers(be: Any) -> None:
    x, t = ag.param([[1.0, 2.0]]), be.array([[3.0, 4.0]])
    made = [t + x, x + t, 1 + x, x - np.ones((1, 2)), np.float32(2) * x, t / x, 2.0**x, be.sig(x), be.maximum(t, x)]
    assert all(isinstance(v, ag.Variable) for v in made)
    assert made[0].tolist() == made[1].tolist() == [[4.0, 6.0]]
    assert (made[6].tolist(), made[8].tolist()) == ([[2.0, 4.0]], [[3.0, 4.0]])
    assert [(x > 1).tolist(), (x == 2).tolist(), bool(x.sum() > 2)] == [[[0.0, 1.0]], [[0.0, 1.0]], True]
    assert (float(x.sum()), len(x), abs(-x).tolist(), x.size, x.ndim) == (3.0, 1, [[1.0, 2.0]], 2, 2)
    with pytest.raises(TypeError):
        _ = x + "a"
    with pytest.raises(AttributeError, match="no attribute 'colour'"):
        _ = x.colour


def test_constants_are_as_exact_as_what_they_meet(be: Any) -> None:
    """A constant beside float64 is float64, on a backend of float32 too, as a tensor is."""
    assert be.default_dtype == np.float32
    x, tenth = ag.param([[1.0]], dtype=np.float64), np.array([[0.1]])
    found = [x * tenth, tenth + x, ag.mul([[0.1]], x), ag.mse_loss(x, [[0.1]]), ag.where([[1]], [[0.1]], x)]
    assert [v.item() for v in found] == [0.1, 1.1, 0.1, 0.9**2, 0.1]
    weighted = ag.nll_loss(x, [0], weights=[0.1], reduction="sum"), ag.op(lambda a, b: a * b)(x, [[0.1]])
    assert [v.item() for v in weighted] == [-0.1, 0.1]
    assert (ag.param([[1.0]]) * tenth).dtype == np.float32
    assert (x * np.array([[3]])).item() == 3.0


def test_copies_and_pickles_of_parameters_are_parameters(be: Any) -> None:
    x = ag.param([[1.0, 2.0]], name="x")
    (x * x).sum().backprop()
    for made in (copy.deepcopy(x), pickle.loads(pickle.dumps(x)), copy.deepcopy({"w": x})["w"]):
        assert (made.name, made.is_parameter, made.partial_derivative.tolist()) == ("x", True, [[0.0, 0.0]])
        made.value[:] = 3.0
        (made * made).sum().backprop()
        assert made.partial_derivative.tolist() == [[6.0, 6.0]]
    assert (x.tolist(), x.partial_derivative.tolist()) == ([[1.0, 2.0]], [[2.0, 4.0]])
    shallow = copy.copy(x)  # another parameter in the same memory
    (x * shallow).sum().backprop()
    assert shallow.value is x.value and shallow.partial_derivative.tolist() == [[1.0, 2.0]]
    constant = copy.deepcopy(ag.const([[1.0]]))
    assert not constant.needs_grad and constant.partial_derivative is None
    with pytest.raises(DTypeError, match="copy or save its value"):
        copy.deepcopy(x * 2)


def test_numbers_of_one_element(be: Any) -> None:
    loss = ag.param([[2.125]]) * 2
    assert (f"{loss:.2f}", f"{loss}", int(loss), float(loss)) == ("4.25", repr(loss), 4, 4.25)
    with pytest.raises(ShapeError, match="exactly one element"):
        format(ag.const([[1.0, 2.0]]), ".2f")
    with pytest.raises(DTypeError, match=r"sum: is not for Variable .*; ops of variables are those of neonlike"):
        be.sum(loss)


def test_names_of_other_libraries_are_pointed_to(be: Any) -> None:
    x = ag.param([[1.0, 2.0]])
    for name, other in (("backward", "backprop()"), ("grad", "partial_derivative"), ("numpy", "get()")):
        with pytest.raises(AttributeError, match=f"no attribute '{name}'; use {re.escape(other)}"):
            getattr(x, name)
    with pytest.raises(AttributeError, match=r"did you mean .*partial_derivative"):
        _ = x.partial_derivativ
    with pytest.raises(GradientError, match=r"write to the memory of a parameter, p\.value\[\.\.\.\] = x"):
        x[0] = 1.0
    assert not hasattr(x, "__array_interface__")


def test_thousands_of_ops(be: Any) -> None:
    x = ag.param([[0.5, 1.0]])
    v = x
    for _ in range(3000):
        v = v + x
    v.sum().backprop()
    assert x.partial_derivative.tolist() == [[3001.0, 3001.0]]


def test_mixed_precision(be: Any) -> None:
    w = ag.param([[1.0, 2.0]])
    half = w.cast("float16")
    assert half.dtype == np.float16 and half.cast("float16") is half
    ((half * half).cast("float32") * 1024).sum().backprop()
    assert w.partial_derivative.dtype == np.float32
    assert w.partial_derivative.tolist() == [[2048.0, 4096.0]]
    with pytest.raises(DTypeError, match="cast"):
        w.cast("int32")


def test_scaled_losses_keep_small_derivatives(be: Any) -> None:
    w, scaler = ag.param([[1.0, 2.0]]), ag.LossScaler(2.0**14, interval=2)

    def loss() -> Any:
        return (w.cast("float16").cast("float32") * 1e-8).sum()

    loss().backprop()
    assert w.partial_derivative.get().max() == 0  # below what float16 can hold
    for scale in (2.0**14, 2.0**14, 2.0**15):
        w.zero_grad()
        assert scaler.scale == scale
        scaler.backprop(loss())
        assert scaler.unscale([w])
        np.testing.assert_allclose(w.partial_derivative.get(), 1e-8, rtol=1e-2)
    scaler.backprop(loss() * 1e12)
    assert not scaler.unscale([w])
    assert (scaler.scale, w.partial_derivative.tolist()) == (2.0**14, [[0.0, 0.0]])
    assert scaler.unscale([])
    with pytest.raises(ArgumentError, match="LossScaler"):
        ag.LossScaler(0)


def test_dropout(be: Any) -> None:
    x = ag.param(np.ones((100, 100)))
    y = ag.dropout(x, 0.25)
    y.sum().backprop()
    assert set(np.unique(y.get())) == {np.float32(0), np.float32(4 / 3)}
    assert abs((y.get() == 0).mean() - 0.25) < 0.02
    np.testing.assert_array_equal(x.partial_derivative.get(), y.get())  # the same numbers in both passes
    assert ag.dropout(x, 0.25, train=False) is x
    assert ag.dropout(x, 1.0).get().max() == 0
    with pytest.raises(ArgumentError, match="probability"):
        ag.dropout(x, 1.5)


# Ops of one's own -----------------------------------------------------------------------------------------------------


class Scaled(ag.Op):
    """a * b * factor, by expressions."""

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def value(self, a: Any, b: Any) -> Any:
        return a * b * self.factor

    def increments(self, d: Any, z: Any, a: Any, b: Any) -> Any:
        return d * b * self.factor, d * a * self.factor


class Sorted(ag.Op):
    """Rows in order, by NumPy."""

    def forward(self, out: Any, a: Any) -> None:
        out[:] = np.sort(a.get(), axis=1)

    def increments(self, d: Any, z: Any, a: Any) -> Any:
        return ag.ops.common.F.where(a.backend.equal(a, a), d, 0)  # right for rows that are in order


def test_an_op_of_one_s_own(be64: Any) -> None:
    a, b = ag.param(numbers(3, 4)), ag.param(numbers(1, 4, seed=1))
    scaled = Scaled(2.5)
    made = scaled(a, b)
    assert (made.op, made.parents) == ("Scaled", (a, b))
    assert ag.check_gradient(lambda a, b: ag.exp(scaled(a, b) * 0.1), a, b) < 1e-6
    rows = np.sort(numbers(2, 5), axis=1)
    assert ag.check_gradient(lambda a: Sorted()(a) * a, rows) < 1e-6
    cube = ag.op(increments=lambda d, z, x: d * 3 * x * x)(lambda x: x * x * x)
    assert ag.check_gradient(lambda x: ag.grad(cube(x).sum(), [x], create_graph=True)[0], a) < 1e-6
    assert ag.check_gradient(ag.op(lambda x, y: x / (y * y + 1)), a, b) < 1e-6


def test_ops_that_are_wrong_are_refused(be: Any) -> None:
    x = ag.param([[1.0, 2.0]])
    with pytest.raises(NotDefined, match="Op: defines neither"):
        ag.Op()(x)
    with pytest.raises(GradientError, match=r"increments\(\) returned 2; expected 1"):
        ag.op(lambda x: x * 1, lambda d, z, x: (d, d))(x).sum().backprop()
    with pytest.raises(GradientError, match=r"shape \(1, 3\) for an operand of shape \(1, 2\)"):
        ag.op(lambda x: x * 1, lambda d, z, x: be.ones((1, 3)))(x).sum().backprop()
    with pytest.raises(DTypeError, match="must return an expression"):
        ag.op(lambda x: 3, lambda d, z, x: d)(x)
    with pytest.raises(DTypeError, match="must return an expression of its operands, got 3"):
        ag.op(lambda x: 3, name="three")(x)
    with pytest.raises(DTypeError, match="must be functions"):
        ag.op(3)
    with pytest.raises(DTypeError, match="a variable at least"):
        Scaled(1)()
    assert x.partial_derivative.tolist() == [[0.0, 0.0]]
    x.sum().backprop()  # a pass that failed has changed nothing


def test_debug_sees_the_value(be: Any) -> None:
    seen: list[Any] = []
    x = ag.param([[1.0, 2.0]])
    y = ag.debug(x * 2, lambda value: seen.append(value.tolist()))
    assert seen == []
    (y * 3).sum().backprop()
    assert seen == [[[2.0, 4.0]]]
    with pytest.raises(DTypeError, match="callback"):
        ag.debug(x, 3)  # type: ignore[arg-type]
