"""What nvcc makes of the implicit convolution for real GPUs: registers, and the instructions of its inner loop."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from neonlike.backends.families.conv_request import ConvPass, ConvUpdate, Epilogue
from neonlike.backends.geometry.conv import ConvGeometry
from neonlike.backends.gpu.primitives.conv.program import Given, data_program
from neonlike.backends.gpu.primitives.conv.update import UpdateGiven, update_program
from neonlike.kernels.codegen.render import template_text
from neonlike.kernels.cuda import compile as compile_cuda
from neonlike.optree.dtypes import as_dtype

NVCC = next((path for path in ("/usr/local/cuda/bin/nvcc", "/usr/local/bin/nvcc") if shutil.which(path)), None)
PLACES = ["/usr/local/cuda/bin", *(str(bin) for path in sys.path for bin in Path(path).glob("nvidia/*/bin"))]
NVDISASM = next((found for place in (None, *PLACES) if (found := shutil.which("nvdisasm", path=place))), None)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(NVCC is None, reason="there is no CUDA toolkit, whose nvcc compiles for real GPUs"),
]
ARCHITECTURES = ["sm_80", "sm_90a", "sm_100"]
ENDS = Epilogue(relu=True, beta=1.0)
MOST_REGISTERS = 128
"""Of a thread: two blocks of 256 threads then share a multiprocessor."""
FORMS = {
    "f32": (np.float32, "float32", 128, ""), "f32 few maps": (np.float32, "float32", 64, ""),
    "f32 backward": (np.float32, "float32", 128, "back"), "tf32": (np.float32, "tf32", 128, ""),
    "f16": (np.float16, "float32", 128, ""), "f16 backward": (np.float16, "float32", 128, "back"),
    "bf16": (as_dtype("bfloat16"), "float32", 128, ""), "turned filters": (np.float32, "float32", 128, "back"),
    "f32 update": (np.float32, "float32", 128, "update"), "tf32 update": (np.float32, "tf32", 128, "update"),
    "f16 update": (np.float16, "float32", 128, "update"),
}  # fmt: skip
"""dtype, precision, maps, pass: forward, a data gradient (with strides), or a gradient of filters."""
PRODUCTS = {"f32": 1024, "f32 few maps": 512, "f32 backward": 1024, "f32 update": 256}
"""FFMAs of a thread in a turn of the inner loop; on tensor cores there are 32 HMMAs of a warp."""
SHARES = {
    "f32": 0.85, "f32 few maps": 0.77, "f32 backward": 0.85, "f32 update": 0.9, "tf32": 0.11, "tf32 update": 0.11,
}  # fmt: skip
"""Of FFMA or HMMA among the instructions of the inner loop, at least; 0.2 where it does not say."""


def kernel_of(form: str) -> Any:
    """The source of a form."""
    dtype, precision, maps, which = FORMS[form]
    step = 2 if which == "back" else 1
    g = ConvGeometry(np.dtype(dtype), 64, maps, maps, (1, 14, 14), (1, 3, 3), (0, 1, 1), (1, step, step), (1, 1, 1))
    device = SimpleNamespace(capabilities=SimpleNamespace(arch="sm_80"))
    products = SimpleNamespace(blas=SimpleNamespace(precision=precision))
    kind = np.dtype(dtype)
    if which == "update":
        steps = update_program(device, products, ConvUpdate(g), UpdateGiven(kind, kind, method="implicit")).steps
    else:
        given, request = Given(kind, None, kind, kind, method="implicit"), ConvPass(g, which == "back", ENDS)
        steps = data_program(device, products, request, given).steps
    wanted = "turned" if form == "turned filters" else "implicit"
    found = [step for step in steps if wanted in step.routine.template]  # type: ignore[union-attr]
    return found[-1].routine.source(**found[-1].context)  # type: ignore[union-attr]


def compiled(folder: Path, arch: str) -> tuple[dict[str, str], dict[str, str]]:
    """What ptxas says of each form, and its name; the module is ``k.cubin``."""
    for header, text in (compile_cuda.headers() | {"ptx.h": template_text("cuda/ptx.h")}).items():
        (folder / header).write_text(text)
    kernels = {form: kernel_of(form) for form in FORMS}
    parts = ['#include "conversions.h"\n#include "ptx.h"']
    for kernel in kernels.values():
        text = str(kernel.source)
        parts.append(f"namespace n{len(parts)} {{\n{text}\n}}")
        parts += [f"#undef {name}" for name in re.findall(r"^#define (\w+)", text, re.MULTILINE)]
    (folder / "k.cu").write_text("\n".join(parts))
    command = [NVCC, "-cubin", f"-arch={arch}", "--resource-usage", *compile_cuda.FLAGS, "-I.", "k.cu", "-o", "k.cubin"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)  # type: ignore[arg-type]
    assert done.returncode == 0, done.stderr
    said = re.split(r"Compiling entry function '(\w+)'", done.stderr)
    words = dict(zip(said[1::2], said[2::2]))
    return {form: words[kernel.name] for form, kernel in kernels.items()}, {f: k.name for f, k in kernels.items()}


def disassembled(folder: Path) -> str:
    """The module as text."""
    command = [str(NVDISASM), "-c", "k.cubin"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout


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
    """The loops of a kernel: from a label to a branch back to it. What never runs (``@!PT``) is left out."""
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


@pytest.mark.compiles(1)
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_the_inner_loop_multiplies_and_nothing_spills(tmp_path: Path, arch: str) -> None:
    said, kernels = compiled(tmp_path, arch)
    faults = []
    for form, words in said.items():
        if "0 bytes spill stores, 0 bytes spill loads" not in words:
            faults.append(f"{form}: {words}")
        registers = int(re.findall(r"Used (\d+) registers", words)[0])
        if registers > MOST_REGISTERS:
            faults.append(f"{form}: {registers} registers")
    assert not faults, "\n".join(faults)
    if NVDISASM is None:
        pytest.skip("no nvdisasm: nothing is known of the instructions (CUDA toolkit, or pip: nvidia-cuda-nvdisasm)")
    text = disassembled(tmp_path)
    del kernels["turned filters"]
    for form, name in kernels.items():
        code = instructions(text, name)
        every = names([words for _, words in code])
        assert not every["LDL"] + every["STL"], form
        product = "FFMA" if form.startswith("f32") else "HMMA"
        loop = max(loops(code), key=lambda each: names(each)[product])
        counts = names(loop)
        assert counts[product] == PRODUCTS.get(form, 32), form
        assert counts[product] >= SHARES.get(form, 0.2) * len(loop), f"{form}: {counts}"
        copies = [words for _, words in code if "LDGSTS" in words]
        assert len(copies) > 2 and all(".128" in words for words in copies), form
        assert not counts["LDG"], form
        near = [words for words in loop if re.search(r"\bLDSM?\b", words)]
        if not form.startswith("tf32"):  # whose fragments ldmatrix cannot transpose
            wide = [words for words in near if re.search(r"\.128|LDSM\.16\.MT?88\.4", words)]
            assert len(wide) == len(near), f"{form}: {near}"
