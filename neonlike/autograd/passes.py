"""Backward passes that were made before: the same assignments for other values, without the tape that led to them.

Which assignments a value and its gradients take follows from the tape: its ops, the layout of the tensors below it, the
values of numbers, the gradient rules of its ops, and which values of it are kept, because they were asked for before.
The extension of ``kernels/c/fastpath.py`` writes all of that into a key. The second pass for a key is recorded: each of
its assignments is *fixed*, to kernels whose arguments are leaves of the tape (its tensors, kept values) and what the
pass makes. From the third on they are run as they were, in their order, and a tensor is let go after the last that
reads it. Tapes with what the extension does not know (most primitives, gathers, random numbers, rules of your own) are
played by :mod:`neonlike.optree.backward`; so are those with many bytes of kept values, which playing lets go one
by one.

The value that is asked for alone is computed again likewise, and of the same nodes the values are kept as before.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from neonlike.autograd.temporaries import Making, Temporaries
from neonlike.optree.dtypes import DType
from neonlike.optree.keeping import compute, keep_results
from neonlike.optree.node import OpTreeNode
from neonlike.optree.shapes import Shape
from neonlike.optree.tape import kept

MOST_PASSES = 256
"""Keys that are known at a time."""
TRIES = 3
"""Passes that are recorded before a key is given up."""

MOST_KEPT = 1 << 24
"""Bytes of kept values of a tape that is repeated: they are held until the pass is over."""

Pairs = list[tuple[Any, Any]]


class Tape(NamedTuple):
    """A tape's key, leaves, the ids of nodes that something is kept of, and nodes in the order of the key."""

    key: tuple[Any, ...]
    leaves: tuple[Any, ...]
    met: list[int]
    nodes: tuple[OpTreeNode, ...]


class Result(NamedTuple):
    """The value of the root, None if it was known before; gradients by the ids of parameters' tensors; what to keep."""

    value: Any
    gradients: dict[int, Any]
    kept: list[list[Any]]


class Keeping(NamedTuple):
    """The results of nodes that are kept, their tensors, and why; ``leads`` as in
    :func:`~neonlike.optree.tape.keep`. No tensor: an expression stands for the first."""

    node: int
    places: tuple[int | None, ...]
    why: str
    leads: bool


class Pass:
    """A backward pass on the leaves of a tape, or the computation of its value.

    Parameters
    ----------
    steps : list of Making
    one : Tensor
        The gradient that it begins with.
    count : int
        How many tensors it is about: the leaves, ``one``, those that it makes.
    value : int or None
        Which is the value, if the pass computes it.
    gradients : tuple of (int, int)
        Which leaf each gradient belongs to, and which tensor it is.
    kept : list of Keeping
    """

    def __init__(
        self,
        steps: list[Making],
        one: Any,
        count: int,
        value: int | None,
        gradients: tuple[tuple[int, int], ...],
        kept: list[Keeping],
    ) -> None:
        self.one, self.count, self.value, self.gradients, self.kept = one, count, value, gradients, kept
        self._temporaries = Temporaries(one.backend, steps)
        self.steps = self._temporaries.left_to_make(steps)

    def run(self, be: Any, leaves: tuple[Any, ...]) -> Result | None:
        """The pass on ``leaves``; None if there was no memory for a kernel, or threads must not be started."""
        tensors = [*leaves, self.one]
        tensors += [self.one] * (self.count - len(tensors))
        held = self._temporaries.take()
        for place, tensor in held:
            tensors[place] = tensor
        allocate = be._allocate
        for fixed, made, dropped in self.steps:
            for place, shape, dtype in made:
                tensors[place] = allocate(shape, dtype, None, True)
            if not fixed.run(tensors):
                return None
            for place in dropped:
                tensors[place] = self.one
        self._temporaries.give_back(held)
        value = None if self.value is None else tensors[self.value]
        gradients = {id(leaves[leaf]): tensors[place] for leaf, place in self.gradients}
        return Result(value, gradients, [[None if p is None else tensors[p] for p in one.places] for one in self.kept])


