"""Files of named arrays in the safetensors format."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from neonlike.errors import DTypeError, MissingExtra
from neonlike.exchange.places import Arrays
from neonlike.optree.dtypes import BFLOAT16, as_dtype
from neonlike.util.persist import UnreadableFile, read_bytes, write_file

DTYPES = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": BFLOAT16, "I64": "int64", "I32": "int32",
    "I16": "int16", "I8": "int8", "U64": "uint64", "U32": "uint32", "U16": "uint16", "U8": "uint8", "BOOL": "bool",
}  # fmt: skip
"""Names of dtypes in the format -> names of dtypes here."""
LENGTH_BYTES = 8
"""Size of the number before the header, which is the header's size."""


def _library(operation: str) -> Any:
    try:
        import safetensors
        import safetensors.numpy
    except ImportError as error:
        raise MissingExtra(
            f"{operation} needs safetensors; install it with: pip install 'neonlike[safetensors]'"
        ) from error
    return safetensors


def write(path: Any, arrays: Arrays, metadata: Mapping[str, str]) -> None:
    """Write arrays and texts to a file, which replaces an existing one only once it is complete."""
    library = _library("save_safetensors")
    adjacent = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    content: bytes = library.numpy.save(adjacent, metadata=dict(metadata))
    write_file(content, path, "save_safetensors", lambda whole, file: file.write(whole))


def read(path: Any, operation: str) -> tuple[Arrays, dict[str, str]]:
    """Read a file of :func:`write` or of another program: its arrays, in the order of their names, and its texts.

    Raises
    ------
    UnreadableFile
        If it has another format, or is damaged or truncated.
    DTypeError
        If an array has a dtype that NumPy lacks.
    """
    library = _library(operation)
    content = read_bytes(path)
    try:
        entries = library.deserialize(content)
        header = int.from_bytes(content[:LENGTH_BYTES], "little")
        metadata = json.loads(content[LENGTH_BYTES : LENGTH_BYTES + header]).get("__metadata__") or {}
    except Exception as error:  # a damaged file can raise any exception
        raise UnreadableFile(
            f"{operation}: {path} is not a file of the safetensors format, or not a whole one ({str(error)[:200]})"
        ) from error
    entries = sorted(entries, key=lambda entry: _numbers_in(entry[0]))
    return {name: _array(name, entry, path, operation) for name, entry in entries}, metadata


def _numbers_in(name: str) -> list[tuple[int, str]]:
    """Key for sorting that compares the numbers in names by their size."""
    return [(int(part) if part.isdigit() else -1, part) for part in name.split(".")]


def _array(name: str, entry: Mapping[str, Any], path: Any, operation: str) -> np.ndarray:
    if entry["dtype"] not in DTYPES:
        raise DTypeError(
            f"{operation}: {path} holds {name} as {entry['dtype']}; expected one of {', '.join(DTYPES)}"
        )
    found: np.ndarray = np.frombuffer(bytes(entry["data"]), as_dtype(DTYPES[entry["dtype"]]))
    return found.reshape(entry["shape"])
