"""Machine code of the primitives' CUDA kernels from real nvcc, all in one source, for real GPUs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from neonlike.backends.primitives.batchnorm.family import BatchNormBackward, BatchNormForward
from neonlike.kernels.cuda import compile as compile_cuda
from neonlike.kernels.cuda import sorting
from neonlike.kernels.cuda.moves import Moves
from neonlike.kernels.cuda.routine import CudaRoutine
from tests.cudaemu.toolkit import has_nvrtc
from tests.support.gpu.cuda_backends import gpu
from tests.support.gpu.sass import ARCHITECTURES, NO_NVRTC, NVCC, beside_nvrtc
from tests.support.kept_runs import run_kept
from tests.support.primitive_calls import CALLS

__all__ = ["gpu"]
MOST_REGISTERS = 128
"""Of a thread: two blocks of 256 threads then share a multiprocessor."""
Form = tuple[CudaRoutine, dict[str, Any]]


@pytest.fixture(scope="module")
def forms(gpu: Any) -> dict[str, Form]:
    """Kernels requested by all primitives, by their dtypes and layouts and their template."""
    seen: dict[str, Form] = {}
    variant = CudaRoutine.variant

    def noted(routine: CudaRoutine, device: Any, **context: Any) -> Any:
        kind = f"{Path(routine.template).parent.name} {Path(routine.template).name.partition('.')[0]}"
        words = [context.get(name, "") for name in ("op", "element", "vector", "number")]
        if not routine.more:  # kernels on tensor cores: test_conv_sass.py and test_attention_sass.py
            seen[f"{kind} {' '.join(map(str, words))} {len(seen)}"] = routine, context
        return variant(routine, device, **context)

    with mock.patch.object(CudaRoutine, "variant", noted):
        for make in CALLS.values():
            make(gpu)()
        run_forms(gpu)
        compile_rows(gpu)
    return seen


def joined(forms: dict[str, Form]) -> tuple[str, dict[str, str]]:
    """One source of all kernels, each in a namespace, and the names of the kernels by form."""
    parts = [f'#include "{header}"' for header in compile_cuda.headers()]
    names: dict[str, str] = {}
    for place, (form, (routine, context)) in enumerate(forms.items()):
        kernel = routine.source(**context)
        text = str(kernel.source)
        if kernel.name not in names.values():
            parts.append(f"namespace n{place} {{\n{text}\n}}")
            parts += [f"#undef {name}" for name in re.findall(r"^#define (\w+)", text, re.MULTILINE)]
            names[form] = kernel.name
    return "\n".join(parts), names


def compiled(folder: Path, text: str, arch: str) -> tuple[dict[str, str], dict[str, str]]:
    """For each kernel: its PTX, and ptxas's report on registers and memory."""
    for header, words in compile_cuda.headers().items():
        (folder / header).write_text(words)
    (folder / "k.cu").write_text(text)
    assert NVCC is not None
    keep = ["-keep", "-cubin", f"-arch={arch}", "--resource-usage", *compile_cuda.FLAGS, "-I.", "k.cu", "-o", "k.cubin"]
    done = run_kept([NVCC, *keep], folder, "k.ptx")
    assert done.returncode == 0, done.stderr
    ptx = re.split(r"\.entry (\w+)\(", (folder / "k.ptx").read_text())
    said = re.split(r"Compiling entry function '(\w+)'", done.stderr)
    return dict(zip(ptx[1::2], ptx[2::2])), dict(zip(said[1::2], said[2::2]))


def run_forms(be: Any) -> None:
    """Forms that tests of all primitives do not have: of float16 in whole vectors, large windows, and a worst case."""
    for op, dtype in (("max", np.float16), ("avg", np.float16), ("l2", np.float64), ("max", np.float32)):
        window = {"R": 5, "S": 5} if dtype == np.float32 else {"R": 3, "S": 3, "str_h": 1, "str_w": 1, "pad_h": 1}
        layer = be.pool_layer(dtype, op, 16, 2, 1, 6, 6, **window)
        x, y, delta = (be.ones(dims, dtype=dtype) for dims in (layer.dimI, layer.dimO, layer.dimI))
        argmax = be.zeros(layer.dimO, dtype=np.uint8)
        be.fprop_pool(layer, x, y, argmax)
        be.bprop_pool(layer, y, delta, argmax, beta=0.5)
    for J, dtype in ((5, np.float16), (9, np.float32), (15, np.float64), (17, np.float32)):
        norm, tensors = be.lrn_layer(dtype, 16, 20, 1, 1, 1, J), [be.ones((20, 16), dtype=dtype) for _ in range(5)]
        be.fprop_lrn(norm, *tensors[:3], bpower=0.6)
        be.bprop_lrn(norm, *tensors, bpower=0.6)
    for dtype, groups in ((np.float16, 8), (np.float64, 8), (np.float16, 1)):
        layer = be.conv_layer(dtype, 16, 8, 8, H=6, W=6, R=3, S=3, str_h=2, groups=groups)
        x, f, y, sums = (be.ones(dims, dtype=dtype) for dims in (layer.dimI, layer.dimF, layer.dimO, (8, 1)))
        be.fprop_conv(layer, x, f, y, bias=sums, relu=True)
        be.bprop_conv(layer, f, y, x, bsum=sums, beta=0.5)
        be.update_conv(layer, x, y, f)
    for dtype in (np.float16, np.float64):
        be.ones((40, 3), dtype=dtype).hist("x")
    half = [be.ones(dims, dtype=np.float16) for dims in ((40, 3, 2), (40, 4, 2), (40, 4))]
    be.detectionOutput_fprop(*half[:2], None, half[2], None, 20, 10, 0.1, 0.5)
    be.compound_bprop_lut(1, be.zeros((1, 200), dtype=np.int32), be.ones((5, 200)), None, be.ones((7, 5)))
    many = be.zeros((sorting.ONE_BLOCK + 1, 1), dtype=np.int32)
    Moves(be.device, "").group(many.array.reshape(many.size), 70_000, "take")  # compiles a sort of several launches


