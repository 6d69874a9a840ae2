"""Texts for ops along whole lines, shared by C and CUDA: running totals, and integer keys for sorting."""

from __future__ import annotations

from typing import Any

from neonlike.optree.dtypes import DType, is_float

RUNNING_TOTALS = {"cumsum": ("0", "+"), "cumprod": ("1", "*")}
"""Op -> initial value of a running total, and its operator."""
_INFINITY = {"float16": 0x7C00, "bfloat16": 0x7F80, "float32": 0x7F800000, "float64": 0x7FF0000000000000}


def key_texts(dtype: DType, descending: bool) -> dict[str, Any]:
    """Bit type of an element, and the lines of a function ``nl_key(bits)`` that returns its sort key.

    Equal elements have equal keys, including 0 and -0, and nan has the largest.
    """
    bits = 8 * dtype.itemsize
    kind = f"uint{bits}_t"
    sign = f"({kind})1 << {bits - 1}"
    turned = f"({kind})~key" if descending else "key"
    if is_float(dtype):
        lines = [
            f"const {kind} sign = ({kind})({sign}), size = bits & ({kind})~sign;",
            f"if (size > ({kind}){_INFINITY[dtype.name]:#x}u{'ll' if bits == 64 else ''})",
            f"    return ({kind})~({kind})0;",
            f"const {kind} key = ({kind})(size == 0 ? sign : bits & sign ? ~bits : bits | sign);",
        ]
    else:
        lines = [f"const {kind} key = ({kind})(bits{f' ^ {sign}' if dtype.kind == 'i' else ''});"]
    return {"bits_type": kind, "key_lines": [*lines, f"return {turned};"]}
