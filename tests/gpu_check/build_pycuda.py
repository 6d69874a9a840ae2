"""Builds a wheel of PyCUDA's sources in the current folder, all files at once: ``python build_pycuda.py FOLDER``.

setuptools compiles one file after the other, which takes two minutes.
"""

from __future__ import annotations

import os
import runpy
import sys
from multiprocessing.pool import ThreadPool
from typing import Any

from setuptools._distutils.ccompiler import CCompiler


def compile_at_once(
    self: Any,
    sources: Any,
    output_dir: Any = None,
    macros: Any = None,
    include_dirs: Any = None,
    debug: Any = False,
    extra_preargs: Any = None,
    extra_postargs: Any = None,
    depends: Any = None,
) -> Any:
    """As ``CCompiler.compile``, on all processors."""
    macros, objects, extra_postargs, pp_opts, build = self._setup_compile(
        output_dir, macros, include_dirs, sources, depends, extra_postargs
    )
    cc_args = self._get_cc_args(pp_opts, debug, extra_preargs)

    def one(target: str) -> None:
        source, suffix = build[target]
        self._compile(target, source, suffix, cc_args, extra_postargs, pp_opts)

    largest_first = sorted(build, key=lambda target: -os.path.getsize(build[target][0]))
    with ThreadPool(os.cpu_count() or 1) as pool:
        list(pool.imap_unordered(one, largest_first))
    return objects


if __name__ == "__main__":
    CCompiler.compile = compile_at_once
    sys.argv = ["setup.py", "bdist_wheel", "--dist-dir", sys.argv[1]]
    sys.path.insert(0, os.getcwd())
    runpy.run_path("setup.py", run_name="__main__")
