"""Wrappers around loaders, and host batches brought to the backend."""

from __future__ import annotations

import sys
import types

import numpy as np
import pytest
from PIL import Image

from neonlike.data import NervanaDataIterator
from neonlike.data.aeon_shim import AeonDataLoader
from neonlike.data.convert_manifest import convert_manifest
from neonlike.data.dataloader_transformers import (
    BGRMeanSubtract,
    DataLoaderTransformer,
    DumpImage,
    OneHot,
    PixelWiseOneHot,
    Retuple,
    TypeCast,
    ValueNormalize,
)
from neonlike.data.dataloaderadapter import DataLoaderAdapter
from neonlike.data.indexer import Indexer
from neonlike.errors import ArgumentError, ArgumentTypeError

pytestmark = pytest.mark.engines("numpy", "c", batch_size=2)

IMAGES = np.arange(2 * 3 * 2 * 2, dtype=np.uint8).reshape(2, 3, 2, 2)
LABELS = np.array([[2], [0]], np.int32)


class Loader:
    """Host batches as aeon's: N first."""

    def __init__(self, batch=(IMAGES, LABELS)):
        self.batch = batch
        self.ndata, self.nbatches, self.resets = 4, 2, 0

    def shapes(self):
        return [array.shape[1:] for array in self.batch]

    def reset(self):
        self.resets += 1

    def __iter__(self):
        for number in range(self.nbatches):
            yield tuple(array + number for array in self.batch)


def batches(loader):
    return [tuple(t.get().copy() for t in batch) for batch in loader]


def rows(array):
    return array.reshape(len(array), -1).T


def test_host_batches_become_columns_on_the_backend(be):
    adapter = DataLoaderAdapter(Loader())
    assert (adapter.shape, adapter.shapes(), adapter.ndata, adapter.nbatches) == ((3, 2, 2), [(3, 2, 2), (1,)], 4, 2)
    for number, (x, t) in enumerate(adapter):
        assert x.dtype == np.uint8 and t.dtype == np.int32
        np.testing.assert_array_equal(x.get(), rows(IMAGES) + number)
        np.testing.assert_array_equal(t.get(), rows(LABELS) + number)
    adapter.reset()
    assert adapter.dataloader.resets == 1 and isinstance(adapter, NervanaDataIterator)


@pytest.mark.parametrize("form", [dict, list])
def test_named_arrays_are_brought_too(be, form):
    class Named(Loader):
        shapes = None
        axes_info = (("image", [("channels", 3), ("height", 2), ("width", 2)]), ("label", [("label", 1)]))

        def __iter__(self):
            yield form([("image", IMAGES), ("label", LABELS)])

    adapter = DataLoaderAdapter(Named())
    assert adapter.shapes() == [(3, 2, 2), (1,)]
    ((x, t),) = batches(adapter)
    np.testing.assert_array_equal(x, rows(IMAGES))
    np.testing.assert_array_equal(t, rows(LABELS))
    with pytest.raises(ArgumentTypeError, match=r"shapes\(\) nor axes_info"):
        DataLoaderAdapter([IMAGES])


def test_a_chain_of_wrappers(be):
    loader = OneHot(ValueNormalize(TypeCast(DataLoaderAdapter(Loader()), 0, np.float32), 0), 1, nclasses=4)
    assert (loader.shape, loader.ndata, loader.nbatches) == ((3, 2, 2), 4, 2)
    for number, (x, t) in enumerate(batches(loader)):
        np.testing.assert_allclose(x, (rows(IMAGES) + number) / 255, rtol=1e-6)
        np.testing.assert_array_equal(t, np.eye(4)[LABELS[:, 0] + number].T)
    loader.reset()
    assert loader.dataloader.dataloader.dataloader.dataloader.resets == 1


def test_values_are_mapped_from_range_to_range(be):
    x, _ = batches(ValueNormalize(DataLoaderAdapter(Loader()), 0, (0, 10), (-1, 1)))[0]
    np.testing.assert_allclose(x, rows(IMAGES) / 5 - 1, rtol=1e-6, atol=1e-6)
    x, _ = batches(ValueNormalize(DataLoaderAdapter(Loader()), 0, (5, 7), (1, 2)))[0]
    np.testing.assert_allclose(x, (rows(IMAGES) - 5.0) / 2 + 1, rtol=1e-6, atol=1e-6)
    with pytest.raises(ArgumentError, match="single value"):
        ValueNormalize(Loader(), 0, source_range=(1, 1))


