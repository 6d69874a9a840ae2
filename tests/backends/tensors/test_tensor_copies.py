"""Tensors in pickles and deep copies, to other processes and backends; expressions, which refuse both."""

from __future__ import annotations

import copy
import pickle
import pickletools
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Autodiff, Backend, cleanup_backend, gen_backend
from neonlike.backends.pickling import restore_tensor
from neonlike.errors import BackendUnavailable, DTypeError
from neonlike.util.persist import load_obj, save_obj
from tests import ROOT
from tests.support.dtype_cases import EVERY
from tests.support.engines import ON_GPU, current_backend, new_backend

pytestmark = pytest.mark.optree

PROTOCOLS = range(2, pickle.HIGHEST_PROTOCOL + 1)


def same(a: Any, b: Any) -> bool:
    """Whether two tensors have the same values, bit for bit, and the same description."""
    described = [(t.shape, t.dtype, t.name, t.persist_values, t.get().tobytes()) for t in (a, b)]
    return described[0] == described[1]


@pytest.mark.parametrize("dtype", EVERY)
def test_a_pickled_tensor_comes_back(be: Backend, dtype: str) -> None:
    t = be.array([[0, 1, 3], [1, 0, 100]], dtype=dtype, name="w", persist_values=False)
    t.label = "not kept"
    for tensor in (t, t.T, t[:, ::2], t[:0], be.array([[[1, 2]]], dtype=dtype)):
        for protocol in PROTOCOLS:
            again = pickle.loads(pickle.dumps(tensor, protocol))
            assert same(again, tensor)
            assert (again.backend, again.base, again.is_contiguous) == (be, None, True)
            assert not hasattr(again, "label")
    again[:] = 0
    assert t.get().sum() != 0


def test_special_values_survive(be: Backend) -> None:
    t = be.array([[np.nan, np.inf, -np.inf, -0.0, 1e-42]])
    assert same(pickle.loads(pickle.dumps(t)), t)
    large = be.array([[2**62 + 1, -(2**63)]], dtype=np.int64)
    assert same(pickle.loads(pickle.dumps(large)), large)


@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy])
@pytest.mark.parametrize("dtype", EVERY)
def test_copies_have_memory_of_their_own(be: Backend, how: Any, dtype: str) -> None:
    t = be.array([[0, 1], [1, 100]], dtype=dtype, name="w", persist_values=False)
    for tensor in (t, t.T, t[:, 1:]):
        made = how(tensor)
        assert same(made, tensor)
        assert made.backend is be
        made[:] = 0
        assert t.get().sum() != 0


def test_copy_with_nothing_to_copy_is_a_new_tensor(be: Backend) -> None:
    t = be.array([[1.0, 2.0]], name="w")
    made = t.copy()
    assert same(made, t)
    (gradient,) = Autodiff(be.sum(made * t), be).get_grad_tensor([t])
    assert gradient.tolist() == [[2, 4]]
    assert t.copy(made * 2) is t
    assert (t.tolist(), made.tolist()) == ([[2, 4]], [[1, 2]])
    with pytest.raises(DTypeError):
        t.copy(None)


def test_a_deep_copy_keeps_what_is_shared(be: Backend) -> None:
    t = be.ones((2, 2))
    made = copy.deepcopy({"a": t, "again": t, "list": [t]})
    assert made["a"] is made["again"] is made["list"][0]
    assert made["a"] is not t


def test_a_deep_copy_stays_on_its_backend_and_a_pickle_goes_to_the_current_one(be: Backend) -> None:
    other = new_backend()
    t = other.array([[1.0, 2.0]])
    assert copy.deepcopy(t).backend is other
    assert pickle.loads(pickle.dumps(t)).backend is be


