"""Machine code of the attention kernels from nvcc, for real GPUs: registers, and the instructions of their loops."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from neonlike.backends.geometry.attention import AttentionGeometry
from neonlike.backends.gpu.primitives.attention_plan import LINED, attention_program
from neonlike.backends.primitives.attention.definition import AttentionPass
from neonlike.optree.dtypes import as_dtype
from tests.support.gpu.sass import (
    ARCHITECTURES,
    NO_NVCC,
    NO_NVDISASM,
    NVCC,
    NVDISASM,
    compiled,
    disassembled,
    instructions,
    loops,
    names,
    registers,
    spills,
)

pytestmark = [pytest.mark.slow, pytest.mark.skipif(NVCC is None, reason=NO_NVCC)]
FORMS = {
    "f32 64": ("f4", "float32", 64), "f32 128": ("f4", "float32", 128), "tf32 64": ("f4", "tf32", 64),
    "f16 64": ("f2", "float32", 64), "f16 256": ("f2", "float32", 256), "bf16 128": ("bfloat16", "float32", 128),
    "f64 96": ("f8", "float32", 96),
}  # fmt: skip
"""dtype, precision of products, size of queries, keys and values."""
REGISTERS = 1 << 16
"""Of a multiprocessor, which has as many blocks at a time as the form says."""
SHARE = 0.8
"""Of multiplications among the instructions of each product of float32, at least."""


def sources() -> dict[str, Any]:
    """The kernels of all passes, by form and template."""
    found, device = {}, SimpleNamespace(capabilities=SimpleNamespace(arch="sm_80"))
    for form, (dtype, precision, size) in FORMS.items():
        kind = as_dtype(dtype)
        layer = AttentionGeometry(kind, 2, 4, 256, 256, size, size, True, 0.125)
        for backward in (False, True):
            request = AttentionPass(layer, (2, 4), backward)
            lines = [(0, 0, 0)] * len(LINED[backward])
            for step in attention_program(device, precision, request, kind, lines).steps:
                which = Path(step.routine.template).name.partition(".")[0]  # type: ignore[union-attr]
                apart = "" if step.context.get("of_keys", True) else " of values"  # type: ignore[union-attr]
                found[f"{form} {which}{apart}"] = step.routine.source(**step.context)  # type: ignore[union-attr]
    return found


@pytest.mark.compiles(1, "sm_90a")
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_products_stay_in_registers_and_nothing_spills(tmp_path: Path, arch: str) -> None:
    kernels = sources()
    faults = []
    for form, words in compiled(tmp_path, arch, kernels).items():
        if spills(words):
            faults.append(f"{form}: {words}")
        source = kernels[form].source.context
        if registers(words) * 32 * source["warps"] * source["blocks"] > REGISTERS:
            faults.append(f"{form}: {registers(words)} registers")
    assert not faults, "\n".join(faults)
    if NVDISASM is None:
        pytest.skip(NO_NVDISASM)
    text = disassembled(tmp_path)
    for form, kernel in kernels.items():
        code = instructions(text, kernel.name)
        words = [each for _, each in code]
        every = names(words)
        assert not every["LDL"] + every["STL"], form
        copies = [each for each in words if "LDGSTS" in each]
        assert len(copies) >= 3 and all(".128" in each for each in copies), form
        assert any(re.search(r"STG\S*\.128", each) for each in words), form
        if form.startswith("f64"):
            assert every["DFMA"] > every["FFMA"], form
        elif form.startswith("f32"):
            inner = [loop for loop in loops(code) if names(loop)["FFMA"] >= 128 and len(loop) < 700]
            best = [names(loop)["FFMA"] / len(loop) for loop in inner]
            assert sum(share >= SHARE for share in best) >= 2, f"{form}: {best}"
            assert all("LDS.128" in each for loop in inner for each in loop if re.search(r"\bLDS\b", each)), form
        else:
            assert every["HMMA"] >= 40 and not every["FFMA"] > every["HMMA"] * 2, form
        if "16" in form.partition(" ")[0]:
            near = [each for each in words if "LDSM" in each]
            assert near and all(re.search(r"LDSM\.16\.MT?88\.4", each) for each in near), form
