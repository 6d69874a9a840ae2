"""The text of a kernel as it is compiled and, if asked for, kept for people, in any language; and its errors."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from neonlike import settings
from neonlike.errors import KernelCompileError
from neonlike.kernels.cache import default_cache
from neonlike.logger import logger

if TYPE_CHECKING:
    from neonlike.kernels.compile_c import KernelSource


def keeps_sources() -> bool:
    """Whether ``NEONLIKE_KEEP_SOURCE`` asks for the sources of kernels that compile, too."""
    return settings.KEEP_SOURCE.get()


def commented(kernel: KernelSource, command_line: str) -> str:
    """The text that is compiled and kept: the compiler's line numbers are those of the kept file."""
    about = f"{kernel.expression or kernel.name}\n{command_line}"
    lines = about.replace("*/", "* /").replace("/*", "/ *").splitlines()
    return "/* " + "\n * ".join(lines) + "\n */\n" + str(kernel.source)


def file_name(name: str) -> str:
    """``name`` as part of the name of a file."""
    return re.sub(r"\W+", "_", name, flags=re.ASCII)[:60] or "kernel"


def keep(kernel: KernelSource, key: str, text: str, suffix: str) -> str | None:
    """Write ``text`` where people find it, and say where; None if that is not possible."""
    try:
        return str(default_cache().keep(key, file_name(kernel.name), text, suffix))
    except OSError as error:
        logger.info("kernel %s: the source could not be kept (%s)", kernel.name, error)
        return None


def compile_error(
    kernel: KernelSource, path: str | None, words: str, compiler: str, advice: str = ""
) -> KernelCompileError:
    """What to raise when ``compiler`` refused ``kernel`` with these words; its source is kept at ``path``."""
    what = f" of {kernel.expression}" if kernel.expression else ""
    message = (
        f"kernel {kernel.name}{what} could not be compiled:\n{words[:4000]}\n"
        f"source: {path or 'could not be written'}\n"
        f"compiler: {compiler}{advice}"
    )
    return KernelCompileError(message, path, words, kernel.expression)
