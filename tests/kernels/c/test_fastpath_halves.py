"""Primitives and moves of 16-bit tensors in expressions: repeated as one program with their conversions, bit by bit."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.kernels.c import fastpath
from neonlike.kernels.planning import graph
from neonlike.kernels.run import workspace
from neonlike.optree.dtypes import bfloat16
from neonlike.optree.functions import F
from tests.support.engines import use_threads
from tests.support.replaying import extension, fast  # noqa: F401

pytestmark = [
    pytest.mark.skipif(bool(fastpath.obstacle()), reason=fastpath.obstacle()),
    pytest.mark.cpu_only("replayed assignments of the CPU"),
]

HALVES = [np.dtype(np.float16), bfloat16()]
FLOATS = np.dtype(np.float32)
Given = list[Any]
LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "in order": lambda make: make(2, 3, 5, 4),
    "heads behind queries": lambda make: make(2, 5, 3, 4).permuted((0, 2, 1, 3)),
    "features in the middle": lambda make: make(2, 3, 4, 5).permuted((0, 1, 3, 2)),
    "every second": lambda make: make(2, 3, 10, 8)[:, :, ::2, 1::2],
    "in reverse": lambda make: make(2, 3, 5, 4)[:, :, ::-1, ::-1],
    "a part": lambda make: make(2, 4, 8, 6)[:, 1:, 2:-1, 1:-1],
}
"""Tensors of (2, 3, 5, 4) that lie in different ways."""


def maker(be: Backend, seed: int, dtype: Any) -> Callable[..., Any]:
    """A function that makes tensors of random numbers."""
    rng = np.random.default_rng(seed)

    def make(*shape: int) -> Any:
        return be.array(rng.standard_normal(shape), dtype=dtype)

    return make


def repeats(be: Any, build: Callable[[int], tuple[Any, Any]], turns: int = 3) -> None:
    """The extension makes the assignments that ``build(turn)`` gives from the second on, and gives Python's bits.

    Parameters
    ----------
    be : Backend
    build : callable
        Gives a target and an expression, always the same for a turn.
    turns : int
    """
    for turn in range(turns):
        out, value = build(turn)
        with be.executor.replay.paused():
            out[:] = value
        wanted = out.get()
        again, value = build(turn)
        before = be.executor.replay.table.hits
        again[:] = value
        assert turn == 0 or be.executor.replay.table.hits == before + 1
        assert again.get().tobytes() == wanted.tobytes()


# Attention -------------------------------------------------------------------------------------------------------

ATTENTION: dict[str, Callable[..., Any]] = {
    "alone": lambda be, q, k, v: be.attention(q, k, v),
    "causal": lambda be, q, k, v: be.attention(q, k, v, causal=True),
    "of products": lambda be, q, k, v: be.attention(q * 3, F.tanh(k), v + k),
    "that is read": lambda be, q, k, v: F.exp(be.attention(q, k, v)) * 0.125 + q,
    "of attention": lambda be, q, k, v: be.attention(be.attention(q, k, v) * 2, k, v),
    "to itself": lambda be, q, k, v: be.attention(q, q, q),
}


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize(
    ("name", "layout"),
    [*((name, "heads behind queries") for name in ATTENTION), *(("that is read", layout) for layout in LAYOUTS)],
)
def test_attention_in_expressions(fast: Backend, name: str, layout: str, dtype: Any) -> None:
    def build(turn: int) -> tuple[Any, Any]:
        make = maker(fast, turn, dtype)
        q, k, v = (LAYOUTS[layout](make) for _ in range(3))
        return fast.zeros((2, 3, 5, 4), dtype=dtype), ATTENTION[name](fast, q, k, v)

    repeats(fast, build)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_attention_is_that_of_float32_rounded_once(fast: Backend, dtype: Any) -> None:
    """bfloat16 is multiplied as it is, so the numbers in float32 may be rounded to it; float16 is not."""
    make = maker(fast, 0, dtype)
    given = [make(2, 2, 33, 32) for _ in range(3)]
    out, single = fast.empty((2, 2, 33, 32), dtype=dtype), fast.empty((2, 2, 33, 32))
    for _ in range(2):
        out[:] = fast.attention(*given)
    fast.product_precision = "float32" if dtype == np.float16 else "bfloat16"
    single[:] = fast.attention(*(fast.array(one.get().astype(np.float32)) for one in given))
    assert out.get().tobytes() == single.get().astype(dtype).tobytes()


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("kind", ["16 bits", "float32"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_targets_that_lie_otherwise(fast: Backend, layout: str, kind: str, dtype: Any) -> None:
    """Nothing between the numbers of a target is written."""
    for turn in range(3):
        make = maker(fast, turn, dtype)
        q, k, v = (make(2, 3, 5, 4) for _ in range(3))
        found, held, make = [], list[Any](), maker(fast, 7, dtype if kind == "16 bits" else FLOATS)

        def noted(*shape: int, held: Given = held, make: Any = make) -> Any:
            held.append(make(*shape))
            return held[-1]

        for paused in (True, False):
            target = LAYOUTS[layout](noted)
            held[-1].fill(7)
            if paused:
                with fast.executor.replay.paused():
                    target[:] = fast.attention(q, k, v)
            else:
                before = fast.executor.replay.table.hits
                target[:] = fast.attention(q, k, v)
                assert turn == 0 or fast.executor.replay.table.hits == before + 1
            found.append(held[-1].get().tobytes())
        assert found[0] == found[1]


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_targets_that_are_read(fast: Backend, dtype: Any) -> None:
    """Targets that overlap what the call reads get its values after all of that is read."""
    make = maker(fast, 0, dtype)
    start = make(3, 2, 6, 4)

    def assign(memory: Any, k: Any, which: int) -> None:
        if which == 0:
            memory[:2] = fast.attention(memory[1:], k, k)
        elif which == 1:
            memory[1:] = fast.attention(k, memory[:2], memory[1:]) * 2
        else:
            fast.assign_many([(memory, fast.attention(memory, memory, memory)), (k, memory[1:] + k)])

    for which in range(3):
        for turn in range(3):
            found = []
            for paused in (True, False):
                memory, k = fast.array(start.get(), dtype=dtype), fast.array(start.get()[:2] * 2, dtype=dtype)
                if paused:
                    with fast.executor.replay.paused():
                        assign(memory, k, which)
                else:
                    before = fast.executor.replay.table.hits
                    assign(memory, k, which)
                    assert turn == 0 or fast.executor.replay.table.hits == before + 1
                found.append(memory.get().tobytes() + k.get().tobytes())
            assert found[0] == found[1], which


def test_shapes_and_precisions_are_told_apart(fast: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shape that is met once between others, another dtype, and another number of threads."""
    sizes = [(2, 5, 4), (2, 5, 4), (3, 7, 6), (2, 5, 4), (1, 1, 1), (3, 7, 6)]
    for threads in ("1", "2"):
        use_threads(monkeypatch, threads)
        for dtype in (*HALVES, FLOATS):
            for turn, (heads, length, size) in enumerate(sizes):
                make = maker(fast, turn, dtype)
                q, k, v = (make(2, heads, length, size) for _ in range(3))
                out, right = (fast.zeros((2, heads, length, size), dtype=dtype) for _ in range(2))
                out[:] = fast.attention(q, k, v) + q
                with fast.executor.replay.paused():
                    right[:] = fast.attention(q, k, v) + q
                assert out.get().tobytes() == right.get().tobytes()