def test_values_and_dtype_are_kept_on_a_backend_of_another_kind(be: Backend) -> None:
    half = be.array([[1.0, 2.5]], dtype=np.float16)
    stored = pickle.dumps(half)
    made = gen_backend("cpu", datatype=np.float64)
    again = pickle.loads(stored)
    assert (again.backend, again.dtype, again.tolist()) == (made, np.float16, [[1, 2.5]])
    if ON_GPU:
        stored = pickle.dumps(again)
        gpu = current_backend()
        again = pickle.loads(stored)
        assert (again.backend, again.dtype, again.tolist()) == (gpu, np.float16, [[1, 2.5]])


def test_without_a_backend_a_tensor_cannot_be_loaded(be: Backend) -> None:
    stored = pickle.dumps(be.ones((2, 2)))
    cleanup_backend()
    with pytest.raises(BackendUnavailable, match="gen_backend"):
        pickle.loads(stored)


@pytest.mark.cpu_only("what another process has")
def test_another_process_loads_it(be: Backend, tmp_path: Path) -> None:
    path = tmp_path / "t.pkl"
    path.write_bytes(pickle.dumps([be.array([[1.0, 2.0]], name="w"), be.array([[3.0]], dtype="bfloat16")]))
    script = (
        "import pickle, sys; from neonlike.backends import gen_backend; be = gen_backend('cpu', datatype='f8')\n"
        "a, b = pickle.load(open(sys.argv[1], 'rb'))\n"
        "print(a.tolist(), a.dtype, a.name, b.tolist(), b.dtype, a.backend is be)"
    )
    done = subprocess.run([sys.executable, "-c", script, str(path)], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.strip() == "[[1.0, 2.0]] float32 w [[3.0]] bfloat16 True", done.stderr


def test_a_pickle_names_one_function_of_ours(be: Backend) -> None:
    """A restricted unpickler must admit one function besides NumPy's arrays."""
    for dtype in ("float32", "bfloat16"):
        stored = pickle.dumps(be.ones((2, 2), dtype=dtype), 2)
        named = {arg for op, arg, _ in pickletools.genops(stored) if op.name == "GLOBAL" and "numpy" not in arg}
        assert named == {"neonlike.backends.pickling restore_tensor", "_codecs encode"}


def test_files_hold_tensors(be: Backend, tmp_path: Path) -> None:
    kept = {"w": be.array([[1.0, 2.0]], name="w"), "b": [be.array([[3]], dtype="bfloat16"), be.ones((0, 2)).T]}
    save_obj(kept, tmp_path / "kept.pkl")
    again = load_obj(tmp_path / "kept.pkl")
    assert same(again["w"], kept["w"])
    assert all(same(a, b) for a, b in zip(again["b"], kept["b"], strict=True))


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([1, 2], "float32"), (np.ones(3), "float32"), (np.ones(3), "bfloat16"), (np.ones(3, object), "O"), (None, None),
        (np.ones(3), "nonsense"), ("text", "U4"),
    ],
)  # fmt: skip
def test_a_file_that_says_nonsense_is_refused(be: Backend, values: Any, dtype: Any) -> None:
    with pytest.raises(DTypeError, match="unpickling a tensor"):
        restore_tensor(values, dtype, "w", True)


def test_expressions_are_neither_copied_nor_pickled(be: Backend) -> None:
    e = be.ones((2, 2)) + 1
    for attempt in (copy.copy, copy.deepcopy, pickle.dumps, lambda e: copy.deepcopy([e])):
        with pytest.raises(DTypeError, match="astensor"):
            attempt(e)
    assert e.asnumpyarray().tolist() == [[2, 2], [2, 2]]


@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy, pickle.dumps])
def test_backends_are_neither_copied_nor_pickled(be: Backend, how: Any) -> None:
    step = be.prepare(be.empty((2, 2)), be.ones((2, 2)) * 2)
    for thing in (be, {"be": be}, step) if how is not copy.copy else (be,):
        with pytest.raises(DTypeError, match=r"gen_backend\(\)"):
            how(thing)
