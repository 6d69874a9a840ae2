"""Files of saved models: arrays and JSON, and pickles with a checksum."""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

from neonlike.errors import DTypeError
from neonlike.models import Model
from neonlike.util import archive, atomic
from neonlike.util.persist import UnreadableFile, load_obj, save_model, save_obj
from tests.models.test_resume import Experiment, same, straight

CONTENT = {
    "numbers": [0, -(2**70), 1.5, True, None, float("inf"), 1e-300],
    "texts": ["", "nul \0", "Größe", "\ud800"],
    "containers": ((1, (2,)), {"a": {}}, [], {1: "one", (2, "x"): [3]}, {"$array": "no array"}, {4, 5}, frozenset("q")),
    "bytes": b"\x00\xff",
    "arrays": {
        "W/0": np.arange(6, dtype=np.float32).reshape(2, 3).T,
        "scalar": np.float32(0.1),
        "empty": np.zeros((0, 3), np.int8),
        "rank 0": np.array(3.0),
        "bits": np.array([True, False]),
        "bfloat16": np.array([[1.5, -2.0]], ml_dtypes.bfloat16),
        "big-endian": np.arange(3, dtype=">i4"),
        "records": np.array([(1, 2.5)], [("a", "i4"), ("b", "f8")]),
    },
    "rng": ("MT19937", np.arange(624, dtype=np.uint32), 3, 0, 0.0),
}


@pytest.fixture
def saved(tmp_path):
    save_model(CONTENT, tmp_path / "x.prm")
    return tmp_path / "x.prm"


class TestArchive:
    """The form without pickle."""

    def test_there_and_back(self, saved):
        again = load_obj(saved)
        same(again, CONTENT)
        for name, array in CONTENT["arrays"].items():
            assert again["arrays"][name].dtype == array.dtype, name
        assert again["arrays"]["W/0"].flags.writeable
        assert np.isnan(archive.read(io.BytesIO(written(float("nan")))))

    def test_numpy_and_any_json_reader_read_it(self, saved):
        with np.load(saved) as arrays:
            np.testing.assert_array_equal(arrays["rng/1"], CONTENT["rng"][1])
        with zipfile.ZipFile(saved) as file:
            described = json.loads(file.read("content.json"))
        assert described["format"] == "neonlike-model" and described["version"] == 1
        assert described["content"]["arrays"]["W/0"] == {"$array": "arrays/W/0"}

    def test_equal_contents_give_equal_files(self, saved, tmp_path):
        save_model(CONTENT, tmp_path / "y.prm")
        assert (tmp_path / "y.prm").read_bytes() == saved.read_bytes()

    def test_compressed_and_open_files(self, saved, tmp_path):
        (tmp_path / "x.prm.gz").write_bytes(gzip.compress(saved.read_bytes()))
        same(load_obj(tmp_path / "x.prm.gz"), CONTENT)
        same(load_obj(io.BytesIO(saved.read_bytes())), CONTENT)
        with open(saved, "rb") as file:
            same(load_obj(file), CONTENT)

    def test_anything_that_can_be_read(self, saved):
        same(load_obj(SimpleNamespace(read=lambda: saved.read_bytes())), CONTENT)
        with pytest.raises(TypeError, match=r"load_obj: load_path must have read\(\)"):
            load_obj(np.zeros(3))

    @pytest.mark.parametrize("value", [object(), lambda: 0, np.array([None]), 3j])
    def test_what_it_does_not_hold_is_named(self, tmp_path, value):
        with pytest.raises(DTypeError, match=r"save_params: model/config/0 is .*files do not hold|array of Python"):
            save_model({"model": {"config": [value]}}, tmp_path / "x.prm")
        assert os.listdir(tmp_path) == []

    def test_tensors_come_back_on_the_current_backend(self, be):
        tensor = archive.read(io.BytesIO(written({"init": be.array([[1.0, 2.0]])})))["init"]
        np.testing.assert_array_equal(tensor.get(), [[1, 2]])
        assert tensor.backend is be

    def test_damage_is_noticed(self, saved, rng):
        good = saved.read_bytes()
        changed = 0
        for _ in range(150):
            bad = bytearray(good)
            bad[rng.integers(len(bad))] ^= 1 << rng.integers(8)
            saved.write_bytes(bad)
            try:
                same(load_obj(saved), CONTENT)  # a bit that says nothing, such as one of a date
            except UnreadableFile as error:
                assert "x.prm is not a file written by" in str(error)
                changed += 1
        assert changed > 100
        for length in sorted({0, 3, 5, *rng.integers(len(good), size=40), len(good) - 1}):
            saved.write_bytes(good[:length])
            with pytest.raises(UnreadableFile):
                load_obj(saved)


