"""Keeps the states of parameters by their owner.

States belong to layers, and each kind of optimizer means something else by them: to one the first is a velocity, of
either sign, to another an average of squares, whose root it takes. So each state has an attribute ``kept_by`` with the
class that says what it is, and an optimizer of another class begins with new ones.

The first state of a parameter also has its :class:`Count` of steps, by which some optimizers correct what they average.
So the steps of a parameter count from its own first one, whatever else the optimizer serves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from neonlike.errors import ArgumentError
from neonlike.logger import logger
from neonlike.nervanaobject import load_class
from neonlike.optimizers.step import Parameter
from neonlike.optree.dtypes import compute_dtype


class Count:
    """How many steps some parameters have had; they share it as long as they have all their steps together.

    Attributes
    ----------
    steps : int
    parameters : int
        How many share it.
    """

    __slots__ = ("parameters", "steps")

    def __init__(self, steps: int = 0, parameters: int = 1) -> None:
        self.steps, self.parameters = steps, parameters


def by_counts(param_list: Sequence[Parameter], before: int) -> dict[Count, list[Parameter]]:
    """The parameters, which have states, by their counts: one for all that have had as many steps.

    Those without a count have had ``before`` steps: somebody else made their states.
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
    """One count for all parameters in ``found``, which nothing else shares."""
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
    """How many steps the parameter with these states has had; of a layer with several parameters, a list."""
    if not isinstance(states, list | tuple) or not states:
        return 0
    if isinstance(states[0], list | tuple):
        return [steps_of(entry) for entry in states]
    count = getattr(states[0], "count", None)
    return 0 if count is None else count.steps


def restore_steps(states: Any, steps: Any) -> None:
    """Count on from ``steps``, which :func:`steps_of` gave; nothing where they are None."""
    if isinstance(steps, list | tuple):
        for entry, number in zip(states, steps, strict=False):
            restore_steps(entry, number)
    elif steps is not None and states:
        states[0].count = Count(int(steps))


def keeper(optimizer_class: type[Any]) -> type[Any]:
    """The class that defines what an optimizer of ``optimizer_class`` keeps: the one that has its update."""
    return next((cls for cls in optimizer_class.__mro__ if "_updates" in vars(cls)), optimizer_class)


def complete_states(be: Any, param_list: Sequence[Parameter], optimizer_class: type[Any], count: int) -> None:
    """Give each parameter ``count`` states of an optimizer, 0 at first; those of another kind of optimizer go.

    They are in float32 for parameters of 16 bits: squares of gradients would be 0 in float16, and a factor of 0.999
    changes no number of bfloat16. States that somebody else made, which have no ``kept_by``, are taken to be this
    optimizer's.
    """
    kind, others = keeper(optimizer_class), set()
    for (param, _), states in param_list:
        foreign = {getattr(state, "kept_by", kind) for state in states} - {kind}
        if foreign:
            others |= foreign
            states.clear()
        fresh = not states
        while len(states) < count:
            states.append(be.zeros_like(param, dtype=compute_dtype(param.dtype)))
        for state in states:
            state.kept_by = kind
        if fresh and states:
            states[0].count = Count()
    if others:
        before = ", ".join(sorted(cls.__name__ for cls in others))
        logger.info("%s begins with states of its own; there were those of %s", optimizer_class.__name__, before)


def note_keepers(layers: Iterable[Any], described: Any) -> None:
    """Note whose the states of ``layers`` are: those of the optimizer ``described``, as a saved model describes it.

    Where the description tells none, or none that is known, any optimizer takes them for its own. Where layers have no
    counts of their steps, as in neon's files, the optimizer's one number is each parameter's.
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
    """The class that says what the described optimizer keeps for ``layer``, and its progress; None if not known."""
    config = described.get("config") if isinstance(described, dict) else None
    if not isinstance(config, dict):
        return None, None
    inner = progress if isinstance(progress, dict) else {}
    mapping = config.get("optimizer_mapping")
    if isinstance(mapping, dict):  # of a MultiOptimizer
        chosen = next((key for key in (layer.name, type(layer).__name__) if mapping.get(key)), "default")
        return _described_keeper(layer, mapping.get(chosen), inner.get(chosen))
    if isinstance(config.get("optimizer"), dict):  # of a LossScaling, for another one
        return _described_keeper(layer, config["optimizer"], inner.get("optimizer"))
    try:
        return keeper(load_class(described.get("type"))), progress
    except ArgumentError:
        return None, None


def _lists(states: Any) -> Iterator[Any]:
    """The lists of states of a layer's parameters, those that are not empty."""
    if isinstance(states, list | tuple) and states:
        if isinstance(states[0], list | tuple):
            for entry in states:
                yield from _lists(entry)
        else:
            yield states
