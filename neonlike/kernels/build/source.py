"""A kernel as a C or CUDA compiler gets it: its text and headers, the copy kept for people, and compile errors."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from neonlike import settings
from neonlike.errors import KernelCompileError
from neonlike.kernels.build.cache import default_cache
from neonlike.logger import logger

Headers = Mapping[str, str] | Sequence[str | Path]
"""Header texts by the name they are included with, or directories whose ``*.h`` files may be included."""


class LazySource(Protocol):
    """A source text that is rendered when ``str`` asks for it; ``identity`` hashes everything it is rendered from."""

    @property
    def identity(self) -> str: ...


class KernelSource(NamedTuple):
    """One kernel to compile.

    Attributes
    ----------
    source : str or LazySource
        Its text.
    name : str
        Its name in file names.
    expression : str
        What it computes, for people.
    headers : mapping of str to str, or sequence of paths
    contracts : bool
        Whether a product and the sum that it goes into may be rounded once, by a fused multiply-add. Kernels of
        compound primitives may, as they sum products; in those of expressions each operation is rounded, as in NumPy.
    """

    source: str | LazySource
    name: str
    expression: str = ""
    headers: Headers = ()
    contracts: bool = False

    @property
    def contracted(self) -> bool:
        """Whether the compiler contracts it: where it may, and everywhere with ``NEONLIKE_CONTRACT=1``."""
        return self.contracts or settings.CONTRACT.get()


def keeps_sources() -> bool:
    """Whether ``NEONLIKE_KEEP_SOURCE`` asks for the sources of kernels that compile, too."""
    return settings.KEEP_SOURCE.get()


def commented(kernel: KernelSource, command_line: str = "") -> str:
    """The text of a kernel, with what it computes and what compiles it as a comment on top.

    It is compiled as it is kept, so that the compiler's line numbers are those of the kept file.
    """
    about = f"{kernel.expression or kernel.name}\n{command_line}".replace("*/", "* /").replace("/*", "/ *")
    lines = about.strip().splitlines()
    comment = "/* " + "\n * ".join(lines) + ("\n */\n" if len(lines) > 1 else " */\n")
    return comment + str(kernel.source)


def file_name(name: str) -> str:
    """``name`` with only the characters that are safe in a file name."""
    return re.sub(r"\W+", "_", name, flags=re.ASCII)[:60] or "kernel"


def keep(kernel: KernelSource, key: str, text: str, suffix: str) -> str | None:
    """Write ``text`` beside the kernel's entry in the cache; the path, or None if nothing can be written."""
    try:
        return str(default_cache().keep(key, file_name(kernel.name), text, suffix))
    except OSError as error:
        logger.info("kernel %s: the source could not be kept (%s)", kernel.name, error)
        return None


def compile_error(
    kernel: KernelSource, path: str | None, words: str, compiler: str, advice: str = ""
) -> KernelCompileError:
    """The error to raise when ``compiler`` refused ``kernel``: ``words`` is its output, ``path`` the kept source."""
    what = f" of {kernel.expression}" if kernel.expression else ""
    message = (
        f"kernel {kernel.name}{what} could not be compiled:\n{words[:4000]}\n"
        f"source: {path or 'could not be written'}\n"
        f"compiler: {compiler}{advice}"
    )
    return KernelCompileError(message, path, words, kernel.expression)
