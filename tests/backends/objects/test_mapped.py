"""Tensors over files: values, writing, read-only tensors, flushing and closing."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neonlike.backends.descriptors import TensorDesc
from neonlike.backends.objects import filemap
from neonlike.errors import ArgumentError, ArgumentTypeError, ReadOnlyError, ShapeError, TensorClosed
from neonlike.transforms import Tanh
from tests.support.engines import ON_GPU, sampling

pytestmark = [pytest.mark.engines("numpy", "c"), pytest.mark.samples(3)]
DESC = TensorDesc((4, 3), "f4", "NC")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file of the numbers 0 to 23."""
    made = tmp_path / "numbers.bin"
    np.arange(24, dtype="f4").tofile(made)
    return made


# Reading --------------------------------------------------------------------------------------------------------------


def test_minibatches_of_a_file(be: Any, path: Path) -> None:
    """As a user trains on a file that is larger than memory."""
    data = be.native.mapped(path, TensorDesc((8, 3), "f4", "NC"))
    minibatch = be.zeros((3, 3))
    seen = [np.array(b.get()) for b in be.batcher(data, minibatch)]
    assert np.array_equal(np.concatenate(seen, axis=1), np.arange(24).reshape(8, 3).T)


def test_a_part_of_a_file_is_an_operand_as_any(be: Any, path: Path) -> None:
    t = be.mapped(path, DESC, offset=48)
    wanted = np.arange(12, 24).reshape(4, 3)
    assert (t.shape, t.desc, t.mode, t.writeable, t.path) == ((4, 3), DESC, "r", False, str(path))
    assert np.array_equal(t.get(), wanted) and np.array_equal(t[1:, ::2].get(), wanted[1:, ::2])
    assert np.array_equal((t * 2 + t.T.T).get(), 3 * wanted)
    assert np.array_equal(be.compound_dot(t.T, t, be.empty((3, 3))).get(), wanted.T @ wanted)
    assert np.array_equal(t[:2].offset(2).get(), wanted[2:])
    assert np.array_equal(t[[3, 0]].get(), wanted[[3, 0]]) and t[t > 20].size == 3
    assert np.array_equal(pickle.loads(pickle.dumps(t)).get(), wanted)
    copied = t.copy()
    copied[:] = 0
    assert copied.writeable and np.array_equal(t.get(), wanted)


@pytest.mark.parametrize("dtype", ["uint8", "float16", "bfloat16", "float64"])
def test_dtypes(be: Any, tmp_path: Path, dtype: str) -> None:
    desc = TensorDesc((2, 5, 1, 2), dtype, "NCHW")
    with be.mapped(tmp_path / "new", desc, "w+", offset=16) as t:
        t[:] = np.arange(20).reshape(desc.shape)
    again = be.mapped(str(tmp_path / "new"), desc, "r", 16)
    assert again.dtype == desc.dtype and again.get().astype("f8").ravel().tolist() == list(range(20))
    assert (tmp_path / "new").read_bytes()[:16] == bytes(16)


# Writing --------------------------------------------------------------------------------------------------------------


def test_what_is_written_is_in_the_file(be: Any, path: Path) -> None:
    with be.mapped(path, DESC, "r+", offset=24) as t:
        t *= 10
        t[1:3, 1].fill(-1)
        t[[0]] = 7
    wanted = np.arange(24, dtype="f4")
    inside = wanted[6:18].reshape(4, 3)
    inside *= 10
    inside[1:3, 1], inside[0] = -1, 7
    assert np.array_equal(np.fromfile(path, "f4"), wanted)


def test_flush_writes_what_there_is(be: Any, path: Path) -> None:
    t = be.mapped(path, DESC, "r+")
    for value in (1, 2):
        be.add(be.ones((4, 3)) * value, 0, out=t)
        t.flush()
        assert (np.fromfile(path, "f4")[:12] == value).all()


def test_new_files_and_files_that_grow(be: Any, tmp_path: Path, path: Path) -> None:
    with be.mapped(path, DESC, "w+") as t:
        assert not t.get().any()
    assert path.read_bytes() == bytes(48)
    with be.mapped(path, DESC, "r+", offset=96) as t:
        t[:] = 1
    assert np.fromfile(path, "f4").tolist() == [0] * 24 + [1] * 12


# What must not be written ---------------------------------------------------------------------------------------------


