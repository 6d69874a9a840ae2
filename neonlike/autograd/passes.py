"""Backward passes and computations of values are recorded as programs, which run again for tapes of the same key.

Which assignments a value and its gradients take follows from the tape: its ops, the layout of the tensors below it, the
values of numbers, the gradient rules of its ops, the seed of random numbers, and which values of it are kept, because
they were asked for before. The extension of ``kernels/c/fastpath.py`` writes all of that into a key. The second pass
for a key is traced, and the programs of its assignments are joined (:mod:`.laid`): into one whose operands are leaves
of the tape (its tensors, kept values) and the results, everything else in working memory. From the third on it is run
as it is, with the number of each call of ``be.rand()`` in the tape. Tapes with what the extension does not know (most
primitives, rules of your own) are played by :mod:`neonlike.optree.backward`; so are those with many bytes of kept
values, which playing lets go one by one.

A number that changes each step makes a new key each time. That is never repeated, and more than ``MOST_PASSES`` keys
are all forgotten at once, those that were of use included. Such a number belongs in a tensor.

A value that is asked for alone is computed again likewise, and the values of the same nodes are kept as before.

Backward passes of ``backprop`` are repeated, those of ``autograd.grad`` and ``DynamicGraph.minimize`` are not. Neither
are those through a layer that was called on variables, since its gradient rule has no key.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

from neonlike.autograd.laid import Laid
from neonlike.kernels.run.trace import tracing
from neonlike.optree.dtypes import DType
from neonlike.optree.keeping import compute, keep_results
from neonlike.optree.node import OpTreeNode
from neonlike.optree.shapes import Shape
from neonlike.optree.tape import kept

if TYPE_CHECKING:
    from neonlike.backends.backend import Backend

MOST_PASSES = 256
"""Keys that are known at a time; one more, and all are forgotten."""
TRIES = 3
"""Passes that are recorded before a key is given up."""

MOST_KEPT = 1 << 24
"""Bytes of kept values of a tape that is repeated: they are held until the pass is over."""

class Tape(NamedTuple):
    """A tape: key, leaves, ids of nodes that something is kept of, nodes in the order of the key, calls of ``rand``."""

    key: tuple[Any, ...]
    leaves: tuple[Any, ...]
    met: list[int]
    nodes: tuple[OpTreeNode, ...]
    calls: tuple[int, ...]


class Result(NamedTuple):
    """The value of the root, None if it was known before; gradients by the ids of parameters' tensors; what to keep."""

    value: Any
    gradients: dict[int, Any]
    kept: list[list[Any]]


class Keeping(NamedTuple):
    """A node whose results a pass keeps.

    Attributes
    ----------
    node : int
        Its place in ``Tape.nodes``.
    places : tuple of int or None
        Which operand each result is, the node's own first. None: an expression stands for that, see ``keep_results``.
    why : str
    leads : bool
        As for :func:`~neonlike.optree.tape.keep`.
    """

    node: int
    places: tuple[int | None, ...]
    why: str
    leads: bool


class Pass(NamedTuple):
    """A backward pass on the leaves of a tape, or the computation of its value, as one program.

    Its operands are the leaves, ``one``, and the tensors that it makes and that stay; others lie in working memory.

    Attributes
    ----------
    program : nlfast.Program
    one : Tensor
        The gradient that it begins with.
    made : tuple of (shape, dtype)
    value : int or None
        Which operand is the value, if the pass computes it.
    gradients : tuple of (int, int)
        Which leaf each gradient belongs to, and which operand it is.
    kept : tuple of Keeping
    """

    program: Any
    one: Any
    made: tuple[tuple[Shape, DType], ...]
    value: int | None
    gradients: tuple[tuple[int, int], ...]
    kept: tuple[Keeping, ...]

    def run(self, be: Backend, leaves: tuple[Any, ...], calls: tuple[int, ...]) -> Result | None:
        """The pass on a tape's leaves and calls; None if a kernel got no memory, or threads must not be started."""
        allocate = be._allocate
        tensors = (*leaves, self.one, *[allocate(shape, dtype, None, True) for shape, dtype in self.made])
        if not self.program.run_on(tensors, calls):
            return None
        value = None if self.value is None else tensors[self.value]
        gradients = {id(leaves[leaf]): tensors[place] for leaf, place in self.gradients}
        return Result(value, gradients, [[None if p is None else tensors[p] for p in one.places] for one in self.kept])


