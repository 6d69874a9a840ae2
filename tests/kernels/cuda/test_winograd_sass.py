"""Machine code of Winograd's transforms from nvcc, for real GPUs: registers, and widths of memory accesses."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from neonlike.backends.geometry.conv import ConvGeometry
from neonlike.backends.gpu.primitives.conv.passes import Given
from neonlike.backends.gpu.primitives.conv.program import data_program
from neonlike.backends.gpu.primitives.conv.update import UpdateGiven, update_program
from neonlike.backends.gpu.primitives.conv.winograd_kernels import MOST_IMAGES
from neonlike.backends.primitives.conv.request import ConvPass, ConvUpdate, Epilogue
from tests.support.gpu.sass import (
    ARCHITECTURES,
    NO_NVCC,
    NO_NVDISASM,
    NVCC,
    NVDISASM,
    compiled,
    disassembled,
    instructions,
    registers,
    spills,
)

pytestmark = [pytest.mark.slow, pytest.mark.skipif(NVCC is None, reason=NO_NVCC)]
ENDS = Epilogue(relu=True, brelu=True, beta=1.0)
MOST_REGISTERS = 128
"""Of a thread: two blocks of 256 threads then share a multiprocessor."""
TRANSFORMS = ("winograd_source", "winograd_results")
"""Which read and write as many images at once as a thread takes; filters lie map by map."""


def sources() -> dict[str, tuple[Any, int]]:
    """The kernels of all passes by edge, images and template, and the bytes that they move at once."""
    found = {}
    device = SimpleNamespace(capabilities=SimpleNamespace(arch="sm_80"))
    products = SimpleNamespace(blas=SimpleNamespace(precision="float32"))
    kind = np.dtype(np.float32)
    for edge, images in ((2, 64), (4, 64), (2, 1), (4, 1)):
        g = ConvGeometry(kind, images, 128, 128, (1, 14, 14), (1, 3, 3), (0, 1, 1), (1, 1, 1), (1, 1, 1))
        how = {"method": "winograd", "winograd": edge}
        given = Given(kind, None, kind, kind, **how)  # type: ignore[arg-type]
        programs = [data_program(device, products, ConvPass(g, back, ENDS), given) for back in (False, True)]
        gradient = UpdateGiven(kind, kind, **how)  # type: ignore[arg-type]
        programs.append(update_program(device, products, ConvUpdate(g), gradient))
        for step in (step for program in programs for step in program.steps if hasattr(step, "routine")):
            which = Path(step.routine.template).name.partition(".")[0]
            which += " of errors" if step.context.get("errors") else " turned" if step.context.get("turned") else ""
            wide = 4 * min(images, MOST_IMAGES[edge]) if which.partition(" ")[0] in TRANSFORMS else 4
            if "winograd" in which:
                found[f"{which}, {edge} x {edge}, {wide} bytes"] = step.routine.source(**step.context), wide
    return found


@pytest.mark.compiles(1)
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_transforms_stay_in_registers(tmp_path: Path, arch: str) -> None:
    kernels = sources()
    said = compiled(tmp_path, arch, {form: source for form, (source, _) in kernels.items()})
    faults = [f"{form}: {words}" for form, words in said.items() if spills(words) or registers(words) > MOST_REGISTERS]
    assert len(kernels) == 18
    assert not faults, "\n".join(faults)
    if NVDISASM is None:
        pytest.skip(NO_NVDISASM)
    text = disassembled(tmp_path)
    for form, (source, wide) in kernels.items():
        every = [words for _, words in instructions(text, source.name)]
        assert not [words for words in every if re.search(r"\b(LDL|STL)\b", words)], form
        moves = re.findall(r"\b(?:LDG|STG)\S*", " ".join(every))
        few = [move for move in moves if (re.findall(r"\.(64|128)\b", move) or ["32"])[0] != str(8 * wide)]
        assert len(moves) - len(few) >= 8, form
        assert len(few) <= 2, f"{form}: bias and partial sums alone are of another size, not {few}"
