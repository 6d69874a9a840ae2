"""Machine code of the implicit convolution from nvcc, for real GPUs: registers, and the instructions of its inner
loop."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from neonlike.backends.geometry.conv import ConvGeometry
from neonlike.backends.gpu.primitives.conv.program import Given, data_program
from neonlike.backends.gpu.primitives.conv.update import UpdateGiven, update_program
from neonlike.backends.primitives.conv.request import ConvPass, ConvUpdate, Epilogue
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

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(NVCC is None, reason=NO_NVCC),
]
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
    "f32 split": (np.float32, "float32", 128, "split"), "f16 split": (np.float16, "float32", 128, "split"),
}  # fmt: skip
"""dtype, precision, maps, pass: forward, a data gradient (with strides), a gradient of filters, or forward with sums so
long that they are split."""
PRODUCTS = {"f32": 1024, "f32 few maps": 512, "f32 backward": 1024, "f32 update": 256, "f32 split": 1024}
"""FFMAs of a thread in a turn of the inner loop; on tensor cores there are 32 HMMAs of a warp."""
SHARES = {
    "f32": 0.85, "f32 few maps": 0.77, "f32 backward": 0.85, "f32 update": 0.9, "tf32": 0.11, "tf32 update": 0.11,
    "f32 split": 0.85,
}  # fmt: skip
"""Of FFMA or HMMA among the instructions of the inner loop, at least; 0.2 where it does not say."""


def kernel_of(form: str) -> Any:
    """The source of a form."""
    dtype, precision, maps, which = FORMS[form]
    step = 2 if which == "back" else 1
    channels = 1024 if which == "split" else maps
    g = ConvGeometry(np.dtype(dtype), 64, channels, maps, (1, 14, 14), (1, 3, 3), (0, 1, 1), (1, step, step), (1, 1, 1))
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
    assert found[-1].context.get("split", False) is (which == "split")  # type: ignore[union-attr]
    return found[-1].routine.source(**found[-1].context)  # type: ignore[union-attr]


@pytest.mark.compiles(1)
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_the_inner_loop_multiplies_and_nothing_spills(tmp_path: Path, arch: str) -> None:
    sources = {form: kernel_of(form) for form in FORMS}
    said, kernels = compiled(tmp_path, arch, sources), {form: source.name for form, source in sources.items()}
    faults = []
    for form, words in said.items():
        if spills(words):
            faults.append(f"{form}: {words}")
        if registers(words) > MOST_REGISTERS:
            faults.append(f"{form}: {registers(words)} registers")
    assert not faults, "\n".join(faults)
    if NVDISASM is None:
        pytest.skip(NO_NVDISASM)
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
