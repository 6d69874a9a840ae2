"""Data sets of images, in their real formats with few images."""

from __future__ import annotations

import gzip
import os
import pickle
import struct
import tarfile
from types import SimpleNamespace

import numpy as np
import pytest

from neonlike.data import CIFAR10, DUMMY, MNIST, Digits, digits
from neonlike.data.image import read_idx
from neonlike.errors import ArgumentError, ShapeError
from neonlike.util.persist import RefusedContent, UnreadableFile

pytestmark = pytest.mark.engines("any", batch_size=4)

RNG = np.random.default_rng(7)
IMAGES, TEST_IMAGES = (RNG.integers(0, 256, (n, 28, 28), dtype=np.uint8) for n in (20, 8))
LABELS, TEST_LABELS = np.arange(20) % 10, np.arange(8)


def pickled(path, content, protocol=2):
    with (gzip.open if str(path).endswith(".gz") else open)(path, "wb") as file:
        pickle.dump(content, file, protocol)


@pytest.fixture
def mnist(tmp_path):
    pickled(tmp_path / "mnist.pkl.gz", ((IMAGES, LABELS), (TEST_IMAGES, TEST_LABELS)))
    return str(tmp_path)


# MNIST ----------------------------------------------------------------------------------------------------------------


def test_mnist(be, mnist):
    (X, y), (X_test, y_test), nclass = MNIST(path=mnist).load_data()
    np.testing.assert_allclose(X, IMAGES.reshape(20, 784) / 255, rtol=1e-6)
    np.testing.assert_allclose(X_test, TEST_IMAGES.reshape(8, 784) / 255, rtol=1e-6)
    assert X.dtype == np.float32 and y.tolist() == LABELS.tolist() and y_test.shape == (8,) and nclass == 10
    data = MNIST(path=mnist)
    assert list(data.data_dict) == ["train", "valid"] and data.train_iter.shape == (1, 28, 28)
    x, t = next(iter(data.valid_iter))
    np.testing.assert_allclose(x.get(), X_test[:4].T)
    np.testing.assert_array_equal(t.get(), np.eye(10)[y_test[:4]].T)


def test_ranges_of_mnist(be, mnist):
    X = IMAGES.reshape(20, 784).astype(float)
    np.testing.assert_allclose(MNIST(mnist, sym_range=True).load_data()[0][0], X / 127.5 - 1, atol=1e-6)
    np.testing.assert_allclose(MNIST(mnist, normalize=False).load_data()[0][0], X)


@pytest.mark.parametrize("size", [20, 32])
def test_other_sizes_are_cut_or_padded_at_the_right_and_bottom(be, mnist, size):
    data = MNIST(mnist, size=size, normalize=False)
    images = data.load_data()[0][0].reshape(20, size, size)
    common = min(size, 28)
    np.testing.assert_array_equal(images[:, :common, :common], IMAGES[:, :common, :common])
    assert not images[:, 28:].any() and not images[:, :, 28:].any()
    assert data.train_iter.shape == (1, size, size)
    assert (
        data.get_description()["config"]
        == {"path": mnist, "normalize": False, "size": size}
        == data.serialize()["config"]
    )


def test_a_subset_of_mnist(be, mnist):
    (X, y), (X_test, _), _ = MNIST(mnist, subset_pct=50).load_data()
    assert (len(X), len(y), len(X_test)) == (10, 10, 4)
    with pytest.raises(AssertionError, match="subset_pct=0"):
        MNIST(mnist, subset_pct=0)


def test_shuffled_images_keep_their_labels(be, mnist):
    (X, y), (X_test, _), _ = MNIST(mnist, shuffle=True, normalize=False).load_data()
    by_pixels = {image.tobytes(): label for image, label in zip(IMAGES.astype(np.float32), LABELS)}
    assert [by_pixels[image.tobytes()] for image in X] == y.tolist() != LABELS.tolist()
    np.testing.assert_array_equal(X_test, TEST_IMAGES.reshape(8, 784))
    be.rng_reset()
    again = MNIST(mnist, shuffle=True, normalize=False).load_data()[0][0]
    be.rng_reset()
    np.testing.assert_array_equal(MNIST(mnist, shuffle=True, normalize=False).load_data()[0][0], again)


def idx(array):
    return (
        struct.pack(">HBB", 0, 8, array.ndim)
        + np.array(array.shape, ">u4").tobytes()
        + array.astype(np.uint8).tobytes()
    )