def written(obj):
    file = io.BytesIO()
    archive.write(obj, file)
    return file.getvalue()


def made_by_hand(path, described, members=(), **options):
    """An archive with a right checksum of whatever is in it."""
    text = json.dumps(described).encode()
    with zipfile.ZipFile(path, "w", **options) as file:
        for name, content in members:
            file.writestr(name, content)
        file.writestr("content.json", text)
        file.comment = (archive.COMMENT + archive.hashlib.sha256(text).hexdigest()).encode()


def npy(shape, descr="<f4", content=b""):
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": descr, "fortran_order": False, "shape": shape})
    return header.getvalue() + content


def of_array(content):
    return {"version": 1, "content": {"$array": "a"}, "sha256": {"a": archive.hashlib.sha256(content).hexdigest()}}


class TestHostileFiles:
    """Files that somebody made to do harm."""

    @pytest.mark.parametrize(
        ("content", "words"),
        [
            (npy((10**12,)), "not there whole"),
            (npy((1,), "|O", pickle.dumps([print])), "not there whole, or holds objects"),
            (npy((1,), "|O", bytes(8)), "not there whole, or holds objects"),
            (npy((-1,)), "not there whole"),
            (b"\x93NUMPY\x09\x00", "KeyError"),
        ],
    )
    def test_arrays(self, tmp_path, content, words):
        made_by_hand(tmp_path / "x.prm", of_array(content), [("a.npy", content)])
        with pytest.raises(UnreadableFile, match=words):
            load_obj(tmp_path / "x.prm")

    @pytest.mark.parametrize(
        ("described", "words"),
        [
            ({"version": 2, "content": 1, "sha256": {}}, "version 2.*update"),
            ({"version": 1, "content": {"$array": "a"}, "sha256": {}}, "KeyError"),
            ({"version": 1, "content": 1, "sha256": {"a": ""}}, "array a is missing"),
            ({"version": 1, "content": {"$run": "rm"}, "sha256": {}}, r"\$run"),
            ({"version": 1, "content": {"$dict": [[[], 1]]}, "sha256": {}}, "unhashable"),
            ({"version": 1, "content": {"$tensor": [1]}, "sha256": {}}, "restore_tensor"),
            ([], "list indices"),
        ],
    )
    def test_contents(self, tmp_path, described, words):
        made_by_hand(tmp_path / "x.prm", described)
        with pytest.raises(UnreadableFile, match=words):
            load_obj(tmp_path / "x.prm")

    def test_an_array_that_was_replaced(self, tmp_path):
        """Its CRC in the archive is right, as that of a member that somebody wrote anew."""
        made_by_hand(tmp_path / "x.prm", of_array(npy((1,), content=bytes(4))), [("a.npy", npy((1,), content=b"0000"))])
        with pytest.raises(UnreadableFile, match="array a was changed"):
            load_obj(tmp_path / "x.prm")

    def test_a_bomb(self, tmp_path):
        content = npy((1 << 24,), content=bytes(1 << 26))
        made_by_hand(tmp_path / "x.prm", of_array(content), [("a.npy", content)], compression=zipfile.ZIP_DEFLATED)
        with pytest.raises(UnreadableFile, match="larger than the file"):
            load_obj(tmp_path / "x.prm")

    def test_deep_nesting(self, tmp_path):
        text = b'{"version": 1, "sha256": {}, "content": ' + b"[" * 10**5 + b"]" * 10**5 + b"}"
        with zipfile.ZipFile(tmp_path / "x.prm", "w") as file:
            file.writestr("content.json", text)
            file.comment = (archive.COMMENT + archive.hashlib.sha256(text).hexdigest()).encode()
        with pytest.raises(UnreadableFile, match="Recursion"):
            load_obj(tmp_path / "x.prm")

    def test_another_archive(self, tmp_path):
        np.savez(tmp_path / "x.npz", a=np.ones(3))
        with pytest.raises(UnreadableFile, match="another program"):
            load_obj(tmp_path / "x.npz")


