"""Ownership of per-parameter optimizer state.

States are stored in layers, and their meaning depends on the kind of optimizer: a first state may be a velocity of
either sign, or an average of squares to take the root of. So each state has an attribute ``kept_by`` with the class
that defines its meaning, and an optimizer of another class starts with new states.

The first state of a parameter also has its :class:`Count` of steps, used by some optimizers to correct averages. So
steps count from each parameter's first one, even if the optimizer serves other parameters, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from neonlike.errors import ArgumentError
from neonlike.logger import logger
from neonlike.nervanaobject import load_class
from neonlike.optimizers.masters import complete_master, has_master
from neonlike.optimizers.step import Parameter
from neonlike.optree.dtypes import compute_dtype

if TYPE_CHECKING:
    from neonlike.backends.backend import Backend


class Count:
    """Number of steps of some parameters, shared as long as they take all steps together.

    Parameters
    ----------
    steps : int
        Number of steps.
    parameters : int
        Number of parameters that share the count.

    Attributes
    ----------
    parameters : int
        Number of parameters that share the count.
    """

    __slots__ = ("parameters", "steps")

    def __init__(self, steps: int = 0, parameters: int = 1) -> None:
        self.steps, self.parameters = steps, parameters


def by_counts(param_list: Sequence[Parameter], before: int) -> dict[Count, list[Parameter]]:
    """Group the parameters, which have states, by their step count: one group per number of steps.

    Parameters without a count, with states from elsewhere, have had ``before`` steps.
    """
    by_steps: dict[int, dict[Count, list[Parameter]]] = {}
    for entry in param_list:
        first = entry[1][0]
        count = getattr(first, "count", None)
        if count is None:
            count = first.count = Count(before)
        by_steps.setdefault(count.steps, {}).setdefault(count, []).append(entry)
    return dict(_shared(steps, found) for steps, found in by_steps.items())


def _shared(steps: int, found: dict[Count, list[Parameter]]) -> tuple[Count, list[Parameter]]:
    """One count for all parameters in ``found``, shared with no others."""
    (count, entries), *others = found.items()
    if not others and count.parameters == len(entries):
        return count, entries
    made = Count(steps, 0)
    for old, some in found.items():
        old.parameters -= len(some)
        made.parameters += len(some)
        for _, states in some:
            states[0].count = made
    return made, [entry for some in found.values() for entry in some]


def steps_of(states: Any) -> Any:
    """Number of steps of the parameter with these states; a list for a layer with several parameters."""
    if not isinstance(states, list | tuple) or not states:
        return 0
    if isinstance(states[0], list | tuple):
        return [steps_of(entry) for entry in states]
    count = getattr(states[0], "count", None)
    return 0 if count is None else count.steps


def restore_steps(states: Any, steps: Any) -> None:
    """Restore the result of :func:`steps_of`; None changes nothing."""
    if isinstance(steps, list | tuple):
        for entry, number in zip(states, steps, strict=False):
            restore_steps(entry, number)
    elif steps is not None and states:
        states[0].count = Count(int(steps))


def keeper(optimizer_class: type[Any]) -> type[Any]:
    """The class that defines the states of ``optimizer_class``: the one that defines its update."""
    return next((cls for cls in optimizer_class.__mro__ if "_updates" in vars(cls)), optimizer_class)


def complete_states(
    be: Backend, param_list: Sequence[Parameter], optimizer_class: type[Any], count: int, masters: bool = False
) -> None:
    """Give each parameter ``count`` zero states of an optimizer; states of another kind of optimizer are dropped.

    With ``masters``, parameters of 16 bits have a master weight as their last state; every optimizer goes on with it.

    States are float32 for parameters of 16 bits: squares of gradients would underflow in float16, and a factor of 0.999
    leaves any bfloat16 number unchanged. States from elsewhere, without ``kept_by``, count as this optimizer's.

    Parameters
    ----------
    be : Backend
        The backend of the parameters.
    param_list : list
        Parameters as :func:`~neonlike.optimizers.get_param_list` gives them.
    optimizer_class : type
        The optimizer's class, whose states these are.
    count : int
        Number of states of a parameter.
    masters : bool
        Whether parameters of 16 bits have a master weight.
    """
    kind, others = keeper(optimizer_class), set()
    for (param, _), states in param_list:
        complete_master(be, param, states, masters)
        own, master = (states[:-1], states[-1:]) if has_master(states) else (states[:], [])
        foreign = {getattr(state, "kept_by", kind) for state in own} - {kind}
        if foreign:
            others |= foreign
            own.clear()
        fresh = not own
        while len(own) < count:
            own.append(be.zeros_like(param, dtype=compute_dtype(param.dtype)))
        for state in own:
            state.kept_by = kind
        if fresh and own:
            own[0].count = Count()
        states[:] = own + master
    if others:
        before = ", ".join(sorted(cls.__name__ for cls in others))
        logger.info("%s begins with states of its own; there were those of %s", optimizer_class.__name__, before)


def note_keepers(layers: Iterable[Any], described: Any) -> None:
    """Record the described optimizer of a saved model as the owner of the states in ``layers``.

    If the description names no known optimizer, any optimizer accepts the states. If layers have no step counts, as in
    neon's files, the optimizer's single number is used for each parameter.
    """
    for layer in layers:
        progress = described.get("progress") if isinstance(described, dict) else None
        kind, progress = _described_keeper(layer, described, progress)
        if kind is not None:
            for states in _lists(getattr(layer, "states", ())):
                for state in states:
                    state.kept_by = kind
                steps = progress.get("t", 0) if isinstance(progress, dict) else 0
                if getattr(states[0], "count", None) is None and isinstance(steps, int) and steps >= 0:
                    states[0].count = Count(steps)


def _described_keeper(layer: Any, described: Any, progress: Any) -> tuple[type[Any] | None, Any]:
    """The class that defines the described optimizer's states for ``layer``, and its progress; None if unknown."""
    config = described.get("config") if isinstance(described, dict) else None
    if not isinstance(config, dict):
        return None, None
    inner = progress if isinstance(progress, dict) else {}
    mapping = config.get("optimizer_mapping")
    if isinstance(mapping, dict):  # a MultiOptimizer
        chosen = next((key for key in (layer.name, type(layer).__name__) if mapping.get(key)), "default")
        return _described_keeper(layer, mapping.get(chosen), inner.get(chosen))
    if isinstance(config.get("optimizer"), dict):  # a LossScaling around another optimizer
        return _described_keeper(layer, config["optimizer"], inner.get("optimizer"))
    try:
        return keeper(load_class(described.get("type"))), progress
    except ArgumentError:
        return None, None


def _lists(states: Any) -> Iterator[Any]:
    """The non-empty lists of states of a layer's parameters."""
    if isinstance(states, list | tuple) and states:
        if isinstance(states[0], list | tuple):
            for entry in states:
                yield from _lists(entry)
        else:
            yield states
