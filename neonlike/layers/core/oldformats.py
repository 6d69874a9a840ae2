"""Conversion of layer descriptions saved by early versions of neon."""

from __future__ import annotations

from typing import Any

from neonlike.nervanaobject import Description

OLD_PAIR = ("Convolution", "Bias")
"""The two layers of an early convolution with bias."""


def join_bias(convolution: Description, bias: Description) -> Description:
    """Merge the descriptions of an early convolution and its bias layer into one."""
    joined = dict(convolution)
    if "params" in convolution and "params" in bias:
        joined["params"] = {**convolution["params"], "weight_bias": bias["params"]["W"]}
    joined.pop("states", None)
    joined.pop("steps", None)
    if "states" in convolution and "states" in bias:
        joined["states"] = [convolution["states"], bias["states"]]
    return joined


def join_biases(saved: list[Any], layers: list[Any]) -> list[Any]:
    """Merge such pairs in the saved descriptions of a chain where ``layers`` has one layer."""
    found: list[Any] = []
    rest = list(saved)
    for layer in layers:
        if not rest:
            break
        if layer.classnm == "Convolution_bias" and tuple(map(_class_name, rest[:2])) == OLD_PAIR:
            rest[:2] = [join_bias(*rest[:2])]
        found.append(rest.pop(0))
    return found + rest


def _class_name(described: Any) -> str:
    return str(described.get("type")).rpartition(".")[2] if isinstance(described, dict) else ""
