"""Pictures of dynamic graphs, in the language of Graphviz (``dot -Tsvg``)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Made(NamedTuple):
    """A command as it was run."""

    name: str
    text: str
    inputs: tuple[Entry, ...]


class Entry:
    """A value in the picture: whose it is, what it looks like, and the command that made it (None: nobody).

    ``counted`` tells values of one variable apart, since commands may write it again.

    Parameters
    ----------
    name : str
        Name of the variable.
    constant : bool
        Whether it is drawn dashed.
    text : str
        Shape and dtype, for long labels.
    made : Made or None
        The command.
    """

    __slots__ = ("__weakref__", "constant", "made", "name", "text")

    def __init__(self, name: str, constant: bool, text: str = "", made: Made | None = None) -> None:
        self.name, self.constant, self.text, self.made = name, constant, text, made


def dot(values: Iterable[Entry], long: bool) -> str:
    """The text of a picture with ``values`` and what they were made of.

    Parameters
    ----------
    long : bool
        With shapes, dtypes and the options of commands.
    """
    numbers: dict[int, int] = {}
    lines = ["digraph dynamic_graph {", "    node [fontsize=10];"]
    seen: set[int] = set()
    stack = list(values)
    kept: list[Entry | Made] = []  # ids are those of what is alive

    def number(one: Entry | Made) -> int:
        kept.append(one)
        return numbers.setdefault(id(one), len(numbers))

    while stack:
        entry = stack.pop(0)
        if id(entry) in seen:
            continue
        seen.add(id(entry))
        label = f"{entry.name}\\n{entry.text}" if long and entry.text else entry.name
        style = ", style=dashed" if entry.constant else ""
        lines.append(f'    v{number(entry)} [label="{_quoted(label)}"{style}];')
        made = entry.made
        if made is None:
            continue
        if id(made) not in seen:
            seen.add(id(made))
            text = made.text if long else made.name
            lines.append(f'    c{number(made)} [shape=box, label="{_quoted(text)}"];')
            lines += [f"    v{number(one)} -> c{number(made)};" for one in made.inputs]
            stack += made.inputs
        lines.append(f"    c{number(made)} -> v{number(entry)};")
    return "\n".join([*lines, "}"]) + "\n"


def _quoted(text: str) -> str:
    return text.replace('"', '\\"')