def test_mnist_from_the_files_of_its_authors(be, tmp_path):
    for name, array in zip(MNIST.IDX, (IMAGES, LABELS, TEST_IMAGES, TEST_LABELS)):
        content = idx(array)
        if "train" in name:
            (tmp_path / f"{name}.gz").write_bytes(gzip.compress(content))
        else:
            (tmp_path / name).write_bytes(content)
    (X, y), (X_test, y_test), _ = MNIST(str(tmp_path), normalize=False).load_data()
    np.testing.assert_array_equal(X, IMAGES.reshape(20, 784))
    np.testing.assert_array_equal(X_test, TEST_IMAGES.reshape(8, 784))
    assert (y.tolist(), y_test.tolist()) == (LABELS.tolist(), TEST_LABELS.tolist())


@pytest.mark.parametrize("content", [b"", b"\0\0\x08\x01", idx(np.zeros(5))[:-1], b"\0\0\x0d" + idx(np.zeros(5))[3:]])
def test_files_that_are_no_idx(tmp_path, content):
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(OSError, match="IDX"):
        read_idx(str(tmp_path / "x"))


def test_an_mnist_that_does_not_do(be, mnist):
    path = os.path.join(mnist, "mnist.pkl.gz")
    whole = open(path, "rb").read()
    for content in (whole[:-500], b"neither gzip nor pickle"):
        with open(path, "wb") as file:
            file.write(content)
        with pytest.raises((OSError, UnreadableFile), match=r"mnist\.pkl\.gz"):
            MNIST(mnist).load_data()
    pickled(path, [1, 2, 3])
    with pytest.raises(OSError, match="does not hold"):
        MNIST(mnist).load_data()
    pickled(path, ((IMAGES[:, :5], LABELS), (TEST_IMAGES, TEST_LABELS)))
    with pytest.raises(OSError, match=r"shape \(20, 5, 28\)"):
        MNIST(mnist).load_data()


def test_an_mnist_that_would_run_something_is_refused(be, mnist, tmp_path):
    class Hostile:
        def __reduce__(self):
            return os.system, (f"touch {tmp_path}/ran",)

    pickled(os.path.join(mnist, "mnist.pkl.gz"), Hostile())
    with pytest.raises(RefusedContent, match="system"):
        MNIST(mnist).load_data()
    assert not (tmp_path / "ran").exists()


# CIFAR-10 -------------------------------------------------------------------------------------------------------------

PIXELS = RNG.integers(0, 256, (6, 4, 3072), dtype=np.uint8)


def cifar_files(folder):
    folder.mkdir()
    for number, name in enumerate(CIFAR10.FILES):
        pickled(folder / name, {"data": PIXELS[number], "labels": [number, 1, 2, 3], "batch_label": name})


@pytest.fixture
def cifar(tmp_path):
    cifar_files(tmp_path / CIFAR10.FOLDER)
    return str(tmp_path)


def test_cifar(be, cifar):
    (X, y), (X_test, y_test), nclass = CIFAR10(path=cifar).load_data()
    np.testing.assert_allclose(X, PIXELS[:5].reshape(20, 3072) / 255, rtol=1e-6)
    np.testing.assert_allclose(X_test, PIXELS[5] / 255, rtol=1e-6)
    assert X.dtype == X_test.dtype == np.float32
    assert (y.shape, y[::4, 0].tolist(), y_test[:, 0].tolist(), nclass) == ((20, 1), [0, 1, 2, 3, 4], [5, 1, 2, 3], 10)
    assert CIFAR10(path=cifar).train_iter.shape == (3, 32, 32)
    padded = CIFAR10(path=cifar, pad_classes=True, normalize=False)
    assert padded.load_data()[0][0].max() > 200 and padded.valid_iter.ybuf.shape == (16, 4)


def test_cifar_from_its_archive(be, tmp_path):
    cifar_files(tmp_path / "made")
    (tmp_path / "here").mkdir()
    archive = tmp_path / "here" / CIFAR10.ARCHIVE
    with tarfile.open(archive, "w:gz") as made:
        made.add(tmp_path / "made", CIFAR10.FOLDER)
    assert CIFAR10(path=str(tmp_path / "here")).load_data()[0][0].shape == (20, 3072)
    for file in (tmp_path / "here" / CIFAR10.FOLDER).iterdir():
        file.unlink()
    archive.write_bytes(archive.read_bytes()[:-300])
    with pytest.raises(OSError, match="damaged archive, or not a whole one"):
        CIFAR10(path=str(tmp_path / "here")).load_data()


def test_a_cifar_that_does_not_do(be, cifar):
    path = os.path.join(cifar, CIFAR10.FOLDER, "data_batch_3")
    pickled(path, {"data": PIXELS[0], "labels": [1]})
    with pytest.raises(OSError, match=r"data_batch_3 has no 'data' \(n, 3072\) with 'labels'"):
        CIFAR10(cifar).load_data()
    with pytest.raises(AssertionError, match="subset_pct=50"):
        CIFAR10(cifar, subset_pct=50)


