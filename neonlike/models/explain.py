"""Report of the layers that the backend computes together."""

from __future__ import annotations

from typing import Any

from neonlike.errors import ArgumentError
from neonlike.layers.container import LayerContainer


def explain(network: Any) -> str:
    """Describe each layer in a line: shapes, work taken over from other layers, and work left to others.

    Raises
    ------
    ArgumentError
        If the network's shapes are not known yet.
    """
    if network.in_shape is None:
        raise ArgumentError(
            f"{network.name}: nothing is known of the network before it knows the shape of its input; call "
            "model.initialize(data)"
        )
    leaves = list(network.layers_fprop())
    widths = [max(map(len, column)) for column in zip(*((layer.name, layer.classnm) for layer in leaves), strict=True)]
    return "\n".join(_lines(network, 0, widths))


def _lines(layer: Any, level: int, widths: list[int]) -> list[str]:
    if isinstance(layer, LayerContainer):
        head = [f"{'  ' * level}{layer.classnm} '{layer.name}'"]
        return head + [line for part in layer.layers for line in _lines(part, level + 1, widths)]
    name, kind = layer.name.ljust(widths[0]), layer.classnm.ljust(widths[1])
    shapes = f"{_shape(layer.in_shape)} -> {_shape(layer.out_shape)}"
    notes = "; ".join(_notes(layer))
    return [f"{'  ' * level}{name}  {kind}  {shapes}{'  | ' + notes if notes else ''}"]


def _notes(layer: Any) -> list[str]:
    if layer.folded_into is not None:
        return [f"computed by {layer.folded_into.name}"]
    notes: list[str] = layer.notes() if hasattr(layer, "notes") else []
    notes += _factors(layer)
    if layer.folded:
        passes = "forward and backward" if hasattr(layer, "error_left") else "forward"
        notes.append(f"one call with {', '.join(part.name for part in layer.folded)} ({passes})")
    if getattr(layer, "weight_bias", None) is not None:
        notes.append("adds its bias in the same call")
    before = layer.prev_layer
    if layer.batch_sum_shape is not None and not layer.sums_left:
        notes.append("sums its outputs in the same call")
    if layer.takes_sums and getattr(before, "batch_sum_shape", None) is not None:
        notes.append(
            f"sums the outputs of {before.name} in its call" if before.sums_left else f"takes its sums of {before.name}"
        )
    return notes


def _factors(layer: Any) -> list[str]:
    """The precision of the layer's products, of both passes together if it is the same."""
    told = [dict.fromkeys(layer.be.factors_of(*one) for one in layer.products(backward)) for backward in (False, True)]
    forward, backward = (" and ".join(filter(None, texts)) for texts in told)
    if forward == backward:
        return [f"multiplies {forward}"] if forward else []
    return [f"multiplies {forward} forward, {backward} backward"]


def _shape(shape: Any) -> str:
    return "x".join(map(str, shape)) if isinstance(shape, tuple) else str(shape)