def writes(be: Any, t: Any) -> dict[str, Callable[[], Any]]:
    """Ways to write to a tensor (4, 3)."""
    a, error = be.ones((4, 3)), be.ones((3, 4))
    conv = be.conv_layer("f4", 3, 1, 4, S=1)
    pool = be.pool_layer("f4", "avg", 3, 4)
    lrn = be.lrn_layer("f4", 3, 4, J=1)
    columns = [be.ones((4, 1)) for _ in range(6)]
    one = be.ones((1, 3))

    def put(index: Any, value: Any) -> None:
        t[index] = value

    def add() -> None:
        u = t
        u += a

    return {
        "all": lambda: put(slice(None), a * 2), "a number": lambda: put(slice(None), 1), "a row": lambda: put(0, 1),
        "a list": lambda: put([0, 1], 1), "a mask": lambda: put(t > 0, 1), "of a view": lambda: t[1:].fill(1),
        "of the transpose": lambda: t.T.fill(1), "of a reshape": lambda: t.reshape(3, 4).fill(1), "in place": add,
        "of a view's view": lambda: t[1:][:, 1:].set(np.ones((3, 2))), "fill": lambda: t.fill(1),
        "set": lambda: t.set(np.ones((4, 3))), "copy": lambda: t.copy(a), "copy_from": lambda: t.copy_from(a),
        "share": lambda: t.share((2, 2)).fill(1), "iobuf": lambda: be.iobuf(4, shared=t),
        "out": lambda: be.exp(a, out=t), "dropout": lambda: be.dropout(0.5, out=t),
        "many": lambda: be.assign_many([(be.empty((4, 3)), a), (t, a)]), "prepare": lambda: be.prepare(t, a * 2),
        "concatenate": lambda: be.concatenate([a[:2], a[:2]], out=t), "take": lambda: be.take(a, [0] * 4, 0, out=t),
        "compound_dot": lambda: be.compound_dot(be.ones((4, 4)), a, t), "rand": lambda: be.rand(out=t),
        "batched_dot": lambda: be.batched_dot(be.ones((1, 4, 4)), be.ones((1, 4, 3)), t.reshape(1, 4, 3)),
        "bsum": lambda: be.compound_dot(be.ones((12, 4)), a, be.empty((12, 3)), bsum=t.reshape(12, 1)),
        "xnor": lambda: be.xnor_compound_dot(be.ones((4, 8)), be.ones((8, 3)), t),
        "copy_transpose": lambda: be.copy_transpose(error, t), "binarize": lambda: be.binarize(a, t, False),
        "fill_normal": lambda: be.fill_normal(t), "mask": lambda: be.make_binary_mask(t),
        "compensated_sum": lambda: be.compensated_sum(t, be.zeros((4, 3)), a),
        "lookup": lambda: be.compound_bprop_lut(1, be.zeros((1, 4), dtype="i4"), error, None, t),
        "conv": lambda: be.fprop_conv(conv, one, be.ones(conv.dimF2), t),
        "pool": lambda: be.fprop_pool(pool, a, t), "lrn": lambda: be.fprop_lrn(lrn, a, t, be.empty((4, 3))),
        "batchnorm": lambda: be.compound_fprop_bn(a, *columns, t, 0.1, 0.9, True),
        "recurrent": lambda: be.compound_rnn_unroll_fprop(
            be.ones((4, 4)), [a], [be.ones((4, 3))], [t], be.ones((4, 1)), 4, 1, None, Tanh()
        ),
        "transformer": lambda: be.transformer(a, t)(), "batcher": lambda: be.batcher(a, t)(),
    }  # fmt: skip


def test_what_is_mapped_to_be_read_is_never_written(be: Any, path: Path) -> None:
    """No target of a refused call is written either; plans learned from writable tensors make no difference."""
    t, before = be.mapped(path, DESC), path.read_bytes()
    t.desc = None  # as neon's (features, N)
    plain = be.array(t.get())
    few = "all", "batchnorm", "fill", "a list", "many", "compound_dot"
    chosen = few if sampling.on and be.engine.name != "numpy" else tuple(writes(be, t))
    for name, write in writes(be, plain).items():
        for _ in range(3 if name in ("all", "batchnorm") else name in chosen):
            write()
    for name, write in writes(be, t).items():
        if name not in chosen:
            continue
        with pytest.raises(ReadOnlyError, match=r"numbers\.bin must not be written; map the file with mode 'r\+'"):
            write()
            pytest.fail(f"{name} was not refused")
        assert np.array_equal(t.get(), np.arange(12).reshape(4, 3)), name
    if not ON_GPU:
        with pytest.raises(ValueError, match="read-only"):
            np.asarray(t)[0] = 1
    t.flush()
    t.close()
    assert path.read_bytes() == before


# Closing --------------------------------------------------------------------------------------------------------------


# A file in memory several times ---------------------------------------------------------------------------------------


@pytest.mark.cpu_only("a GPU has copies")
@pytest.mark.parametrize("modes", [("r+", "r+"), ("r+", "r"), ("r", "r+")], ids=" then ".join)
def test_two_tensors_over_one_file_overlap(be: Any, path: Path, modes: Any) -> None:
    first, second = (be.mapped(path, TensorDesc((24, 1), "f4", "NC"), mode) for mode in modes)
    target, source = (second, first) if modes[0] == "r" else (first, second)
    wanted = np.arange(24, dtype="f4").reshape(24, 1)
    for _ in range(4):  # as it is written down, and repeated
        target[1:24] = source[:23] * 1
        wanted[1:] = wanted[:-1].copy()
        assert np.array_equal(np.fromfile(path, "f4"), wanted[:, 0])
    target[:23] = target[1:].T.T + source[:23]
    wanted[:23] += wanted[1:]
    assert np.array_equal(target.get(), wanted)
    assert source[:5].alias_of(target[4:]) == 2 and source[:5].alias_of(target[5:]) == 0
    assert target[2:5].alias_of(source[2:5]) == 1