def test_a_mean_is_taken_from_each_channel(be):
    x, _ = batches(BGRMeanSubtract(DataLoaderAdapter(Loader()), 0, pixel_mean=[1, 2, 3]))[0]
    np.testing.assert_allclose(x, rows(IMAGES - np.array([1.0, 2, 3])[:, None, None]))
    loader = BGRMeanSubtract(TypeCast(DataLoaderAdapter(Loader()), 0, np.float32), 0)
    np.testing.assert_allclose(batches(loader)[1][0], rows(IMAGES + 1.0 - np.array([127, 119, 104])[:, None, None]))


def test_one_hot_by_pixels(be):
    labels = np.array([[[0, 2], [1, 1]], [[2, 2], [0, 1]]], np.int32)
    loader = PixelWiseOneHot(DataLoaderAdapter(Loader((IMAGES, labels))), 1, nclasses=4)
    _, maps = batches(loader)[0]
    np.testing.assert_array_equal(maps, rows(np.moveaxis(np.eye(4)[labels], -1, 1)))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_labels_of_halves(be, dtype):
    loader = OneHot(TypeCast(DataLoaderAdapter(Loader()), 1, dtype), 1, nclasses=4)
    np.testing.assert_array_equal(batches(loader)[0][1], np.eye(4)[LABELS[:, 0]].T)


def test_elements_are_regrouped(be):
    loader = Retuple(DataLoaderAdapter(Loader((IMAGES, LABELS, LABELS * 5))), data=(0, 2), target=(1,))
    (x, z), t = next(iter(loader))
    assert x.shape == (12, 2)
    np.testing.assert_array_equal(z.get(), rows(LABELS * 5))
    np.testing.assert_array_equal(t.get(), rows(LABELS))


def test_an_image_is_saved(be, tmp_path):
    loader = DumpImage(
        DataLoaderAdapter(Loader()), 0, image_index=1, outshape=(3, 2, 2), output_directory=tmp_path / "x"
    )
    assert len(list(loader)) == 2
    with Image.open(tmp_path / "x" / "1.png") as saved:
        np.testing.assert_array_equal(np.asarray(saved), (IMAGES[1] + 1).transpose(1, 2, 0))
    with pytest.raises(ArgumentError, match="an image has 12 values"):
        list(DumpImage(DataLoaderAdapter(Loader()), 0, 1, (1, 2, 2), tmp_path))


def test_transform_must_be_defined_and_return_something(be):
    with pytest.raises(NotImplementedError, match="transform"):
        list(DataLoaderTransformer(DataLoaderAdapter(Loader()), 0))

    class Nothing(DataLoaderTransformer):
        def transform(self, t):
            return None

    with pytest.raises(ValueError, match="Nothing: transform returned None"):
        list(Nothing(DataLoaderAdapter(Loader()), index=1))

    class Swapped(DataLoaderTransformer):
        def transform(self, t):
            return t[::-1]

    t, x = next(iter(Swapped(DataLoaderAdapter(Loader()))))
    assert (t.shape, x.shape) == ((1, 2), (12, 2))


# aeon -----------------------------------------------------------------------------------------------------------------


def test_aeon_is_named_where_it_lacks(be):
    with pytest.raises(ImportError, match="ImageFolder"):
        AeonDataLoader({})


def test_aeons_batches_come_through_the_adapter(be, monkeypatch):
    fake = types.ModuleType("aeon")
    fake.DataLoader = lambda config: Loader()
    monkeypatch.setitem(sys.modules, "aeon", fake)
    assert isinstance(AeonDataLoader({}), DataLoaderAdapter)
    assert isinstance(AeonDataLoader({}, adapter=False), Loader)


def test_a_manifest_is_converted(tmp_path):
    (tmp_path / "old.csv").write_text("a.jpg,1.txt\n\n# comment\nb c.jpg,2.txt\n")
    convert_manifest(str(tmp_path / "old.csv"), str(tmp_path / "new.tsv"))
    assert (tmp_path / "new.tsv").read_text() == "@FILE\t@FILE\na.jpg\t1.txt\nb c.jpg\t2.txt\n"
    with pytest.raises(FileNotFoundError, match="no file"):
        convert_manifest(str(tmp_path / "none.csv"), "x")
    (tmp_path / "old.csv").write_text("a,b\nc\n")
    with pytest.raises(OSError, match="numbers of columns"):
        convert_manifest(str(tmp_path / "old.csv"), str(tmp_path / "new.tsv"))


def test_an_index_of_a_folder(tmp_path):
    for name in ("dogs/b.jpg", "cats/a.jpg", "cats/notes.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    path = Indexer(str(tmp_path)).run()
    lines = open(path, encoding="utf-8").read().splitlines()
    assert lines == ["filename,label", "cats/a.jpg,0", "dogs/b.jpg,1"]
    with pytest.raises(FileNotFoundError, match=r"\*\.png"):
        Indexer(str(tmp_path), pattern="*.png").run()
