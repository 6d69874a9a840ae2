"""Files of named arrays and one JSON text: saved models without pickle, described in docs/model_files.md.

A file is an uncompressed ZIP archive, also readable by ``numpy.load``. Each array is a member ``<name>.npy``. The
member ``content.json`` holds the structure around the arrays and the SHA-256 of each; its own SHA-256 is in the comment
of the archive. Reading executes no code, and takes no more memory than the size of the file.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import math
import zipfile
from collections.abc import Callable
from typing import IO, Any

import numpy as np

from neonlike.backends.backend import Tensor
from neonlike.backends.pickling import reduce_tensor, restore_tensor
from neonlike.checks import brief
from neonlike.errors import DTypeError
from neonlike.optree.dtypes import BFLOAT16, as_dtype

MAGIC = b"PK\x03\x04"
FORMAT, VERSION = "neonlike-model", 1
CONTENT = "content.json"
COMMENT = f"{FORMAT} sha256:"
EPOCH = (1980, 1, 1, 0, 0, 0)
"""Date of every member, so that equal contents give equal files."""
HEADERS: dict[tuple[int, int], Callable[..., Any]] = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
LONG = 1 << 31
"""Size in bytes from which members use ZIP's 64-bit form."""


class Unreadable(Exception):
    """The contents of a file are invalid; the text states the reason."""


# -- writing -----------------------------------------------------------------------------------------------------------


def write(obj: Any, file: IO[bytes]) -> None:
    """Write ``obj``: None, numbers, strings, bytes, arrays, tensors, and nested lists, tuples, sets, dictionaries.

    Raises
    ------
    DTypeError
        For any other object; the message has its position in ``obj``.
    """
    arrays: dict[str, np.ndarray] = {}
    tree = _encode(obj, "", arrays)
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        sums = {name: _write_array(archive, name, array) for name, array in arrays.items()}
        described = {"format": FORMAT, "version": VERSION, "content": tree, "sha256": sums}
        text = json.dumps(described, indent=1, allow_nan=False).encode()
        archive.writestr(zipfile.ZipInfo(CONTENT, EPOCH), text)
        archive.comment = (COMMENT + hashlib.sha256(text).hexdigest()).encode()


def _write_array(archive: zipfile.ZipFile, name: str, array: np.ndarray) -> str:
    """Add an array and return the SHA-256 of its member."""
    array = np.ascontiguousarray(array).reshape(array.shape)
    header = io.BytesIO()
    described = {"descr": np.lib.format.dtype_to_descr(array.dtype), "fortran_order": False, "shape": array.shape}
    np.lib.format.write_array_header_1_0(header, described)
    parts: tuple[Any, ...] = (header.getvalue(), array.reshape(-1).view(np.uint8).data)
    digest = hashlib.sha256()
    with archive.open(zipfile.ZipInfo(f"{name}.npy", EPOCH), "w", force_zip64=array.nbytes >= LONG) as member:
        for part in parts:
            digest.update(part)
            member.write(part)
    return digest.hexdigest()


def _encode(value: Any, place: str, arrays: dict[str, np.ndarray]) -> Any:
    """Convert ``value`` to JSON; arrays are collected in ``arrays`` under names that reflect their position."""
    if value is None or type(value) in (bool, int, str):
        return value
    if type(value) is float:
        return value if math.isfinite(value) else {"$float": repr(value)}
    if isinstance(value, np.ndarray | np.generic):
        return _encode_array(value, place, arrays)
    if isinstance(value, list):
        return [_encode(one, f"{place}/{i}", arrays) for i, one in enumerate(value)]
    if isinstance(value, tuple | set | frozenset):
        kind = next(kind for kind in CONTAINERS if isinstance(value, CONTAINERS[kind]))
        return {kind: [_encode(one, f"{place}/{i}", arrays) for i, one in enumerate(value)]}
    if isinstance(value, dict):
        if all(type(key) is str and not key.startswith("$") for key in value):
            return {key: _encode(one, f"{place}/{key}", arrays) for key, one in value.items()}
        pairs = enumerate(value.items())
        return {"$dict": [[_encode(one, f"{place}/{i}", arrays) for one in pair] for i, pair in pairs]}
    if isinstance(value, Tensor):
        return {"$tensor": [_encode(one, f"{place}/{i}", arrays) for i, one in enumerate(reduce_tensor(value)[1])]}
    if isinstance(value, bytes):
        return {"$bytes": base64.b64encode(value).decode()}
    raise DTypeError(
        f"save_params: {place.strip('/') or 'the object'} is {brief(value)} of type {type(value).__name__}, which "
        "files do not hold; they hold numbers, texts, arrays, and lists and dictionaries of these"
    )


