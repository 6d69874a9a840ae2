"""Tensors at the end of memory, for programs of their own: reading or writing past them ends the process."""

from __future__ import annotations

import ctypes
import mmap
import subprocess
import sys
from typing import Any

import numpy as np


def at_the_end(be: Any, shape: tuple[int, ...], dtype: str = "float32") -> Any:
    """A tensor of zeros whose next byte must not be read."""
    size, page = int(np.prod(shape)) * np.dtype(dtype).itemsize, mmap.PAGESIZE
    whole = (size + page - 1) // page * page
    memory = mmap.mmap(-1, whole + page)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mprotect(ctypes.c_void_p(start + whole), ctypes.c_size_t(page), 0) == 0
    return be.wrap(np.frombuffer(memory, dtype, int(np.prod(shape)), whole - size).reshape(shape))


def lines_of(program: str) -> list[str]:
    """Run a program in a process of its own, which must end as it should, and return the lines that it prints."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr or f"ended with {done.returncode}"
    return done.stdout.splitlines()
