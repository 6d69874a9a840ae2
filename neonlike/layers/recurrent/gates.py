"""The gates of recurrent layers under neon's names: parts of the buffers of an unroll."""

from __future__ import annotations

from typing import Any

from neonlike.layers.recurrent.steps import get_steps

__public_module__ = "neonlike.layers.recurrent"


def gate(buffer: str, place: int, what: str) -> Any:
    """Property with the steps of a gate, ``(nout, N)`` each, at a fixed place in a layer's ``buffer``.

    Parameters
    ----------
    buffer : str
        Attribute of the layer with all gates, ``(gates * nout, steps * N)``.
    place : int
        Place of the gate among them, from 0.
    what : str
        Name of the gate, for the property's docstring.
    """

    def steps_of(layer: Any) -> Any:
        found = getattr(layer, buffer, None)
        if found is None:
            return None
        rows = found[place * layer.nout : (place + 1) * layer.nout]
        return get_steps(rows, (layer.nout, layer.nsteps))

    return property(steps_of, doc=f"{what} of each step, ``(nout, N)``; None before the layer is allocated.")


def part(name: str, first: int, last: int, what: str) -> Any:
    """Property with the rows of parameter ``name`` for gates ``first`` to before ``last``.

    Parameters
    ----------
    name : str
        Attribute of the layer with the parameter, ``(gates * nout, rows)``.
    first, last : int
        The gates, from ``first`` to before ``last``.
    what : str
        Name of the part, for the property's docstring.
    """

    def rows_of(layer: Any) -> Any:
        found = getattr(layer, name, None)
        return None if found is None else found[first * layer.nout : last * layer.nout]

    return property(rows_of, doc=f"{what}: rows of ``{name}``; None before the layer is allocated.")