CONTAINERS: dict[str, Any] = {"$tuple": tuple, "$set": set, "$frozenset": frozenset}


def _encode_array(value: Any, place: str, arrays: dict[str, np.ndarray]) -> Any:
    array = np.asarray(value)
    if array.dtype.hasobject:
        raise DTypeError(f"save_params: {place.strip('/')} is an array of Python objects, which files do not hold")
    name = place.strip("/") or "array"
    while name in arrays:  # keys may contain slashes
        name += "_"
    entry: dict[str, Any] = {"$array": name}
    if isinstance(value, np.generic):
        entry["scalar"] = True
    if array.dtype.name == BFLOAT16:  # NumPy has no name for it
        array, entry["dtype"] = array.view(np.uint16), BFLOAT16
    arrays[name] = array
    return entry


# -- reading -----------------------------------------------------------------------------------------------------------


def read(file: IO[bytes]) -> Any:
    """Read the object written by :func:`write`.

    Raises
    ------
    Unreadable
        If the file is damaged, incomplete, or from another program.
    """
    with zipfile.ZipFile(file) as archive:
        members = {info.filename: info for info in archive.infolist()}
        archive.fp.seek(0, io.SEEK_END)  # type: ignore[union-attr]
        if sum(info.file_size for info in archive.infolist()) > archive.fp.tell():  # type: ignore[union-attr]
            raise Unreadable("its members are said to be larger than the file")
        comment = archive.comment.decode("ascii", "replace")
        if not comment.startswith(COMMENT) or CONTENT not in members:
            raise Unreadable("it is an archive of another program")
        text = _member(archive, members[CONTENT])
        if hashlib.sha256(text).hexdigest() != comment.removeprefix(COMMENT):
            raise Unreadable(f"{CONTENT} was changed: its checksum is wrong")
        described = json.loads(text)
        if described["version"] > VERSION:
            raise Unreadable(f"it has version {described['version']}, this library reads up to {VERSION}; update it")
        arrays = {name: _read_array(archive, members, name, digest) for name, digest in described["sha256"].items()}
    return _decode(described["content"], arrays)


def _member(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytearray:
    """Read a member, with no more bytes than the file has."""
    if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size:
        raise Unreadable(f"{info.filename} is compressed, as no file of ours is")
    content = bytearray(info.file_size)
    with archive.open(info) as opened:
        member: Any = opened
        if member.readinto(content) != len(content) or member.read(1):
            raise Unreadable(f"{info.filename} is not there whole")
    return content


def _read_array(archive: zipfile.ZipFile, members: dict[str, zipfile.ZipInfo], name: str, digest: str) -> np.ndarray:
    if (info := members.get(f"{name}.npy")) is None:
        raise Unreadable(f"the array {name} is missing")
    content = _member(archive, info)
    if hashlib.sha256(content).hexdigest() != digest:
        raise Unreadable(f"the array {name} was changed: its checksum is wrong")
    header = io.BytesIO(content[: 1 << 16])
    shape, fortran, dtype = HEADERS[np.lib.format.read_magic(header)](header)
    start = header.tell()
    if dtype.hasobject or math.prod(shape) * dtype.itemsize != len(content) - start:
        raise Unreadable(f"the array {name} is not there whole, or holds objects")
    # Into a separate array, which is aligned.
    array = np.empty(shape, dtype, order="F" if fortran else "C")
    array.reshape(-1, order="A").view(np.uint8)[...] = np.frombuffer(content, np.uint8, offset=start)
    return array


def _decode(tree: Any, arrays: dict[str, np.ndarray]) -> Any:
    if isinstance(tree, list):
        return [_decode(one, arrays) for one in tree]
    if not isinstance(tree, dict):
        return tree
    kind = next(iter(tree), "")
    if not kind.startswith("$"):
        return {key: _decode(one, arrays) for key, one in tree.items()}
    inside = tree[kind]
    if kind == "$array":
        array = arrays[inside]
        if tree.get("dtype") == BFLOAT16:
            array = array.view(as_dtype(BFLOAT16))
        return array[()] if tree.get("scalar") else array
    if kind in CONTAINERS:
        return CONTAINERS[kind]([_decode(one, arrays) for one in inside])
    if kind == "$dict":
        return {_decode(key, arrays): _decode(one, arrays) for key, one in inside}
    if kind == "$tensor":
        return restore_tensor(*(_decode(one, arrays) for one in inside))
    if kind == "$float":
        return {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}[inside]
    if kind == "$bytes":
        return base64.b64decode(inside, validate=True)
    raise Unreadable(f"it holds a {kind[:20]}, which this version does not know")
