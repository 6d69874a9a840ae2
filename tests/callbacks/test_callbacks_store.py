"""Store of the callbacks' records: HDF5, or the same in memory."""

from __future__ import annotations

import builtins

import numpy as np
import pytest

from neonlike.callbacks.store import MemoryStore, new_dataset, open_store


class TestMemoryStore:
    """The stand-in for h5py behaves like it where it is used."""

    @pytest.fixture(params=["memory", "hdf5"])
    def store(self, request, tmp_path):
        return open_store(None if request.param == "memory" else str(tmp_path / "x.h5"))

    def test_groups_and_datasets(self, store):
        made = store.create_dataset("a/b/c", (2, 3), "float32")
        made[0, 1] = 5
        made.attrs["unit"] = "s"
        assert "a" in store and "a/b/c" in store and "a/x" not in store and "a/b/c/d" not in store
        assert store["a/b/c"][0, 1] == 5 and store["a"]["b/c"].attrs["unit"] == "s"
        assert store["a/b/c"].dtype == np.float32 and store["a/b/c"].shape == (2, 3) and len(store["a/b/c"]) == 2
        assert np.asarray(store["a/b/c"]).sum() == 5
        assert store["a/b/c"].attrs.get("none", 7) == 7
        assert (store["a/b/c"].ndim, store["a/b/c"].size) == (2, 6) and list(store["a/b/c"][0]) == [0, 5, 0]
        assert store.get("a/b/c")[0, 1] == 5 and store.get("x") is None and store.get("x", 3) == 3
        assert store.create_dataset("a/z", (1,), "float32", maxshape=(None,), compression="gzip").shape == (1,)
        seen = []
        assert store.visititems(lambda path, item: seen.append((path, hasattr(item, "shape")))) is None
        assert seen == [("a", False), ("a/b", False), ("a/b/c", True), ("a/z", True)]
        assert store["a"].visititems(lambda path, item: path) == "b"
        del store["a/z"]
        group = store.require_group("g")
        group.attrs["x"] = 1
        assert store.require_group("g").attrs["x"] == 1 and list(store) == list(store.keys()) == ["a", "g"]
        assert store.create_dataset("d", data=np.arange(3)).dtype == np.arange(3).dtype
        store["e/f"] = [1, 2]
        assert store["e/f"].shape == (2,)
        del store["e"]
        assert len(store) == 3 == len(list(store.values())) and [k for k, _ in store.items()] == ["a", "d", "g"]
        with pytest.raises(ValueError, match=r"."):
            store.create_dataset("a/b/c", (1,), "float32")
        with pytest.raises(ValueError, match=r"."):
            store.create_group("a/b")
        with pytest.raises(KeyError):
            store["nothing"]
        del store["a/b/c"]
        assert "a/b/c" not in store
        store.flush()
        store.close()

    def test_a_dataset_is_enlarged_with_its_values(self, store):
        new_dataset(store, "x/y", (2,), kind="old")[...] = [1, 2]
        again = new_dataset(store, "x/y", (4,), kind="new")
        np.testing.assert_array_equal(again[...], [1, 2, np.nan, np.nan])
        assert again.attrs["kind"] == "new"

    def test_reading_gives_a_copy(self):
        made = MemoryStore().create_dataset("x", (2,))
        made[...][0] = 9
        assert made[0] == 0


def test_nothing_imports_h5py_without_need(monkeypatch):
    real = builtins.__import__
    asked = []

    def spy(name, *args, **kwargs):
        asked.append(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", spy)
    open_store(None)
    assert "h5py" not in asked
