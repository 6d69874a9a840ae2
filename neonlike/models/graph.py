"""The graph of a network in the DOT language, drawn by Graphviz's program ``dot`` where it is installed."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from neonlike.distributed.first import by_first
from neonlike.errors import ArgumentError, MissingExtra, NeonlikeError
from neonlike.layers.container import LayerContainer, Tree
from neonlike.layers.container.merge import Broadcast
from neonlike.markup import Explanation, Picture
from neonlike.models.explain import explain, require_shapes, row_of
from neonlike.util.atomic import replacing
from neonlike.util.persist import ensure_dirs_exist, expand

if TYPE_CHECKING:
    from neonlike.layers.core.base import Layer

INK, GROUND = "#1f2328", "#ffffff"
"""Colours of lines and texts, and of the ground."""
DRAWN = ("svg", "png", "pdf")
"""File types that ``dot`` writes; .dot and .gv files have the graph's text."""
SECONDS = 60
"""Time that ``dot`` may take."""


def plot(network: LayerContainer, path: str | os.PathLike[str] | None = None) -> Explanation:
    """Draw a network; see :meth:`Model.plot`."""
    text = explain(network)
    dot = dot_text(network)
    if path is not None:
        suffix = Path(path).suffix.lower().lstrip(".")
        if suffix not in (*DRAWN, "dot", "gv"):
            raise ArgumentError(
                f"Model.plot: path={os.fspath(path)!r} names no kind of file that can be drawn; end it in "
                f"{', '.join('.' + kind for kind in (*DRAWN, 'dot', 'gv'))}"
            )
        by_first(lambda: _write(ensure_dirs_exist(expand(path)), dot, suffix))
    drawn = draw(dot)
    if drawn is None:
        return text
    return Explanation(text, [Picture(drawn.decode(), "The network's graph: " + text.replace("\n", "; "))])


def _write(path: str, dot: str, suffix: str) -> None:
    content = draw(dot, suffix) if suffix in DRAWN else dot.encode()
    if content is None:
        raise MissingExtra(
            f"Model.plot: {path} is drawn by Graphviz's program dot, which is not installed (Debian: apt install "
            "graphviz); a file that ends in .dot needs no program"
        )
    with replacing(path) as file:
        file.write(content)


def draw(dot: str, kind: str = "svg") -> bytes | None:
    """Draw a graph as a file of one of the kinds ``DRAWN``; None if Graphviz is not installed.

    Raises
    ------
    NeonlikeError
        If ``dot`` fails.
    """
    program = shutil.which("dot")
    if program is None:
        return None
    import subprocess

    try:
        done = subprocess.run([program, f"-T{kind}"], input=dot.encode(), capture_output=True, timeout=SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NeonlikeError(f"the graph cannot be drawn by {program}: {error}") from error
    if done.returncode:
        raise NeonlikeError(f"the graph cannot be drawn by {program}: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout


def dot_text(network: LayerContainer) -> str:
    """The graph in the DOT language: layers with shapes, and those that one call computes in one frame.

    Raises
    ------
    ArgumentError
        If the network's shapes are not known yet.
    """
    require_shapes(network)
    graph = _Graph()
    graph.finish(graph.add(network, [graph.node("input", "ellipse")]))
    return graph.text()


class _Graph:
    """Nodes, edges and frames, as lines of DOT."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._names: dict[int, str] = {}
        self._junctions: dict[int, list[str]] = {}
        self._frames: list[list[Any]] = []
        self._count = 0

    def node(self, label: str, shape: str = "box", style: str = "rounded") -> str:
        """Add a node and return its name."""
        name = f"n{self._count}"
        self._count += 1
        self._lines.append(f"{name} [label={_quoted(label)}, shape={shape}, style={_quoted(style)}]")
        return name

    def add(self, layer: Layer, before: list[str]) -> list[str]:
        """Add a layer behind the nodes ``before`` and return the nodes of its outputs."""
        if layer.is_branch_node:
            before = self._junctions.setdefault(id(layer), before)
            return before
        if isinstance(layer, Tree):
            return [name for i, part in enumerate(layer.layers) for name in self.add(part, [] if i else before)]
        if isinstance(layer, Broadcast):
            ends = [name for part in layer.layers for name in self.add(part, before)]
            return [self._joined(layer, ends)]
        if isinstance(layer, LayerContainer):
            for part in layer.layers:
                before = self.add(part, before)
            return before
        row = row_of(layer)
        label = "\n".join([row.name, row.kind, f"{row.inputs} → {row.outputs}"])
        made = self.node(label, style="rounded,dashed" if row.joined_to else "rounded")
        self._names[id(layer)] = made
        if layer.folded:
            self._frames.append([layer, *layer.folded])
        self._link(before, made)
        return [made]

    def _joined(self, layer: Layer, ends: list[str]) -> str:
        made = self.node(f"{layer.classnm}\n{layer.name}", "ellipse", "solid")
        self._link(ends, made)
        return made

    def finish(self, ends: list[str]) -> None:
        """Add the output behind the last nodes."""
        self._link(ends, self.node("output", "ellipse", "solid"))

    def _link(self, sources: list[str], target: str) -> None:
        self._lines += [f"{source} -> {target}" for source in dict.fromkeys(sources)]

    def text(self) -> str:
        """The whole graph."""
        frames = []
        for number, layers in enumerate(self._frames):
            inside = " ".join(self._names[id(layer)] + ";" for layer in layers if id(layer) in self._names)
            frame = f'label="one call"; labeljust="l"; style="rounded,dashed"; {inside}'
            frames.append(f"subgraph cluster_{number} {{ {frame} }}")
        options = [
            f'bgcolor="{GROUND}"; color="{INK}"; fontcolor="{INK}"; fontname="Helvetica"; fontsize=11;',
            f'node [color="{INK}", fontcolor="{INK}", fontname="Helvetica", fontsize=11];',
            f'edge [color="{INK}"];',
        ]
        return "\n".join(["digraph network {", *options, *self._lines, *frames, "}"]) + "\n"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
