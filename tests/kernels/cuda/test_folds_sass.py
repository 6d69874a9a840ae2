"""Machine code of reductions and turned tiles from nvcc, for real GPUs: vector accesses, and no doubles in float32
folds."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from neonlike.backends.cpu import NervanaCPU
from neonlike.optree.functions import F
from tests.kernels.cuda.expression_texts import cuda_source
from tests.support.gpu.sass import (
    ARCHITECTURES,
    NO_NVCC,
    NO_NVDISASM,
    NVCC,
    NVDISASM,
    compiled,
    disassembled,
    instructions,
    names,
    spills,
)

pytestmark = [pytest.mark.slow, pytest.mark.skipif(NVCC is None, reason=NO_NVCC)]
TURNED = {
    "turned f32": ("LDG.E.128", "STG.E.128"), "turned f16": ("LDG.E.64", "STG.E.128"),
    "turned f64": ("LDG.E.128", "STG.E.128"), "turned f16 to f32": ("LDG.E.64", "STG.E.128"),
}  # fmt: skip
"""Every load and store of global memory in them."""
DOUBLES = re.compile(r"F2F\S*F64|D(ADD|MUL|FMA|SETP)\b")


def kernels() -> dict[str, Any]:
    """Name and source by form; of split ones the pass over the parts, which merges none."""
    be, found = NervanaCPU(), {}

    def add(form: str, expression: Any, shape: tuple[int, int], which: str = "", dtype: str = "float32") -> None:
        source = cuda_source(expression, be.empty(shape, dtype=dtype))
        found[form] = SimpleNamespace(name=source.name + which, source=source.source)

    powers: Any = lambda x, axis: F.sum(F.exp(x - F.max(x, axis)), axis)  # noqa: E731
    functions: dict[str, Any] = {"sum": F.sum, "max": F.max, "softmax": F.softmax, "powers": powers}
    for lines, axis, many in (("columns", 0, 16384), ("rows", 1, 300)):
        for length, how in ((200, "held"), (2000 if axis == 0 else 20000, "in loops")):
            shape = (length, many) if axis == 0 else (many, length)
            for name, function in functions.items():
                result = shape if name == "softmax" else (1, many) if axis == 0 else (many, 1)
                add(f"{lines} {how} {name}", function(be.empty(shape), axis), result)
    x = be.empty((4000, 1024))
    add("columns split max", F.max(x, 0), (1, 1024), "_pass1")
    add("columns split softmax", F.softmax(x, 0), (4000, 1024), "_pass1")
    for form in TURNED:
        source, target = form.split()[1], form.split()[-1]
        dtype = {"f16": "float16", "f32": "float32", "f64": "float64"}
        add(form, be.empty((512, 256), dtype=dtype[source]).T, (256, 512), dtype=dtype[target])
    return found


@pytest.mark.compiles(1)
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_folds_have_no_doubles_and_tiles_are_moved_by_vectors(tmp_path: Path, arch: str) -> None:
    sources = kernels()
    faults = [form for form, words in compiled(tmp_path, arch, sources).items() if spills(words)]
    assert not faults
    if NVDISASM is None:
        pytest.skip(NO_NVDISASM)
    text = disassembled(tmp_path)
    for form, kernel in sources.items():
        code = [words for _, words in instructions(text, kernel.name)]
        counts = names(code)
        assert not counts["LDL"] + counts["STL"], form
        if form in TURNED:
            moves = re.findall(r"\b(?:LDG|STG)\S+", "\n".join(code))
            assert {move.removesuffix(".CONSTANT") for move in moves} == set(TURNED[form]), form
            continue
        assert not [words for words in code if DOUBLES.search(words)], form
        if form.startswith("columns in loops"):
            assert counts["SHFL"] and counts["BAR"] == 4, f"{form}: {counts}"  # one fold, whatever threads share it
