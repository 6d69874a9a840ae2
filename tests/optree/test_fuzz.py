"""Random graphs of up to 200 ops and more agree with node-by-node NumPy float64, wherever the result is stored.

Views as leaves, sharing, broadcasting, reductions, products, gathers; targets that overlap what is read; several
targets at once; prepared assignments; and blocks so small that every graph runs through many of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.kernels.numpy_engine import blocks
from neonlike.kernels.numpy_engine import engine as interp
from neonlike.optree.dtypes import F16, F32, F64
from neonlike.optree.functions import F
from neonlike.optree.node import OpTreeNode
from neonlike.optree.ops import REAL
from neonlike.optree.walk import postorder
from tests.support.float64.reference import BF16, TOLERANCE
from tests.support.tree_terms import Leaf, Term
from tests.support.trees import Grower

pytestmark = [pytest.mark.optree, pytest.mark.engines("numpy")]

MIXED = (BF16, *(np.dtype(name) for name in ("f2", "f4", "f4", "f8", "i4", "u1", "b1")))
SEEDS = range(75)
LIMITS = ("BLOCK_ELEMENTS", "RESIDENT_ELEMENTS", "STREAM_ELEMENTS", "MIN_COLUMNS")


def shrink(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of a few elements, so that small graphs are cut, flattened and streamed."""
    for module in (blocks, interp):
        for name, size in zip(LIMITS, (7, 12, 7, 2)):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, size)


def grower(be: Backend, seed: int, **options: Any) -> Grower:
    return Grower(be, np.random.default_rng(seed), **options)


def count(graph: Grower) -> int:
    """How many ops: mostly few, up to 200."""
    return int(graph.rng.choice((8, 20, 60, 120, 200), p=(0.3, 0.3, 0.2, 0.1, 0.1)))


def agree(actual: Any, term: Term, what: str = "") -> None:
    """``actual`` is the value of ``term``, as far as rounding allows."""
    kind = actual.dtype
    rtol, atol = TOLERANCE[kind]
    value = term.value.reshape(term.value.shape[-actual.ndim :])  # stored without leading axes of size 1
    expected = np.broadcast_to(value, actual.shape).astype(kind).astype(np.float64)
    error = np.abs(actual.astype(np.float64) - expected)
    bound = atol + rtol * np.abs(expected) + 200 * term.noise
    if not (error <= bound).all():
        ops = len(postorder(term.node))
        raise AssertionError(f"{what}: {ops} ops, off by {error.max():g}, rounding explains {bound.min():g}")


def run(be: Backend, graph: Grower, pairs: list[tuple[Any, Any]]) -> None:
    """Assign ``pairs`` in one of the ways there are."""
    way = graph.rng.integers(3)
    if way == 0 and len(pairs) == 1:
        be.assign(*pairs[0])
    elif way == 1:
        be.prepare(pairs)()
    else:
        be.assign_many(pairs)


@pytest.mark.parametrize("seed", SEEDS)
def test_float64_graphs(be64: Backend, seed: int) -> None:
    graph = grower(be64, seed)
    root = graph.grow(count(graph))
    agree((root.node + 0.0).asnumpyarray(), root)


@pytest.mark.parametrize("seed", SEEDS)
def test_graphs_of_mixed_dtypes(be: Backend, seed: int) -> None:
    graph = grower(be, 1000 + seed, dtypes=MIXED)
    root = graph.grow(count(graph))
    for dtype in (F16, BF16, F32, F64):
        out = be.empty(root.node.shape, dtype=dtype)
        run(be, graph, [(out, root.node)])
        agree(out.get(), root, dtype.name)


