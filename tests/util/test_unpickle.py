"""Files are read, not run: hostile, damaged or old pickles in load_obj and Model."""

from __future__ import annotations

import collections
import functools
import gzip
import io
import os
import pickle
import posixpath
import random
import re
import struct
import subprocess
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from neonlike.errors import DTypeError
from neonlike.models import Model
from neonlike.optree.values import values
from neonlike.util import unpickle
from neonlike.util.compat import pickle_load
from neonlike.util.persist import LoadError, RefusedContent, UnreadableFile, admit, load_obj, save_obj


class Calls:
    """Pickles as a call of a function."""

    def __init__(self, function, *args, state=None):
        self.parts = (function, args) if state is None else (function, args, state)

    def __reduce__(self):
        return self.parts


class Plain:
    """A class of a user's own."""

    def __init__(self, value=0):
        self.value = value


def load(data):
    return load_obj(io.BytesIO(data))


def text(*lines):
    """A pickle of protocol 0, from its lines."""
    return "\n".join(lines).encode()


def named(module, name):
    """A pickle of protocol 4 that is the object of that name, dots and all."""
    return b"\x80\x04" + b"".join(b"\x8c" + bytes([len(part)]) + part.encode() for part in (module, name)) + b"\x93."


MARK = "neonlike-was-here"
CORE = np._core if hasattr(np, "_core") else np.core
"""NumPy's inner package, renamed in NumPy 2."""
HOSTILE = {
    "os.system": pickle.dumps(Calls(os.system, f"touch {MARK}")),
    "posix.system by hand": text("cposix", "system", f"(S'touch {MARK}'", "tR."),
    "subprocess.Popen": pickle.dumps(Calls(subprocess.Popen, ["touch", MARK])),
    "builtins.eval": pickle.dumps(Calls(eval, f"open('{MARK}', 'w')")),
    "builtins.exec of Python 2": text("c__builtin__", "execfile", f"(S'{MARK}'", "tR."),
    "builtins.getattr": text("cbuiltins", "getattr", "(S'x'", "S'y'", "tR."),
    "builtins.__import__": pickle.dumps(Calls(__import__, "os")),
    "builtins.open": pickle.dumps(Calls(open, MARK, "w")),
    "functools.partial": pickle.dumps(functools.partial(os.system, f"touch {MARK}")),
    "posixpath.join": pickle.dumps(posixpath.join),
    "a name with dots": named("builtins", "str.__class__"),
    "a nested name of the library": named("neonlike.util.persist", "os.system"),
    "a function of the library": b"\x80\x02cneonlike.util.persist\nsave_obj\n(U\x04evilU\x11neonlike-was-heretR.",
    "a module of NumPy": text("cnumpy.testing._private.utils", "runstring", "(S'1'", "(dtR."),
    "numpy.load": pickle.dumps(Calls(np.load, MARK)),
    "numpy.f2py": text("cnumpy.f2py.capi_maps", "eval", f"(S'{MARK}'", "tR."),
    "copyreg._reconstructor": text("ccopy_reg", "_reconstructor", "(c__builtin__", "object", "g0", "NtR."),
    "copyreg.__newobj__": text("ccopyreg", "__newobj__", "(c__builtin__", "list", "tR."),
    "operator.attrgetter": text("coperator", "attrgetter", "(S'__class__'", "tR."),
    "INST": text(f"(S'touch {MARK}'", "ios", "system", "."),
    "OBJ": b"(cos\nsystem\nS'touch neonlike-was-here'\no.",
    "NEWOBJ": b"\x80\x02csubprocess\nPopen\n]U\x05touchaU\x11neonlike-was-herea\x85\x81.",
    "a call of a value": b"\x80\x02c__builtin__\nlist\n(I1000000\ntR.",
    "a call of numpy.ndarray": b"\x80\x02cnumpy\nndarray\n(I8\ntR.",
    "an object of numpy.ndarray": b"\x80\x02cnumpy\nndarray\nI8\n\x85\x81.",
    "attributes of a class": b"\x80\x02ccollections\nOrderedDict\n}U\x06updateK\x01sb.",
    "an array that holds a call": pickle.dumps(np.array([Calls(os.system, f"touch {MARK}")], dtype=object)),
    "the state of an array is a call": pickle.dumps(
        Calls(CORE.multiarray._reconstruct, np.ndarray, (0,), b"b", state=Calls(os.system, f"touch {MARK}"))
    ),
    "a class of the program": pickle.dumps(Plain(1)),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("through", ["load_obj", "gz", "pickle_load", "Model"])
def test_nothing_is_run(be, tmp_path, monkeypatch, name, through):
    monkeypatch.chdir(tmp_path)
    content = HOSTILE[name]
    path = tmp_path / ("evil.p.gz" if through == "gz" else "evil.p")
    path.write_bytes(gzip.compress(content) if through == "gz" else content)
    before = sorted(os.listdir())
    with pytest.raises(RefusedContent, match=r"(?s)holds .*not loaded.*admit") as info:
        if through == "pickle_load":
            with open(path, "rb") as file:
                pickle_load(file)
        else:
            (Model if through == "Model" else load_obj)(str(path))
    assert isinstance(info.value, LoadError | pickle.UnpicklingError) and "evil.p" in str(info.value)
    assert sorted(os.listdir()) == before


def test_a_refusal_says_what_was_refused():
    for name, what in (("os.system", r"posix\.system"), ("subprocess.Popen", r"subprocess\.Popen"),
                       ("a call of a value", "a call of list")):  # fmt: skip
        with pytest.raises(RefusedContent, match=what):
            load(HOSTILE[name])


def array_pickle(dtype, shape, content, copy=b"\x88"):
    """A pickled array with whatever dtype (its pickle), shape and content."""
    opcodes = [
        b"\x80\x04\x8c\x16numpy._core.multiarray\x8c\x0c_reconstruct\x93",
        b"\x8c\x05numpy\x8c\x07ndarray\x93K\x00\x85C\x01b\x87R(K\x01",
        pickle.dumps(shape, 4)[2:-1] if shape else b")",
        dtype,
        b"\x89",
        content,
        b"tb.",
    ]
    return b"".join(op[9:] if op.startswith(b"\x95") else op for op in opcodes)


def dtype_pickle(spec, state=None):
    return b"".join([
        b"\x8c\x05numpy\x8c\x05dtype\x93\x8c", bytes([len(spec)]), spec.encode(), b"\x89\x88\x87R",
        b"" if state is None else state + b"b",
    ])  # fmt: skip


def structure(dtype, offset):
    """The state of a dtype of 8 bytes with one field."""
    return (
        b"(K\x03\x8c\x01|N\x8c\x01a\x85}\x8c\x01a"
        + dtype_pickle(dtype)
        + bytes([75, offset])
        + b"\x86sK\x08K\x01K\x00t"
    )


SHORT = b"C\x08" + bytes(8)
BOMBS = {
    "an array of 8 TB without its bytes": array_pickle(dtype_pickle("f8"), (1 << 40,), SHORT),
    "an array of a size that overflows": array_pickle(dtype_pickle("f8"), (1 << 62, 8), SHORT),
    "an array of negative size": array_pickle(dtype_pickle("f8"), (-1,), SHORT),
    "many elements without a size": array_pickle(dtype_pickle("V0"), (1 << 40,), b"C\x00"),
    "objects from bytes": array_pickle(dtype_pickle("O"), (1,), SHORT),
    "objects hidden in a structure": array_pickle(dtype_pickle("V8", structure("O", 0)), (1,), SHORT),
    "a field outside of its structure": array_pickle(dtype_pickle("V8", structure("f8", 64)), (1,), SHORT),
    "a dtype of a string that NumPy would parse": array_pickle(dtype_pickle("(1,)f8,i4"), (1,), SHORT),
    "bytearray of a number": b"\x80\x02c__builtin__\nbytearray\n\x8a\x06\x00\x00\x00\x00\x00\x01\x85R.",
    "set of a range": b"\x80\x02c__builtin__\nset\nc__builtin__\nxrange\n\x8a\x06\x00\x00\x00\x00\x00\x01\x85R\x85R.",
    "a text of 2**60 characters": b"\x80\x04\x8d" + struct.pack("<Q", 1 << 60) + b"x.",
    "keys nested deeper than the stack": b"\x80\x02}K\x00" + b"\x85" * 500_000 + b"K\x01s.",
    "a set of keys nested deeper than the stack": b"\x80\x04\x8f(K\x00" + b"\x85" * 500_000 + b"\x90.",
    "a key that holds itself twice, forty times": b"\x80\x02}K\x00" + b"2\x86" * 40 + b"K\x01s.",
    "the extension registry": b"\x80\x02\x82\x01.",
    "a persistent object": b"Pname\n.",
}  # fmt: skip


@pytest.mark.parametrize("name", BOMBS)
def test_what_makes_no_sense_is_unreadable(tmp_path, name):
    (tmp_path / "bomb.p").write_bytes(BOMBS[name])
    with pytest.raises(UnreadableFile, match=r"bomb\.p is not a file written by save_obj"):
        load_obj(tmp_path / "bomb.p")


def test_the_dtypes_of_numpy_cannot_be_changed():
    swapped = b"\x80\x04]" + dtype_pickle("f4", b"(K\x03\x8c\x01>NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00t") + b"a."
    assert load(swapped.replace(b"\x89\x88\x87R", b"\x85R")) == [np.dtype(">f4")]
    assert np.dtype("f4").isnative


SAMPLES = {
    "plain": {"a": [1, (2.5, "é"), None, True], 3: {1, 2}, "f": frozenset("ab"), "b": b"\x00\xff", "n": 9**40},
    "ordered": collections.OrderedDict([("b", 1), ("a", [2])]),
    "containers": [collections.defaultdict(list, a=[1]), collections.deque([1, 2], 2), collections.Counter("aab")],
    "builtins": [slice(1, 2, None), range(3), 1 + 2j, bytearray(b"abc"), bytearray(), b"", set(), float],
    "scalar types": [np.float32, np.int64, np.bool_, ml_dtypes.bfloat16],
    "a dtype": np.dtype(">f4"),
}


@pytest.mark.parametrize("protocol", [0, 1, 2, 4, 5])
@pytest.mark.parametrize("name", SAMPLES)
def test_plain_things_come_back(name, protocol):
    sample = SAMPLES[name]
    again = load(pickle.dumps(sample, protocol))
    assert again == sample and type(again) is type(sample)


RANDOM = np.random.default_rng(0)
ARRAYS = [
    np.arange(6, dtype=np.float32).reshape(2, 3), np.asfortranarray(np.arange(6.0).reshape(2, 3)), np.zeros((0, 4)),
    np.array(3), np.arange(4)[::2], np.array(["a", "bcd"]), np.array([b"x", b"yz"]), np.arange(3, dtype=">i4"),
    np.array([1, None, "x", [2]], dtype=object), np.array([True, False]), np.array([1 + 2j]),
    np.array(["2020-01-02"], "M8[D]"), np.array(["2020-01-02T03:04"], ">M8[25s]"),
    np.array([(1, 2.5), (3, 4.5)], dtype=[("a", "i4"), ("b", ">f8")]), np.arange(3).astype(ml_dtypes.bfloat16),
    np.array([(1, [2, 3])], dtype=np.dtype([("a", "i1"), ("b", "f4", (2,))], align=True)), RANDOM.random((3, 2, 2)).T,
    np.zeros(3, np.float16), np.array([[], []], dtype=object),
]  # fmt: skip


def test_results_that_act_as_numbers_are_saved_as_plain_arrays():
    again = load(pickle.dumps(values(np.full((1, 1), 2.5)), 2))
    assert type(again) is np.ndarray and again.shape == (1, 1) and again.item() == 2.5


@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
@pytest.mark.parametrize("number", range(len(ARRAYS)))
def test_arrays_come_back(number, protocol):
    array = ARRAYS[number]
    again, same = load(pickle.dumps([array, array], protocol))
    assert again is same and type(again) is type(array)
    assert again.dtype == array.dtype and again.shape == array.shape
    assert again.flags.f_contiguous == array.flags.f_contiguous or not array.flags.forc
    assert repr(again.tolist()) == repr(array.tolist()) and again.flags.writeable
    for scalar in array.reshape(-1)[:1] if array.dtype != object else ():
        one = load(pickle.dumps(scalar, protocol))
        assert one == scalar and type(one) is type(scalar)


def test_old_paths_of_numpy_and_texts_of_python_2():
    data = pickle.dumps(np.arange(3, dtype=np.float32), 2)
    old = data.replace(b"numpy._core.multiarray", b"numpy.core.multiarray")
    assert b"numpy.core.multiarray" in old
    np.testing.assert_array_equal(load(old), np.arange(3, dtype=np.float32))
    # As Python 2 wrote an array: its bytes are a string.
    by_python_2 = (
        b"\x80\x02cnumpy.core.multiarray\n_reconstruct\nq\x01cnumpy\nndarray\nq\x02K\x00\x85U\x01b\x87Rq\x03(K\x01K\x02\x85"
        b"cnumpy\ndtype\nq\x04U\x02f4K\x00K\x01\x87Rq\x05(K\x03U\x01<NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89"
        b"U\x08\x00\x00\x80?\x00\x00\x00\xc0tb."
    )
    np.testing.assert_array_equal(load(by_python_2), np.array([1, -2], np.float32))
    assert load(b"\x80\x02U\x03\xe9abq\x00.") == "éab"


def test_damaged_files_never_end_in_another_error(be):
    whole = pickle.dumps({"w": np.arange(50.0), "n": ["a", 1, (2, 3)] * 5, "s": {1, 2}}, 2)
    dice = random.Random(0)
    damaged = [whole[:end] for end in range(len(whole))]
    for _ in range(1500):
        content = bytearray(whole)
        for _ in range(dice.randint(1, 3)):
            content[dice.randrange(len(content))] = dice.randrange(256)
        damaged.append(bytes(content))
    failed = 0
    for content in damaged:
        try:
            load(content)
        except (UnreadableFile, RefusedContent):
            failed += 1
    assert failed >= len(whole), "at least every truncated one"


def test_a_truncated_model_is_named(be, tmp_path):
    (tmp_path / "m.p").write_bytes(pickle.dumps({"model": {}})[:-3])
    with pytest.raises(UnreadableFile, match=r"m\.p"):
        Model(str(tmp_path / "m.p"))


def test_damaged_compressed_files(tmp_path):
    whole = gzip.compress(pickle.dumps(list(range(5000))))
    for number, content in enumerate((b"", b"no gzip", whole[:-20], whole[:40] + b"x" * 30 + whole[70:])):
        (tmp_path / f"{number}.gz").write_bytes(content)
        with pytest.raises(UnreadableFile, match=rf"{number}\.gz"):
            load_obj(tmp_path / f"{number}.gz")


def test_classes_of_a_program_are_admitted_by_name(tmp_path, monkeypatch):
    monkeypatch.setattr(unpickle, "_admitted", {})
    save_obj([Plain(7)], tmp_path / "x.p")
    with pytest.raises(RefusedContent, match=r"test_unpickle\.Plain"):
        load_obj(tmp_path / "x.p")
    admit(Plain)
    assert load_obj(tmp_path / "x.p")[0].value == 7
    with pytest.raises(DTypeError, match="classes"):
        admit("Plain")


def test_nothing_else_in_the_library_unpickles():
    ways = re.compile(r"pickle\.(loads?|Unpickler|_Unpickler)\b|\bnp\.load\(|allow_pickle=True|import (shelve|marshal)")
    package = Path(unpickle.__file__).parent.parent
    found = {path.relative_to(package).as_posix() for path in package.rglob("*.py") if ways.search(path.read_text())}
    assert found == {"util/unpickle.py"}


def test_the_random_state_of_a_backend_is_read(be):
    state = load(pickle.dumps(be.rng_get_state()))
    assert type(state) is type(be.rng_get_state()) and state.stream == be.rng_get_state().stream


@pytest.mark.parametrize("earlier", unpickle.MOVED)
def test_files_of_earlier_versions_are_read(be, earlier):
    state = be.rng_get_state()
    now = unpickle.MOVED[earlier]
    assert now == type(state).__module__
    read = load(pickle.dumps(state, protocol=0).replace(now.encode(), earlier.encode()))
    assert type(read) is type(state) and read.stream == state.stream


def test_everything_that_the_library_lets_files_name_is_there():
    for path in unpickle.LIBRARY:
        module, _, name = path.rpartition(".")
        found = pickle_load(io.BytesIO(f"c{module}\n{name}\n.".encode()))
        assert found.__module__ == module and found.__name__ == name
