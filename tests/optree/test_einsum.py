"""``be.einsum`` against NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.backends.autodiff import Autodiff
from neonlike.errors import ArgumentError, DTypeError, ShapeError
from neonlike.optree import einsum
from tests.support.float64.reference import plain, strided, transposed

CASES: list[tuple[str, tuple[tuple[int, ...], ...]]] = [
    ("ij,jk->ik", ((3, 4), (4, 5))),
    ("ij,jk", ((3, 4), (4, 5))),
    ("ij,kj->ki", ((3, 4), (5, 4))),
    ("ij,ij->", ((3, 4), (3, 4))),
    ("ij,ij->ij", ((3, 4), (3, 4))),
    ("ij,ij->i", ((3, 4), (3, 4))),
    ("ij,ij->j", ((3, 4), (3, 4))),
    ("ij,kl->ijkl", ((2, 3), (4, 2))),
    ("ij->ji", ((3, 4),)),
    ("ij->", ((3, 4),)),
    ("ij->j", ((3, 4),)),
    ("ba", ((3, 4),)),
    ("ii->i", ((4, 4),)),
    ("ii", ((4, 4),)),
    ("iij->ji", ((3, 3, 2),)),
    ("ijij->ij", ((2, 3, 2, 3),)),
    ("bij,bjk->bik", ((2, 3, 4), (2, 4, 5))),
    ("bij,bkj->bki", ((2, 3, 4), (2, 5, 4))),
    ("bij,jk->bik", ((2, 3, 4), (4, 5))),
    ("abc,cd,de->abe", ((2, 3, 4), (4, 5), (5, 2))),
    ("ij,jk,kl->il", ((3, 4), (4, 5), (5, 2))),
    ("ij,jk,ki->", ((3, 4), (4, 5), (5, 3))),
    ("bhqd,bhkd->bhqk", ((2, 2, 3, 4), (2, 2, 5, 4))),
    ("...ij,...jk->...ik", ((2, 3, 4), (2, 4, 5))),
    ("...ij->...ji", ((2, 3, 4),)),
    ("i...,i...", ((3, 4), (3, 4))),
    ("ij,j k -> ik", ((1, 1), (1, 1))),
    ("ij,jk->ik", ((0, 3), (3, 2))),
    ("ij,jk->ik", ((2, 0), (0, 2))),
    ("bij,bjk->bik", ((3, 40, 30), (3, 30, 50))),
    ("ibj,bjk->kb", ((40, 3, 30), (3, 30, 50))),
]


@pytest.mark.compiles(6)
@pytest.mark.parametrize(("subscripts", "shapes"), CASES, ids=str)
def test_as_numpy(be: Backend, rng: Any, subscripts: str, shapes: Any) -> None:
    hosts = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    wanted = np.einsum(subscripts, *(h.astype(np.float64) for h in hosts))
    shape = wanted.shape + (1,) * (2 - wanted.ndim)
    for layout in (plain, strided, transposed):
        tensors = [layout(be, h) for h in hosts]
        for operands in (tensors, [t * 1 for t in tensors]):
            found = be.einsum(subscripts, *operands)
            assert found.shape == shape
            np.testing.assert_allclose(found.asnumpyarray(), wanted.reshape(shape), 1e-4, 1e-4)
    out = be.empty(shape)
    assert be.einsum(subscripts, *tensors, out=out) is out
    np.testing.assert_allclose(out.get(), wanted.reshape(shape), 1e-4, 1e-4)


def test_vectors_and_numbers(be: Backend, rng: Any) -> None:
    a, v, w = (rng.standard_normal(shape).astype(np.float32) for shape in ((3, 4), (4,), (3,)))
    column, row, two = be.array(v), be.array(v).T, be.array([[2.0]])
    for vector in (column, row, column * 1):
        found = be.einsum("ij,j->i", be.array(a), vector)
        np.testing.assert_allclose(found.asnumpyarray(), (a @ v)[:, None], 1e-5, 1e-6)
    np.testing.assert_allclose(be.einsum("i,j->ij", be.array(w), row).asnumpyarray(), np.outer(w, v), 1e-6)
    np.testing.assert_allclose(be.einsum("i,i", column, row).asnumpyarray(), [[v @ v]], 1e-5)
    np.testing.assert_allclose(be.einsum(",ij->ji", two, be.array(a)).asnumpyarray(), 2 * a.T, 1e-6)
    np.testing.assert_allclose(be.einsum("i,i,i->i", column, column, row).asnumpyarray()[:, 0], v**3, 1e-5)


def test_both_ways_of_batched_products_agree(be: Backend, rng: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = [rng.standard_normal(shape) for shape in ((3, 5, 4), (3, 4, 6))]
    a, b = (be.array(h, dtype=np.float64) for h in hosts)
    for least in (1, 1 << 40):
        monkeypatch.setattr(einsum, "LARGE", least)
        made = be.einsum("bij,bjk->bik", a, b)
        np.testing.assert_allclose(made.asnumpyarray(), np.einsum("bij,bjk->bik", *hosts), 1e-12)
        assert ("dot" in str(made)) is (least == 1)


@pytest.mark.compiles(5)
@pytest.mark.parametrize(("subscripts", "shapes"), [case for case in CASES if 0 not in sum(case[1], ())][:24], ids=str)
def test_gradients(be: Backend, rng: Any, subscripts: str, shapes: Any) -> None:
    """Einsums are linear in each operand: the gradient times a step is the change by the step."""
    hosts = [rng.standard_normal(shape) for shape in shapes]
    tensors = [be.array(h, dtype=np.float64) for h in hosts]
    made = be.einsum(subscripts, *tensors)
    d = rng.standard_normal(made.shape)
    gradients = Autodiff(made, be, be.array(d, dtype=np.float64)).get_grad_tensor(tensors)
    for position, gradient in enumerate(gradients):
        step = rng.standard_normal(shapes[position])
        moved = [*hosts[:position], step, *hosts[position + 1 :]]
        change = (np.einsum(subscripts, *moved).reshape(made.shape) * d).sum()
        np.testing.assert_allclose((gradient.get() * step).sum(), change, 1e-9, 1e-9)


def test_integers_stay_exact(be: Backend, rng: Any) -> None:
    hosts = [rng.integers(-1000, 1000, shape).astype(np.int32) for shape in ((2, 3, 4), (2, 4, 5))]
    tensors = [be.array(h, dtype=np.int32) for h in hosts]
    found = be.einsum("bij,bjk->bik", *tensors).asnumpyarray()
    assert found.dtype == np.int64
    np.testing.assert_array_equal(found, np.einsum("bij,bjk->bik", *(h.astype(np.int64) for h in hosts)))


def test_errors(be: Backend) -> None:
    a, b = be.ones((3, 4)), be.ones((4, 5))
    wrong: list[tuple[Any, Any, str]] = [
        (lambda: be.einsum("ij,jk->ik", a), ArgumentError, "2 operands, got 1"),
        (lambda: be.einsum("ij", a, b), ArgumentError, "1 operands, got 2"),
        (lambda: be.einsum("ij,jk->iz", a, b), ArgumentError, "'z'"),
        (lambda: be.einsum("ij,jk->ii", a, b), ArgumentError, "'i'"),
        (lambda: be.einsum("i1,jk", a, b), ArgumentError, "letters"),
        (lambda: be.einsum("ij->jk->i", a), ArgumentError, "letters"),
        (lambda: be.einsum("...i...->i", a), ArgumentError, "letters"),
        (lambda: be.einsum("...i->i", a), ArgumentError, "needs '...'"),
        (lambda: be.einsum(a, b), DTypeError, "string"),
        (lambda: be.einsum("ij,ij->ij", a, b), ShapeError, r"'i' has size 3.*4"),
        (lambda: be.einsum("ijk->i", a), ShapeError, r"3 axes.*\(3, 4\)"),
        (lambda: be.einsum("i->i", a), ShapeError, "vector"),
        (lambda: be.einsum("ii->i", a), ShapeError, "different sizes"),
        (lambda: be.einsum("ij->ij", "x"), DTypeError, "operand"),
        (lambda: be.einsum("ij->ij", 3), ShapeError, "shape"),
        (lambda: be.einsum("ij,jk->ik", a, b, out=be.zeros((2, 2))), ShapeError, r"\(3, 5\).*\(2, 2\)"),
    ]
    for call, kind, match in wrong:
        with pytest.raises(kind, match=match):
            call()
