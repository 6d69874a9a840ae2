"""The self-test of a GPU before its first use, and the doctor's report."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neonlike.backends import cleanup_backend, gen_backend
from neonlike.backends.gpu import doctor, selftest
from neonlike.backends.gpu.device import libraries
from neonlike.backends.util import check_gpu
from neonlike.errors import ArgumentError, BackendUnavailable
from neonlike.kernels.cuda import compile as compile_cuda
from neonlike.kernels.cuda import toolkits as cuda_places
from neonlike.kernels.run.engine import Engine
from tests.support.gpu.gpu_env import run_on_gpu


@pytest.fixture
def untested(gpu_driver: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The GPU as on its first use, with an empty cache."""
    device = gen_backend("gpu").device  # type: ignore[attr-defined]
    cleanup_backend()
    monkeypatch.setenv("NEONLIKE_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("NEONLIKE_GPU_SELFTEST", raising=False)
    monkeypatch.setattr(device, "tested", False)
    yield device
    cleanup_backend()


def kept(folder: Path) -> list[Path]:
    return list(folder.rglob(f"*{selftest.SUFFIX}"))


def test_it_is_done_once_and_kept(untested: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[Any] = []
    real = selftest.run
    monkeypatch.setattr(selftest, "run", lambda be: (runs.append(be), real(be)))
    be = gen_backend("gpu", rng_seed=3)
    assert (len(runs), len(kept(tmp_path)), untested.tested) == (1, 1, True)
    assert runs[0] is not be
    assert len(be.plans) == 0
    drawn = be.rand(be.empty((2, 2))).get()
    gen_backend("gpu")
    untested.tested = False
    assert np.array_equal((again := gen_backend("gpu", rng_seed=3)).rand(again.empty((2, 2))).get(), drawn)
    assert len(runs) == 1
    untested.tested = False
    monkeypatch.setenv("NEONLIKE_GPU_SELFTEST", "1")
    gen_backend("gpu")
    assert len(runs) == 2


class Wrong(Engine):
    """An engine that gets one element of one kind of assignment wrong."""

    def __init__(self, engine: Any, device: Any, name: str) -> None:
        self.engine, self.device, self.name, self.wrong = engine, device, engine.name, name

    def execute(self, plan: Any, graph: Any) -> None:
        self.engine.execute(plan, graph)
        if any(node.spec.name == self.wrong for node in graph.nodes):
            array = graph.targets[0].array
            host = self.device.to_host(array)
            host[-1, -1] *= 1.01
            self.device.from_host(host, array)


@pytest.mark.parametrize(
    ("op", "case"), [("sig", "elementwise"), ("dot", "a matrix product"), ("rand", "random numbers")]
)
def test_a_device_that_computes_wrong_results_is_refused(
    untested: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, op: str, case: str
) -> None:
    from neonlike.backends.gpu.backend import NervanaGPU

    real = NervanaGPU._make_engine
    monkeypatch.setattr(NervanaGPU, "_make_engine", lambda self: Wrong(real(self), self.device, op))
    for _ in range(2):
        with pytest.raises(BackendUnavailable, match=f"computes wrong results: in its self-test, {case}, 1 of"):
            gen_backend("gpu")
    assert kept(tmp_path) == []
    monkeypatch.setenv("NEONLIKE_GPU_SELFTEST", "0")
    assert gen_backend("gpu").ones((2, 2)).get().sum() == 4


# What scripts ask


@pytest.mark.usefixtures("gpu_driver")
def test_gpus_can_be_counted() -> None:
    count = check_gpu.get_device_count(verbose=True)
    assert count >= 1
    be = gen_backend("gpu")
    assert check_gpu.get_compute_capability(0) == float("{}.{}".format(*be.compute_capability))
    assert check_gpu.get_compute_capability() >= check_gpu.get_compute_capability(0)
    check_gpu.ensure_gpu_capability(0)
    with pytest.raises(ArgumentError, match=f"there is no GPU {count}"):
        check_gpu.ensure_gpu_capability(count)
    cleanup_backend()


def test_without_pycuda_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pycuda", None)
    assert (check_gpu.get_device_count(verbose=True), check_gpu.get_compute_capability()) == (0, 0.0)
    with pytest.raises(BackendUnavailable, match="needs PyCUDA"):
        check_gpu.ensure_gpu_capability(0)


# The doctor


def run_doctor(**environment: str) -> subprocess.CompletedProcess[str]:
    return run_on_gpu("from neonlike.__main__ import main\nraise SystemExit(main(['doctor']))", **environment)


@pytest.mark.usefixtures("gpu_driver")
def test_the_doctor_names_the_gpu() -> None:
    done = run_doctor()
    assert (done.returncode, done.stderr) == (0, "")
    assert "GPU 0" in done.stdout
    assert "gen_backend('gpu'): can run" in done.stdout
    assert f"PyCUDA           {importlib.metadata.version('pycuda')}, built for CUDA" in done.stdout
    assert "GiB" in done.stdout


def test_the_doctor_needs_nothing_of_what_it_looks_for() -> None:
    done = subprocess.run([sys.executable, "-m", "neonlike", "doctor"], capture_output=True, text=True, check=False)
    status = int(doctor.has_gpu() and "gen_backend('gpu'): cannot run" in done.stdout)
    assert (done.returncode, done.stderr) == (status, "")
    assert "gen_backend('cpu'): can run" in done.stdout
    for name in ("Python", "numpy", "jinja2", "ConfigArgParse", "C compiler", "CUDA compiler", "PyCUDA", "GPU driver"):
        assert f"  {name} " in done.stdout


@pytest.mark.parametrize(
    ("gpu", "there", "wanted", "status"),
    [(False, False, False, 0), (False, True, False, 1), (False, False, True, 1), (True, True, True, 0)],
)
def test_the_status_is_of_what_the_machine_has(
    monkeypatch: pytest.MonkeyPatch, gpu: bool, there: bool, wanted: bool, status: int
) -> None:
    monkeypatch.setattr(doctor, "_gpu", lambda: iter([doctor.Finding("gpu", "PyCUDA", gpu, "made up", "buy one")]))
    monkeypatch.setattr(doctor, "has_gpu", lambda: there)
    text, found = doctor.report(wanted)
    assert found == status
    mark = "ok" if gpu else ("NO" if there or wanted else "--")
    assert f"{mark}  PyCUDA " in text
    assert f"gen_backend('gpu'): {'can' if gpu else 'cannot'} run" in text


def test_what_is_missing_comes_with_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_version", lambda package: "")
    monkeypatch.setattr(doctor, "find_compiler", lambda: None)
    monkeypatch.setattr(doctor, "find_cuda_compiler", lambda: None)
    text, status = doctor.report()
    assert status == 2
    lines = text.splitlines()
    for name, command in (
        ("numpy", "pip install numpy"), ("matplotlib", "pip install neonlike[viz]"), ("C compiler", "gcc"),
        ("PyCUDA", "pip install neonlike[gpu]"), ("CUDA compiler", "pip install nvidia-cuda-nvrtc"),
    ):  # fmt: skip
        place = next(i for i, line in enumerate(lines) if f"  {name} " in line)
        assert command in lines[place + 1]
    assert "gen_backend('cpu'): cannot run" in text


def test_what_the_doctor_says_of_products(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_version", lambda package: "0.5.3")
    monkeypatch.setattr(doctor, "loads", lambda name: True)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(doctor, "cublas_libraries", lambda: iter([("libcublas.so.13", None)]))

    def said() -> list[tuple[bool, str]]:
        return [(finding.good, f"{finding.text} -> {finding.fix}") for finding in doctor._products()]

    assert [good for good, _ in said()] == [True, True]
    monkeypatch.setattr(doctor, "loads", lambda name: name != "libcublas.so")
    assert "0.5.3 finds no libcublas.so: cuBLAS is called through a binding of our own" in said()[0][1]
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "pkg_resources" else object())
    assert "needs pkg_resources" in said()[0][1] and 'pip install "setuptools<81"' in said()[0][1]
    monkeypatch.setattr(doctor, "_version", lambda package: "")
    assert said()[0][1].startswith("not installed: cuBLAS is called") and said()[1][0]
    monkeypatch.setattr(doctor, "cublas_libraries", lambda: iter([]))
    assert said()[1] == (
        False,
        "not found: matrix products run on kernels of our own, which are slower -> "
        "pip install nvidia-cublas, or install the CUDA toolkit",
    )


def test_where_libraries_are_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.setattr(cuda_places, "TOOLKIT", str(tmp_path / "toolkit"))
    for name in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(libraries, "CUBLAS", ("libcublas.so.99",))
    folder = tmp_path / "nvidia" / "cu99" / "lib"
    folder.mkdir(parents=True)
    (folder / "libcublas.so.99").touch()
    loaded: list[str] = []

    def load(name: str) -> str:
        loaded.append(name)
        if name in ("libcublas.so.99", "libcublas.so"):
            raise OSError(name)
        return name

    monkeypatch.setattr(libraries.ctypes, "CDLL", load)
    assert list(libraries.cublas_libraries()) == [(str(folder / "libcublas.so.99"),) * 2]
    assert loaded[-2:] == [str(folder / "libcublasLt.so.99"), str(folder / "libcublas.so.99")]


def test_a_cublas_that_is_loaded_already_is_taken_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch's, for one: a second one would be another version of the same thing in the same process."""
    maps = tmp_path / "maps"
    theirs = "/site/nvidia/cublas/lib/libcublas.so.12"
    paths = theirs, theirs, "/lib/libcublasLt.so.12", "/lib/libc.so.6"
    lines = [f"7f00-7f01 r--p 00000000 08:01 42 {path}" for path in paths]
    maps.write_text("\n".join([*lines, "7f02-7f03 rw-p 00000000 00:00 0"]))
    monkeypatch.setattr(libraries, "MAPS", str(maps))
    monkeypatch.setattr(libraries.ctypes, "CDLL", lambda name: name)
    found = [name for name, _ in libraries.cublas_libraries()]
    assert found[0] == theirs and found[1] == libraries.CUBLAS[0]
    monkeypatch.setattr(libraries, "MAPS", str(tmp_path / "none"))
    assert next(libraries.cublas_libraries())[0] == libraries.CUBLAS[0]


def test_where_the_cuda_compiler_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.setattr(cuda_places, "TOOLKIT", str(tmp_path / "none"))
    monkeypatch.setattr(compile_cuda.nvrtc.ctypes.util, "find_library", lambda name: None)
    monkeypatch.setattr(compile_cuda, "_newest", 0)
    monkeypatch.setattr(compile_cuda.nvrtc, "version", lambda library: "13.0")
    for name in ("NEONLIKE_NVCC", "CUDA_HOME", "CUDA_PATH", "PATH"):
        monkeypatch.delenv(name, raising=False)

    def said() -> tuple[bool, str]:
        compile_cuda._search.cache_clear()
        finding = doctor._cuda_compiler()
        return finding.good, finding.text

    assert said() == (False, "neither NVRTC nor nvcc")
    nvcc = tmp_path / "toolkit" / "bin" / "nvcc"
    nvcc.parent.mkdir(parents=True)
    nvcc.write_text("#!/bin/sh\necho made up\n")
    nvcc.chmod(0o755)
    for name in ("CUDA_PATH", "CUDA_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "toolkit"))
        assert said() == (True, f"nvcc, {nvcc}")
        monkeypatch.delenv(name)
    monkeypatch.setattr(cuda_places, "TOOLKIT", str(tmp_path / "toolkit"))
    assert said() == (True, f"nvcc, {nvcc}")
    for folder in ("nvidia/cuda_nvrtc/lib", "nvidia/cu13/lib", "toolkit/lib64"):  # the last one made is taken
        library = tmp_path / folder / "libnvrtc.so.12"
        library.parent.mkdir(parents=True)
        library.touch()
        assert said() == (True, f"NVRTC 13.0, {library}")
    monkeypatch.setenv("NEONLIKE_NVCC", str(nvcc))
    assert said() == (True, f"nvcc, {nvcc}")
    monkeypatch.setenv("NEONLIKE_NVCC", str(tmp_path / "gone"))
    assert said() == (False, f"NEONLIKE_NVCC={tmp_path / 'gone'} does not run")
    compile_cuda._search.cache_clear()


def test_devices_that_the_driver_does_not_give(monkeypatch: pytest.MonkeyPatch) -> None:
    class Driver:
        class Error(Exception): ...

        class Device:
            @staticmethod
            def count() -> int:
                return 0

        @staticmethod
        def init() -> None: ...

        @staticmethod
        def get_driver_version() -> int:
            return 12040

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    found = {finding.name: finding for finding in doctor._devices(Driver)}
    assert found["GPU driver"].text == "for CUDA up to 12.4"
    assert (found["GPU"].good, "CUDA_VISIBLE_DEVICES=7" in found["GPU"].text) == (False, True)

    def fails() -> None:
        raise Driver.Error("cuInit failed: no CUDA-capable device is detected")

    monkeypatch.setattr(Driver, "init", staticmethod(fails))
    (only,) = doctor._devices(Driver)
    assert (only.good, "no CUDA-capable device" in only.text, "nvidia-smi" in only.fix) == (False, True, True)
