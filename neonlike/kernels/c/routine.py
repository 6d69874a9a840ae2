"""Compiled C of compound primitives: a template, the types of its arguments, and the variants compiled so far.

Kernels of op-trees are generated; a convolution or a pooling is a template written by hand, with few variants (data
type, block sizes). Each is rendered, compiled, cached and loaded as the kernels of op-trees are.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from neonlike.kernels.bench.recorder import compiling
from neonlike.kernels.build.source import KernelSource
from neonlike.kernels.c import workers
from neonlike.kernels.c.pairs import TILES
from neonlike.kernels.c.stage import load_function
from neonlike.kernels.c.toolchain import Compiler
from neonlike.kernels.codegen.render import TemplateSource, header_texts
from neonlike.kernels.run import forks
from neonlike.kernels.run.threads import thread_count

POINTER, INT, REAL = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double
"""Types of arguments: addresses, sizes, and real numbers, which are passed as double for every dtype."""

VECMATH = ("vecmath/vecmath.h", "vecmath/vecmath_f32.h", "vecmath/vecmath_f64.h", "vecmath/vecmath_small.h")
"""Headers of the elementary functions: ``vecmath.h`` and what it includes."""

TILE = ("gemm_tile.h", "pairs.h", *VECMATH)
"""Headers of the register tile of matrix products, and what it includes."""

_MEMBERS = {POINTER: "pointer", INT: "integer", REAL: "real", ctypes.c_int: "integer"}
"""Members of a ``union nl_word`` (``packed.h``) by the types of arguments."""

INSTRUCTIONS = ("instructions.h",)
"""The header that declares what immintrin.h does, as far as routines use it."""

REAL_TYPES = {np.dtype(np.float32): "float", np.dtype(np.float64): "double"}
"""C types of the dtypes that routines compute in."""


class Routine:
    """The C function that a template defines, in variants.

    Parameters
    ----------
    template : str
        File below ``kernels/templates``, or the text of one; its function is called ``{{ name }}``.
    arguments : sequence of ctypes types
        ``POINTER``, ``INT``, ``REAL``.
    title : str
        What it computes, for messages and the comment in kept sources.
    headers : sequence of str
        Files below ``kernels/templates/c`` that it includes, besides that of the worker threads.
    result : ctypes type, optional
        Default: the function returns nothing.
    """

    def __init__(
        self, template: str, arguments: Sequence[Any], title: str, headers: Sequence[str] = (), result: Any = None
    ) -> None:
        self.template, self.arguments, self.title = template, tuple(arguments), title
        self.headers, self.result = (workers.HEADER, "packed.h", *headers), result
        self.variants: dict[Any, Any] = {}

    def variant(self, compiler: Compiler | None, **context: Any) -> Any:
        """The compiled function for ``context``; None if there is no compiler or it failed, which is logged."""
        if compiler is None:
            return None
        key = tuple(context.items())
        if key not in self.variants:
            with compiling():
                self.variants[key] = load_function(self.source(**context), self.arguments, self.result, compiler)
        return self.variants[key]

    def source(self, **context: Any) -> KernelSource:
        """The kernel for ``context``: see ``compile.build_kernel``."""
        source = WithEntry(self.template, context, self.arguments, "NL_PACKED" if self.result else "NL_PACKED_VOID")
        pairs = context.get("pairs")
        title = f"{self.title}, factors rounded to bfloat16" if pairs else self.title
        title += " by tdpbf16ps" * (pairs == TILES)
        return KernelSource(source, source.name, title, header_texts(self.headers), contracts=True)


class WithEntry(TemplateSource):
    """The source of a kernel, followed by the entry that takes all arguments as an array of words (``packed.h``).

    Parameters
    ----------
    template, context
        As of ``TemplateSource``.
    arguments : sequence of ctypes types
    macro : str
        The macro of ``packed.h``.
    """

    def __init__(
        self, template: str, context: dict[str, Any], arguments: Sequence[Any], macro: str = "NL_PACKED"
    ) -> None:
        super().__init__(template, context)
        self.words = ", ".join(f"w[{place}].{_MEMBERS[kind]}" for place, kind in enumerate(arguments))
        self.macro = macro

    @cached_property
    def _shown(self) -> str:
        return f"{super()._shown} {self.macro} {self.words}"

    def __str__(self) -> str:
        return f'{super().__str__()}\n#include "packed.h"\n\n{self.macro}({self.name}, {self.words})\n'


def words(values: Sequence[float]) -> Any:
    """``values`` packed as a C struct of int64_t and double members, a kind of argument of routines."""
    return ctypes.create_string_buffer(struct.pack("".join("d" if type(v) is float else "q" for v in values), *values))


def threads_for(work: int, threshold: int) -> int:
    """Threads for ``work`` units: one below ``threshold``, and one in a forked process."""
    return 1 if work < threshold or forks.forked else thread_count()


def address(array: np.ndarray[Any, Any] | None) -> int | None:
    """The address of ``array``, as a routine takes it; None (a null pointer) for None."""
    return None if array is None else int(array.__array_interface__["data"][0])
