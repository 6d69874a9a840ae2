"""Report of the layers that the backend computes together, as text, as a table, and as rows of data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from neonlike.errors import ArgumentError
from neonlike.layers.container import LayerContainer
from neonlike.markup import Explanation, Table

if TYPE_CHECKING:
    from neonlike.layers.core.base import Layer

INDENT = "\N{NO-BREAK SPACE}" * 2
"""Before the name of a layer in a table, for each container around it."""
COLUMNS = ("layer", "kind", "input", "output", "parameters", "computed")


@dataclass(frozen=True)
class LayerRow:
    """One layer of a network.

    Attributes
    ----------
    level : int
        Number of containers around it.
    name, kind : str
        Its name and its class.
    inputs, outputs : str
        Shapes; empty for a container.
    parameters : int
        Number of trained and running values of its own.
    notes : list of str
        Work taken over from other layers, and work left to others.
    joined_to : str
        Name of the layer whose call computes this one; empty if it has its own.
    """

    level: int
    name: str
    kind: str
    inputs: str
    outputs: str
    parameters: int
    notes: list[str]
    joined_to: str


def explain(network: LayerContainer, more: Sequence[str] = ()) -> Explanation:
    """Describe each layer in a line: shapes, work taken over from other layers, and work left to others.

    Parameters
    ----------
    more : sequence of str
        Lines about the whole network.

    Raises
    ------
    ArgumentError
        If the network's shapes are not known yet.
    """
    found = rows(network)
    leaves = [row for row in found if row.outputs]
    widths = [max(map(len, column)) for column in zip(*((row.name, row.kind) for row in leaves), strict=True)]
    text = "\n".join([*(_line(row, widths) for row in found), *more])
    lines = tuple(cells(vars(row)) for row in found)
    return Explanation(text, [Table("; ".join(["Layers of the network", *more]), COLUMNS, lines)])


def cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    """The texts below :data:`COLUMNS` for a layer, from the values of its :class:`LayerRow` by their names."""
    name, parameters, notes = INDENT * row["level"] + row["name"], f"{row['parameters']:,}", "; ".join(row["notes"])
    return name, row["kind"], row["inputs"], row["outputs"], parameters, notes


def rows(network: LayerContainer) -> list[LayerRow]:
    """The layers and containers of a network, in the order of the forward pass.

    Raises
    ------
    ArgumentError
        If the network's shapes are not known yet.
    """
    require_shapes(network)
    return list(_rows(network, 0))


def require_shapes(network: LayerContainer) -> None:
    """Raise ArgumentError if the network's shapes are not known yet."""
    if network.in_shape is None:
        raise ArgumentError(
            f"{network.name}: nothing is known of the network before it knows the shape of its input; call "
            "model.initialize(data)"
        )


def _rows(layer: Layer, level: int) -> Iterator[LayerRow]:
    if isinstance(layer, LayerContainer):
        yield LayerRow(level, layer.name, layer.classnm, "", "", 0, [], "")
        for part in layer.layers:
            yield from _rows(part, level + 1)
        return
    yield row_of(layer, level)


def row_of(layer: Layer, level: int = 0) -> LayerRow:
    """The row of a layer that is no container."""
    taker = layer.folded_into
    return LayerRow(
        level, layer.name, layer.classnm, _shape(layer.in_shape), _shape(layer.out_shape), _parameters(layer),
        _notes(layer), "" if taker is None else taker.name,
    )  # fmt: skip


def _parameters(layer: Any) -> int:
    """Number of values of a layer's parameters, of those that are allocated."""
    names = layer.parameter_names() if getattr(layer, "has_params", False) else ()
    tensors = (getattr(layer, name, None) for name in names)
    return sum(int(tensor.size) for tensor in tensors if tensor is not None)


def _line(row: LayerRow, widths: list[int]) -> str:
    indent = "  " * row.level
    if not row.outputs:
        return f"{indent}{row.kind} '{row.name}'"
    notes = "; ".join(row.notes)
    named = f"{indent}{row.name.ljust(widths[0])}  {row.kind.ljust(widths[1])}"
    return f"{named}  {row.inputs} -> {row.outputs}{'  | ' + notes if notes else ''}"


def _notes(layer: Layer) -> list[str]:
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


def _factors(layer: Layer) -> list[str]:
    """The precision of the layer's products, of both passes together if it is the same."""
    told = [dict.fromkeys(layer.be.factors_of(*one) for one in layer.products(backward)) for backward in (False, True)]
    forward, backward = (" and ".join(filter(None, texts)) for texts in told)
    if forward == backward:
        return [f"multiplies {forward}"] if forward else []
    return [f"multiplies {forward} forward, {backward} backward"]


def _shape(shape: Any) -> str:
    return "x".join(map(str, shape)) if isinstance(shape, tuple) else str(shape)
