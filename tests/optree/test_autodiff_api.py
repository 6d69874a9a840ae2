"""Documented values of gradients, their memory, and the interface of ``Autodiff`` with its errors."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.backends.autodiff import Autodiff, GradUtil, grad_map
from neonlike.errors import AliasError, GradientError, ShapeError
from neonlike.optree import builders, node
from neonlike.optree.dialect import neon_dialect
from neonlike.optree.dtypes import DTypeRule
from neonlike.optree.functions import F
from neonlike.optree.ops import NON_DIFFERENTIABLE, OPS, Kind, OpSpec
from neonlike.optree.walk import postorder
from tests.support.engines import backend

pytestmark = [pytest.mark.optree, pytest.mark.engines("numpy")]


def gradient(be: Backend, expression: Any, *tensors: Any) -> list[Any]:
    return [g.tolist() for g in Autodiff(expression, be).get_grad_asnumpyarray(tensors)]


def test_shares_of_a_tie_add_up_to_one(be: Backend) -> None:
    x, y = be.array([[1.0, 2.0, 3.0]]), be.array([[1.0, 5.0, 0.0]])
    assert gradient(be, be.maximum(x, y), x, y) == [[[0.5, 0, 1]], [[0.5, 1, 0]]]
    assert gradient(be, be.minimum(x, y), x, y) == [[[0.5, 1, 0]], [[0.5, 0, 1]]]
    z = be.array([[3.0, 1.0, 3.0], [1.0, 1.0, 1.0]])
    third = pytest.approx(1 / 3)
    assert gradient(be, be.max(z, axis=1), z) == [[[0.5, 0, 0.5], [third, third, third]]]
    assert gradient(be, be.min(z, axis=0), z) == [[[0, 0.5, 0], [1, 0.5, 1]]]
    assert gradient(be, be.max(z), z) == [[[0.5, 0, 0.5], [0, 0, 0]]]


@pytest.mark.parametrize(
    "f",
    [
        lambda be, x: be.maximum(x, x), lambda be, x: be.minimum(x, x), lambda be, x: be.clip(x, x, x),
        lambda be, x: be.maximum(be.minimum(x, x), x), lambda be, x: be.max(x + be.zeros((4, 1)), axis=0),
        lambda be, x: be.min(be.concatenate([x, x, x]), axis=0),
        lambda be, x: be.sort(be.concatenate([x, x]), axis=0)[:1],
        lambda be, x: be.maximum(x, 0) + be.minimum(x, 0), lambda be, x: be.max(be.stack([x, x]), axis=(0, 1)),
    ],
)  # fmt: skip
def test_what_is_x_by_ties_has_the_gradient_of_x(be: Backend, f: Any) -> None:
    x = be.array([[-1.0, 0.0, 2.0]])
    np.testing.assert_allclose(gradient(be, f(be, x), x)[0], np.ones((1, 3)), rtol=1e-6)


def test_in_neons_dialect_every_side_has_all_of_a_tie(be: Backend) -> None:
    x, z = be.array([[1.0, 2.0]]), be.array([[3.0, 1.0, 3.0]])
    with neon_dialect():
        assert gradient(be, be.maximum(x, 1), x) == [[[1, 1]]]
        assert gradient(be, be.minimum(x, x), x) == [[[2, 2]]]
        assert gradient(be, be.max(z, axis=1), z) == [[[1, 0, 1]]]
    assert gradient(be, be.max(z, axis=1), z) == [[[0.5, 0, 0.5]]]


def test_nan_has_no_share(be: Backend) -> None:
    x = be.array([[np.nan, 1.0, 1.0], [2.0, 2.0, 0.0]])
    assert gradient(be, be.max(x, axis=1), x) == [[[0, 0, 0], [0.5, 0.5, 0]]]
    assert gradient(be, be.maximum(x, 1), x) == [[[0, 0.5, 0.5], [1, 1, 0]]]


def test_gradients_at_kinks(be: Backend) -> None:
    x = be.array([[-2.0, 0.0, 3.0]])
    assert gradient(be, be.relu(x), x) == [[[0, 0, 1]]]
    assert gradient(be, be.absolute(x), x) == [[[-1, 0, 1]]]
    assert gradient(be, be.leaky_relu(x, 0.5), x) == [[[0.5, 0.5, 1]]]
    assert gradient(be, be.safelog(x), x) == [[[0, 0, pytest.approx(1 / 3)]]]


@pytest.mark.parametrize(
    "spec",
    [s for s in OPS.values() if s.grad is NON_DIFFERENTIABLE and s.arity and s.dtype is not DTypeRule.WHOLE],
    ids=lambda spec: spec.name
)
def test_rows_without_a_gradient_stop_it(be: Backend, rng: Any, spec: OpSpec) -> None:
    x = be.array(rng.uniform(0.5, 2, (3, 3)))
    if spec.kind is Kind.ELEMENTWISE:
        flat = node.apply(spec, (x,) * spec.arity)
    elif spec.kind is Kind.REDUCTION:
        flat = builders.reduce(spec, x, 1)
    else:
        flat = F.onehot(be.array([[0, 1, 2]], dtype=np.int32), 0)
    assert gradient(be, x * flat + x, x) == [(np.asarray((x * 0 + flat).asnumpyarray()) + 1).tolist()]


def test_random_numbers_are_constants(be: Backend) -> None:
    x, mask = be.ones((4, 5)), be.empty((4, 5))
    dropped = be.dropout(0.5)
    mask[:] = dropped
    assert gradient(be, x * x * dropped, x) == [(2 * mask.get()).tolist()]


def test_occurrences_accumulate(be: Backend) -> None:
    x = be.array([[1.0, 2.0]])
    assert gradient(be, x * x + 3 * x, x) == [[[5, 7]]]
    assert gradient(be, x, x) == [[[1, 1]]]


def test_a_tensor_that_is_not_there_is_an_error_where_that_is_asked_for(be: Backend) -> None:
    x, y, out = be.array([[1.0, 2.0]]), be.ones((3, 1), name="y"), be.empty((1, 2))
    out[:] = x * 2
    made = Autodiff(x * x, be)
    for ask in (made.get_grad_op_tree, made.get_grad_tensor, made.get_grad_asnumpyarray):
        with pytest.raises(GradientError, match=r"mul\(t0, t0\) does not contain .*'y' of shape.*Differentiate"):
            ask([x, y], absent="error")
    with pytest.raises(GradientError, match="does not contain"):
        made.back_prop_grad([y], [be.empty((3, 1))], absent="error")
    with pytest.raises(GradientError, match="assigned to another tensor"):
        Autodiff(out * 2, be).get_grad_tensor([x], absent="error")
    with pytest.raises(GradientError, match="absent must be"):
        made.get_grad_tensor([x], absent="zero")
    assert made.get_grad_asnumpyarray([x])[0].tolist() == [[2, 4]]


def test_absent_tensors_have_zeros(be: Backend) -> None:
    x, y = be.array([[1.0, 2.0]]), be.ones((3, 1))
    made = Autodiff(x * x, be)
    assert [g.tolist() for g in made.get_grad_asnumpyarray([x, y])] == [[[2, 4]], [[0], [0], [0]]]
    (second,) = Autodiff(be.sum(3 * x), be).get_grad_op_tree([x])
    assert Autodiff(be.sum(second), be).get_grad_asnumpyarray([x])[0].tolist() == [[0, 0]]
    made.back_prop_grad([y], [buffer := be.ones((3, 1))])
    assert buffer.tolist() == [[0], [0], [0]]
    with neon_dialect():
        assert gradient(be, x * x, x, y) == [[[2, 4]], [[0], [0], [0]]]


def test_zero_is_no_absence(be: Backend) -> None:
    x = be.array([[1.0, 2.0], [3.0, 4.0]])
    assert gradient(be, be.sgn(x), x) == [[[0, 0], [0, 0]]]
    assert gradient(be, be.sum(x[0]), x[1]) == [[[0, 0]]]


# Size and memory -------------------------------------------------------------------------------------------------


def test_a_chain_of_5000_ops(be64: Backend) -> None:
    x = be64.array([[0.25, 0.5]])
    tree: Any = x
    for _ in range(2500):
        tree = tree * 0.999 + 0.001
    assert len(postorder(tree)) == 5000
    expected = (x.get() - 1) * 0.999**2500 + 1
    np.testing.assert_allclose(tree.asnumpyarray(), expected, 1e-9)
    (made,) = Autodiff(tree, be64).get_grad_op_tree([x])
    assert len(postorder(made)) < 4 * 5000
    np.testing.assert_allclose(made.asnumpyarray(), np.full((1, 2), 0.999**2500), 1e-9)
    assert str(tree) and repr(tree)


def test_a_nonlinear_chain_of_5000_ops(be64: Backend) -> None:
    x = be64.array([[0.3]])
    tree: Any = x
    for _ in range(5000):
        tree = F.sin(tree)
    value, wanted = 0.3, 1.0
    for _ in range(5000):
        wanted *= np.cos(value)
        value = np.sin(value)
    assert gradient(be64, tree, x)[0][0][0] == pytest.approx(wanted, rel=1e-9)


def test_doubling_40_times_costs_40_nodes(be64: Backend) -> None:
    x = be64.array([[1.0, 3.0]])
    tree: Any = x
    for _ in range(40):
        tree = tree + tree
    assert len(postorder(tree)) == 40
    np.testing.assert_array_equal(tree.asnumpyarray(), x.get() * 2.0**40)
    (made,) = Autodiff(tree, be64).get_grad_op_tree([x])
    assert len(postorder(made)) <= 80
    np.testing.assert_array_equal(made.asnumpyarray(), np.full((1, 2), 2.0**40))


@pytest.mark.engines("numpy", "c")
def test_memory_goes_with_the_last_reference(engine: str) -> None:
    """Nothing holds on to tensors or graphs: not the cache of plans, not compiled kernels."""
    for be in backend(engine):
        x = be.ones((3, 3))
        tree: Any = be.tanh(x * 2) + F.softmax(x)
        made = Autodiff(tree, be)
        step = be.prepare(be.empty((3, 3)), made.get_grad_op_tree([x])[0])
        step()
        tree.asnumpyarray()
        made.get_grad_asnumpyarray([x])
        watched = [weakref.ref(thing) for thing in (x, tree, made)]
        del x, tree, made, step
        gc.collect()
        assert [ref() for ref in watched] == [None] * 3


def test_equal_arguments_share_one_object_while_it_lives(be: Backend) -> None:
    x, error = be.ones((2, 2)), be.ones((2, 2))
    tree = x * 3
    first = Autodiff(tree, be)
    assert Autodiff(x * 3, be) is first
    assert Autodiff(x * 4, be) is not first
    assert Autodiff(tree, be, error) is not first
    assert Autodiff(be.ones((2, 2)) * 3, be) is not first


def test_objects_that_are_gone_leave_nothing_behind(be: Backend) -> None:
    """No callback of a weak reference runs Python for them, in which a Ctrl-C would be lost."""
    kept = [Autodiff(be.sum(be.ones((1, 2)) * factor), be) for factor in range(3)]
    for factor in range(1000):
        made = Autodiff(be.sum(be.ones((1, 2)) * factor), be)
    assert Autodiff(made.op_tree, be) is made and all(Autodiff(one.op_tree, be) is one for one in kept)
    assert all(reference.__callback__ is None for reference in Autodiff._living.values())
    assert len(Autodiff._living) <= 256, "of the thousand that are gone only the latest"


def test_after_cleanup_equal_arguments_make_a_new_object(be: Backend) -> None:
    """Scripts keep the old object in the variable that gets the new one: ``a = Autodiff(...); ...; a.cleanup()``."""
    x = be.array([[1.0, 2.0]])
    other = Autodiff(x + 1, be)
    for _ in range(3):
        made = Autodiff(x * x, be)
        assert made.get_grad_asnumpyarray([x])[0].tolist() == [[2, 4]]
        made.cleanup()
        made.cleanup()
    with pytest.raises(GradientError, match="cleanup"):
        made.get_grad_tensor([x])
    assert Autodiff(x + 1, be) is other


def test_gradients_follow_the_values_of_tensors(be: Backend) -> None:
    x = be.array([[1.0, 2.0]])
    made = Autodiff(x * x, be)
    assert made.get_grad_asnumpyarray([x])[0].tolist() == [[2, 4]]
    x[:] = 5
    assert made.get_grad_asnumpyarray([x])[0].tolist() == [[10, 10]]


# The interface and its errors --------------------------------------------------------------------------------------


def test_buffers(be: Backend) -> None:
    """Gradients go where they are told; ``next_error`` itself may be one of the places."""
    x, y = be.array([[1.0, 2.0]]), be.array([[3.0, 4.0]])
    error, other = be.array([[10.0, 20.0]]), be.empty((1, 2))
    Autodiff(x * y, be, error).back_prop_grad([x, y], [error, other])
    assert error.get().tolist() == [[30, 80]]
    assert other.get().tolist() == [[10, 40]]


def test_a_gradient_may_be_the_error_itself(be: Backend) -> None:
    x, error = be.ones((2, 2)), be.array([[1.0, 2.0], [3.0, 4.0]])
    assert Autodiff(x + 1, be, error).get_grad_op_tree([x])[0] is error
    assert Autodiff(x + 1, be, error).get_grad_asnumpyarray([x])[0].tolist() == error.get().tolist()


def test_dtypes_of_gradients(be: Backend) -> None:
    for dtype in (np.float16, np.float32, np.float64):
        x = be.ones((2, 2), dtype=dtype)
        made = Autodiff(x * be.ones((2, 2), dtype=np.float64), be)
        assert made.get_grad_tensor([x])[0].dtype == dtype
        assert made.get_grad_asnumpyarray([x])[0].dtype == be.default_dtype


def test_errors_say_what_is_wrong(be: Backend) -> None:
    x, whole = be.ones((3, 4)), be.ones((3, 4), dtype=np.int32)
    tree = x * whole
    made = Autodiff(tree, be)
    with pytest.raises(GradientError, match=r"tensor of int32"):
        made.get_grad_op_tree([whole])
    with pytest.raises(GradientError, match="with respect to tensors"):
        made.get_grad_op_tree([tree])
    with pytest.raises(GradientError, match="expression"):
        Autodiff(3.0, be)
    with pytest.raises(GradientError, match="int64"):
        Autodiff(whole * 2, be)
    with pytest.raises(GradientError, match="tensors in it"):
        Autodiff(be.rand(), be)
    with pytest.raises(ShapeError, match=r"\(3, 4\).*\(4, 3\)"):
        Autodiff(tree, be, be.ones((4, 3)))
    with pytest.raises(ShapeError, match="2 tensors but 1"):
        made.back_prop_grad([x, x], [be.empty((3, 4))])
    for buffer in (x, x.T, whole):
        with pytest.raises(AliasError, match="shares memory"):
            made.back_prop_grad([x], [buffer])
    assert (x.get() == 1).all()
    made.cleanup()
    with pytest.raises(GradientError, match="cleanup"):
        made.get_grad_op_tree([x])


def test_neons_table_and_checks(be: Backend) -> None:
    assert set(grad_map) == set(OPS)
    x = be.array([[1.0, 2.0]])
    assert not GradUtil.is_invalid(x * 2, be)
    assert GradUtil.is_invalid(x * 60000, be)
    assert GradUtil.is_invalid(be.log(x - 2), be)


@pytest.mark.cpu_only("live host memory")
def test_memory_that_cannot_be_mapped_is_named(be: Backend) -> None:
    """Views of strided host memory have no tensor that holds them all."""
    strided = be.wrap(np.ones((4, 6), np.float32)[:, ::2])
    with pytest.raises(GradientError, match="strided"):
        Autodiff(strided[:2] * strided[1:3], be).get_grad_tensor([strided])


def test_one_tensor_needs_no_list(be: Backend) -> None:
    x = be.array([[1.0, 2.0], [3.0, 4.0]])
    (gradient,) = Autodiff(be.sum(x * x), be).get_grad_tensor(x)
    np.testing.assert_array_equal(gradient.get(), 2 * x.get())
