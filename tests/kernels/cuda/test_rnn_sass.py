"""The kernel of all steps of a recurrent layer for real GPUs: its division of the work, and nvcc's code."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from neonlike.backends.primitives.rnn.formula import activation, activations, joined
from neonlike.kernels.cuda.device import Capabilities
from neonlike.optree.dtypes import as_dtype
from tests.support.float64.rnn_unrolled import LOGISTIC, TANH
from tests.support.gpu.cuda_backends import gpu
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
    spills,
)

__all__ = ["gpu"]
A100 = Capabilities("sm_80", 108, shared_bytes_optin=163 << 10)
H100 = Capabilities("sm_90", 132, shared_bytes_optin=227 << 10)
B200 = Capabilities("sm_100", 148, shared_bytes_optin=227 << 10)
GPUS = dict(zip(ARCHITECTURES, (A100, H100, B200)))
SIZES = {"large": (512, 32, "f4"), "one sample": (512, 1, "f4"), "double": (256, 32, "f8")}
"""Units, samples, dtype."""
SHARES = {"large": 0.75, "one sample": 0.45, "double": 0.55}
"""Of multiplications among the instructions of a product's loop, at least."""


@pytest.fixture
def module(gpu: Any) -> Any:
    """The module under test, which imports PyCUDA."""
    from neonlike.backends.gpu.primitives import rnn_persistent

    return rnn_persistent


def kinds(module: Any) -> tuple[Any, ...]:
    return module.SIMPLE, module.LSTM, module.GRU


def sources(be: Any, module: Any, device: Capabilities) -> dict[str, tuple[Any, Any]]:
    """The form and the kernel of each cell and size."""
    found = {}
    for kind in kinds(module):
        for size, (units, samples, name) in SIZES.items():
            dtype = as_dtype(name)
            request: Any = SimpleNamespace(activation=TANH, gate_activation=LOGISTIC, dtype=dtype)
            formulas = joined((activation if kind.cell == "simple" else activations)(be, request, "cuda"))
            cut = module.form(kind.gates, units, samples, dtype.itemsize, device)
            assert formulas is not None and cut is not None
            source = kind.routine.source(**module.context(kind, cut, formulas[0], dtype))
            found[f"{kind.cell}, {size}"] = cut, source
    return found


@pytest.mark.slow
@pytest.mark.skipif(NVCC is None, reason=NO_NVCC)
@pytest.mark.compiles(1, "sm_90a")
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_nothing_spills_and_what_blocks_exchange_is_read_past_the_l1_cache(
    gpu: Any, module: Any, tmp_path: Path, arch: str
) -> None:
    """No load is one that the compiler takes for constant; dynamic shared memory is all that a block has."""
    made = sources(gpu, module, GPUS[arch])
    for form, words in compiled(tmp_path, arch, {form: kernel for form, (_, kernel) in made.items()}).items():
        assert not spills(words) and "0 bytes stack frame" in words, f"{form}: {words}"
        assert not re.search(r"[1-9]\d* bytes smem", words), f"{form}: {words}"
    if NVDISASM is None:
        pytest.skip(NO_NVDISASM)
    text = disassembled(tmp_path)
    for form, (cut, kernel) in made.items():
        code = instructions(text, kernel.name)
        every = names([words for _, words in code])
        assert not every["LDL"] + every["STL"], form
        loads = Counter(re.findall(r"\bLDG\.E(\S*)", "\n".join(words for _, words in code)))
        assert not [load for load in loads if "CONSTANT" in load], f"{form}: {loads}"
        products, barriers = len(cut.phases), len(cut.phases) + 1
        exchanged = ".STRONG.GPU" if "one sample" in form else ".128.STRONG.GPU"
        wanted = Counter({exchanged: (module.AHEAD + 1) * products}) + Counter({".STRONG.GPU": barriers})
        assert Counter({load: n for load, n in loads.items() if "STRONG" in load}) == wanted, f"{form}: {loads}"
        assert every["MEMBAR"] == barriers <= every["CCTL"], f"{form}: {every}"  # CCTL: the L1 cache is emptied
        check_products(form, code)


def check_products(form: str, code: list[tuple[str, str]]) -> None:
    """The loop with most products for its length mostly multiplies, and reads the weight in whole vectors."""
    product = "DFMA" if "double" in form else "FFMA"
    share, inner = max((names(loop)[product] / len(loop), loop) for loop in loops(code))
    assert share >= SHARES[form.partition(", ")[2]], f"{form}: {share}"
    reads = [words for words in inner if re.search(r"\bLDS\b", words)]
    assert reads and all("LDS.128" in words for words in reads), f"{form}: {reads}"


def test_forms_of_real_gpus(module: Any) -> None:
    """Blocks share units evenly, at most one a multiprocessor; without room for the weight there is no form."""
    kept = {}
    for device in (A100, H100):
        for kind in kinds(module):
            for units in (1, 100, 512, 1024, 1500, 4096):
                for samples in (1, 7, 32, 64, 100):
                    for itemsize in (4, 8):
                        cut = module.form(kind.gates, units, samples, itemsize, device)
                        kept[device.arch, kind.cell, units, samples, itemsize] = cut
                        if cut is not None:
                            check_form(cut, units, samples, itemsize, device)
    assert kept["sm_90", "lstm", 1024, 32, 4].shared == 180_224
    for fits in (("sm_90", "gru", 1024, 32, 4), ("sm_80", "simple", 1024, 32, 4), ("sm_80", "lstm", 512, 32, 4)):
        assert kept[fits] is not None, fits
    for large in (("sm_80", "lstm", 1024, 32, 4), ("sm_90", "lstm", 1024, 64, 4), ("sm_90", "lstm", 1024, 32, 8)):
        assert kept[large] is None, large


def check_form(cut: Any, units: int, samples: int, itemsize: int, device: Capabilities) -> None:
    assert cut.blocks * cut.groups <= device.multiprocessors
    assert cut.own * (cut.blocks - 1) < units <= cut.own * cut.blocks
    assert cut.samples * (cut.groups - 1) < samples <= cut.samples * cut.groups
    assert cut.shared <= device.shared_bytes_optin
    for phase in cut.phases:
        rows, lanes = phase.lane_rows * phase.row_groups, phase.row_groups * cut.samples // cut.columns
        assert rows % phase.gates == 0 and 32 % lanes == 0
        assert phase.gates * cut.own <= rows * phase.tiles <= phase.line
        assert phase.line * itemsize % min(phase.lane_rows * itemsize, 16) == 0
