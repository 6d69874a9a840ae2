"""Rewrites CUDA C++ into C++ for the host: the two words of the language that no macro can stand for.

``__shared__`` variables become references into the memory of the running block, and ``__global__`` functions
plain ones, each listed after the source with `CUEMU_KERNEL` so that the driver finds it. Everything else of the
language is in include/cuda_on_cpu.h. Lines stay where they are: messages of the compiler and of the checker name
the right ones.
"""

from __future__ import annotations

import os
import re

_COMMENT_OR_TEXT = re.compile(
    r"""(?P<comment>//[^\n]*|/\*.*?\*/) | "(?:\\.|[^"\\\n])*" | '(?:\\.[0-7a-fA-F]{0,3}|[^'\\\n])'""",
    re.S | re.X,
)
_PARENTHESES = r"\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)"
_ALIGNMENT = re.compile(rf"\b(?:__align__|alignas|__attribute__)\s*{_PARENTHESES}")
_SHARED = re.compile(
    rf"(?P<before>(?:\b(?:(?:extern|static|volatile|const)\b|(?:__align__|alignas|__attribute__)\s*{_PARENTHESES})\s*)*)"
    r"\b__shared__\b(?P<after>[^;]*);"
)
_DECLARATOR = re.compile(r"(?P<type>.*?)(?P<name>[A-Za-z_]\w*)\s*(?P<dimensions>(?:\[[^\]]*\]\s*)*)", re.S)
_LAUNCH_BOUNDS = re.compile(rf"\b__launch_bounds__\s*(?P<bounds>{_PARENTHESES})")
_KERNEL_NAME = re.compile(r"(?:(?:static|inline|__forceinline__)\s+)*void\s+(?P<name>[A-Za-z_]\w*)\s*\(")
_TEMPLATE = re.compile(r'template\s*<[^;{}]*>\s*(?:extern\s*"C"\s*)?$')
_WORD_IN_A_MACRO = re.compile(r"^[ \t]*#[ \t]*define\b(?:\\\n|[^\n])*__(?:shared|global)__", re.M)
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"', re.M)

DEFAULT_BOUND = "1024"


class SourceError(Exception):
    """A declaration that the rewriting does not understand."""


def needs_preprocessor(source: str, folders: list[str]) -> bool:
    """Whether ``__shared__`` or ``__global__`` may come out of a macro, or of a file included from ``folders``.

    Preprocessing first takes a kernel five times as long: the precompiled header is of no use then.
    """
    if _WORD_IN_A_MACRO.search(source):
        return True
    pending, seen = _INCLUDE.findall(source), set()
    while pending:
        name = pending.pop()
        if name in seen:
            continue
        seen.add(name)
        path = next(
            (p for p in (os.path.join(folder, name) for folder in folders) if os.path.isfile(p)), None
        )
        if path is None:
            return True  # g++ will find it, or say that it is missing
        with open(path, encoding="utf-8") as file:
            text = file.read()
        if "__shared__" in text or "__global__" in text:
            return True
        pending += _INCLUDE.findall(text)
    return False


def without_comments(source: str) -> tuple[str, list[str]]:
    """The source with each comment replaced by a space, or by the ends of its lines, and each text by a word.

    The words are ``cuemu_text_0`` and so on; the texts that they stand for come second.
    """
    texts: list[str] = []

    def blank(match: re.Match[str]) -> str:
        if match["comment"]:
            return "\n" * match[0].count("\n") or " "
        if "__" not in match[0]:
            return match[0]
        texts.append(match[0])
        return f"cuemu_text_{len(texts) - 1}"

    return _COMMENT_OR_TEXT.sub(blank, source), texts