class Recording:
    """Has a pass written down; what is done inside ``with`` it belongs to the pass.

    Parameters
    ----------
    be : Backend
    tape : Tape
    one : Tensor
        The gradient that the pass begins with.
    """

    def __init__(self, be: Backend, tape: Tape, one: Any) -> None:
        self.be, self.key, self.leaves, self.calls, self.one = be, tape.key, tape.leaves, tape.calls, one
        self._tracing = tracing(be)

    def __enter__(self) -> Recording:
        self.trace = self._tracing.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._tracing.__exit__(*error)

    def finish(self, value: Any, gradients: dict[int, Any], nodes: tuple[OpTreeNode, ...] = ()) -> None:
        """The pass is over: remember it for its key, if all of it can be run again.

        ``value`` is None if it was known; what is kept now of ``nodes`` will be kept again.

        Parameters
        ----------
        value : Tensor or None
            The value, if it was computed in this pass.
        gradients : dict
            Tensors by the ids of the parameters' expressions.
        nodes : tuple of OpTreeNode
            Further nodes whose results the pass keeps.
        """
        passes = self.be.executor.replay.passes
        found = self._pass(value, gradients, nodes)
        if found is not None:
            passes[self.key] = found
        elif (known := passes.get(self.key, 0)).__class__ is int:  # else another thread has recorded it
            passes[self.key] = known + 1

    def _pass(self, value: Any, gradients: dict[int, Any], nodes: tuple[OpTreeNode, ...]) -> Pass | None:
        """The traced pass; None if it cannot be run again."""
        laid = Laid((*self.leaves, self.one), self.trace.runs, self.calls)
        if not self.trace.is_whole or not laid.is_known:
            return None
        results = [(leaf, gradients[id(t)]) for leaf, t in enumerate(self.leaves) if id(t) in gradients]
        wanted = [tensor for _, tensor in results] + ([] if value is None else [value])
        entries = [(at, entry) for at, node in enumerate(nodes) if (entry := kept.get(id(node))) is not None]
        new = [(at, e, (e.tensor, *e.parts)) for at, e in entries if laid.makes((e.tensor, *e.parts)[-1])]
        if not all(map(laid.makes, wanted)) or len(results) != len(gradients):
            return None
        laid.stay([*wanted, *(tensor for _, _, of_one in new for tensor in of_one if laid.makes(tensor))])
        program = self.be.executor.replay.program(laid.program())
        place = laid.place_of
        return Pass(
            program, self.one, tuple((t.shape, t.dtype) for t in laid.staying), place(value),
            tuple((leaf, laid.places[id(tensor)]) for leaf, tensor in results),
            tuple(Keeping(at, tuple(map(place, of_one)), e.why, e.leads) for at, e, of_one in new),
        )  # fmt: skip


def _tape_of(be: Backend, root: OpTreeNode, how: str) -> Tape | None:
    """The tape below ``root``, with a key for its use; None if the extension does not know all of it."""
    table = be.executor.replay.table
    found = None if table is None else table.tape(be, root, kept)
    if found is None:
        return None
    written, leaves, met, nodes, calls = found
    wanted = []
    for leaf in leaves:
        if leaf.base is not None and leaf._original_base.is_parameter:
            return None
        wanted.append(leaf.is_parameter)
    return Tape((written, how, *wanted), leaves, met, nodes, calls)


def _known(be: Backend, tape: Tape, shape: Shape, dtype: DType) -> Pass | Recording | None:
    """Look up the pass of a tape. None: it is only played, since its key is new or recording has failed too often.

    A :class:`Recording` records the pass that is played next; its gradient begins with ones of ``shape``.
    """
    passes = be.executor.replay.passes
    known = passes.get(tape.key)
    if known.__class__ is Pass:
        return known  # type: ignore[no-any-return]
    if known is None:
        if len(passes) >= MOST_PASSES:
            passes.clear()
        passes[tape.key] = 0
        return None
    return Recording(be, tape, be.ones(shape, dtype=dtype)) if known < TRIES else None


def repeat(be: Backend, root: OpTreeNode, is_known: bool) -> Result | Recording | None:
    """Run the recorded backward pass of ``root`` again; what was kept for it is then let go.

    The result has the value of ``root`` too, unless that ``is_known``. A :class:`Recording` is returned instead if the
    pass is to be played and recorded, and None if it is only played.

    Parameters
    ----------
    be : Backend
    root : OpTreeNode
        Expression of the scalar.
    is_known : bool
        Whether its value was computed before.
    """
    tape = _tape_of(be, root, "gradients" if is_known else "value and gradients")
    if tape is None or (tape.met and sum(kept[node].nbytes for node in tape.met) > MOST_KEPT):
        return None
    known = _known(be, tape, root.shape, root.dtype)
    if known.__class__ is not Pass:
        return known  # type: ignore[return-value]
    result = known.run(be, tape.leaves, tape.calls)
    if result is not None:
        for node in tape.met:
            kept.pop(node, None)
    return result


def value_of(be: Backend, root: OpTreeNode, differentiable: bool) -> Any:
    """Tensor of the value of ``root``, as :func:`~neonlike.optree.keeping.compute` gives it and keeps what is below.

    Parameters
    ----------
    be : Backend
    root : OpTreeNode
    differentiable : bool
        Whether a backward pass may follow, which reads what is kept.
    """
    tape = None if id(root) in kept else _tape_of(be, root, "kept value" if differentiable else "value")
    known = None if tape is None else _known(be, tape, (1, 1), root.dtype)
    if known.__class__ is Pass and (result := known.run(be, tape.leaves, tape.calls)) is not None:  # type: ignore[union-attr]
        for one, results in zip(known.kept, result.kept):  # type: ignore[union-attr]
            keep_results(tape.nodes[one.node], results, one.why, one.leads)  # type: ignore[union-attr]
        return result.value
    recording = known if known.__class__ is Recording else None
    with recording or nullcontext():  # type: ignore[union-attr]
        value, _ = compute(root, differentiable)
    if recording is not None:
        recording.finish(value, {}, tape.nodes)  # type: ignore[union-attr]
    return value
