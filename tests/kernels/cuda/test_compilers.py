"""Choice among several CUDA compilers: by the driver's version, the GPU, and the modules that the driver loads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from neonlike.errors import KernelCompileError
from neonlike.kernels.build.source import KernelSource
from neonlike.kernels.cuda import compile as compile_cuda
from neonlike.kernels.cuda import nvrtc
from neonlike.kernels.cuda.compile import build_cubin, headers, load_kernels
from neonlike.kernels.cuda.device import ModuleRefused

KERNEL = KernelSource('extern "C" __global__ void twice(float *x) { *x *= 2; }\n', "twice", "x * 2", headers())


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache of kernels of its own."""
    monkeypatch.setenv("NEONLIKE_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def two_toolkits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Makes nvccs of CUDA 13 and 12 the only compilers, each of which knows some architectures."""
    for name, home in zip((home.name for home in compile_cuda.HOMES), ("newer", "older")):
        monkeypatch.setenv(name, str(tmp_path / home))
    monkeypatch.delenv("NEONLIKE_NVCC", raising=False)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setattr(compile_cuda.toolkits, "TOOLKIT", str(tmp_path / "none"))
    monkeypatch.setattr(nvrtc, "find_libraries", lambda: iter(()))
    monkeypatch.setattr(compile_cuda, "_newest", 0)

    def make(newer: str, older: str) -> None:
        for home, release, known in (("newer", 13, newer), ("older", 12, older)):
            nvcc = tmp_path / home / "bin" / "nvcc"
            nvcc.parent.mkdir(parents=True)
            nvcc.write_text(
                f"""#!/bin/sh
case "$1" in
--version) echo "{home} release {release}.0, V{release}";;
--list-gpu-arch) echo "{known}";;
*) mode=$1; arch=$2; while [ "$1" != -o ]; do shift; done; printf "{home} $mode $arch" > "$2";;
esac
"""
            )
            nvcc.chmod(0o755)

    compile_cuda._search.cache_clear()
    yield make
    compile_cuda._unfit.clear()
    compile_cuda._search.cache_clear()


def test_compilers_newer_than_the_driver_are_passed_over(
    cache: None, two_toolkits: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    two_toolkits("compute_90", "compute_90")
    assert build_cubin(KERNEL, "sm_90") == b"newer -cubin -arch=sm_90"
    compile_cuda.expect_driver(12040)
    assert build_cubin(KERNEL, "sm_90") == b"older -cubin -arch=sm_90"
    compile_cuda.expect_driver(11080)
    with pytest.raises(KernelCompileError, match=r"for CUDA 11, can follow: .*newer.*\(CUDA 13\)"):
        build_cubin(KERNEL, "sm_90")


def test_a_gpu_newer_than_the_compiler_gets_ptx_and_one_that_knows_it_is_preferred(
    cache: None, two_toolkits: Callable[..., None]
) -> None:
    two_toolkits("compute_80 compute_90", "compute_75 compute_120")
    assert build_cubin(KERNEL, "sm_80") == b"newer -cubin -arch=sm_80"
    assert build_cubin(KERNEL, "sm_120") == b"older -cubin -arch=sm_120"
    assert build_cubin(KERNEL, "sm_103") == b"newer -ptx -arch=compute_90\0"


def test_ptx_is_made_where_a_user_asks_for_it(
    cache: None, two_toolkits: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    two_toolkits("compute_80 compute_90", "compute_75 compute_120")
    monkeypatch.setenv("NEONLIKE_GPU_PTX", "1")
    assert build_cubin(KERNEL, "sm_80") == b"newer -ptx -arch=compute_80\0"
    assert build_cubin(KERNEL, "sm_86") == b"newer -ptx -arch=compute_80\0"


def test_plain_loads_are_another_kernel(
    cache: None, two_toolkits: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    two_toolkits("compute_90", "compute_90")
    compiler = compile_cuda.find_cuda_compiler("sm_90")
    assert compiler is not None
    before = compile_cuda.cubin_key(KERNEL, "sm_90", compiler)
    monkeypatch.setenv("NEONLIKE_GPU_PLAIN", "1")
    target = compile_cuda.CudaTarget(compiler, "sm_90")
    assert target.flags_for()[-1] == "-DNL_PLAIN" and compile_cuda.cubin_key(KERNEL, "sm_90", compiler) != before


def test_another_compiler_is_tried_where_the_driver_refuses_a_module(
    cache: None, two_toolkits: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    two_toolkits("", "")
    taken: list[bytes] = []

    def load(module: bytes, name: str) -> str:
        taken.append(module)
        if module.startswith(b"newer") or name == "missing":
            kind = ModuleRefused if name != "missing" else KernelCompileError
            raise kind(f"load: {name}")
        return name

    device: Any = SimpleNamespace(load=load, capabilities=SimpleNamespace(arch="sm_90"))
    assert load_kernels(device, KERNEL, ["twice"]) == ["twice"]
    assert [module.split()[0] for module in taken] == [b"newer", b"older"]
    assert load_kernels(device, KERNEL, ["twice"]) == ["twice"], "the first one is not asked again"
    assert len(taken) == 3
    with pytest.raises(KernelCompileError, match="load: missing"):
        load_kernels(device, KERNEL, ["missing"])
    assert len(taken) == 4, "no other compiler would help"