class Recorder:
    """Writes down the assignments of a pass.

    Parameters
    ----------
    be : Backend
    key : object
        Of the tape.
    leaves : tuple of Tensor
        Of the tape.
    one : Tensor
        The gradient that the pass begins with.
    """

    def __init__(self, be: Any, key: Any, leaves: tuple[Any, ...], one: Any) -> None:
        self.be, self.key, self.leaves, self.one = be, key, leaves, one
        self.tensors = [*leaves, one]  # all live until the end, so that no two lie at one place
        self.found: list[tuple[Any, tuple[int, ...]]] = []
        self.is_whole = True

    def note(self, pairs: Pairs) -> None:
        """An assignment that was just made."""
        launches = self.be.executor.replay.launches
        known = {id(tensor) for tensor in self.tensors}
        first = len(self.tensors)
        self.tensors += [target for target, _ in pairs if id(target) not in known]
        fixed = None if launches is None else launches.fixed(self.be, pairs, self.tensors, True)
        self.is_whole = self.is_whole and fixed is not None
        self.found.append((fixed, tuple(range(first, len(self.tensors)))))

    def finish(self, value: Any, gradients: dict[int, Any], nodes: tuple[OpTreeNode, ...] = ()) -> None:
        """The pass is over: remember it for its key, if all of it can be run again.

        ``value`` is None if it was known; what is kept now of ``nodes`` will be kept again.
        """
        passes = self.be.executor.replay.passes
        places = {id(tensor): place for place, tensor in enumerate(self.tensors) if place > len(self.leaves)}
        results = [(leaf, gradients[id(t)]) for leaf, t in enumerate(self.leaves) if id(t) in gradients]
        entries = [(at, entry) for at, node in enumerate(nodes) if (entry := kept.get(id(node))) is not None]
        found_new = ((at, e, [places.get(id(result)) for result in (e.tensor, *e.parts)]) for at, e in entries)
        new = [Keeping(at, tuple(which), e.why, e.leads) for at, e, which in found_new if which[-1] is not None]
        wanted = [id(tensor) for _, tensor in results] + ([] if value is None else [id(value)])
        if not self.is_whole or any(one not in places for one in wanted) or len(results) != len(gradients):
            known = passes.get(self.key, 0)
            if known.__class__ is int:  # else another thread has recorded it
                passes[self.key] = known + 1
            return
        found = tuple((leaf, places[id(tensor)]) for leaf, tensor in results)
        stay = {places[one] for one in wanted} | {place for one in new for place in one.places if place is not None}
        passes[self.key] = Pass(self._steps(stay), self.one, len(self.tensors), places.get(id(value)), found, new)

    def _steps(self, stay: set[int]) -> list[Making]:
        """The assignments; tensors but those that ``stay`` are let go after the last that uses them."""
        last: dict[int, int] = {}
        for step, (fixed, made) in enumerate(self.found):
            last.update(dict.fromkeys((*fixed.bases, *made), step))
        steps = []
        for step, (fixed, made) in enumerate(self.found):
            new = tuple((place, self.tensors[place].shape, self.tensors[place].dtype) for place in made)
            over = {p for p, at in last.items() if at == step and p > len(self.leaves)} - stay
            steps.append(Making(fixed, new, tuple(sorted(over))))
        return steps


def _tape_of(be: Any, root: OpTreeNode, how: str) -> Tape | None:
    """What is below ``root``, with a key for what is done with it; None if that cannot be told."""
    launches = be.executor.replay.launches
    found = None if launches is None else launches.tape(be, root, kept)
    if found is None:
        return None
    written, leaves, met, nodes = found
    wanted = []
    for leaf in leaves:
        if leaf.base is not None and leaf._original_base.is_parameter:
            return None
        wanted.append(leaf.is_parameter)
    return Tape((written, how, *wanted), leaves, met, nodes)


def _known(be: Any, tape: Tape, shape: Shape, dtype: DType) -> Pass | Recorder | None:
    """The pass of a tape if it was recorded, or what is to record it, from ones of ``shape``; or None."""
    passes = be.executor.replay.passes
    known = passes.get(tape.key)
    if known.__class__ is Pass:
        return known  # type: ignore[no-any-return]
    if known is None:
        if len(passes) >= MOST_PASSES:
            passes.clear()
        passes[tape.key] = 0
        return None
    return Recorder(be, tape.key, tape.leaves, be.ones(shape, dtype=dtype)) if known < TRIES else None


def repeat(be: Any, root: OpTreeNode, is_known: bool) -> Result | Recorder | None:
    """The value of ``root``, unless it ``is_known``, and its gradients, if such a pass was recorded; or what is to
    record it; or None. What was kept for the pass is let go where it is repeated."""
    tape = _tape_of(be, root, "gradients" if is_known else "value and gradients")
    if tape is None or (tape.met and sum(kept[node].nbytes for node in tape.met) > MOST_KEPT):
        return None
    known = _known(be, tape, root.shape, root.dtype)
    if known.__class__ is not Pass:
        return known  # type: ignore[return-value]
    result = known.run(be, tape.leaves)
    if result is not None:
        for node in tape.met:
            kept.pop(node, None)
    return result


def value_of(be: Any, root: OpTreeNode, differentiable: bool) -> Any:
    """Tensor of the value of ``root``, as :func:`~neonlike.optree.keeping.compute` gives it and keeps what is below."""
    tape = None if id(root) in kept else _tape_of(be, root, "kept value" if differentiable else "value")
    known = None if tape is None else _known(be, tape, (1, 1), root.dtype)
    if known.__class__ is Pass and (result := known.run(be, tape.leaves)) is not None:  # type: ignore[union-attr]
        for one, results in zip(known.kept, result.kept):  # type: ignore[union-attr]
            keep_results(tape.nodes[one.node], results, one.why, one.leads)  # type: ignore[union-attr]
        return result.value
    recorder = known if known.__class__ is Recorder else None
    value, _ = compute(root, differentiable, None if recorder is None else recorder.note)
    if recorder is not None:
        recorder.finish(value, {}, tape.nodes)  # type: ignore[union-attr]
    return value
