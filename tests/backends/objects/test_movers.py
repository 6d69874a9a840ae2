"""Transformers, batchers and shufflers against NumPy's transposes, slices and indices, in any layout and dtype."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from neonlike.backends.descriptors import TensorDesc
from neonlike.errors import ArgumentError, DTypeError, IndexRangeError, MissingArgument, OtherBackend, ShapeError
from tests.support.engines import new_backend, sampled

pytestmark = pytest.mark.engines("numpy", "c")
IMAGES = TensorDesc((7, 3, 4, 5), "float32", "NCHW")


def numbered(be: Any, desc: TensorDesc) -> tuple[Any, np.ndarray[Any, Any]]:
    """A tensor of a descriptor whose elements are all different, and the same on the host."""
    host = np.arange(desc.size).reshape(desc.shape).astype(desc.dtype)
    made = be.tensor(desc)
    made[:] = host
    return made, host


# Tensors of descriptors -----------------------------------------------------------------------------------------------


def test_a_tensor_remembers_its_descriptor(be: Any) -> None:
    made = be.tensor(IMAGES)
    assert (made.shape, made.dtype, made.desc, made.batch_axis) == (IMAGES.shape, np.float32, IMAGES, 0)
    assert not made.get().any()
    assert be.tensor(IMAGES.with_dtype("int8"), init=False, name="pixels").name == "pixels"
    assert be.zeros((3, 4)).batch_axis == 1
    with pytest.raises(DTypeError, match="tensor: desc must be a TensorDesc"):
        be.tensor((3, 4))


# Between layouts and dtypes -------------------------------------------------------------------------------------------


def test_images_come_in_another_order_and_dtype(be: Any) -> None:
    """As a user brings pixels of a file into neon's layout, and results back."""
    pixels, host = numbered(be, IMAGES.with_dtype("uint8"))
    to_neon = be.transformer(pixels, be.tensor(IMAGES.with_layout("CHWN")))
    images = to_neon()
    assert images.desc.layout == "CHWN"
    assert images.get().tolist() == host.transpose(1, 2, 3, 0).tolist()
    images += 100.4
    back = be.transformer(images, pixels)()
    assert back is pixels
    assert pixels.get().tolist() == np.minimum(host.astype(int) + 100, 255).tolist()


def test_a_transformer_of_descriptors_takes_any_such_tensor(be: Any) -> None:
    to_sequence = be.transformer(TensorDesc((2, 3, 4), "f4", "NTC"), TensorDesc((3, 2, 4), "f8", "TNC"))
    for _ in range(2):
        x = be.array(be.rng.normal(size=(2, 3, 4)))
        made = to_sequence(x)
        assert made.dtype == np.float64 and made.desc == to_sequence.dst_desc
        assert np.array_equal(made.get(), x.get().transpose(1, 0, 2))
        again = be.empty((3, 2, 4), dtype="f8")
        assert to_sequence(x, again) is again
        assert np.array_equal(to_sequence.inverse()(again).get(), x.get())


def test_axes_of_size_one_come_and_go_and_merged_ones_are_seen(be: Any) -> None:
    x, host = numbered(be, IMAGES)
    flat = be.zeros((3 * 4 * 5, 7))
    flat.desc = TensorDesc((3, 1, 4, 5, 7), "f4", "CDHWN")
    assert be.transformer(x, flat)() is flat
    assert np.array_equal(flat.get(), host.reshape(7, -1).T)
    assert np.array_equal(be.transformer(flat, x.desc)().get(), host)


def test_views_on_either_side(be: Any) -> None:
    large, host = numbered(be, TensorDesc((3, 4, 5, 9), "f4", "CHWN"))
    window = large[:, 1:3, :, 2:9:3]
    target = be.zeros((6, 3, 2, 5))
    view = target[::2]
    view.desc = TensorDesc((3, 3, 2, 5), "f4", "NCHW")
    be.transformer(window, view)()
    wanted = np.zeros((6, 3, 2, 5))
    wanted[::2] = host[:, 1:3, :, 2:9:3].transpose(3, 0, 1, 2)
    assert np.array_equal(target.get(), wanted)


def test_in_place(be: Any) -> None:
    x, host = numbered(be, TensorDesc((4, 4, 3), "f4", "CWN"))
    be.transformer(x.desc, TensorDesc((4, 4, 3), "f4", "WCN"))(x, x.reshape(16, 3))
    assert np.array_equal(x.get(), host.transpose(1, 0, 2))


