"""From CUDA text to a module: the choice of a compiler, the cache, errors; and real nvcc's code of the hot kernels."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.errors import KernelCompileError
from neonlike.kernels.build import process
from neonlike.kernels.build.source import KernelSource
from neonlike.kernels.cuda import compile as compile_cuda
from neonlike.kernels.cuda import nvrtc
from neonlike.kernels.cuda.compile import CudaCompiler, build_cubin, cubin_key, find_cuda_compiler, headers
from neonlike.kernels.cuda.gemm import Gemm
from neonlike.kernels.cuda.lines import Lines
from neonlike.kernels.planning.graph import linearize
from neonlike.kernels.run import ahead
from tests.cudaemu.toolkit import has_nvrtc
from tests.support.engines import use_threads
from tests.support.gpu.cuda_backends import assert_near, gpu
from tests.support.gpu.sass import ARCHITECTURES, NO_NVRTC, NVCC, beside_nvrtc
from tests.support.kept_runs import run_kept

__all__ = ["gpu"]
TEXT = '#include "types.h"\nextern "C" __global__ void twice(float *x) { x[threadIdx.x] *= 2; }\n'


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache of kernels of its own."""
    monkeypatch.setenv("NEONLIKE_CACHE_DIR", str(tmp_path / "cache"))
    yield tmp_path / "cache"


def fake_nvcc(folder: Path, body: str) -> str:
    """A program that calls itself nvcc."""
    path = folder / "nvcc"
    words = 'if [ "$1" = --version ]; then echo "fake nvcc 1"; exit 0; fi\n[ "$1" != --list-gpu-arch ] || exit 1'
    path.write_text(f"#!/bin/sh\n{words}\n{body}\n")
    path.chmod(0o755)
    return str(path)


COPY = 'while [ "$1" != -o ]; do shift; done\necho compiled >> "$(dirname "$0")/runs"\nprintf module > "$2"'


