"""Weights and models in the formats of other libraries: safetensors, PyTorch's ``state_dict``, ONNX.

The methods of models call this package; docs/exchange.md describes the formats.
"""

from neonlike.exchange.differences import Differences

__all__ = ["Differences"]
