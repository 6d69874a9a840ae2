"""The package onnx, which is optional, and the versions that files are written in."""

from __future__ import annotations

from typing import Any

from neonlike.errors import MissingExtra

OPSET, IR_VERSION = 17, 8
"""Versions of the operators and of the format: those of 2022, which programs of today read."""
DOMAIN = "neonlike"
"""Domain of the functions that files define for layers without an operator in this version."""


def onnx_for(operation: str) -> Any:
    """Return the package onnx, with its helpers.

    Raises
    ------
    MissingExtra
        If it is not installed.
    """
    try:
        import onnx
        import onnx.checker
        import onnx.external_data_helper
        import onnx.helper
        import onnx.numpy_helper
        import onnx.reference
        import onnx.shape_inference
    except ImportError as error:
        raise MissingExtra(f"{operation} needs onnx; install it with: pip install 'neonlike[onnx]'") from error
    return onnx
