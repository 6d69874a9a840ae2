"""Batches from HDF5 files: contents, wrap-around, means, hooks, malformed files."""

from __future__ import annotations

import h5py
import numpy as np
import pytest

from neonlike.backends import gen_backend
from neonlike.data import HDF5Iterator, HDF5IteratorAutoencoder, HDF5IteratorOneHot, Prefetch
from neonlike.errors import ArgumentError, BackendUnavailable, ShapeError

pytestmark = pytest.mark.engines("numpy", "c", batch_size=4)

SHAPE = (2, 1, 3)
LABELS = np.arange(10) * 7 % 5


@pytest.fixture
def made(tmp_path):
    """Write a file; returns its path and inputs."""

    def make(mean=None, output=None, nclass=None, lshape=SHAPE, ndata=10, dtype=np.float32):
        rng = np.random.default_rng(1)
        inputs = rng.integers(0, 255, (ndata, 6)).astype(dtype)
        path = tmp_path / "data.h5"
        with h5py.File(path, "w") as file:
            file.create_dataset("input", data=inputs).attrs["lshape"] = lshape
            if output is not None:
                made = file.create_dataset("output", data=output)
                if nclass:
                    made.attrs["nclass"] = nclass
            if mean is not None:
                file.create_dataset("mean", data=mean)
        return path, inputs

    return make


def wrapped(first, ndata=10):
    return np.arange(first, first + 4) % ndata


@pytest.mark.parametrize("dtype", [np.float32, np.uint8])
def test_batches_and_wrap_around(be, made, dtype):
    outputs = np.arange(20.0).reshape(10, 2)
    path, inputs = made(output=outputs, dtype=dtype)
    iterator = HDF5Iterator(path)
    assert (iterator.ndata, iterator.shape, iterator.lshape, iterator.nbatches) == (10, SHAPE, SHAPE, 3)
    for epoch_starts in ((0, 4, 8), (2, 6), (0, 4, 8)):
        assert iterator.nbatches == len(epoch_starts)
        for first, (x, t) in zip(epoch_starts, iterator, strict=True):
            np.testing.assert_array_equal(x.get(), inputs[wrapped(first)].T)
            np.testing.assert_array_equal(t.get(), outputs[wrapped(first)].T)
            assert x is iterator.inpbuf and t is iterator.outbuf
    iterator.reset()
    np.testing.assert_array_equal(next(iter(iterator))[0].get(), inputs[:4].T)
    iterator.cleanup()


def test_whole_numbers_that_16_bits_round_are_said_once(be, made, caplog):
    """They may be words of a vocabulary, which would be other words."""
    gen_backend(be.backend_name, batch_size=4, datatype="bfloat16")
    for largest, says in ((256, 0), (257, 1)):
        path, _ = made(output=np.full((10, 1), largest), dtype=np.int32)
        iterator = HDF5Iterator(path)
        assert len([*iterator, *iterator]) == 5
        iterator.cleanup()
        assert caplog.text.count("bfloat16 rounds whole numbers of the data, which go up to 257") == says
    path, _ = made(output=np.full((10, 1), 257.0))
    list(HDF5Iterator(path))
    assert caplog.text.count("rounds whole numbers") == 1, "real numbers are always rounded"


def test_an_abandoned_epoch_is_repeated_and_progress_restored(be, made):
    path, inputs = made()
    iterator = HDF5Iterator(path)
    next(iter(iterator))
    assert iterator.start == 0
    for _ in iterator:
        pass
    assert iterator.progress() == {"start": 2}
    again = HDF5Iterator(path)
    again.set_progress(iterator.progress())
    np.testing.assert_array_equal(next(iter(again))[0].get(), inputs[2:6].T)


def test_without_outputs_there_are_no_targets(be, made):
    x, t = next(iter(HDF5Iterator(made()[0])))
    assert t is None and x.shape == (6, 4)


@pytest.mark.parametrize("size", [6, 2])
def test_a_mean_is_subtracted(be, made, size):
    mean = np.arange(1.0, size + 1)
    path, inputs = made(mean=mean)
    iterator = HDF5Iterator(path)
    assert iterator.mean is None and iterator.inpbuf is None
    x, _ = next(iter(iterator))
    expected = inputs[:4] - (mean if size == 6 else np.repeat(mean, 3))
    np.testing.assert_allclose(x.get(), expected.T, rtol=1e-6)
    np.testing.assert_array_equal(iterator.mean.get(), mean[:, None])


def test_one_hot_labels(be, made):
    iterator = HDF5IteratorOneHot(made(output=LABELS[:, None], nclass=5)[0])
    assert iterator.nclass == 5
    targets = np.concatenate([t.get() for _, t in iterator], axis=1)
    np.testing.assert_array_equal(targets, np.eye(5)[LABELS[np.arange(12) % 10]].T)


def test_an_autoencoder_has_its_inputs_as_targets(be, made):
    iterator = HDF5IteratorAutoencoder(made(output=LABELS)[0])
    x, t = next(iter(iterator))
    assert x is t is iterator.inpbuf