def test_a_module_is_compiled_once(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEONLIKE_NVCC", fake_nvcc(tmp_path, COPY))
    kernel = KernelSource(TEXT, "twice", "x * 2", headers())
    assert build_cubin(kernel, "sm_80") == build_cubin(kernel, "sm_80") == b"module"
    assert (tmp_path / "runs").read_text() == "compiled\n"
    build_cubin(kernel, "sm_90")
    assert (tmp_path / "runs").read_text() == "compiled\n" * 2


def test_what_a_module_depends_on() -> None:
    compiler = CudaCompiler("nvcc 1", "/nvcc", False)
    kernel = KernelSource(TEXT, "twice", "x * 2", headers())
    key = cubin_key(kernel, "sm_80", compiler)
    assert cubin_key(kernel._replace(name="other", expression="y"), "sm_80", compiler) == key
    others = [
        cubin_key(kernel, "sm_90", compiler),
        cubin_key(kernel, "sm_80", CudaCompiler("nvcc 2", "/nvcc", False)),
        cubin_key(kernel._replace(source=TEXT + " "), "sm_80", compiler),
        cubin_key(kernel._replace(headers={**headers(), "types.h": ""}), "sm_80", compiler),
    ]
    assert len({key, *others}) == 5


def test_errors_have_the_source_and_the_compilers_words(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEONLIKE_NVCC", fake_nvcc(tmp_path, 'echo "k.cu(3): error: what is this?"; exit 2'))
    with pytest.raises(KernelCompileError) as caught:
        build_cubin(KernelSource(TEXT, "twice", "x * 2", headers()), "sm_80")
    error = caught.value
    assert "what is this?" in error.compiler_output
    assert error.expression == "x * 2"
    assert error.source_path is not None
    kept = Path(error.source_path).read_text()
    assert TEXT in kept
    assert "x * 2" in kept
    assert all(part in str(error) for part in (error.source_path, "what is this?", "-arch=sm_80"))


def test_a_full_disk_is_an_error_and_a_cache_that_is_full_none(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEONLIKE_NVCC", fake_nvcc(tmp_path, COPY))
    kernel = KernelSource(TEXT, "twice", "x * 2", headers())

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as nowhere:
        nowhere.setattr(process.tempfile, "mkdtemp", full)
        with pytest.raises(KernelCompileError, match="No space left") as caught:
            build_cubin(kernel, "sm_80")
    assert caught.value.expression == "x * 2"
    with monkeypatch.context() as not_kept:
        not_kept.setattr(os, "replace", full)
        assert build_cubin(kernel, "sm_80") == b"module"
    assert not compile_cuda.is_built(kernel, "sm_80")
    assert build_cubin(kernel, "sm_80") == b"module"
    assert compile_cuda.is_built(kernel, "sm_80")


def test_no_compiler_is_an_error_with_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_cuda, "find_cuda_compiler", lambda arch: None)
    with pytest.raises(KernelCompileError, match="nvidia-cuda-nvrtc"):
        build_cubin(KernelSource(TEXT, "twice", "", headers()), "sm_80")


def test_a_named_compiler_is_the_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEONLIKE_NVCC", fake_nvcc(tmp_path, COPY))
    found = find_cuda_compiler()
    assert found is not None
    assert found.path == str(tmp_path / "nvcc")
    assert found.identity.startswith("fake nvcc 1")
    monkeypatch.setenv("NEONLIKE_NVCC", str(tmp_path / "missing"))
    assert find_cuda_compiler() is None


@pytest.mark.parametrize(
    ("words", "helps"),
    [
        ("nvrtc: error: failed to open libnvrtc-builtins.so.13.0.\n  Make sure it is installed correctly.", True),
        ("nvrtc: error: invalid value for --gpu-architecture (-arch)", True),
        ('k.cu(3): error: identifier "nonsense" is undefined', False),
    ],
)
def test_nvcc_compiles_where_nvrtc_itself_fails(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, helps: bool
) -> None:
    def refuse(*arguments: Any) -> bytes:
        raise nvrtc.NvrtcRefused(words)

    monkeypatch.setattr(nvrtc, "compile_module", refuse)
    monkeypatch.setenv("PATH", str(Path(fake_nvcc(tmp_path, COPY)).parent), prepend=os.pathsep)
    for name in (home.name for home in compile_cuda.HOMES):
        monkeypatch.delenv(name, raising=False)
    kernel = KernelSource(TEXT, "twice", "x * 2", headers())
    compiler = CudaCompiler("NVRTC 13.0", "libnvrtc.so", True)
    if helps:
        assert build_cubin(kernel, "sm_90", compiler) == b"module"
    else:
        with pytest.raises(KernelCompileError, match="nonsense"):
            build_cubin(kernel, "sm_90", compiler)


OF_SYSTEM_HEADERS = r"\b(?:NAN|INFINITY|HUGE_VALF?|M_[A-Z]\w*|(?:FLT|DBL)_[A-Z]+|SIZE_MAX|U?INT\d+_(?:MIN|MAX|C))\b"


def test_nvrtc_has_what_kernels_take_of_system_headers() -> None:
    folder = Path(compile_cuda.__file__).parents[1] / "templates"
    shared = [folder / "c" / name for name in ("intmath.h", "division.h", "philox.h")]
    texts = [path.read_text() for path in (*folder.glob("cuda/**/*.*"), *shared) if path.name != "rtc_stdint.h"]
    taken = {name for text in texts for name in re.findall(OF_SYSTEM_HEADERS, text)}
    assert len(taken) > 10
    assert taken <= set(re.findall(r"#define (\w+)", (folder / "cuda" / "rtc_stdint.h").read_text()))


def test_nvrtc_finds_its_other_half_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("libnvrtc.so.13", "libnvrtc-builtins.so.13.0", "libnvrtc-builtins.alt.so.13.0"):
        (tmp_path / name).touch()
    loaded: list[str] = []

    def load(path: str) -> Any:
        loaded.append(Path(path).name)
        if "builtins" in path:
            raise OSError("not one of mine")
        return SimpleNamespace(nvrtcGetErrorString=SimpleNamespace())

    monkeypatch.setattr(nvrtc.ctypes, "CDLL", load)
    nvrtc._load(str(tmp_path / "libnvrtc.so.13"))
    assert loaded == ["libnvrtc-builtins.so.13.0", "libnvrtc.so.13"]
    loaded.clear()
    nvrtc._load("libnvrtc.so.99")  # which the system's loader finds, and its other half too
    assert loaded == ["libnvrtc.so.99"]
    nvrtc._load.cache_clear()


def test_the_flags_keep_numbers_right() -> None:
    assert not any("fast" in flag for flag in compile_cuda.FLAGS)
    assert {"--ftz=false", "--prec-div=true", "--prec-sqrt=true"} <= set(compile_cuda.FLAGS)


def test_a_kernel_that_does_not_compile_leaves_everything(
    gpu: Backend, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, a, b = gpu.zeros((3, 4)), gpu.ones((3, 4)), gpu.ones((4, 4))
    values = (gpu.exp(a) - 7.25, gpu.dot(a, b) * gpu.sum(gpu.exp(a), axis=1))
    gpu.executor.clear()
    with monkeypatch.context() as broken:
        broken.setenv("NEONLIKE_NVCC", fake_nvcc(tmp_path, "echo no; exit 1"))
        for value in values:
            with pytest.raises(KernelCompileError):
                out[:] = value
    np.testing.assert_array_equal(out.get(), np.zeros((3, 4)))
    out[:] = values[0]
    np.testing.assert_allclose(out.get(), np.full((3, 4), np.e - 7.25), 1e-6)


WATCHED = """
mkdir {folder}/$$; n=0
until [ $(ls {folder} | wc -l) -ge 2 ] || [ $n -ge 300 ]; do sleep 0.1; n=$((n+1)); done
[ $n -lt 300 ] && echo beside >> {folder}.log
exec {nvcc} "$@"
"""
"""Waits until it runs a second time at once, writes that down, and compiles."""


@pytest.mark.parametrize("how", ("assigned", "prepared"))
def test_kernels_of_a_plan_compile_side_by_side(
    gpu: Backend, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    (folder := tmp_path / "running").mkdir()
    nvcc = os.environ.get("NEONLIKE_NVCC") or shutil.which("nvcc") or NVCC
    if nvcc is None:
        pytest.skip("there is no nvcc, whose runs can be watched")
    body = WATCHED.format(folder=folder, nvcc=nvcc)
    monkeypatch.setenv("NEONLIKE_NVCC", fake_nvcc(tmp_path, body))
    use_threads(monkeypatch, "2")
    ahead._compilers.cache_clear()
    a, total, out = gpu.array(np.arange(12.0).reshape(3, 4)), gpu.empty((1, 4)), gpu.empty((3, 3))
    pairs = [(total, gpu.sum(a * 1.5, axis=0)), (out, gpu.dot(gpu.exp(-a), gpu.tanh(a.T)) * 2)]
    gpu.executor.clear()
    if how == "assigned":
        gpu.assign_many(pairs)
    else:
        step = gpu.prepare(pairs)
        deadline = time.monotonic() + 60
        while not folder.with_suffix(".log").exists():
            assert time.monotonic() < deadline, "nothing compiles before the first run"
            time.sleep(0.01)
        step()
    assert len(folder.with_suffix(".log").read_text().split()) >= 2
    host = np.arange(12.0).reshape(3, 4)
    assert_near(total, 1.5 * host.sum(0, keepdims=True))
    assert_near(out, np.exp(-host) @ np.tanh(host.T) * 2)
    ahead._compilers.cache_clear()


# What the real compiler makes of it ---------------------------------------------------------------------------------

needs_nvcc = pytest.mark.skipif(NVCC is None, reason="there is no CUDA toolkit, whose nvcc compiles for real GPUs")


def hot_kernels(be: Any) -> dict[str, Any]:
    """Assignments whose kernels matter most."""
    a, b = be.empty((512, 512)), be.empty((512, 512))
    c, half = be.empty((512, 1)), be.empty((512, 512), dtype=np.float16)
    shifted = a - be.max(a, axis=1)
    return {
        "elementwise": (b, be.sig(a * b + 2)),
        "bias": (b, be.tanh(a + c)),
        "half": (half, half * 2 + half),
        "turned": (b, a.T + b),
        "softmax of rows": (b, be.exp(shifted) / be.sum(be.exp(shifted), axis=1)),
        "normalised columns": (b, (a - be.mean(a, axis=0)) / be.sqrt(be.var(a, axis=0) + 1e-5)),
        "sum": (be.empty((1, 1)), be.sum(a)),
        "dropout": (b, a * be.dropout(0.5)),
    }


VECTORS = {
    "elementwise": (2, 1), "bias": (1, 1), "half": (1, 1), "softmax of rows": (1, 1), "sum": (1, 0), "dropout": (1, 1),
}  # fmt: skip
"""Accesses of 16 bytes, at least: loads and stores."""


@needs_nvcc
@pytest.mark.compiles(1)
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_hot_kernels_spill_nothing_and_use_wide_accesses(gpu: Backend, tmp_path: Path, arch: str) -> None:
    texts = {}
    for name, pair in hot_kernels(gpu).items():
        graph = linearize((pair,))
        plan = gpu.plans.find(graph)
        assert "#include" in gpu.explain(pair[1], out=pair[0]), name
        (kernel,) = gpu.engine.sources(plan, graph)
        texts[name] = str(kernel.source)
    for header, text in headers().items():
        (tmp_path / header).write_text(text)
    for name, text in texts.items():
        (tmp_path / "k.cu").write_text(text)
        assert NVCC is not None
        command = [NVCC, "-ptx", f"-arch={arch}", *compile_cuda.FLAGS, "-I.", "k.cu", "-o", "k.ptx"]
        made = run_kept(command, tmp_path, "k.ptx")
        assert made.returncode == 0, f"{name}: {made.stderr}"
        ptx = (tmp_path / "k.ptx").read_text()
        loads, stores = VECTORS.get(name, (0, 0))
        assert len(re.findall(r"ld\.global(?:\.nc)?\.v4\.", ptx)) >= loads, name
        assert len(re.findall(r"st\.global\.v4\.", ptx)) >= stores, name
        command = [NVCC, "-cubin", f"-arch={arch}", "--resource-usage", "k.ptx", "-o", os.devnull]
        assembled = run_kept(command, tmp_path)
        used = assembled.stderr
        assert assembled.returncode == 0, used
        assert "0 bytes spill stores, 0 bytes spill loads" in used, f"{name}: {used}"
        assert not re.search(r"[1-9]\d* bytes spill", used), f"{name}: {used}"


def whole_kernels(be: Any) -> dict[str, Any]:
    """Kernels of products, scans, sorts, gathers and scatters, of narrow and wide types and indices."""
    lines, f16, f64 = Lines(be.device, ""), np.dtype(np.float16), np.dtype(np.float64)
    i64, u8, i32 = np.dtype(np.int64), np.dtype(np.uint8), np.dtype(np.int32)
    halves, wide, integers = (be.empty((65, 65), dtype=dtype).array for dtype in (f16, f64, i64))
    product = Gemm(be.device).source
    return {
        "sums by blocks": lines.line_source("block", f16, None, f16, 2, False, ("0", "+")),
        "products of integers by blocks": lines.line_source("block", i64, None, i64, 1, True, ("1", "*")),
        "sums by threads": lines.line_source("thread", f64, None, u8, 0, False, ("0", "+")),
        "picking": lines.line_source("gather", f16, u8, f16, 3, False, None),
        "placing": lines.line_source("scatter", u8, i64, f16, 2, True, None),
        "adding": lines.line_source("untake", f16, i64, f64, 2, False, ("0", "+")),
        "merging": lines.merge_source(f64, True),
        "gathers": lines.source("gather", f16, i32, f16, 3, 1, False),
        "gathers that convert": lines.source("gather", f64, u8, f16, 2, 0, True),
        "scatters": lines.source("scatter", f16, i32, f64, 3, 1, True),
        "products of halves": product(halves, halves, halves, np.dtype(np.float32), True, True),
        "products of doubles": product(wide, wide.transpose(1, 0), wide, f64),
        "products of integers": product(integers, integers, integers, i64),
    }


@needs_nvcc
@pytest.mark.compiles(1)
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_kernels_of_whole_operands_compile_and_spill_nothing(gpu: Any, tmp_path: Path, arch: str) -> None:
    for header, text in headers().items():
        (tmp_path / header).write_text(text)
    for name, kernel in whole_kernels(gpu).items():
        (tmp_path / "k.cu").write_text(str(kernel.source))
        assert NVCC is not None
        flags = [f"-arch={arch}", "--resource-usage", *compile_cuda.FLAGS]
        made = run_kept([NVCC, "-cubin", *flags, "-I.", "k.cu", "-o", os.devnull], tmp_path)
        assert made.returncode == 0, f"{name}: {made.stderr}"
        assert "0 bytes spill stores, 0 bytes spill loads" in made.stderr, f"{name}: {made.stderr}"


COMPILE = """
import sys
from pathlib import Path
from neonlike.errors import KernelCompileError
from neonlike.kernels.cuda import nvrtc
from neonlike.kernels.build.source import KernelSource
from neonlike.kernels.cuda.compile import CudaCompiler, build_cubin, headers
library = nvrtc.find_library()
compiler = CudaCompiler(f"NVRTC {nvrtc.version(library)}", library, True)
for path in sys.argv[1:]:
    print(build_cubin(KernelSource(Path(path).read_text(), "k", "", headers()), "sm_80", compiler)[:4] == b"\\x7fELF")
try:
    build_cubin(KernelSource("__global__ void f() { nonsense; }", "f", "", headers()), "sm_80", compiler)
except KernelCompileError as error:
    print('identifier "nonsense" is undefined' in error.compiler_output)
"""


@pytest.mark.skipif(not has_nvrtc(), reason=NO_NVRTC)
def test_nvrtc_compiles_what_nvcc_compiles(gpu: Backend, tmp_path: Path) -> None:
    paths = []
    for position, pair in enumerate(hot_kernels(gpu).values()):
        graph = linearize((pair,))
        (kernel,) = gpu.engine.sources(gpu.plans.find(graph), graph)
        paths.append(tmp_path / f"{position}.cu")
        paths[-1].write_text(str(kernel.source))
    command = [sys.executable, "-c", COMPILE, *map(str, paths)]
    done = subprocess.run(command, env=beside_nvrtc(), capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["True"] * (len(paths) + 1), (done.returncode, done.stdout, done.stderr)