def compile_rows(be: Any) -> None:
    """All forms of batch normalisation: short rows, whole ones, parts, single elements."""
    from neonlike.backends.gpu.primitives import batchnorm

    wide = [("f4", 128), ("f4", 12_544), ("f4", 200_704), ("f4", 8001), ("f2", 16_384), ("f2", 200_704), ("f8", 3136)]
    for dtype, length, aligned in [*((*pair, True) for pair in wide), ("f4", 200_704, False)]:
        dims, kind = (64, length), np.dtype(dtype)
        forward = BatchNormForward(dims, 1e-3, 0.9, 1.0, 0.5, False, False, True, True)
        backward = BatchNormBackward(dims, 1e-3, 1.0, 0.5, 1.0, 0.0, False)
        batchnorm._forward_program(be.device, forward, kind, aligned).ready(8)
        batchnorm._backward_program(be.device, backward, kind, True, aligned).ready(9)


WITH_NVRTC = """
import sys
from pathlib import Path
from neonlike.kernels.build.source import KernelSource
from neonlike.kernels.cuda import nvrtc
from neonlike.kernels.cuda.compile import CudaCompiler, build_cubin, headers
library = nvrtc.find_library()
kernel = KernelSource(Path(sys.argv[1]).read_text(), "k", "", headers(), contracts=True)
print(build_cubin(kernel, "sm_90", CudaCompiler(f"NVRTC {nvrtc.version(library)}", library, True))[:4] == b"\\x7fELF")
"""


@pytest.mark.slow
@pytest.mark.skipif(not has_nvrtc(), reason=NO_NVRTC)
def test_nvrtc_compiles_them(forms: dict[str, Form], tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text(joined(forms)[0])
    command = [sys.executable, "-c", WITH_NVRTC, str(tmp_path / "k.cu")]
    done = subprocess.run(command, env=beside_nvrtc(), capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["True"], (done.returncode, done.stderr)


SPILLED = {"conv direct": 8, "batchnorm fprop": 16, "batchnorm bprop": 96}
"""Most bytes of spills that ptxas may say of a kernel, where it is not none: one form of these spills registers for
one of the architectures."""


def faults_of(form: str, words: str) -> list[str]:
    """Complaints of ptxas about a kernel."""
    bytes_ = sum(map(int, re.findall(r"(\d+) bytes spill", words)))
    frame = int(re.findall(r"(\d+) bytes stack frame", words)[0])  # with what is indexed by no constant
    registers = int(re.findall(r"Used (\d+) registers", words)[0])
    allowed = max((most for kind, most in SPILLED.items() if form.startswith(kind)), default=0)
    faults = [f"{bytes_} bytes of spills"] if bytes_ > allowed else []
    faults += [f"{frame} bytes of stack frame"] if frame > allowed else []
    return faults + ([f"{registers} registers"] if registers > MOST_REGISTERS else [])


def is_wide(context: dict[str, Any]) -> bool:
    """Whether a form is to have accesses of several elements."""
    return context.get("vector", 1) > 1 and context.get("aligned", True)


WIDE = re.compile(r"(?:ld|st)\.global\S*\.v[24]\.")


@pytest.mark.slow
@pytest.mark.compiles(1, "sm_90a")
@pytest.mark.skipif(NVCC is None, reason="there is no CUDA toolkit, whose nvcc compiles for real GPUs")
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_kernels_spill_nothing_and_use_wide_accesses(forms: dict[str, Form], tmp_path: Path, arch: str) -> None:
    text, names = joined(forms)
    assert len(names) > 20
    ptx, said = compiled(tmp_path, text, arch)
    faults = [f"{form}: {fault}" for form, name in names.items() for fault in faults_of(form, said[name])]
    vectors = [form for form in names if is_wide(forms[form][1])]
    assert len(vectors) > 5
    faults += [f"{form}: no wide loads and stores" for form in vectors if len(WIDE.findall(ptx[names[form]])) < 2]
    assert not faults, "\n".join(faults)
