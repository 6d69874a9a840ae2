"""Picture of an op-tree, and of the kernel that it becomes."""

from __future__ import annotations

import re
from typing import Any

from sitebuilder.pictures.computing import backend
from sitebuilder.pictures.drawing import BLUE, GREEN, PALE, WIDTH, Canvas

SIGNS = {"sig": "sig", "add": "+", "mul": "×"}


def expression_kernel() -> Canvas:
    """The op-tree of sig(a * b + c), and the lines of its only stage."""
    be = backend()
    a, b, c = leaves = [be.ones((4, 4)) for _ in range(3)]
    tree = be.sig(a * b + c)
    names = {id(leaf): name for leaf, name in zip(leaves, "abc")}
    canvas = Canvas(47)
    canvas.text((WIDTH / 2, 1.6), "out[:] = be.sig(a * b + c)", size=11)
    _draw(canvas, tree, names, (26, 6), 8)
    said = str(be.explain(tree))
    lines = [line.strip() for line in said.splitlines() if re.match(r"  (?:v\d+ = |store)", line)]
    stages = len(re.findall(r"^stage \d+", said, re.MULTILINE))
    canvas.arrow((WIDTH / 2, 25.5), (WIDTH / 2, 28.5))
    canvas.text((WIDTH / 2 + 1.5, 27), f"plan: {stages} stage, {stages} kernel", size=9, align="left")
    canvas.box((4, 29.3), (38, 13.6), fill=PALE, round=0.8)
    shown = [re.sub(r"t([012])", lambda match: "abc"[int(match[1])], line) for line in lines[:-1]]
    for number, line in enumerate(["for each element:", *shown, f"store v{len(shown) - 1} in out"]):
        canvas.text((6 + 2 * (number > 0), 31.4 + 2.4 * number), line, size=9, color="#1f2328", align="left")
    canvas.text((WIDTH / 2, 45), "one pass: a, b and c are read once, out is written once", size=9)
    return canvas


def _draw(canvas: Canvas, node: Any, names: dict[int, str], at: tuple[float, float], spread: float) -> None:
    """Draw a node with its operands below; tensors are the leaves."""
    operands = getattr(node, "operands", ())
    for operand, side in zip(operands, (-1, 1) if len(operands) > 1 else (0,)):
        below = at[0] + side * spread, at[1] + 5.5
        canvas.arrow(below, at, head=False)
        _draw(canvas, operand, names, below, spread * 0.7)
    if id(node) in names:
        canvas.box((at[0] - 1.7, at[1] - 1.5), (3.4, 3), names[id(node)], fill=BLUE, size=10)
    else:
        canvas.dot(at, SIGNS[node.spec.name], radius=1.9, fill=GREEN, size=9)