def test_random_layouts(be: Any) -> None:
    """Any order of axes, with and without axes of one position, between any dtypes."""
    for seed in sampled(be, range(30), 3):
        rng = np.random.default_rng(seed)
        letters = rng.permutation(list("NCDHW"))[: rng.integers(2, 6)]
        sizes = dict(zip(letters, rng.integers(1, 5, len(letters))))
        source = TensorDesc(tuple(sizes.values()), rng.choice(["f4", "f8", "i4"]), "".join(sizes))
        kept = [letter for letter in rng.permutation(letters) if sizes[letter] > 1 or rng.random() < 0.5]
        layout = "".join([*kept, *(letter for letter in "NT" if letter not in kept)])
        target = source.with_layout(layout).with_dtype(rng.choice(["f4", "f2"]))
        x, host = numbered(be, source)
        squeezed = host.reshape([size for size in host.shape if size > 1])
        names = [letter for letter, size in sizes.items() if size > 1]
        order = [names.index(letter) for letter in layout if letter in names]
        wanted = squeezed.transpose(order).reshape(target.shape)
        assert np.array_equal(be.transformer(x, target)().get(), wanted.astype(target.dtype)), (source, target)


def test_what_cannot_be_transformed(be: Any) -> None:
    x = be.tensor(IMAGES)
    for dst, error, words in (
        (TensorDesc((3, 4, 6, 7), "f4", "CHWN"), ShapeError, "must have the same sizes"),
        (TensorDesc((3, 4, 5, 8), "f4", "CHWN"), ShapeError, "other numbers of samples; be.batcher"),
        (TensorDesc((3, 4), "f4", "CH"), ShapeError, "no N for its 7|no W for its 5"),
        ("CHWN", DTypeError, "expected a descriptor or a tensor"),
        (x + 1, DTypeError, "expected a descriptor or a tensor"),
    ):
        with pytest.raises(error, match=words):
            be.transformer(x, dst)
    turn = be.transformer(IMAGES, IMAGES.with_layout("CHWN"))
    with pytest.raises(MissingArgument, match="pass the tensor"):
        turn()
    good, target = be.tensor(turn.src_desc), be.tensor(turn.dst_desc)
    for source, dst, error, words in (
        (be.zeros(IMAGES.shape, dtype="f8"), target, DTypeError, "src must hold float32, got float64"),
        (be.zeros((3, 7, 4, 5)), target, ShapeError, r"src must have the shape \(7, 3, 4, 5\)"),
        (target, target, ArgumentError, "src must have the layout 'NCHW', got 'CHWN'"),
        (good, good, ArgumentError, "dst must have the layout 'CHWN'"),
        (good, np.zeros(3), DTypeError, "dst must be a tensor"),
        (np.zeros(3), None, MissingArgument, r"pass the tensor, got ndarray of shape \(3,\)"),
        (new_backend(rng_seed=0).zeros(IMAGES.shape), target, OtherBackend, "src belongs to another backend"),
    ):
        with pytest.raises(error, match=words):
            turn(source, dst)
    assert not target.get().any()


# Minibatches ----------------------------------------------------------------------------------------------------------


def test_minibatches_of_a_large_tensor(be: Any) -> None:
    """As a user trains on a data set of 7 images, three at a time, in another layout and dtype."""
    data, host = numbered(be, IMAGES)
    minibatch = be.tensor(TensorDesc((3, 4, 5, 3), "f8", "CHWN"))
    batches = be.batcher(data, minibatch, 3)
    assert len(batches) == 3
    seen = [b.get() for b in batches]
    assert [b.shape[-1] for b in seen] == [3, 3, 1]
    assert np.array_equal(np.concatenate(seen, axis=3), host.transpose(1, 2, 3, 0))
    last = batches(6)
    assert last.desc == minibatch.desc.with_batch(1) and last.ptr == minibatch.ptr
    assert np.array_equal(minibatch.get()[..., 1:], seen[1][..., 1:]), "the rest stays as it was"
    assert batches(0) is minibatch


def test_any_part_into_any_part(be: Any) -> None:
    data, host = numbered(be, TensorDesc((2, 10), "f4", "CN"))
    target = be.zeros((2, 6))
    batches = be.batcher(data, target, 4)
    wanted = np.zeros((2, 6))
    for start, place in ((3, 2), (0, 0), (8, 4), (9, 5), (5, 1)):
        part = batches(start, place)
        count = min(4, 10 - start)
        wanted[:, place : place + count] = host[:, start : start + count]
        assert part.shape == (2, count)
        assert np.array_equal(target.get(), wanted)


def test_random_minibatches(be: Any, rng: np.random.Generator) -> None:
    for _ in range(20):
        size, room = (int(n) for n in rng.integers(1, 12, 2))
        mb_size = int(rng.integers(1, room + 1))
        data, host = numbered(be, TensorDesc((size, 3, 2), "f4", "NTC"))
        got = [b.get() for b in be.batcher(data, TensorDesc((3, room, 2), "f4", "TNC"), mb_size)]
        assert [b.shape[1] for b in got] == [len(host[i : i + mb_size]) for i in range(0, size, mb_size)]
        assert np.array_equal(np.concatenate(got, axis=1), host.transpose(1, 0, 2))


