"""``t[mask]`` and ``t[mask] = value`` against NumPy."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.backends.autodiff import Autodiff
from neonlike.errors import DTypeError, IndexRangeError, IndexTypeError, ShapeError
from tests.support.engines import new_backend, sampled
from tests.support.float64.reference import LAYOUTS, plain, transposed

pytestmark = pytest.mark.optree

SHAPES = ((3, 4), (1, 7), (7, 1), (1, 1), (2, 3, 4), (0, 3), (40, 30))


def some(rng: Any, shape: Any) -> Any:
    return rng.integers(-3, 4, shape).astype(np.float32)


def masks_of(be: Backend, t: Any, host: Any) -> Any:
    """Masks of the elements above 0, in every form, and their NumPy arrays."""
    yield t > 0, host > 0
    yield (t > -2) & ~(t > 0), (host > -2) & ~(host > 0)
    yield host > 0, host > 0
    yield plain(be, host > 0), host > 0
    yield (t > 9), host > 9
    yield (t < 9), host < 9
    if 0 not in host.shape:
        yield (host > 0).tolist(), host > 0


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.__name__)
def test_elements_where_a_mask_is_set(be: Backend, rng: Any, layout: Any) -> None:
    for shape in SHAPES:
        host = some(rng, shape)
        t = layout(be, host)
        for source, doubled in ((t, host), (t * 2, host * 2)):
            for mask, wanted in sampled(be, masks_of(be, t, host), 2):
                found = source[mask]
                assert found.shape == (int(wanted.sum()), 1)
                assert found.dtype == np.float32
                np.testing.assert_array_equal(found.get()[:, 0], doubled[wanted])


@pytest.mark.parametrize("layout", (plain, transposed), ids=lambda layout: layout.__name__)
def test_storing_where_a_mask_is_set(be: Backend, rng: Any, layout: Any) -> None:
    for shape in SHAPES:
        host = some(rng, shape)
        for number, (_, wanted) in enumerate(masks_of(be, layout(be, host), host)):
            n = int(wanted.sum())
            values = some(rng, (n,))
            stored: list[tuple[Any, Any]] = [
                (7, 7),
                (2.5, 2.5),
                (np.float32(1.5), 1.5),
                (values, values),
                (values[:, None], values),
                (be.array(values), values),
                (be.array(values) * 2, values * 2),
                (host * 3, (host * 3)[wanted]),
                (layout(be, host) + 1, (host + 1)[wanted]),
            ]
            for value, flat in sampled(be, stored, 1, number):
                t = layout(be, host)
                mask = next(itertools.islice(masks_of(be, t, host), number, None))[0]
                t[mask] = value
                expected = host.copy()
                expected[wanted] = flat
                np.testing.assert_array_equal(t.get(), expected)


def test_a_mask_of_the_tensor_itself_and_in_place(be: Backend, rng: Any) -> None:
    host = some(rng, (6, 5))
    t, wanted = be.array(host), host.copy()
    t[t < 0] = t * t
    wanted[wanted < 0] = (wanted * wanted)[wanted < 0]
    t[t > 1] += 10
    wanted[wanted > 1] += 10
    t[t > 5] = t[t > 5] * 2
    wanted[wanted > 5] *= 2
    np.testing.assert_array_equal(t.get(), wanted)
    column = be.array(host[:, :1])  # whose shape is that of n values, too
    column[column > -9] = column * 2
    np.testing.assert_array_equal(column.get(), host[:, :1] * 2)


def test_zeros_keep_their_sign_and_nan_is_copied(be: Backend) -> None:
    t = be.zeros((2, 3))
    t[t == 0] = np.array([-0.0, np.nan, np.inf, 0.0, 1.0, -np.inf])
    np.testing.assert_array_equal(t.get(), [[-0.0, np.nan, np.inf], [0, 1, -np.inf]])
    assert np.signbit(t.get()[0, 0])


def test_what_is_not_set_stays_exactly(be: Backend) -> None:
    large = 2**24 + 1
    t = be.array([[large, 5, 6]], dtype=np.int32)
    t[t < 6] = 2.5  # floats are converted before, not the tensor
    t[t == 6] = be.array([[300.5]])
    assert t.get().tolist() == [[large, 2, 300]]
    small = be.array([[250, 1]], dtype=np.uint8)
    small[small < 9] = 300
    assert small.get().tolist() == [[250, 255]]


def test_bool_vectors_pick_slices(be: Backend, rng: Any) -> None:
    host = some(rng, (3, 4))
    t, rows, columns = be.array(host), np.array([True, False, True]), [False, True, True, False]
    np.testing.assert_array_equal(t[rows].get(), host[rows])
    np.testing.assert_array_equal(t[:, columns].get(), host[:, columns])
    np.testing.assert_array_equal((t * 2)[rows].get(), (host * 2)[rows])
    assert t[np.zeros(3, bool)].shape == (0, 4)
    t[:, columns] = 9
    assert (t.get()[:, 1:3] == 9).all()
    np.testing.assert_array_equal(t.get()[:, [0, 3]], host[:, [0, 3]])


def test_gradients_flow_through_masks(be: Backend, rng: Any) -> None:
    host = some(rng, (4, 5))
    for layout in (plain, transposed):
        t = layout(be, host)
        d = rng.standard_normal((int((host > 0).sum()), 1)).astype(np.float32)
        for build, factor in ((lambda t: t[t > 0], 1), (lambda t: (t * 3)[t > 0], 3)):
            picked = build(t)
            (found,) = Autodiff(picked * 2, be, be.array(d)).get_grad_asnumpyarray([t])
            wanted = np.zeros((4, 5))
            wanted[host > 0] = 2 * factor * d[:, 0]
            np.testing.assert_allclose(found, wanted, 1e-6)


def test_errors(be: Backend) -> None:
    t = be.array(np.arange(6.0).reshape(2, 3))
    before = t.get()
    other = new_backend(rng_seed=0)
    wrong: list[tuple[Any, Any, str]] = [
        (lambda: t[be.ones((2, 1)) > 0], ShapeError, r"\(2, 1\).*\(2, 3\).*be.where"),
        (lambda: t[np.ones((3, 2), bool)], ShapeError, r"\(3, 2\)"),
        (lambda: t[be.ones((2, 3))], IndexTypeError, "t > 0"),
        (lambda: t[(t > 0) * 1.0], IndexTypeError, "t > 0"),
        (lambda: t[np.ones(2, bool), np.ones(3, bool)], IndexRangeError, "one axis"),
        (lambda: t[other.ones((2, 3)) > 0], DTypeError, "another backend"),
        (lambda: t.__setitem__(t > 0, [1, 2]), ShapeError, r"the 5 elements of the mask, \(5, 1\)"),
        (lambda: t.__setitem__(t > 0, be.ones((5, 2))), ShapeError, r"\(5, 2\)"),
        (lambda: t.__setitem__(t > 0, be.ones((1, 3))), ShapeError, r"\(1, 3\)"),
        (lambda: t.__setitem__(np.ones((1, 3), bool), 1), ShapeError, r"\(1, 3\)"),
        (lambda: t.__setitem__(t > 0, "x"), DTypeError, "x|str"),
        (lambda: t.__setitem__(t > 0, other.ones((2, 3))), DTypeError, "another backend|two backends"),
        (lambda: t.__setitem__(other.ones((2, 3)) > 0, 1), DTypeError, "another backend"),
    ]
    for call, kind, match in wrong:
        with pytest.raises(kind, match=match):
            call()
        np.testing.assert_array_equal(t.get(), before)
