"""Guided tour of expressions: their syntax, the kernels run by an assignment, and their gradients.

    python examples/optree_tour.py [--bench [FILE]]

Runs in a second or two, needs no data. Each section is a function; the code it prints is the code it runs.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from neonlike import console
from neonlike.backends import Autodiff, gen_backend
from neonlike.errors import NeonlikeError

STEPS: list[tuple[str, Callable[[Any], None]]] = []


def section(title: str) -> Callable[[Callable[[Any], None]], Callable[[Any], None]]:
    """Decorator that puts a function on the tour."""

    def register(function: Callable[[Any], None]) -> Callable[[Any], None]:
        STEPS.append((title, function))
        return function

    return register


def show(code: str, value: Any) -> None:
    """Print a line of code and its value, which goes below if it does not fit beside it."""
    text = str(value)
    if "\n" in text or len(code) > 44 or len(text) > 70:
        print(f"  {code}\n" + "\n".join(f"      {line}".rstrip() for line in text.splitlines()))
    else:
        print(f"  {code:<44} {text}")


def say(text: str) -> None:
    """Print a remark between lines of code."""
    print(f"  # {text}")


@section("An expression is built, not computed")
def expressions(be: Any) -> None:
    numbers = np.arange(6).reshape(2, 3)
    a, b, c = (
        be.array(0.1 * numbers, name="a"),
        be.array(0.2 * numbers, name="b"),
        be.array(-0.3 * numbers, name="c"),
    )
    e = be.sig(a * b + c)
    show("e = be.sig(a * b + c)", repr(e))
    show("str(e)", e)
    show("e.pp()", e.pp())
    show("e.shape, e.dtype.name, e.T.shape", (e.shape, e.dtype.name, e.T.shape))

    out = be.zeros((2, 3))
    say("nothing was computed so far; assignment does it")
    out[:] = e
    show("out[:] = e; out.get()", out.get().round(4))
    a[:] = 0
    say("an expression reads its tensors when it is assigned, so it sees that a is 0 now")
    out[:] = e
    show("a[:] = 0; out[:] = e; out.get()", out.get().round(4))


@section("An assignment is one kernel: no temporaries, one pass over memory")
def fusing(be: Any) -> None:
    x, y = be.array(np.ones((1000, 1000)), name="x"), be.array(np.ones((1000, 1000)), name="y")
    show("print(be.explain(be.tanh(2 * x - y) ** 2))", be.explain(be.tanh(2 * x - y) ** 2))
    say("subexpressions used twice are computed once: 30 nodes here, not a thousand million")
    e = x
    for _ in range(30):
        e = e + e
    show("e = x; e = e + e, 30 times; e ** 0.1 at (0, 0)", be.power(e, 0.1).asnumpyarray()[0, 0])


@section("Broadcasting and reductions")
def reductions(be: Any) -> None:
    column, row = be.array(np.arange(1.0, 4.0)[:, None]), be.array(np.arange(1.0, 5.0)[None, :])
    show("table = column * row; table.shape", (column * row).shape)
    show("(column * row).asnumpyarray()", (column * row).asnumpyarray())
    table = column * row
    show("be.sum(table, axis=0).asnumpyarray()", be.sum(table, axis=0).asnumpyarray())
    show("be.mean(table).asnumpyarray()", be.mean(table).asnumpyarray())
    show(
        "be.argmax(be.array(...), axis=1)",
        be.argmax(be.array([[1, 7, 3], [9, 2, 4]]), axis=1).asnumpyarray().ravel(),
    )
    cube = be.array(np.arange(24).reshape(2, 3, 4))
    show("be.sum(cube, axis=(0, 2)).shape", be.sum(cube, axis=(0, 2)).shape)


@section("Softmax: three passes, one stage")
def softmax(be: Any) -> None:
    x = be.array(np.random.default_rng(0).standard_normal((10, 32)), name="x")
    say("maximum, sum and quotient share their axis, so the planner keeps them together and says so")
    show("print(be.explain(be.fprop_softmax(x, axis=0)))", be.explain(be.fprop_softmax(x, axis=0)))
    say("reductions over different axes cannot share a pass, and each cut has its reason")
    e = be.sum(be.max(x, axis=0), axis=1)
    reasons = [line.strip() for line in be.explain(e).splitlines() if line.lstrip().startswith(("stage", "why"))]
    show("be.sum(be.max(x, axis=0), axis=1)", "\n".join(reasons))


@section("The right side is finished before the target changes")
def aliasing(be: Any) -> None:
    a = be.array([[1, 2], [3, 4]])
    a[:] = a + a.T
    show("a[:] = a + a.T", a.get().tolist())
    r = be.array([[1, 2, 3, 4, 5]])
    r[:, 1:] = r[:, :-1]
    show("r[:, 1:] = r[:, :-1]   (r was 1 2 3 4 5)", r.get().ravel())
    p, q = be.array([[1, 1]]), be.array([[2, 2]])
    be.assign_many([(p, q), (q, p)])
    show("be.assign_many([(p, q), (q, p)])", f"p = {p.get().ravel()}, q = {q.get().ravel()}")


@section("Gradients are expressions too")
def gradients(be: Any) -> None:
    x = be.array([[0.5, 1.0, 2.0]], name="x")
    y = be.sum(x**3)
    (slope,) = Autodiff(y, be).get_grad_op_tree([x])
    show("y = be.sum(x ** 3); x.get()", x.get().ravel())
    show("(slope,) = Autodiff(y, be).get_grad_op_tree([x])", slope.asnumpyarray().ravel())
    (curvature,) = Autodiff(be.sum(slope), be).get_grad_asnumpyarray([x])
    show("Autodiff(be.sum(slope), be)..., that is 6x", curvature.ravel())

    w, v = be.array(np.eye(2), name="w"), be.array([[1.0], [2.0]], name="v")
    loss = be.sum(be.square(be.tanh(be.dot(w, v))))
    dw, dv = Autodiff(loss, be).get_grad_asnumpyarray([w, v])
    show("loss = be.sum(be.square(be.tanh(be.dot(w, v))))", f"dw {dw.shape}, dv {dv.shape}")


@section("Prepared assignments for hot loops")
def prepared(be: Any) -> None:
    w, grad = be.array([[1.0, 2.0]]), be.array([[0.5, -0.5]])
    velocity = be.zeros((1, 2))
    step = be.prepare([(velocity, 0.9 * velocity - 0.1 * grad), (w, w + 0.9 * velocity - 0.1 * grad)])
    say("momentum: two targets, one plan, bound once to its tensors")
    show("step = be.prepare([(velocity, ...), (w, ...)])", type(step).__name__)
    for _ in range(3):
        step()
    show("step(); step(); step(); w.get()", w.get().round(4).ravel())


@section("Random numbers belong to the expression")
def random_numbers(be: Any) -> None:
    x = be.ones((4, 8))
    out = be.empty((4, 8))
    out[:] = x * be.dropout(keep=0.5) / 0.5
    show("out[:] = x * be.dropout(keep=0.5) / 0.5", out.get().astype(int))
    be.rng_reset()
    again = be.empty((4, 8))
    again[:] = x * be.dropout(keep=0.5) / 0.5
    show("after be.rng_reset(): the same mask?", bool(np.array_equal(out.get(), again.get())))
    show(
        "mean of a million be.rand()",
        be.mean(be.zeros((1000, 1000)) + be.rand()).asnumpyarray().round(3).item(),
    )


@section("NumPy on both sides")
def numpy_too(be: Any) -> None:
    t = be.array([[1.0, 4.0, 9.0]])
    show("np.float32(2) * t", repr(np.float32(2) * t))
    show("(np.ones((2, 1), np.float32) + t).shape", (np.ones((2, 1), np.float32) + t).shape)
    host = np.asarray(t)
    host[0, 0] = 100
    show("np.asarray(t)[0, 0] = 100; be.sqrt(t)", be.sqrt(t).asnumpyarray().ravel())
    shared = np.from_dlpack(t)
    show("np.from_dlpack(t) shares the memory?", bool(np.shares_memory(shared, host)))


@section("Mistakes are found where they are made")
def mistakes(be: Any) -> None:
    a, b = be.zeros((2, 3)), be.zeros((3, 2))
    cases = {
        "a + b": lambda: a + b,
        "be.dot(a, a)": lambda: be.dot(a, a),
        "be.sum(a, axis=5)": lambda: be.sum(a, axis=5),
        "a * 'two'": lambda: a * "two",
        "a[:] = be.sum(a, axis=1) + b.T[:, :2]": lambda: be.assign(a, be.sum(a, axis=1) + b.T[:, :2]),
    }
    for code, attempt in cases.items():
        try:
            attempt()
        except NeonlikeError as error:
            show(code, f"{type(error).__name__}: {error}")


def main() -> None:
    """Run every section on one backend."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--bench", nargs="?", const=True, metavar="FILE",
        help="time every kernel and show the table at the end, or write it to a .txt, .json or .csv file",
    )  # fmt: skip
    options = parser.parse_args()
    with gen_backend("cpu", rng_seed=1, bench=options.bench) as be:
        print(f"neonlike, the expressions. Engine: {be.engine.name}.")
        for number, (title, step) in enumerate(STEPS, 1):
            print(f"\n{number}. {title}\n")
            step(be)
    print("\nNext: docs/ops.md lists every op, docs/tour.md follows one assignment through the code.")


if __name__ == "__main__":
    sys.exit(console.run(main))
