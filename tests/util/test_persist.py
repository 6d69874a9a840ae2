"""Saved files, folders for caches, and descriptions of saved models."""

from __future__ import annotations

import gzip
import io
import os
import pickle
import re

import numpy as np
import pytest

from neonlike.callbacks.callbacks import Callbacks
from neonlike.data import ArrayIterator
from neonlike.errors import ArgumentError, ArgumentTypeError, DTypeError
from neonlike.initializers import Constant, Gaussian
from neonlike.layers import Affine, Sequential
from neonlike.models import Model
from neonlike.transforms import Rectlin, Softmax
from neonlike.util import persist
from neonlike.util.compat import PY3, pickle_load, xrange
from neonlike.util.modeldesc import ModelDescription
from neonlike.util.persist import is_plain, load_obj, save_obj


class TestFiles:
    """save_obj and load_obj."""

    def test_there_and_back(self, tmp_path):
        obj = {"a": np.arange(3), "b": [1, (2, "x")]}
        path = tmp_path / "new" / "folders" / "x.p"
        save_obj(obj, path)
        again = load_obj(str(path))
        np.testing.assert_array_equal(again["a"], obj["a"])
        assert again["b"] == obj["b"]
        assert path.read_bytes()[:2] == b"\x80\x02", "a protocol that every Python reads"
        assert os.listdir(path.parent) == ["x.p"], "no temporary file is left"

    def test_elements_of_bfloat16_are_plain(self, be, tmp_path):
        """They are among the numbers that files store, as elements of float16 are."""
        half = be.array([[0.5]], dtype="bfloat16").get()[0, 0]
        assert is_plain({"best": [half, np.float16(1)]}) and not is_plain([object()])
        save_obj({"best": half}, tmp_path / "state.p")
        assert load_obj(tmp_path / "state.p")["best"] == half

    def test_home_and_variables_are_expanded(self, tmp_path, monkeypatch):
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.setenv("WHERE", "there")
        save_obj(1, "~/$WHERE/x.p")
        assert load_obj("~/$WHERE/x.p") == 1 and (tmp_path / "there" / "x.p").exists()

    @pytest.mark.parametrize("path", [None, 3, ("a", "b")])
    def test_what_is_no_path_is_named(self, path):
        with pytest.raises(ArgumentTypeError, match=re.escape(f"must be a str or an os.PathLike, got {path!r}")):
            persist.expand(path)

    def test_compressed_files_open_files_and_bytes(self, tmp_path):
        data = pickle.dumps([1, 2], 2)
        (tmp_path / "x.p.gz").write_bytes(gzip.compress(data))
        assert load_obj(str(tmp_path / "x.p.gz")) == load_obj(io.BytesIO(data)) == [1, 2]
        (tmp_path / "x.p").write_bytes(data)
        assert load_obj(os.fsencode(tmp_path / "x.p")) == [1, 2]

    def test_an_empty_path_saves_nothing(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        save_obj(1, "")
        save_obj(1, None)
        assert os.listdir(tmp_path) == []

    def test_a_failed_save_leaves_the_old_file(self, tmp_path):
        path = tmp_path / "x.p"
        save_obj("old", path)
        with pytest.raises((pickle.PicklingError, AttributeError, TypeError)):
            save_obj(lambda: 0, path)
        assert load_obj(path) == "old" and os.listdir(tmp_path) == ["x.p"]

    @pytest.mark.parametrize("step", ["replace", "dump"])
    def test_an_interrupted_save_leaves_a_whole_file(self, tmp_path, monkeypatch, step):
        path = tmp_path / "x.p"
        save_obj("old", path)
        module = pickle if step == "dump" else os
        original = getattr(module, step)

        def interrupted(*args, **kwargs):
            original(*args, **kwargs)
            raise KeyboardInterrupt

        monkeypatch.setattr(module, step, interrupted)
        with pytest.raises(KeyboardInterrupt):
            save_obj("new", path)
        assert load_obj(path) == ("new" if step == "replace" else "old") and os.listdir(tmp_path) == ["x.p"]

    def test_a_folder_is_no_file(self, tmp_path):
        for path in (str(tmp_path), f"{tmp_path}/new/"):
            with pytest.raises(IsADirectoryError, match="is a folder"):
                save_obj([1], path)

    def test_a_vanished_class_is_explained(self, tmp_path):
        text = b"\x80\x02cneonlike.layers.layer\nNoSuchLayer\n)\x81."
        (tmp_path / "x.p").write_bytes(text)
        with pytest.raises(AttributeError, match="another version"):
            load_obj(str(tmp_path / "x.p"))

    @pytest.mark.parametrize("content", [b"", b"not a pickle", b"\x89HDF\r\n\x1a\n"])
    def test_a_file_that_is_no_pickle_is_named(self, tmp_path, content):
        (tmp_path / "x.p").write_bytes(content)
        with pytest.raises(pickle.UnpicklingError, match=r"x\.p is not a file written by save_obj"):
            load_obj(str(tmp_path / "x.p"))

    def test_pickles_of_python_2(self):
        assert pickle_load(io.BytesIO(b"\x80\x02U\x03\xe9abq\x00.")) == "éab"
        assert PY3 is True and xrange is range


class TestFolders:
    """Where caches live."""

    def test_environment_variables(self, tmp_path, monkeypatch):
        monkeypatch.setenv("NEON_CACHE_DIR", str(tmp_path / "c"))
        monkeypatch.setenv("NEON_DATA_CACHE_DIR", str(tmp_path / "d"))
        assert persist.get_cache_dir("x") == str(tmp_path / "c" / "x")
        assert persist.get_cache_dir(["x", "y"]) == str(tmp_path / "c" / "x" / "y")
        assert persist.get_data_cache_dir("/nowhere", "z") == str(tmp_path / "d" / "z")
        assert persist.get_data_cache_or_nothing("z") == str(tmp_path / "d" / "z")
        assert (tmp_path / "c" / "x" / "y").is_dir() and (tmp_path / "d" / "z").is_dir()

    def test_defaults(self, tmp_path, monkeypatch):
        monkeypatch.delenv("NEON_CACHE_DIR", raising=False)
        monkeypatch.delenv("NEON_DATA_CACHE_DIR", raising=False)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        assert persist.get_cache_dir() == str(tmp_path / "cache" / "neonlike")
        assert persist.get_data_cache_dir(str(tmp_path / "data")) == str(tmp_path / "data")
        assert persist.get_data_cache_or_nothing() == ""

    def test_a_user_without_a_home_is_told_which_variable_names_a_folder(self, monkeypatch):
        def homeless():
            raise RuntimeError("Could not determine home directory.")

        for name in ("NEON_CACHE_DIR", "XDG_CACHE_HOME"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setattr(persist.Path, "home", homeless)
        with pytest.raises(ArgumentError, match=r"home directory.*NEON_CACHE_DIR"):
            persist.get_cache_dir()

    def test_ensure_dirs_exist(self, tmp_path):
        path = str(tmp_path / "a" / "b" / "file.txt")
        assert persist.ensure_dirs_exist(path) == path
        assert os.path.isdir(tmp_path / "a" / "b") and not os.path.exists(path)
        assert persist.ensure_dirs_exist("file.txt") == "file.txt"


def make(name="net", nout=5):
    return Model(
        [
            Affine(nout, Gaussian(), bias=Constant(0), activation=Rectlin(), name="first"),
            Sequential([Affine(3, Gaussian(), activation=Softmax(), name="second")], name=name),
        ]
    )


class TestModelDescription:
    """Searching and comparing saved models."""

    @pytest.fixture
    def described(self, be):
        return ModelDescription(make().get_description())

    def test_layers_and_fields(self, described):
        assert described.layers() == ["first", "first_bias", "first_Rectlin", "second", "second_Softmax"]
        assert described.layers(regex="^second") == ["second", "second_Softmax"]
        assert described.layers("nout") == [5, 3]
        assert described.layers("type")[0] == "neonlike.layers.layer.Linear"
        assert described.version

    def test_find_by_name(self, described):
        assert described.getlayer("second")["config"]["nout"] == 3
        assert described.getlayer("net")["container"] is True
        assert described.getlayer("third") is None

    def test_from_a_file(self, be, tmp_path):
        model = make()
        model.initialize(4)
        model.save_params(tmp_path / "m.p")
        for path in (str(tmp_path / "m.p"), tmp_path / "m.p"):
            assert ModelDescription(path) == ModelDescription(model.serialize())
        save_obj([1], tmp_path / "list.p")
        with pytest.raises(DTypeError, match="list"):
            ModelDescription(str(tmp_path / "list.p"))

    def test_defect_34_only_the_key_name_is_skipped(self, be):
        match = ModelDescription.match
        assert match({"name": "a", "x": 1}, {"name": "b", "x": 1})
        assert not match({"name": "a", "x": 1}, {"name": "b", "x": 2})
        assert not match({"name": "a", "x": 1}, {"name": "a"})
        assert match([{"x": np.ones(2)}], [{"x": np.ones(2)}])
        assert not match([{"x": np.ones(2)}], [{"x": np.zeros(2)}]) and not match([1], [1, 2])
        assert ModelDescription(make("a").get_description()) == ModelDescription(make("b").get_description())
        assert ModelDescription(make().get_description()) != ModelDescription(make(nout=6).get_description())


def test_serialize_describes_the_whole_experiment(be, rng):
    be.bsz = 4
    model = make()
    data = ArrayIterator(rng.normal(size=(8, 4)), name="train")
    described = persist.serialize(model, Callbacks(model), {"train": data})
    assert described["datasets"]["train"]["config"]["name"] == "train"
    assert [entry["type"].split(".")[-1] for entry in described["callbacks"]["callbacks"]] == [
        "TrainCostCallback", "ProgressBarCallback", "TrainLoggerCallback", "RunTimerCallback",
    ]  # fmt: skip
    assert persist.serialize(model, datasets=[data])["datasets"][0]["config"]["name"] == "train"
