"""Backends closed, used after it, set to another default dtype, and several side by side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from neonlike import NervanaObject
from neonlike.backends import cleanup_backend
from neonlike.errors import DTypeError
from tests.support.engines import ON_GPU, current_backend, new_backend, refused_after_cleanup

pytestmark = [pytest.mark.backend, pytest.mark.usefixtures("no_backend_left")]


# Life -----------------------------------------------------------------------------------------------------------------


def test_with_closes_the_backend_also_after_an_error() -> None:
    with current_backend() as be:
        t = be.ones((2, 2))
    assert be.closed
    assert NervanaObject.be is None
    with refused_after_cleanup("closed"):
        assert t.get().tolist() == [[1, 1], [1, 1]]
    with pytest.raises(KeyError), current_backend() as other:
        raise KeyError
    assert other.closed


def test_with_on_another_backend_keeps_the_current_one() -> None:
    current = current_backend()
    with new_backend() as other:
        pass
    assert other.closed
    assert NervanaObject.be is current


def test_cleanup_may_be_repeated() -> None:
    be = current_backend()
    cleanup_backend()
    cleanup_backend()
    be.cleanup_backend()
    assert be.closed
    assert NervanaObject.be is None


def test_every_object_reads_the_current_backend() -> None:
    thing = NervanaObject()
    assert thing.be is None
    be = current_backend()
    assert thing.be is be

CLOSED: dict[str, Callable[[Any, Any, Any], Any]] = {
    "get": lambda be, t, step: t.get(),
    "asnumpyarray": lambda be, t, step: t.asnumpyarray(),
    "np.asarray": lambda be, t, step: np.asarray(t),
    "from_dlpack": lambda be, t, step: np.from_dlpack(t),
    "get of a view": lambda be, t, step: t[0].get(),
    "gather": lambda be, t, step: t[[0, 1]].get(),
    "assign number": lambda be, t, step: t.__setitem__(np.s_[:], 1),
    "assign expression": lambda be, t, step: t.__setitem__(np.s_[:], t + 1),
    "assign row": lambda be, t, step: t.__setitem__(0, 1),
    "scatter": lambda be, t, step: t.__setitem__([0], 1),
    "set": lambda be, t, step: t.set(np.zeros((2, 2))),
    "fill": lambda be, t, step: t.fill(0),
    "copy": lambda be, t, step: t.copy(t.T),
    "hist": lambda be, t, step: t.hist("x"),
    "astensor": lambda be, t, step: (t + 1).astensor(),
    "asnumpyarray of an expression": lambda be, t, step: (t * t).asnumpyarray(),
    "empty": lambda be, t, step: be.empty((1, 1)),
    "zeros": lambda be, t, step: be.zeros((1, 1)),
    "array": lambda be, t, step: be.array([1]),
    "wrap": lambda be, t, step: be.wrap(np.zeros((2, 2))),
    "out=": lambda be, t, step: be.exp(t, out=t),
    "prepared": lambda be, t, step: step(),
    "prepare": lambda be, t, step: be.prepare(t, t + 1),
    "explain": lambda be, t, step: be.explain(t + 1),
    "assign_many": lambda be, t, step: be.assign_many([(t, t + 1)]),
    "compound_dot": lambda be, t, step: be.compound_dot(t, t, t),
    "batched_dot": lambda be, t, step: be.batched_dot(t.reshape(2, 2, 1), t.reshape(2, 1, 2), t),
    "make_binary_mask": lambda be, t, step: be.make_binary_mask(t),
    "fill_normal": lambda be, t, step: be.fill_normal(t),
    "binarize": lambda be, t, step: be.binarize(t, t),
    "copy_transpose": lambda be, t, step: be.copy_transpose(t, t),
    "from another backend": lambda be, t, step: new_backend().zeros((2, 2)).copy(t),
    "expression from another backend": lambda be, t, step: new_backend().array(t * 2),
}


@pytest.mark.parametrize("use", CLOSED)
def test_after_cleanup_a_gpu_says_so_and_changes_nothing_and_a_cpu_goes_on(use: str) -> None:
    be = current_backend(rng_seed=0)
    t = be.array([[1.0, 2.0], [3.0, 4.0]])
    live = t.asnumpyarray()
    step = be.prepare(t, t * 2)
    state = be.rng.get_state()[1].tolist()
    be.cleanup_backend()
    with refused_after_cleanup(r"closed.*gen_backend"):
        CLOSED[use](be, t, step)
    if not ON_GPU:
        t[:] = t * 0 + step().get() * 2  # a prepared assignment as well, and what is made anew
        return
    assert live.tolist() == [[1, 2], [3, 4]]
    assert be.rng.get_state()[1].tolist() == state


def test_the_default_dtype_may_be_set() -> None:
    be = current_backend(batch_size=2)
    for dtype in (np.float16, "float64", np.dtype(np.float32)):
        be.default_dtype = dtype
        assert be.default_dtype is np.dtype(dtype).type
        layers = be.conv_layer(None, 1, 1, 1), be.pool_layer(None, "max", 1, 1), be.lrn_layer(None, 1, 1)
        made = be.empty(2), be.zeros((1, 2)), be.array([[1, 2]]), be.iobuf(3), *layers
        assert {thing.dtype for thing in made} == {np.dtype(dtype)}
        with pytest.raises(ValueError, match="default_dtype must be float16"):
            be.default_dtype = np.int32


# Several at once -----------------------------------------------------------------------------------------------------


def test_tensors_use_their_own_backend() -> None:
    current = current_backend(batch_size=4)
    single, double = new_backend(), new_backend(default_dtype=np.float64)
    assert NervanaObject.be is current
    a, b = single.array([[1.0, 2.0]]), double.array([[1.0, 2.0]])
    assert ((a + 1).backend, (b + 1).backend) == (single, double)
    assert ((a + 1).astensor().dtype, (b + 1).astensor().dtype) == (np.float32, np.float64)
    assert (a + 1).astensor().backend is single
    a[:] = b  # values may be copied over
    assert a.get().tolist() == [[1, 2]]
    current.cleanup_backend()
    assert (b * 2).asnumpyarray().tolist() == [[2, 4]]


def test_expressions_do_not_mix_backends() -> None:
    a, b = new_backend().array([[1.0, 2.0]]), new_backend().array([[3.0, 4.0]])
    attempts: list[Callable[[], Any]] = [
        lambda: a + b, lambda: a * 2 + b / 3, lambda: a.backend.maximum(a, b), lambda: a.backend.dot(a, b.T),
        lambda: a.backend.where(a > 0, a, b), lambda: a == b,
        lambda: a.__setitem__(np.s_[:], b * 2), lambda: a.__setitem__(0, b * 2), lambda: a.fill(b + 1),
        lambda: a.backend.exp(a, out=b), lambda: a.backend.prepare(a, b + 1), lambda: a.backend.prepare(b, a + 1),
        lambda: a.backend.assign_many([(a, b + 1)]), lambda: a.backend.compound_dot(a.T, b, a.backend.zeros((2, 2))),
        lambda: a.backend.copy_transpose(a, b.T), lambda: a.backend.make_binary_mask(b),
    ]  # fmt: skip
    for attempt in attempts:
        with pytest.raises(DTypeError, match="backend"):
            attempt()
    assert (a.get().tolist(), b.get().tolist()) == ([[1, 2]], [[3, 4]])
