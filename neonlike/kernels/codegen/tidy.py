"""Tidying of rendered kernels: removal of unused definitions, and indentation by braces.

Templates declare everything that any of their kernels may need, and mark optional locals by ``(void)name;``.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator

_FUNCTION = re.compile(r"^\w[^;{}]*\)\n\{\n.*?^\}\n", re.MULTILINE | re.DOTALL)
_EMPTY = re.compile(r"(^(?:/\*.*\*/\n)?static void (\w+)\([^;{}]*\)\n\{\n\s*^\}\n)", re.MULTILINE)
_MARK = re.compile(r"\(void\)(\w+)(?:, |;)")
_DECLARATION = re.compile(r"^( *(?:const )?(?:struct )?\w+ )(\**\w+ = [^;]*);(.*)$")
_NAMED = re.compile(r"\**(\w+) = ")
_LOCAL = re.compile(r"(?<!->)(?<![.\w])[a-z_]\w*")
_WORD = re.compile(r"\w+")
_DEFINE = re.compile(r"^#define (\w+) .*\n", re.MULTILINE)
_BRACE = re.compile("[{}]")
_COMMENT = re.compile(r"/\*.*?\*/")
_HEADER = re.compile(r"(?:\} )?(?:else )?(?:if|for|while) \(.*\)$|(?:\} )?else$")
"""Header of a statement that stands on the next line."""


def tidied(text: str) -> str:
    """Remove unused locals and macros and empty functions from ``text``, C or CUDA, and indent it."""
    text = _FUNCTION.sub(lambda found: _without_unused(found.group()), text)
    for empty, name in _EMPTY.findall(text):
        text = re.sub(rf"(?:^ *if \(.*\)\n)?^ *{name}\(.*\);\n", "", text.replace(empty, ""), flags=re.MULTILINE)
    words = Counter(_WORD.findall(text))
    text = _DEFINE.sub(lambda found: found.group() if words[found.group(1)] > 1 else "", text)
    return "".join([f"{line}\n" for line in _indented(text.lstrip())])


def _without_unused(function: str) -> str:
    """Remove a function's marks, and its marked but unused locals."""
    if "(void)" not in function:
        return function
    marked = set(_MARK.findall(function))
    lines = [_MARK.sub("", line).rstrip() if "(void)" in line else line for line in function.splitlines()]
    names = [_LOCAL.findall(_code(line)) for line in lines]
    ends = _ends_of_scopes(lines)
    changed = True
    while changed:
        changed = False
        for at in [at for at, found in enumerate(names) if not marked.isdisjoint(found)]:
            declared = _declared(lines[at]) & marked
            after = set(itertools.chain(*names[at + 1 : ends[at]])) if declared else declared
            unused = {name for name in declared - after if names[at].count(name) == 1}
            if unused:
                lines[at] = _without(lines[at], unused)
                names[at] = _LOCAL.findall(_code(lines[at]))
                changed = True
    return "".join([f"{line}\n" for line in lines])


def _code(line: str) -> str:
    """A line without its comments."""
    return _COMMENT.sub("", line) if "/*" in line else line


def _ends_of_scopes(lines: list[str]) -> list[int]:
    """For each line, the index of the line that closes the enclosing braces."""
    ends, opened = [0] * len(lines), [0]
    for at, line in enumerate(lines):
        for _ in range(line.count("{") - line.count("}")):
            opened.append(at + 1)
        for _ in range(line.count("}") - line.count("{")):
            start = opened.pop()
            ends[start:at] = [end or at for end in ends[start:at]]
    return [end or len(lines) for end in ends]


def _declared(line: str) -> set[str]:
    """Names that a line declares with a value."""
    found = _DECLARATION.match(line)
    return {_name(part) for part in _parts(found.group(2))} if found else set()


def _parts(text: str) -> Iterator[str]:
    """Split ``text`` at commas outside of parentheses."""
    depth, part = 0, ""
    for piece in re.split(r"([(\[{]|[)\]}]|, )", text):
        depth += (piece in tuple("([{")) - (piece in tuple(")]}"))
        if piece == ", " and not depth:
            yield part
            part = ""
        else:
            part += piece
    yield part


def _name(part: str) -> str:
    found = _NAMED.match(part)
    return found.group(1) if found else ""


def _without(line: str, unused: set[str]) -> str:
    """A line without its declarations of ``unused`` names."""
    found = _DECLARATION.match(line)
    if found is None or not unused:
        return line
    kept = [part for part in _parts(found.group(2)) if _name(part) not in unused]
    return f"{found.group(1)}{', '.join(kept)};{found.group(3)}" if kept else ""


def _indented(text: str) -> Iterator[str]:
    """Indent lines by the depth of enclosing braces; blank lines remain between functions only."""
    opened: list[int] = []  # depths at the open braces
    under, parentheses, comment, blank = 0, 0, False, False
    for line in text.splitlines():
        bare = line.strip()
        if not bare:
            blank = True
            continue
        if blank and not opened:
            yield ""
        blank = False
        if bare.startswith("#"):
            yield bare
            continue
        code = "" if comment else _code(bare).partition("/*")[0].rstrip() if "/*" in bare else bare
        depth = (opened[-1] + 1 if opened else 0) + under
        depth = opened[-1] if code.startswith("}") else depth + 2 * bool(parentheses)
        yield "    " * depth + " " * comment + bare
        if comment or "/*" in bare:
            comment = "*/" not in bare if comment else bare.rfind("/*") > bare.rfind("*/")
        for brace in _BRACE.findall(code):
            opened.append(depth) if brace == "{" else opened.pop()
        parentheses += code.count("(") - code.count(")")
        if code and not parentheses:
            under = under + 1 if code[-1] not in ";{}" and _HEADER.fullmatch(code) else 0