def _split(text: str, separator: str = ",") -> list[str]:
    """Split at separators that stand in no brackets."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "([{<") - (character in ")]}>")
        if character == separator and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def _alignment(text: str) -> str:
    """The alignments that a declaration asks for, as attributes of a type."""
    found = _ALIGNMENT.findall(text)
    return " ".join(
        re.sub(r"^(?:__align__|alignas)\s*(\(.*\))$", r"__attribute__((aligned\1))", a, flags=re.S)
        for a in found
    )


class _SharedVariables:
    """The ``__shared__`` declarations of one source, numbered in order."""

    def __init__(self) -> None:
        self.count = 0

    def rewrite(self, match: re.Match[str]) -> str:
        text = match["before"] + match["after"]
        is_dynamic = bool(re.search(r"\bextern\b", match["before"] + match["after"].split("[")[0]))
        body = re.sub(r"\b(?:static|extern)\b|^\s*#.*$", " ", _ALIGNMENT.sub(" ", text), flags=re.M)
        statements, base = [], ""
        for part in _split(" ".join(body.split())):
            declarator = _DECLARATOR.fullmatch(part.strip())
            if declarator is None:
                raise SourceError(
                    f"cannot read the declaration `__shared__{match['after']};`: write one plain variable"
                )
            base = base or declarator["type"].rstrip(" *&")
            pointer = "*" * declarator["type"].count("*")
            name, dimensions = declarator["name"], declarator["dimensions"].strip()
            if is_dynamic:
                statements.append(f"{base} *{name} = ({base} *)cuemu_thread.dynamic_shared;")
            else:
                statements.append(self._static(f"{base} {pointer}", name, dimensions, _alignment(text)))
        return " ".join(statements) + "\n" * match[0].count("\n")

    def _static(self, base: str, name: str, dimensions: str, alignment: str) -> str:
        self.count += 1
        type_name, site = f"cuemu_type_{self.count}", f"cuemu_site_{self.count}"
        return (
            f"typedef {base} {type_name}{dimensions} {alignment}; "
            f'static_assert(sizeof({type_name}) <= 48 << 10, "{name}: more than 48 KiB of static shared memory"); '
            f'static cuemu_shared_site {site} = {{"{name}", sizeof({type_name}), alignof({type_name}), -1}}; '
            f"{type_name} &{name} = cuemu::shared<{type_name}>({site});"
        )


def kernels(source: str) -> dict[str, str]:
    """The kernels of a source: name -> the most threads of a block, an expression.

    Templates are left out: they have no name that a module could be asked for.
    """
    source, _ = without_comments(source)
    found: dict[str, str] = {}
    for match in re.finditer(r"\b__global__\b", source):
        if _TEMPLATE.search(source[max(0, match.start() - 2000) : match.start()]):
            continue
        head = source[match.end() : match.end() + 2000]
        bounds = _LAUNCH_BOUNDS.search(head.split("{", 1)[0])
        name = _KERNEL_NAME.match(_ALIGNMENT.sub(" ", _LAUNCH_BOUNDS.sub(" ", head)).lstrip())
        if name is not None:
            bound = _split(bounds["bounds"][1:-1])[0].strip() if bounds else DEFAULT_BOUND
            if found.get(name["name"], DEFAULT_BOUND) == DEFAULT_BOUND:
                found[name["name"]] = bound
    return found


def rewrite(source: str, usage: dict[str, tuple[int, int, int]] | None = None) -> str:
    """C++ for the host, to be compiled behind include/cuda_on_cpu.h.

    Parameters
    ----------
    source : str
        CUDA C++, before the preprocessor or after it.
    usage : dict, optional
        For each kernel, registers, bytes of shared and of local memory, as the real compiler reports them.

    Raises
    ------
    SourceError
        A ``__shared__`` declaration is more than a list of plain variables.
    """
    text, texts = without_comments(source)
    listed = "".join(
        "CUEMU_KERNEL({}, ({}), {}, {}, {})\n".format(name, bound, *(usage or {}).get(name, (-1, -1, -1)))
        for name, bound in kernels(source).items()
    )
    text = _SHARED.sub(_SharedVariables().rewrite, text)
    text = re.sub(r"\b__global__\b", " ", text)
    text = re.sub(r"\bcuemu_text_(\d+)\b", lambda match: texts[int(match[1])], text)
    return text + '\nextern "C++" {\n' + listed + "}\n"
