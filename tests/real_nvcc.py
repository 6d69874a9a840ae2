"""What the real nvcc makes of CUDA kernels, for GPUs that need not be there."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from neonlike.kernels.build.source import KernelSource
from neonlike.kernels.cuda import compile as compile_cuda

NVCC = next((path for path in ("/usr/local/cuda/bin/nvcc", "/usr/local/bin/nvcc") if shutil.which(path)), None)
needs_nvcc = pytest.mark.skipif(NVCC is None, reason="there is no CUDA toolkit, whose nvcc compiles for real GPUs")
ARCHITECTURES = ("sm_80", "sm_90a", "sm_100")
"""Of an A100, an H100 and a B200."""


class Compiled(NamedTuple):
    """A compiled kernel: its PTX, and what the compiler says of registers and spills."""

    ptx: str
    usage: str

    @property
    def loads(self) -> int:
        """Loads of 16 bytes from global memory."""
        return len(re.findall(r"ld\.global(?:\.nc)?\.v4\.", self.ptx))

    @property
    def stores(self) -> int:
        """Stores of 16 bytes to global memory."""
        return len(re.findall(r"st\.global\.v4\.", self.ptx))

    @property
    def spills(self) -> bool:
        """Whether registers are kept in memory."""
        return not re.search(r"\b0 bytes spill stores, 0 bytes spill loads", self.usage) or bool(
            re.search(r"[1-9]\d* bytes spill", self.usage)
        )


def compiled(kernel: KernelSource, arch: str, folder: Path) -> Compiled:
    """``kernel`` as compiled for ``arch`` in ``folder``; fails the test where it does not compile."""
    assert NVCC is not None
    for name, text in kernel.headers.items():
        (folder / name).write_text(text)
    (folder / "k.cu").write_text(str(kernel.source))
    steps = ("-ptx", "k.cu", "k.ptx"), ("-cubin", "k.ptx", "k.cubin")
    for form, source, result in steps:
        flags = compile_cuda.FLAGS if form == "-ptx" else ("--resource-usage",)
        made = subprocess.run(
            [NVCC, form, f"-arch={arch}", *flags, "-I.", source, "-o", result],
            cwd=folder, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert made.returncode == 0, f"{kernel.expression}: {made.stderr}"
    return Compiled((folder / "k.ptx").read_text(), made.stderr)