def test_hooks_of_a_subclass_are_called(be, made):
    class Halved(HDF5Iterator):
        def allocate_outputs(self):
            self.outbuf = self.be.iobuf(1)

        def gen_output(self, mb):
            self.outbuf[:] = self.be.sum(self.inpbuf, axis=0)
            return self.outbuf

        def gen_input(self, mb):
            return super().gen_input(mb / 2)

    path, inputs = made()
    x, t = next(iter(Halved(path)))
    np.testing.assert_allclose(x.get(), inputs[:4].T / 2)
    np.testing.assert_allclose(t.get(), inputs[:4].sum(axis=1)[None] / 2, rtol=1e-6)


def test_buffers_follow_the_batch_size(be, made):
    path, _ = made()
    iterator = HDF5Iterator(path)
    iterator.allocate()
    buffer = iterator.inpbuf
    next(iter(iterator))
    assert iterator.inpbuf is buffer
    be.bsz = 5
    assert [x.shape for x, _ in iterator] == [(6, 5)] * 2
    be.bsz = 11
    assert iterator.masked_to == 10
    assert [x.shape for x, _ in iterator] == [(6, 11)]


def test_the_same_comes_through_a_prefetch(be, made):
    path, _ = made(output=LABELS[:, None], nclass=5)
    plain, ahead = HDF5IteratorOneHot(path), Prefetch(HDF5IteratorOneHot(path))
    for _ in range(3):
        assert ahead.nbatches == plain.nbatches
        expected = [(x.get().copy(), t.get().copy()) for x, t in plain]
        for (x, t), (a, b) in zip(expected, ahead, strict=True):
            np.testing.assert_array_equal(x, a.get())
            np.testing.assert_array_equal(t, b.get())
        assert ahead.start == plain.start and ahead.progress() == plain.progress()
    assert (ahead.shape, ahead.nclass, ahead.ndata) == (SHAPE, 5, 10)


# Files that are not what they should be -------------------------------------------------------------------------------


def test_a_missing_file_is_an_io_error(be, tmp_path):
    with pytest.raises(IOError, match=r"no file .*nowhere\.h5"):
        HDF5Iterator(tmp_path / "nowhere.h5")


@pytest.mark.parametrize("damage", ["text", "cut"])
def test_a_damaged_file_is_an_io_error(be, made, damage):
    path, _ = made(ndata=1000)
    content = path.read_bytes()
    path.write_bytes(b"no HDF5" if damage == "text" else content[: len(content) // 2])
    with pytest.raises(IOError, match="no HDF5 file, or not a whole one"):
        HDF5Iterator(path)


def test_what_lacks_or_does_not_fit_is_named(be, made, tmp_path):
    with pytest.raises(AssertionError, match="'output' with an attribute 'nclass'"):
        HDF5IteratorOneHot(made(output=LABELS)[0])
    with pytest.raises(AssertionError, match="nclass"):
        HDF5IteratorOneHot(made()[0])
    with pytest.raises(ShapeError, match=r"lshape=\(2, 2\) has 4 elements, but a sample .* has 6"):
        HDF5Iterator(made(lshape=(2, 2))[0])
    with pytest.raises(ShapeError, match="10 samples but 'output' has 9"):
        HDF5Iterator(made(output=LABELS[:9])[0])
    with pytest.raises(ShapeError, match="'mean' has 3 elements; expected 6, or 2"):
        HDF5Iterator(made(mean=np.ones(3))[0])
    with h5py.File(tmp_path / "empty.h5", "w"):
        pass
    with pytest.raises(IOError, match="no dataset 'input'"):
        HDF5Iterator(tmp_path / "empty.h5")
    iterator = HDF5IteratorOneHot(made(output=LABELS, nclass=4)[0])
    with pytest.raises(ArgumentError, match=r"0 to 4.*between 0 and 3"):
        list(iterator)


def test_without_a_backend_it_says_so(made):
    from neonlike.backends import cleanup_backend

    cleanup_backend()
    iterator = HDF5Iterator(made()[0])
    with pytest.raises(BackendUnavailable, match="gen_backend"):
        next(iter(iterator))


@pytest.mark.parametrize(
    ("labels", "words"),
    [(LABELS + 0.6, "not integers"), (np.where(LABELS == 1, np.nan, LABELS), "not integers"),
     (LABELS + 2**32, "between 0 and 4")],
    ids=["fractions", "nan", "more than 32 bits"],
)  # fmt: skip
def test_labels_are_not_made_into_others(be, made, labels, words):
    """A cast to integers would make classes of them."""
    iterator = HDF5IteratorOneHot(made(output=labels, nclass=5)[0])
    for loop in (iterator, Prefetch(iterator)):
        with pytest.raises(ArgumentError, match=words):
            list(loop)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.uint8, np.int64])
def test_labels_of_any_dtype(be, made, dtype):
    iterator = HDF5IteratorOneHot(made(output=LABELS.astype(dtype), nclass=5)[0])
    found = [t.get().argmax(axis=0) for _, t in iterator]
    np.testing.assert_array_equal(np.concatenate(found)[:10], LABELS)
