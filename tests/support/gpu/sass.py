"""Machine code of kernels from nvcc, for real GPUs: registers, and the instructions of their loops."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from neonlike.kernels.codegen.render import template_text
from neonlike.kernels.cuda import compile as compile_cuda
from tests.cudaemu.toolkit import disassembler, nvrtc_site, real_nvcc
from tests.support.kept_runs import run_kept

NVCC, NVDISASM = real_nvcc(), disassembler()
NO_NVRTC = "NVRTC could not be fetched: make gpu-setup says why"
NO_NVCC = "there is no CUDA toolkit, whose nvcc compiles for real GPUs"
NO_NVDISASM = "no nvdisasm: nothing is known of the instructions (CUDA toolkit, or pip: nvidia-cuda-nvdisasm)"

ARCHITECTURES = ["sm_80", "sm_90a", "sm_100"]


def beside_nvrtc(**more: str) -> dict[str, str]:
    """Variables of a process that finds NVRTC, and not the emulated driver, with which it crashes."""
    path = os.pathsep.join(filter(None, [str(nvrtc_site()), os.environ.get("PYTHONPATH", "")]))
    away = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
    return away | {"PYTHONPATH": path} | more


def compiled(folder: Path, arch: str, kernels: Mapping[str, Any]) -> dict[str, str]:
    """Report of ptxas on the kernels, all in one source; the module is ``k.cubin``."""
    for header, text in (compile_cuda.headers() | {"ptx.h": template_text("cuda/ptx.h")}).items():
        (folder / header).write_text(text)
    parts = ['#include "conversions.h"\n#include "ptx.h"']
    for kernel in kernels.values():
        text = str(kernel.source)
        parts.append(f"namespace n{len(parts)} {{\n{text}\n}}")
        parts += [f"#undef {name}" for name in re.findall(r"^#define (\w+)", text, re.MULTILINE)]
    (folder / "k.cu").write_text("\n".join(parts))
    command = [NVCC, "-cubin", f"-arch={arch}", "--resource-usage", *compile_cuda.FLAGS, "-I.", "k.cu", "-o", "k.cubin"]
    done = run_kept(command, folder, "k.cubin")  # type: ignore[arg-type]
    assert done.returncode == 0, done.stderr
    said = re.split(r"Compiling entry function '(\w+)'", done.stderr)
    words = dict(zip(said[1::2], said[2::2]))
    return {form: words[kernel.name] for form, kernel in kernels.items()}


def spills(words: str) -> bool:
    """Whether ptxas says that registers were stored."""
    return "0 bytes spill stores, 0 bytes spill loads" not in words


def registers(words: str) -> int:
    """Registers of a thread."""
    return int(re.findall(r"Used (\d+) registers", words)[0])


def disassembled(folder: Path) -> str:
    """The module as text."""
    command = [str(NVDISASM), "-c", "k.cubin"]
    done = run_kept(command, folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


def instructions(text: str, name: str) -> list[tuple[str, str]]:
    """The instructions of a kernel, each with the label that stands before it, or ""."""
    body = text.split(f".section\t.text.{name},")[1].split(".section\t")[0]
    found, label = [], ""
    for line in body.splitlines():
        if here := re.match(r"\s*(\.L_x_\d+):", line):
            label = here[1]
        elif words := re.search(r"/\*[0-9a-f]{4,}\*/\s+(.*?)\s*;", line):
            found.append((label, words[1]))
            label = ""
    return found


def loops(code: list[tuple[str, str]]) -> list[list[str]]:
    """Loops of a kernel, from a label to a branch back to it, without code that never runs (``@!PT``)."""
    places = {label: place for place, (label, _) in enumerate(code) if label}
    found = []
    for place, (_, words) in enumerate(code):
        back = re.search(r"\bBRA\b.*`\((\.L_x_\d+)\)", words)
        if back and places.get(back[1], len(code)) <= place:
            found.append([w for _, w in code[places[back[1]] : place + 1] if not w.startswith("@!PT ")])
    return found


def names(code: list[str]) -> Counter[str]:
    """How often each instruction is there, by the first part of its name."""
    return Counter(re.sub(r"^@!?U?P\w+\s+", "", words).split()[0].split(".")[0] for words in code)