def test_a_batch_of_a_window_that_moves(be: Any) -> None:
    data, host = numbered(be, TensorDesc((1, 12), "f4", "CN"))
    half = data[:, :6]
    for start in (0, 6):
        assert [b.tolist()[0] for b in be.batcher(half.offset(start), be.zeros((1, 4)))] == [
            host[0, start : start + 4].tolist(),
            host[0, start + 4 : start + 6].tolist(),
        ]


def test_what_makes_no_batcher(be: Any) -> None:
    data, target = be.zeros((2, 10)), be.zeros((2, 4))
    for given, error, words in (
        ((data, target, 5), ArgumentError, "mb_size must be 1 to 4, the samples of dst, got 5"),
        ((data, target, 0), ArgumentError, "mb_size must be 1 to 4"),
        ((data, target, 1.5), DTypeError, "mb_size must be an integer"),
        ((data, be.zeros((3, 4))), ShapeError, "axes of a sample must have the same sizes"),
        ((TensorDesc((2, 10)), target), DTypeError, "src must be a tensor"),
        ((be.tensor(TensorDesc((2, 4), "f4", "CK")), TensorDesc((2, 4), "f4", "CK")), ShapeError, "src has no axis N"),
    ):
        with pytest.raises(error, match=words):
            be.batcher(*given)
    target.fill(7)
    batches = be.batcher(data, target)
    for places, words in (
        ((10,), "src_n 10 is none of the 10"), ((-1,), "src_n -1"), ((0, 1), "4 samples from dst_n 1"),
        ((9, 4), "1 samples from dst_n 4"), ((0, -1), "dst_n -1"),
    ):  # fmt: skip
        with pytest.raises(IndexRangeError, match=words):
            batches(*places)
    with pytest.raises(DTypeError, match="src_n must be an integer"):
        batches("0")
    assert (target.get() == 7).all()
    assert len(be.batcher(be.zeros((2, 0)), target)) == 0 and not list(be.batcher(be.zeros((2, 0)), target))


# By indices -----------------------------------------------------------------------------------------------------------


def test_samples_in_random_order(be: Any) -> None:
    """As a user shuffles an epoch."""
    data, host = numbered(be, IMAGES)
    target = be.tensor(TensorDesc((3, 4, 5, 7), "f4", "CHWN"))
    shuffle, order = be.shuffler(data, target), np.random.default_rng(0).permutation(7)
    assert shuffle(order) is target
    assert np.array_equal(target.get(), host[order].transpose(1, 2, 3, 0))


@pytest.mark.parametrize("kind", ["list", "array", "column", "tensor"])
def test_indices_of_any_kind(be: Any, kind: str) -> None:
    data, host = numbered(be, TensorDesc((3, 9), "f4", "CN"))
    shuffle = be.shuffler(data, be.zeros((3, 5)))
    for chosen in ([8, 0, 8, -1], [4], list(range(5))):
        given = {
            "list": chosen, "array": np.array(chosen, "u1" if min(chosen) >= 0 else "i2"),
            "column": np.array(chosen)[:, None], "tensor": be.array(chosen, dtype="i4"),
        }[kind]  # fmt: skip
        assert np.array_equal(shuffle(given).get(), host[:, chosen])
    assert shuffle([]).shape == (3, 0)


def test_indices_that_are_wrong(be: Any) -> None:
    data = be.ones((3, 9))
    target = be.zeros((3, 5))
    shuffle = be.shuffler(data, target)
    for indices, error in (
        ([9], IndexRangeError), ([0, -10], IndexRangeError), (be.array([0, 9], dtype="i4"), IndexRangeError),
        ([0.5], DTypeError), ("01", DTypeError), (be.array([1, 2]), DTypeError), ([True], DTypeError),
        ([[1], [2, 3]], DTypeError), (None, DTypeError), ([0] * 6, ShapeError),
    ):  # fmt: skip
        with pytest.raises(error, match="shuffler"):
            shuffle(indices)
    assert not target.get().any()


# Between the host and a device ----------------------------------------------------------------------------------------


def test_from_the_host_and_back(be: Any) -> None:
    """A data set stays in the host's memory; minibatches go to where the network is."""
    data, host = numbered(be.native, TensorDesc((6, 2, 3), "uint8", "NCW"))
    minibatch = be.tensor(TensorDesc((2, 3, 4), "f4", "CWN"))
    assert np.array_equal(be.batcher(data, minibatch)(2).get(), host[2:].transpose(1, 2, 0))
    assert np.array_equal(be.shuffler(data, minibatch)([5, 0]).get(), host[[5, 0]].transpose(1, 2, 0))
    result = be.native.tensor(TensorDesc((4, 2, 3), "f4", "NCW"))
    be.transformer(minibatch, result)()
    assert np.array_equal(result.get(), minibatch.get().transpose(2, 0, 1))
