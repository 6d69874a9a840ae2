"""Machine code of kernels for processors with Intel's tiles (AMX), as compilers write it on any machine."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.support.kept_runs import run_kept

TARGET = ("-march=sapphirerapids", "-O3", "-std=gnu11", "-fPIC")


def assembly(command: str, folder: Path, text: str, headers: Any) -> str:
    """Assembly that a compiler makes of ``text`` for a processor with tiles."""
    if shutil.which(command) is None:
        pytest.skip(f"there is no {command}")
    for name, content in {**headers, "kernel.c": text}.items():
        (folder / name).write_text(content)
    done = run_kept((command, *TARGET, "-I.", "-S", "kernel.c", "-o", "kernel.s"), folder, "kernel.s")
    if done.returncode and "sapphirerapids" in done.stderr:
        pytest.skip(f"{command} does not know processors with tiles")
    assert not done.returncode, done.stderr
    assert not run_kept((command, *TARGET, "-I.", "-c", "kernel.c", "-o", "kernel.o"), folder, "kernel.o").returncode
    return (folder / "kernel.s").read_text()


def functions_of(text: str) -> dict[str, list[str]]:
    """Instructions of each function, without directives; labels stay."""
    found: dict[str, list[str]] = {}
    name = ""
    for line in text.splitlines():
        if match := re.match(r"([a-z][\w.]*):", line):
            name = match[1]
        elif (name and re.match(r"\t[a-z]", line)) or re.match(r"\.L\w+:", line):
            found.setdefault(name, []).append(" ".join(line.split()))
    return found


def check_inner_loop(lines: list[str], instruction: str = "tdpbf16ps") -> None:
    """Each copy of the inner loop multiplies each tile it loads twice, and holds all addresses in registers."""
    first = [place for place, line in enumerate(lines) if re.match("tileloadd.*%tmm4", line)]
    last = [place for place, line in enumerate(lines) if line.startswith(instruction) and line.endswith("%tmm3")]
    assert 0 < len(first) == len(last)
    for start, end in zip(first, last):
        loop = lines[start : end + 1]
        products = [line.replace(" ", "").removeprefix(instruction) for line in loop if line.startswith(instruction)]
        assert products == ["%tmm6,%tmm4,%tmm0", "%tmm6,%tmm5,%tmm2", "%tmm7,%tmm4,%tmm1", "%tmm7,%tmm5,%tmm3"]
        assert len([line for line in loop if line.startswith("tileloadd")]) == 4
        assert not [line for line in loop if "rsp" in line or line.startswith("v") or line[0] == "."]
        assert len(loop) <= 12