class TestModels:
    """Trainings that go on from such files."""

    @pytest.mark.parametrize("optimizer", ["momentum", "adam", "multi"])
    def test_a_resumed_training_equals_a_straight_one(self, be, tmp_path, optimizer):
        whole, _ = straight(be.backend_name, optimizer, 4)
        Experiment(be, optimizer, save_path=str(tmp_path / "half.prm")).train(2)
        assert (tmp_path / "half.prm").read_bytes()[:4] == archive.MAGIC
        same(Experiment(be, optimizer, tmp_path / "half.prm").train(4).model.serialize(), whole)

    def test_both_forms_hold_the_same(self, be, tmp_path):
        model = Experiment(be).train(1).model
        for name in ("m.prm", "m.pkl", "m"):
            model.save_params(tmp_path / name)
        same(load_obj(tmp_path / "m.prm"), load_obj(tmp_path / "m.pkl"))
        same(load_obj(tmp_path / "m"), load_obj(tmp_path / "m.prm"))
        with open(tmp_path / "m.pkl", "rb") as file:
            same(pickle.load(file, encoding="latin1"), load_obj(tmp_path / "m.pkl"))

    @pytest.mark.parametrize("name", ["m.prm.gz", "m.p.gz"])
    def test_files_called_gz_are_compressed(self, be, tmp_path, name):
        model = Experiment(be).train(1).model
        model.save_params(tmp_path / name)
        assert gzip.decompress((tmp_path / name).read_bytes())[:2] == (b"PK" if "prm" in name else b"\x80\x02")
        same(load_obj(tmp_path / name), model.serialize())
        os.rename(tmp_path / name, tmp_path / "m.prm")
        assert Model(tmp_path / "m.prm").epoch_index == 1

    def test_the_form_is_that_of_the_content_not_of_the_name(self, be, tmp_path):
        model = Experiment(be).train(1).model
        model.save_params(tmp_path / "m.prm")
        os.rename(tmp_path / "m.prm", tmp_path / "m.p")
        assert Model(tmp_path / "m.p").epoch_index == 1


class TestPickles:
    """Their checksums."""

    def test_changed_numbers_are_noticed(self, tmp_path):
        save_obj(np.zeros(1000), tmp_path / "x.p")
        content = bytearray((tmp_path / "x.p").read_bytes())
        content[len(content) // 2] ^= 1
        (tmp_path / "x.p").write_bytes(content)
        with pytest.raises(UnreadableFile, match="checksum"):
            load_obj(tmp_path / "x.p")

    def test_others_read_them_and_have_none(self, tmp_path):
        save_obj([1, 2], tmp_path / "x.p")
        with open(tmp_path / "x.p", "rb") as file:
            assert pickle.load(file) == [1, 2]
        (tmp_path / "y.p").write_bytes(pickle.dumps([1, 2]))
        assert load_obj(tmp_path / "y.p") == [1, 2]


class TestAtomic:
    """State of a file whose writing was interrupted."""

    def test_what_a_killed_process_began_is_removed(self, tmp_path):
        mine = atomic._mine()
        code = "import os, sys; sys.stdout.write(str(os.getpid()))"
        gone = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        kept = [f"{mine}{os.getpid()}-aa", ".save-elsewhere-1-aa", f"{mine}x"]
        for name in (*kept, f"{mine}{gone}-aa"):
            (tmp_path / name).write_text("")
        save_obj(1, tmp_path / "x.p")
        assert sorted(os.listdir(tmp_path)) == sorted([*kept, "x.p"])

    def test_a_file_is_flushed_before_it_has_its_name(self, tmp_path, monkeypatch):
        order = []
        for name in ("fsync", "replace"):
            original = getattr(os, name)
            monkeypatch.setattr(os, name, lambda *a, f=original, n=name: (order.append(n), f(*a))[1])
        save_model([1], tmp_path / "x.prm")
        assert order == ["fsync", "replace", "fsync"]


def kill_at_random_moments(moments: int) -> None:
    script = Path(__file__).with_name("kills.py")
    done = subprocess.run(
        [sys.executable, script, "--moments", str(moments)], capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert f"{moments} kills, 0 wrong" in done.stdout


@pytest.mark.slow
@pytest.mark.cpu_only("kills processes of its own, on the CPU")
def test_a_killed_training_leaves_a_readable_checkpoint():
    kill_at_random_moments(12)
