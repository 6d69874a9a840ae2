"""Kernels as input of a C or CUDA compiler: text and headers, the copy kept for people, and compile errors."""

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
"""Header texts by their names in ``#include``, or directories with ``*.h`` files."""


class LazySource(Protocol):
    """A source text that is rendered by ``str``; ``identity`` hashes all of its inputs."""

    @property
    def identity(self) -> str:
        """Text that is equal for equal sources, without writing them."""
        ...


class KernelSource(NamedTuple):
    """One kernel to compile.

    Attributes
    ----------
    source : str or LazySource
        Text of the kernel.
    name : str
        Name used in file names.
    expression : str
        Computed expression, for people.
    headers : mapping of str to str, or sequence of paths
    contracts : bool
        Whether a product and a following sum may be rounded once, by a fused multiply-add. Kernels of compound
        primitives may, because they sum products; in those of expressions each operation is rounded, as in NumPy.
    """

    source: str | LazySource
    name: str
    expression: str = ""
    headers: Headers = ()
    contracts: bool = False

    @property
    def contracted(self) -> bool:
        """Whether the compiler contracts it: if allowed, and always with ``NEONLIKE_CONTRACT=1``."""
        return self.contracts or settings.CONTRACT.get()


def keeps_sources() -> bool:
    """Whether ``NEONLIKE_KEEP_SOURCE`` requests sources of successfully compiled kernels, too."""
    return settings.KEEP_SOURCE.get()


def commented(kernel: KernelSource, command_line: str = "") -> str:
    """Text of a kernel, with a comment on top that names its expression and its compiler.

    It is compiled in this form, so that line numbers in compiler messages refer to the kept file.
    """
    about = f"{kernel.expression or kernel.name}\n{command_line}".replace("*/", "* /").replace("/*", "/ *")
    lines = about.strip().splitlines()
    comment = "/* " + "\n * ".join(lines) + ("\n */\n" if len(lines) > 1 else " */\n")
    return comment + str(kernel.source)


def file_name(name: str) -> str:
    """Replace characters in ``name`` that are unsafe in file names."""
    return re.sub(r"\W+", "_", name, flags=re.ASCII)[:60] or "kernel"


def keep(kernel: KernelSource, key: str, text: str, suffix: str) -> str | None:
    """Write ``text`` beside the kernel's entry in the cache and return the path, or None if that fails.

    Parameters
    ----------
    kernel : KernelSource
    key : str
        Key of the cache.
    text : str
    suffix : str
        Of the file.
    """
    try:
        return str(default_cache().keep(key, file_name(kernel.name), text, suffix))
    except OSError as error:
        logger.info("kernel %s: the source could not be kept (%s)", kernel.name, error)
        return None


def compile_error(
    kernel: KernelSource, path: str | None, words: str, compiler: str, advice: str = ""
) -> KernelCompileError:
    """Build the exception for a kernel that ``compiler`` refused: ``words`` is its output, ``path`` the kept source.

    Parameters
    ----------
    kernel : KernelSource
    path : str or None
    words : str
    compiler : str
        Name of the compiler.
    advice : str
        Said at the end.
    """
    what = f" of {kernel.expression}" if kernel.expression else ""
    message = (
        f"kernel {kernel.name}{what} could not be compiled:\n{words[:4000]}\n"
        f"source: {path or 'could not be written'}\n"
        f"compiler: {compiler}{advice}"
    )
    return KernelCompileError(message, path, words, kernel.expression)