def test_working_memory_is_given_back(fast: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A later call works in the memory in which an earlier one converted; none is held but the thread's."""
    made: list[Any] = []
    learn, length = fast.executor.replay.learn, 256
    q, out = (maker(fast, 0, np.float16)(1, 1, length, 64) for _ in range(2))

    def noted(be: Any, pairs: Any, program: Any, fresh: bool) -> None:
        made.extend([program] if pairs[0][0] is out else [])
        learn(be, pairs, program, fresh)

    monkeypatch.setattr(fast.executor.replay, "learn", noted)
    for count in (2, 9):
        value = q
        for _ in range(count):
            value = fast.attention(value, q, q)
        out[:] = value
    few, many = (program.memory for program in made)
    results = 7 * length * (64 * 2 + 4) + 7 * 2 * 4096  # which stay: they may be asked for later
    assert many <= few + results, "conversions of later calls lie where those of earlier ones did"
    del value
    fast.executor.clear()
    made.clear()
    workspace.release_workspace()
    gc.collect()
    assert workspace.kept_bytes() == 0


# Moves -----------------------------------------------------------------------------------------------------------

MOVES: dict[str, Callable[..., Any]] = {
    "a window": lambda be, x, y: F.view(x, ((4, 5), (10, 1), 2)),
    "a window with steps": lambda be, x, y: F.view(x, ((4, 5), (10, 2), 1)),
    "a window in reverse": lambda be, x, y: F.view(x, ((4, 5), (-10, -1), 39)),
    "the same one twice": lambda be, x, y: F.view(x, ((4, 5), (0, 1), 3)),
    "a window of what is computed": lambda be, x, y: F.view(x * 1.7, ((4, 5), (10, 2), 1)),
    "of a transpose": lambda be, x, y: F.view(y.T, ((4, 5), (5, 1), 0)),
    "read afterwards": lambda be, x, y: F.tanh(F.view(x, ((4, 5), (10, 2), 1))) * 2 + 1,
    "zeros around": lambda be, x, y: F.unview(y, (4, 5), ((2, 3), (5, 1), 6)),
    "zeros around what is computed": lambda be, x, y: F.unview(y * 1.7, (4, 5), ((2, 3), (5, 1), 6)),
    "side by side": lambda be, x, y: be.concatenate([x[:4, :2], x[:4, 5:7] * 1e6, x[:4, :1] * 1e-8], 1),
    "one below the other": lambda be, x, y: be.concatenate([x[:3, :5], x[3:4, 5:]], 0),
}


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("kind", ["16 bits", "float32", "strided", "two", "read"])
@pytest.mark.parametrize("name", MOVES)
def test_moves_in_expressions(
    fast: Backend, name: str, kind: str, dtype: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Into targets of 16 bits, with steps too, of float32, or both; the result may be read by a later stage."""
    monkeypatch.setattr(graph, "MOST_WINDOWS", 0)  # concatenations are stages, as those of many parts
    hits = []
    for turn in range(3):
        found = []
        for paused in (True, False):
            make = maker(fast, turn, dtype)
            x, y = make(4, 10), make(2, 3) if "zeros" in name else make(4, 5)
            value = MOVES[name](fast, x, y)
            first = fast.empty((8, 10), dtype=FLOATS if kind == "float32" else dtype).fill(7)
            out = first[::2, 1::2] if kind == "strided" else first.reshape(16, 5)[4:8]
            second = fast.zeros((4, 5), dtype=FLOATS)
            pairs = [(out, value), (second, F.tanh(value) if kind == "read" else value)]
            pairs = pairs if kind in ("two", "read") else pairs[:1]
            before = fast.executor.replay.table.hits
            if paused:
                with fast.executor.replay.paused():
                    fast.assign_many(pairs)
            else:
                fast.assign_many(pairs)
                hits.append(fast.executor.replay.table.hits - before)
            found.append(first.get().tobytes() + second.get().tobytes())
        assert found[0] == found[1]
    assert hits[1:] == ([0, 0] if name.startswith(("zeros", "of a")) and kind == "strided" else [1, 1])
