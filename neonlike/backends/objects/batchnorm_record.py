"""Records of ``BatchNormOp`` (``objects/batchnorm.py``) as plain values, and their restoration."""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from neonlike.backends.descriptors import TensorDesc
from neonlike.checks import brief, is_real
from neonlike.errors import ArgumentError, BackendUnavailable

STATISTICS = ("running_mean", "running_variance", "saved_sum", "saved_variance")
PLAIN = ("mode", "nan", "format", "dtype", "dims", "strides", "epsilon", "averaging_factor")


def record_of(op: Any) -> dict[str, Any]:
    """See ``BatchNormOp.info``."""
    desc = op.desc
    return {
        "mode": op.mode,
        "nan": op.nan,
        "format": desc.layout,
        "dtype": desc.dtype.name,
        "dims": list(desc.shape),
        "strides": list(desc.strides),
        "epsilon": op.epsilon,
        "averaging_factor": op.averaging_factor,
        **{name: _text(tensor.get()) for name, tensor in op._statistics().items()},
    }


def restored(cls: Any, record: Any, be: Any) -> Any:
    """See ``BatchNormOp.from_info``.

    Parameters
    ----------
    cls : type
        ``BatchNormOp``.
    record : mapping
    be : Backend or None
    """
    if be is None:
        raise BackendUnavailable("batchnorm_op.from_info: there is no backend; call gen_backend() first")
    if not isinstance(record, Mapping):
        raise ArgumentError(f"batchnorm_op.from_info: needs what info() returned, got {brief(record)}")
    missing = [name for name in (*PLAIN, *STATISTICS) if name not in record]
    if missing:
        raise ArgumentError(f"batchnorm_op.from_info: the record has no {', '.join(missing)}")
    op = cls(be, record["mode"], record["nan"])
    desc = TensorDesc(record["dims"], record["dtype"], record["format"])
    if list(record["strides"]) != list(desc.strides):
        raise ArgumentError(
            f"batchnorm_op.from_info: strides {brief(record['strides'])} are not {desc.strides}, those of dims "
            f"{desc.shape}"
        )
    numbers = [_number(name, record[name]) for name in ("epsilon", "averaging_factor")]
    if (numbers[0] is None) != (numbers[1] is None):
        raise ArgumentError("batchnorm_op.from_info: either epsilon or averaging_factor is missing")
    op.stage(desc)
    stats = op.scale_bias_desc()
    values = {name: _values(name, record[name], stats) for name in STATISTICS}
    for name, tensor in op._statistics().items():
        tensor.set(values[name])
    op.epsilon, op.averaging_factor = numbers
    return op


def _text(values: np.ndarray[Any, Any]) -> str:
    little = values.astype(values.dtype.newbyteorder("<"))
    return base64.b64encode(little.tobytes()).decode("ascii")


def _values(name: str, text: Any, stats: TensorDesc) -> np.ndarray[Any, Any]:
    try:
        data = base64.b64decode(text, validate=True)
    except (TypeError, ValueError, binascii.Error):
        raise ArgumentError(f"batchnorm_op.from_info: {name} must be a base64 text, got {brief(text)}") from None
    if len(data) != stats.nbytes:
        raise ArgumentError(
            f"batchnorm_op.from_info: {name} has {len(data)} bytes, {stats.size} values of {stats.dtype.name} take "
            f"{stats.nbytes}"
        )
    return np.frombuffer(data, stats.dtype.newbyteorder("<")).astype(stats.dtype)


def _number(name: str, value: Any) -> float | None:
    if value is None:
        return None
    if not is_real(value) or isinstance(value, bool) or not math.isfinite(value) or value < 0:
        raise ArgumentError(f"batchnorm_op.from_info: {name} must be a number from 0 on or None, got {brief(value)}")
    return float(value)