@pytest.mark.cpu_only("a GPU has copies")
def test_a_file_that_has_grown_overlaps_with_what_it_was(be: Any, path: Path) -> None:
    before, after = be.mapped(path, TensorDesc((24, 1), "f4"), "r+"), be.mapped(path, TensorDesc((30, 1), "f4"), "r+")
    wanted = np.zeros(30, "f4")
    wanted[:24] = np.arange(24)
    for target, source, low in ((after, before, 3), (before, after, 1)):
        for _ in range(6):  # apart, so that it may be repeated the short way
            target[20:24] = source[:4] * 1
            wanted[20:24] = wanted[:4]
        target[low : low + 4] = source[:4] * 1
        wanted[low : low + 4] = wanted[:4].copy()
        for _ in range(4):
            target[low:20] = source[: 20 - low] * 1
            wanted[low:20] = wanted[: 20 - low].copy()
            assert np.array_equal(np.fromfile(path, "f4"), wanted)
    third = be.mapped(path, TensorDesc((6, 1), "f4"), "r", offset=96)
    third_target = be.mapped(path, TensorDesc((6, 1), "f4"), "r+", offset=92)
    third_target[:] = third * 0 + 5
    assert np.fromfile(path, "f4")[23:29].tolist() == [5] * 6


@pytest.mark.cpu_only("a GPU has copies")
def test_a_file_is_let_go_with_its_last_tensor(be: Any, path: Path) -> None:
    first, second = be.mapped(path, DESC, "r+"), be.mapped(path, DESC, "r+", offset=48)
    assert second.ptr - first.ptr == 48
    first.close()
    second[:] = 1
    second.flush()
    assert len(live_mappings(path)) == 1
    second.close()
    assert not live_mappings(path)


def live_mappings(path: Path) -> list[Any]:
    """Mapped regions of the file in this process."""
    status = path.stat()
    return [whole for (file, _), whole in filemap._mappings.items() if file == (status.st_dev, status.st_ino)]


def test_a_closed_tensor_can_only_be_closed(be: Any, path: Path) -> None:
    t = be.mapped(path, DESC, "r+")
    view, later = t[1:], t * 2
    t[:] = 5
    t.close()
    t.close()
    assert (np.fromfile(path, "f4")[:12] == 5).all()
    assert repr(t) == str(t) == f"<Mapped{be.tensor_cls.__name__} of {path}, closed>" and t.closed
    for use in (t.get, t.flush, t.__enter__, later.get, lambda: t[0], lambda: t.fill(1), lambda: t.T, lambda: t.ptr,
                lambda: be.sum(t).item(), lambda: be.compound_dot(t, be.ones((3, 2)), be.empty((4, 2)))):  # fmt: skip
        with pytest.raises(TensorClosed, match=r"numbers\.bin was closed"):
            use()
    assert (view.get() == 5).all(), "views hold the memory"


def test_it_is_closed_after_an_error_too(be: Any, path: Path) -> None:
    with pytest.raises(KeyError), be.mapped(path, DESC, "r+") as t:
        t[:] = 3
        raise KeyError
    assert t.closed and (np.fromfile(path, "f4")[:12] == 3).all()


# What is refused ------------------------------------------------------------------------------------------------------


def test_what_cannot_be_mapped(be: Any, tmp_path: Path, path: Path) -> None:
    for given, error, words in (
        ((path, DESC, "rw"), ArgumentError, "mode must be 'r' "),
        ((path, DESC, None), ArgumentTypeError, "mode must be a string"),
        ((path, DESC, "r", 2), ArgumentError, "offset must be a multiple of 4"),
        ((path, DESC, "r", -4), ArgumentError, "offset must be a multiple of 4"),
        ((path, DESC, "r", 1.5), ArgumentTypeError, "offset must be an integer"),
        ((path, DESC, "r", 52), ShapeError, r"has 96 bytes, \(4, 3\) of float32 from 52 on ends at 100"),
        ((path, TensorDesc((0, 3)), "r"), ShapeError, "no elements"),
        ((path, (4, 3), "r"), ArgumentTypeError, "desc must be a TensorDesc"),
        ((7, DESC, "r"), ArgumentTypeError, "path must be a string or a path"),
        (("a\0b", DESC, "r"), ArgumentError, "is no path"),
        ((tmp_path / "none", DESC, "r"), FileNotFoundError, "none"),
        ((tmp_path / "none", DESC, "r+"), FileNotFoundError, "none"),
        ((tmp_path / "none" / "new", DESC, "w+"), FileNotFoundError, "new"),
    ):
        with pytest.raises(error, match=words):
            be.mapped(*given)
    assert path.stat().st_size == 96 and not (tmp_path / "none").exists()
