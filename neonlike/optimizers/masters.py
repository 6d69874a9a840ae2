"""Float32 master weights of parameters of 16 bits: updates add to them, and parameters are their rounded values.

A step that moves a number by less than half the distance to the next one of 16 bits would be lost in the parameter, and
late in a training most do. A master weight is the last state of its parameter, whatever the optimizer is, and outlives
a change of optimizers. It counts only as long as it rounds to the parameter: where something else has set the
parameter, as loading and constraints do, an update starts from there. So a master weight begins as 0.

Source: Micikevicius et al., "Mixed precision training", ICLR 2018, section 3.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from neonlike.optimizers.step import Updates
from neonlike.optree.dtypes import F32

if TYPE_CHECKING:
    from neonlike.backends.backend import Backend

DROPPED = {"bfloat16": (16, 2.0**-134), "float16": (13, 2.0**-25)}
"""Mantissa bits that a dtype lacks compared with float32, and half the least distance of two of its numbers."""


def has_master(states: Any) -> bool:
    """Whether the last of a parameter's states is its master weight."""
    return bool(states) and getattr(states[-1], "is_master", False)


def complete_master(be: Backend, param: Any, states: list[Any], wanted: bool) -> None:
    """Add a master weight to the states of a parameter of 16 bits, or drop it unless ``wanted``.

    Parameters
    ----------
    be : Backend
        The backend of the parameter.
    param : Tensor
        The parameter.
    states : list of Tensor
        Its optimizer states, changed in place.
    wanted : bool
        Whether a parameter of 16 bits is to have a master weight.
    """
    wanted = wanted and param.dtype.name in DROPPED
    if wanted == has_master(states):
        return
    if wanted:
        states.append(be.zeros_like(param, dtype=F32))
        states[-1].is_master = True
    else:
        del states[-1]


def masters_of(states: Any) -> Any:
    """Whether a parameter's states end with a master weight; a list for a layer with several parameters."""
    if isinstance(states, list | tuple) and states and isinstance(states[0], list | tuple):
        return [has_master(entry) for entry in states]
    return has_master(states)


def restore_masters(states: Any, masters: Any) -> None:
    """Restore the result of :func:`masters_of`; None changes nothing."""
    if isinstance(masters, list | tuple):
        for entry, one in zip(states, masters, strict=False):
            restore_masters(entry, one)
    elif masters and states:
        states[-1].is_master = True


def by_masters(updates: Updates) -> Updates:
    """The same updates, which add to master weights and round them into the parameters, where there are any."""

    def of_masters(param: Any, grad: Any, states: list[Any], *numbers: Any) -> list[tuple[Any, Any]]:
        if not has_master(states):
            return updates(param, grad, states, *numbers)
        *own, master = states
        exact = _exact(param, master)
        found: list[tuple[Any, Any]] = []
        for target, value in updates(exact, grad, own, *numbers):
            found += [(master, value), (param, value)] if target is exact else [(target, value)]
        return found

    return of_masters


def _exact(param: Any, master: Any) -> Any:
    """Expression of the master weight where the parameter is its rounded value, else of the parameter.

    By Dekker's splitting, ``near`` is the number of as many bits as the parameter's that is nearest to the master
    weight, or one of the two nearest. The parameter is its rounded value if it is as near.
    """
    be, (bits, least) = master.backend, DROPPED[param.dtype.name]
    spread = (2.0**bits + 1.0) * master
    near = spread - (spread - master)
    distance = be.maximum(be.absolute(master - near), least)
    return be.where(be.absolute(master - param) <= distance, master, param)