@pytest.mark.parametrize("seed", SEEDS)
def test_graphs_in_tiny_blocks(be64: Backend, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    shrink(monkeypatch)
    graph = grower(be64, 2000 + seed, sizes=(3, 5))
    root = graph.grow(count(graph))
    wide = be64.empty([2 * n for n in root.node.shape])
    every_second = wide[(slice(None, None, 2),) * len(root.node.shape)]
    for out in (be64.empty(root.node.shape), be64.empty((2, *root.node.shape)), every_second):
        run(be64, graph, [(out, root.node)])
        agree(out.get(), root)


def onto(graph: Grower, root: Term, leaf: Leaf) -> Any:
    """``root``, or something of it that fits a tensor of ``leaf``'s shape and reads ``leaf`` too."""
    own = next(term for term in graph.terms if term.node is leaf.tensor)
    total: Any = graph.extend(F.sum(root.node), root) or own
    small: Any = graph.into(total, REAL)
    return graph.extend(F.add(own.node, small.node), own, small) or own


def overlapping(graph: Grower, leaf: Leaf) -> Any:
    """A tensor over ``leaf``'s memory that may be written: its elements are distinct."""
    choices = leaf.others()
    return choices[graph.rng.integers(len(choices))]


@pytest.mark.parametrize("seed", SEEDS)
def test_targets_that_overlap_leaves(be64: Backend, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if seed % 2:
        shrink(monkeypatch)
    graph = grower(be64, 3000 + seed, sizes=(3, 3))
    root = graph.grow(int(graph.rng.choice((2, 8, 20, 60))))
    leaf = graph.leaves[graph.rng.integers(len(graph.leaves))]
    if graph.rng.random() < 0.5:
        graph.leaf()  # a leaf with a margin, so that windows of it overlap
    target = overlapping(graph, leaf)
    made = root if root.node.shape == target.shape else onto(graph, root, leaf)
    memory = [(other, other.base.get()) for other in graph.leaves]
    run(be64, graph, [(target, made.node)])
    agree(target.get(), made)
    for other, before in memory:
        if other is leaf:
            written = np.isin(addresses(other.base), addresses(target))
            before[written] = other.base.get()[written]
        np.testing.assert_array_equal(other.base.get(), before, err_msg="memory outside the target changed")


def addresses(tensor: Any) -> Any:
    """Element numbers of ``tensor``, counted from an address all its relatives share."""
    found = np.full(tensor.shape, tensor.ptr // tensor.dtype.itemsize)
    for axis, stride in enumerate(tensor.strides):
        steps = np.arange(tensor.shape[axis]) * stride
        found = found + steps.reshape([-1 if a == axis else 1 for a in range(tensor.ndim)])
    return found


@pytest.mark.parametrize("seed", SEEDS)
def test_several_targets_at_once(be64: Backend, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """All right-hand sides see the old values; targets are new tensors and leaves."""
    if seed % 2:
        shrink(monkeypatch)
    graph = grower(be64, 4000 + seed, sizes=(3, 3))
    root = graph.grow(int(graph.rng.choice((8, 20, 60))))
    nodes = [t for t in graph.terms if isinstance(t.node, OpTreeNode) and t.value.dtype.kind == "f"]
    chosen = [root, *(nodes[i] for i in graph.rng.integers(len(nodes), size=2))]
    pairs = [(be64.empty(term.node.shape), term) for term in chosen]
    for leaf in graph.leaves[:2]:
        pairs.append((overlapping(graph, leaf), onto(graph, root, leaf)))
    run(be64, graph, [(target, term.node) for target, term in pairs])
    for target, term in pairs:
        agree(target.get(), term)


@pytest.mark.parametrize("seed", SEEDS[::3])
def test_prepared_graphs_see_new_contents(be64: Backend, seed: int) -> None:
    graph = grower(be64, 5000 + seed)
    root = graph.grow(count(graph))
    prepared, plain = be64.empty(root.node.shape), be64.empty(root.node.shape)
    step = be64.prepare(prepared, root.node)
    for _ in range(2):
        for leaf in graph.leaves:
            leaf.base[:] = leaf.base * 0.5 + 0.25
        step()
        plain[:] = root.node
        if not any(node.spec.name == "rand" for node in postorder(root.node)):
            np.testing.assert_array_equal(prepared.get(), plain.get())


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_large_graphs(be64: Backend, seed: int) -> None:
    graph = grower(be64, 6000 + seed, sizes=(2, 5))
    root = graph.grow(800)
    assert len(postorder(root.node)) > 200
    agree(root.node.asnumpyarray(), root)
