"""Joining, cutting and rearranging against NumPy, on every engine; gradients; memory that is read and written."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.backends.autodiff import Autodiff
from neonlike.errors import ArgumentError, DTypeError, ShapeError
from neonlike.kernels.planning import graph
from neonlike.kernels.planning.graph import linearize
from neonlike.kernels.planning.planner import make_plan
from neonlike.optree.node import OpTreeNode
from tests.support.engines import ON_GPU, sampled
from tests.support.float64.reference import LAYOUTS, backwards, plain, strided, transposed

pytestmark = pytest.mark.optree

SHAPES = (((3, 4), (2, 4)), ((1, 1), (1, 1), (1, 1)), ((0, 4), (2, 4)), ((2, 3, 4), (2, 3, 4)), ((257, 3), (1, 3)))


def some(rng: Any, *shape: int) -> Any:
    return rng.standard_normal(shape).astype(np.float32)


# Joining --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_concatenate_tensors_and_expressions_of_any_layout(be: Backend, rng: Any, shapes: Any) -> None:
    for axis, layout in sampled(be, itertools.product(range(-len(shapes[0]), len(shapes[0])), LAYOUTS), 4):
        axes = [*range(len(shapes[0]))]
        axes[0], axes[axis] = axes[axis], axes[0]  # the size that differs comes to the axis
        hosts = [some(rng, *shape).transpose(axes) for shape in shapes]
        parts = [layout(be, host) for host in hosts]
        wanted = np.concatenate(hosts, axis)
        np.testing.assert_array_equal(be.concatenate(parts, axis).asnumpyarray(), wanted)
        out = layout(be, np.zeros(wanted.shape, np.float32))
        assert be.concatenate([parts[0] * 2, *parts[1:]], axis, out=out) is out
        np.testing.assert_array_equal(out.get(), np.concatenate([hosts[0] * 2, *hosts[1:]], axis))
        inside = be.sum(be.concatenate(parts, axis) * 2, axis=0).asnumpyarray()
        np.testing.assert_allclose(inside, wanted.sum(0, keepdims=True) * 2, 1e-4, 1e-4)


def test_parts_of_one_shape_are_one_kernel(be: Backend) -> None:
    a, b, out = be.ones((3, 4)), be.ones((3, 4)), be.empty((6, 4))
    plan = make_plan(linearize(((out, be.concatenate([a * b, a + b])),)))
    assert [len(stage.stores) for stage in plan.stages] == [2]


def test_a_concatenation_of_concatenations_is_written_in_windows(be: Backend, rng: Any) -> None:
    hosts = [some(rng, 2, 3) for _ in range(4)]
    a, b, c, d = (be.array(h) for h in hosts)
    out, whole = be.empty((4, 6)), be.concatenate([be.concatenate([a, b * 2], 1), be.concatenate([c, d], 1)], 0)
    assert len(linearize(((out, whole),)).targets) == 4
    out[:] = whole
    np.testing.assert_array_equal(out.get(), np.block([[hosts[0], hosts[1] * 2], [hosts[2], hosts[3]]]))
    row = be.empty((5, 2, 6))  # stretched along an axis that only the target has
    row[:] = be.concatenate([a, b], 1)
    np.testing.assert_array_equal(row.get(), np.broadcast_to(np.concatenate(hosts[:2], 1), (5, 2, 6)))


def test_more_parts_than_windows(be: Backend, rng: Any) -> None:
    hosts = [some(rng, 1, 3) for _ in range(graph.MOST_WINDOWS + 1)]
    found = be.concatenate([be.array(h) for h in hosts]).asnumpyarray()
    np.testing.assert_array_equal(found, np.concatenate(hosts))


def test_memory_that_is_read_and_written(be: Backend, rng: Any) -> None:
    host = some(rng, 6, 5)
    for take, axis in ((lambda t: [t[2:], t[:2]], 0), (lambda t: [t[:, 3:], t[:, :3]], 1)):
        a = be.array(host)
        a[:] = be.concatenate(take(a), axis)
        np.testing.assert_array_equal(a.get(), np.concatenate(take(host), axis))
    a = be.array(host)
    a[1:5] = be.concatenate([a[2:4] * 2, a[:2] + a[4:]])
    wanted = host.copy()
    wanted[1:5] = np.concatenate([host[2:4] * 2, host[:2] + host[4:]])
    np.testing.assert_array_equal(a.get(), wanted)
    square = be.array(host[:4, :4])
    square[:] = be.concatenate([square.T[:1], square[:, :1].T, square[2:] * 0 + be.sum(square)])
    one = host[:4, :4].astype(np.float64).sum()
    np.testing.assert_allclose(square.get()[2:], np.full((2, 4), one), 1e-5)
    np.testing.assert_array_equal(square.get()[:2], np.stack([host[:4, 0], host[:4, 0]]))


def test_an_index_out_of_range_in_one_part_leaves_all_windows_alone(be: Backend) -> None:
    x, bad, out = be.ones((2, 3)), be.array([[0, 7]], dtype=np.int32), be.zeros((4, 3))
    with pytest.raises(IndexError):
        out[:] = be.concatenate([x, be.take(x, bad, 0)])
        be.synchronize()  # a GPU tells it then
    assert ON_GPU or not out.get().any()


def test_prepared_and_assigned_again(be: Backend, rng: Any) -> None:
    a, b, out = be.array(some(rng, 3, 4)), be.array(some(rng, 3, 4)), be.empty((3, 8))
    step = be.prepare(out, be.concatenate([a, a * b], 1))
    for _ in range(4):
        assert step() is out
        np.testing.assert_array_equal(out.get(), np.concatenate([a.get(), a.get() * b.get()], 1))
        a[:] = a + 1
        out[:] = be.concatenate([b, a], 1)
        np.testing.assert_array_equal(out.get(), np.concatenate([b.get(), a.get()], 1))
    other = be.empty((8, 3))
    before = out.get()
    be.assign_many([(out, be.concatenate([a, b], 1)), (other, out.T)])  # from the old values
    np.testing.assert_array_equal(out.get(), np.concatenate([a.get(), b.get()], 1))
    np.testing.assert_array_equal(other.get(), before.T)


@pytest.mark.parametrize("dtypes", [("f2", "f4"), ("i4", "f4"), ("i4", "i8"), ("f4", "f8"), ("u1", "?")], ids=str)
def test_dtypes_are_those_of_arithmetic(be: Backend, rng: Any, dtypes: Any) -> None:
    hosts = [(rng.integers(0, 2, (2, 3)) * (1 if d == "?" else 50)).astype(d) for d in dtypes]
    a, b = (be.array(h, dtype=h.dtype) for h in hosts)
    joined = be.concatenate([a, b])
    assert joined.dtype == (a + b).dtype
    np.testing.assert_array_equal(joined.asnumpyarray(), np.concatenate(hosts))
    for write in ("f2", "f4", "i1", "u1"):
        out = be.empty((4, 3), dtype=write)
        out[:] = joined
        np.testing.assert_array_equal(out.get(), np.concatenate(hosts).astype(write))


def test_stack(be: Backend, rng: Any) -> None:
    layouts = (plain, strided, transposed, backwards)
    for shape, layout in sampled(be, itertools.product(SHAPES[-2] + ((1, 1), (0, 3)), layouts), 5):
        hosts = [some(rng, *shape) for _ in range(3)]
        tensors = [layout(be, h) for h in hosts]
        for axis in range(-len(shape) - 1, len(shape) + 1):
            np.testing.assert_array_equal(be.stack(tensors, axis).asnumpyarray(), np.stack(hosts, axis))
            found = be.stack([tensors[0] * 2, *tensors[1:]], axis).asnumpyarray()
            np.testing.assert_array_equal(found, np.stack([hosts[0] * 2, *hosts[1:]], axis))


# Cutting --------------------------------------------------------------------------------------------------------------


def test_split(be: Backend, rng: Any) -> None:
    host = some(rng, 6, 8)
    a = be.array(host)
    for where, axis in ((3, 0), (4, 1), ([2], 0), ([1, 3, 3, 20], 1), ([], 0), (np.array([2, 5]), -1), ([4, 2], 0)):
        wanted = np.split(host, where, axis)
        for source in (a, a + 0):
            parts = be.split(source, where, axis)
            assert len(parts) == len(wanted)
            for part, expected in zip(parts, wanted):
                np.testing.assert_array_equal(part.asnumpyarray(), expected)
    first, _ = be.split(a, 2)
    first[:] = 0  # a view
    assert not a.get()[:3].any()
    assert all(isinstance(part, OpTreeNode) for part in be.split(a * 2, 2))


# Rearranging ----------------------------------------------------------------------------------------------------------


def test_flip_roll_tile_repeat_and_pad(be: Backend, rng: Any) -> None:
    for shape, layout in itertools.product(((3, 4), (1, 5), (2, 3, 4), (0, 2)), (plain, transposed)):
        host = some(rng, *shape)
        for a in (layout(be, host), layout(be, host) * 1):
            for axis in sampled(be, (None, 0, -1, (0, 1)), 1):
                np.testing.assert_array_equal(be.flip(a, axis).asnumpyarray(), np.flip(host, axis))
            for axis, shift in sampled(be, itertools.product((0, 1, -1), (0, 1, -2, 7)), 2):
                np.testing.assert_array_equal(be.roll(a, shift, axis).asnumpyarray(), np.roll(host, shift, axis))
            for counts in sampled(be, (1, 3, (2, 1), (2, 3), (2, 1, 2), 0), 1):
                np.testing.assert_array_equal(be.tile(a, counts).asnumpyarray(), np.tile(host, counts))
            for axis, counts in sampled(be, ((0, 2), (1, 0), (-1, 3), (0, [*range(shape[0])] or 1)), 1):
                np.testing.assert_array_equal(be.repeat(a, counts, axis).asnumpyarray(), np.repeat(host, counts, axis))
            borders = ((1, 0), ((2, 0), -1.5), ([(1, 2)] + [(0, 1)] * (len(shape) - 1), np.inf), (0, 3))
            for widths, value in sampled(be, borders, 1):
                wanted = np.pad(host, widths, constant_values=value)
                np.testing.assert_array_equal(be.pad(a, widths, value).asnumpyarray(), wanted)


@pytest.mark.parametrize("shape", [(3, 4), (1, 5), (2, 3, 4), (0, 2)])
def test_forms_of_numpy(be: Backend, rng: Any, shape: tuple[int, ...]) -> None:
    """``roll`` without an axis and along several, ``repeat`` without one, values of ``pad`` by ends."""
    host = some(rng, *shape)
    rolls = [(1, None), (-5, None), ((1, 2), None), (1, (0, 1)), ((1, -2), (0, 1)), ((1, 2), 1), (2, (1, 1, 0))]
    pads = [3, (1, 2), ((1, 2),), tuple((i, i + 0.5) for i in range(len(shape))), (7,)]
    for a in (plain(be, host), transposed(be, host), plain(be, host) * 1, transposed(be, host) * 1):
        for shift, axis in rolls:
            np.testing.assert_array_equal(be.roll(a, shift, axis).asnumpyarray(), np.roll(host, shift, axis))
        for counts in (2, 0, [*range(host.size)] or 1):
            found = be.repeat(a, counts).asnumpyarray()
            np.testing.assert_array_equal(found, np.repeat(host, counts).reshape(-1, 1))
        for values in pads:
            found = be.pad(a, (1, 2), constant_values=values).asnumpyarray()
            np.testing.assert_array_equal(found, np.pad(host, (1, 2), constant_values=values))


def test_borders_of_equal_numbers_keep_their_signs(be: Backend) -> None:
    found = be.pad(be.ones((1, 1)), 1, ((0.0, -0.0), (-0.0, 0))).asnumpyarray()
    negative = [[True, False, False], [True, False, False], [True, True, False]]
    assert np.array_equal(np.signbit(found), negative)


def test_axes_of_size_one_come_and_go(be: Backend, rng: Any) -> None:
    host = some(rng, 3, 4)
    for a in (be.array(host), strided(be, host), be.array(host) * 1):
        for axis in (0, 1, 2, -1, -3):
            grown = be.expand_dims(a, axis)
            assert grown.shape == np.expand_dims(host, axis).shape
            np.testing.assert_array_equal(grown.asnumpyarray(), np.expand_dims(host, axis))
            np.testing.assert_array_equal(be.squeeze(grown).asnumpyarray(), host)
            np.testing.assert_array_equal(be.squeeze(grown, axis).asnumpyarray(), host)
    assert be.squeeze(be.ones((1, 1, 1))).shape == (1, 1)
    assert be.squeeze(be.ones((5, 1))).shape == (5, 1)
    view = be.expand_dims(a := be.zeros((2, 2)), 0)
    view[:] = 1
    assert a.get().all()


# Gradients ------------------------------------------------------------------------------------------------------------


def test_gradients(be: Backend, rng: Any) -> None:
    host = some(rng, 4, 3)
    cases: dict[str, tuple[Any, Any]] = {
        "concatenate": (lambda x: be.concatenate([x * 2, x[1:2], x], 0), lambda g: 2 * g[:4] + _row(g[4], 1) + g[5:9]),
        "stack": (lambda x: be.stack([x, x * 3], 1), lambda g: g[:, 0] + 3 * g[:, 1]),
        "split": (lambda x: be.split(x * 2, [1], 1)[1], lambda g: 2 * np.pad(g, ((0, 0), (1, 0)))),
        "flip": (lambda x: be.flip(x * 2), lambda g: 2 * g[::-1, ::-1]),
        "roll": (lambda x: be.roll(x, 1, 0), lambda g: np.roll(g, -1, 0)),
        "tile": (lambda x: be.tile(x * 1, (2, 1)), lambda g: g[:4] + g[4:]),
        "repeat": (lambda x: be.repeat(x * 1, 2, 1), lambda g: g[:, ::2] + g[:, 1::2]),
        "pad": (lambda x: be.pad(x, 1, 5), lambda g: g[1:-1, 1:-1]),
        "expand_dims": (lambda x: be.expand_dims(x * 2, 1), lambda g: 2 * g[:, 0]),
    }
    for name, (build, adjoint) in cases.items():
        x = be.array(host)
        made = build(x)
        d = some(rng, *made.shape)
        (found,) = Autodiff(made, be, be.array(d)).get_grad_asnumpyarray([x])
        np.testing.assert_allclose(found, adjoint(d), 1e-5, 1e-6, err_msg=name)


def _row(values: Any, at: int) -> Any:
    full = np.zeros((4, 3), values.dtype)
    full[at] = values
    return full


# Errors ---------------------------------------------------------------------------------------------------------------


def test_errors(be: Backend) -> None:
    a, b = be.ones((2, 3)), be.ones((3, 2))
    out = be.zeros((5, 3))
    wrong: list[tuple[Any, Any, str]] = [
        (lambda: be.concatenate([a, b]), ShapeError, r"part 1 of shape \(3, 2\).*\(2, 3\)"),
        (lambda: be.concatenate([a, be.ones((2, 3, 1))]), ShapeError, "part 1"),
        (lambda: be.concatenate([a, a], 2), ShapeError, "axis 2"),
        (lambda: be.concatenate([a, a], (0, 1)), ShapeError, "one axis"),
        (lambda: be.concatenate([a, a], "x"), ShapeError, "axis"),
        (lambda: be.concatenate([]), ArgumentError, "at least one"),
        (lambda: be.concatenate(a), ArgumentError, r"\[a, b\]"),
        (lambda: be.concatenate("ab"), ArgumentError, "list"),
        (lambda: be.concatenate([a, 1]), ShapeError, "number"),
        (lambda: be.concatenate([a, "x"]), DTypeError, "operand"),
        (lambda: be.concatenate([a, a], out=out), ShapeError, r"\(4, 3\).*\(5, 3\)"),
        (lambda: be.stack([a, b]), ShapeError, "one shape"),
        (lambda: be.stack([a, a], 4), ShapeError, "axis 4"),
        (lambda: be.split(a, 2, 1), ShapeError, "equal parts"),
        (lambda: be.split(a, 0), ShapeError, "equal parts"),
        (lambda: be.split(a, 1.5), DTypeError, "integer"),
        (lambda: be.split(a, [0.5]), DTypeError, "integer"),
        (lambda: be.roll(a, 0.5, 0), DTypeError, "integer"),
        (lambda: be.roll(a, 0.5), DTypeError, "integer"),
        (lambda: be.roll(a, (1, 2, 3), (0, 1)), ShapeError, "3 shifts for 2 axes"),
        (lambda: be.roll(a, 1, 2), ShapeError, "axis"),
        (lambda: be.tile(a, -1), ShapeError, "negative"),
        (lambda: be.repeat(a, [1, 2, 3], 0), ShapeError, "2 of them"),
        (lambda: be.repeat(a, -1, 0), ShapeError, "negative"),
        (lambda: be.repeat(a, 10**30, 0), MemoryError, "repeat fewer"),
        (lambda: be.pad(a, -1), ShapeError, "negative"),
        (lambda: be.pad(a, [(1, 1), (1, 1), (1, 1)]), ShapeError, "pair"),
        (lambda: be.pad(a, (1, 2, 3)), ShapeError, "pair"),
        (lambda: be.pad(a, 1, "x"), DTypeError, "number"),
        (lambda: be.squeeze(a, 0), ShapeError, "larger than 1"),
        (lambda: be.squeeze(be.ones((1, 3)), 0), ShapeError, "two axes"),
        (lambda: be.expand_dims(a, 3), ShapeError, "axis 3"),
    ]
    for call, kind, match in wrong:
        with pytest.raises(kind, match=match):
            call()
    assert not out.get().any()