def test_contrast_is_normalized():
    X = RNG.uniform(size=(5, 12))
    X[2] = 0.5
    out = CIFAR10.global_contrast_normalize(X, scale=55.0)
    np.testing.assert_allclose(out.mean(axis=1), 0, atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(out, axis=1), [55, 55, 0, 55, 55])
    centred = X[0] - X[0].mean()
    np.testing.assert_allclose(out[0], 55 * centred / np.linalg.norm(centred))


def test_whitening_removes_correlations_and_is_kept(tmp_path):
    mix = RNG.standard_normal((4, 4))
    train, test = RNG.standard_normal((4000, 4)) @ mix, RNG.standard_normal((9, 4)) @ mix
    cache = tmp_path / "zca.pkl"
    white, white_test = CIFAR10.zca_whiten(train, test, cache=str(cache))
    covariance = np.cov(train.T)
    values, vectors = np.linalg.eigh(covariance)
    expected = vectors @ np.diag((values + 0.1) ** -0.5) @ vectors.T
    np.testing.assert_allclose(white, (train - train.mean(axis=0)) @ expected, atol=1e-8)
    np.testing.assert_allclose(white_test, (test - train.mean(axis=0)) @ expected, atol=1e-8)
    again = CIFAR10.zca_whiten(train * 0, test, cache=str(cache))[1]  # the statistics are those of the file
    np.testing.assert_array_equal(again, white_test)
    with pytest.raises(ShapeError, match="with 4 values, but these have 3; remove it"):
        CIFAR10.zca_whiten(train[:, :3], test[:, :3], cache=str(cache))


def test_a_whitened_cifar_is_used_again(be, cifar, monkeypatch):
    small = np.ascontiguousarray(PIXELS[:, :, :6])
    monkeypatch.setattr(
        CIFAR10, "_batch", lambda self, name: (small[CIFAR10.FILES.index(name)].astype(np.float32), np.zeros((4, 1)))
    )
    first = CIFAR10(cifar, whiten=True, contrast_normalize=True).load_data()
    assert "cifar-10-zca-11.pkl" in os.listdir(cifar)
    again = CIFAR10(cifar, whiten=True, contrast_normalize=True).load_data()
    np.testing.assert_array_equal(first[0][0], again[0][0])


# Others ---------------------------------------------------------------------------------------------------------------


def test_dummy(be):
    data = DUMMY(batch_size=4)
    (X, y), _, nclass = data.load_data()
    assert (X.shape, X.dtype, nclass) == ((4, 3 * 224 * 224), np.float32, 1000)
    assert y.shape == (4,) and 0 <= y.min() and y.max() < 1000 and 0 <= X.min() < X.max() <= 1
    _, t = next(iter(data.train_iter))
    assert data.train_iter.shape == (3, 224, 224) and t.shape == (1000, 4)
    np.testing.assert_array_equal(t.get().sum(axis=0), 1)


@pytest.mark.parametrize("moved", [False, True])
def test_digits_are_those_of_scikit_learn(moved, monkeypatch, tmp_path):
    """Whether its file is where Digits looks for it or not."""
    from sklearn import datasets

    asked = []
    if moved:
        elsewhere = SimpleNamespace(origin=str(tmp_path / "__init__.py"))
        monkeypatch.setattr("importlib.util.find_spec", lambda name: elsewhere)
    expected, load = datasets.load_digits(return_X_y=True), datasets.load_digits
    monkeypatch.setattr(datasets, "load_digits", lambda **options: asked.append(options) or load(**options))
    for found, wanted in zip(digits._images(), expected, strict=True):
        assert found.dtype == wanted.dtype
        np.testing.assert_array_equal(found, wanted)
    assert len(asked) == moved


def test_digits(be):
    from sklearn import datasets

    data = Digits()
    parts = data.load_parts()
    assert [len(parts[name][0]) for name in ("train", "valid", "test")] == [1259, 179, 359]
    pixels, labels = datasets.load_digits(return_X_y=True)
    everything = {(*np.rint((image + 1) * 8), label) for X, y in parts.values() for image, label in zip(X, y)}
    assert everything == {(*image, label) for image, label in zip(pixels, labels)}
    assert all(set(y) == set(range(10)) for _, y in parts.values())
    assert list(data.data_dict) == ["train", "valid", "test"] and data.train_iter.shape == (1, 8, 8)
    np.testing.assert_array_equal(Digits().load_data()[0][0], parts["train"][0])
    assert not np.array_equal(Digits(seed=1).load_data()[0][0], parts["train"][0])
    assert len(Digits(subset_pct=10).load_data()[0][0]) == 125
    assert Digits(normalize=False).load_data()[1][0].max() == 16
    with pytest.raises(ArgumentError, match="leave some"):
        Digits(test_part=0.9, valid_part=0.1)
