"""The emulator's own machinery: its single build, the start of programs on it, and reasons for its absence."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from neonlike.kernels.build import process
from tests import ROOT
from tests.cudaemu import EmulatorUnavailable, activate, build, install, toolkit
from tests.cudaemu.activate import options
from tests.cudaemu.nvcc import Request
from tests.support.gpu import stand_in

pytestmark = pytest.mark.emulator



def cudaemu(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """``python -m tests.cudaemu ...`` in a fresh process."""
    return subprocess.run(
        [sys.executable, "-m", "tests.cudaemu", *arguments],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


KERNEL = 'extern "C" __global__ void twice(float *a) { a[threadIdx.x] *= 2; }'


@pytest.mark.parametrize("source", [KERNEL, KERNEL.replace("2;", "missing;"), f"#define K __global__\n{KERNEL}"])
def test_the_compiler_run_here_says_and_makes_what_the_program_does(
    gpu_driver: Any, emulator: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    """Tests have most kernels compiled without a Python of their own; one that does not compile, one to preprocess."""
    monkeypatch.delenv("CUEMU_KEPT", raising=False)
    (tmp_path / "twice.cu").write_text(source)
    command = (f"{emulator.folder}/bin/nvcc", "-cubin", "-arch=sm_90", "-std=c++17", "-I.", "twice.cu", "-o", "twice")
    run_here = functools.partial(stand_in.run_here, str(emulator.folder), str(toolkit.cuda_include()))
    found = []
    for run in (process.run_command, run_here):
        status, words = run(command, tmp_path)
        found.append((bool(status), words, (tmp_path / "twice").read_bytes() if not status else b""))
        (tmp_path / "twice").unlink(missing_ok=True)
    assert found[0] == found[1]
    assert found[0][0] == ("missing" in source) == ("twice.cu:1:" in found[0][1])


COUNTED = """#!/bin/sh
echo started >> {log}
exec g++ "$@"
"""


def test_what_the_compiler_made_is_kept(
    gpu_driver: Any, emulator: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the program and where tests run it in their process alike; of other flags or another source nothing is."""
    (tmp_path / "g++").write_text(COUNTED.format(log=tmp_path / "log"))
    (tmp_path / "g++").chmod(0o755)
    monkeypatch.setenv("CUEMU_CXX", str(tmp_path / "g++"))
    monkeypatch.setenv("CUEMU_KEPT", str(tmp_path / "kept"))
    run_here = functools.partial(stand_in.run_here, str(emulator.folder), str(toolkit.cuda_include()))
    program, fault = process.run_command, KERNEL.replace("2;", "missing;")
    cases = [(program, KERNEL, 1), (program, KERNEL, 1), (run_here, KERNEL, 1)]
    cases += [(run_here, KERNEL.replace("2", "3"), 2), (program, KERNEL.replace("2", "3"), 2)]
    cases += [(program, fault, 3), (program, fault, 4), (run_here, fault, 5), (run_here, fault, 6)]
    made = []
    for number, (run, source, starts) in enumerate(cases):
        folder = tmp_path / f"compilation{number}"
        folder.mkdir()
        (folder / "twice.cu").write_text(source)
        command = (f"{emulator.folder}/bin/nvcc", "-cubin", "-arch=sm_90", "twice.cu", "-o", "twice")
        status, words = run(command, folder)
        assert bool(status) == (source is fault) == ("twice.cu:1:" in words)
        assert len((tmp_path / "log").read_text().split()) == starts
        made.append((folder / "twice").read_bytes() if not status else b"")
    assert made[0] == made[1] == made[2] != made[3] == made[4] != b""
    monkeypatch.setenv("CUEMU_INEXACT", "1")
    run_here(command, tmp_path / "compilation0")
    assert len((tmp_path / "log").read_text().split()) == 7


COMPILER = """#!/bin/sh
echo "$*" >> {log}
test "$1" = --version && echo one of our own && exit
sleep 0.05
while test $# -gt 1; do test "$1" = -o && : > "$2"; shift; done
"""
"""Writes empty files: what takes long is not what is asked here."""


def test_two_processes_at_once_build_one_emulator(gpu_driver: Any, tmp_path: Path) -> None:
    compiler, log = tmp_path / "compiler", tmp_path / "log"
    compiler.write_text(COMPILER.format(log=log))
    compiler.chmod(0o755)
    command = [sys.executable, "-m", "tests.cudaemu", "build"]
    environment = {**os.environ, toolkit.CACHE_VARIABLE: str(tmp_path / "cache"), "CUEMU_CXX": str(compiler)}
    both = [
        subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    folders = {process.communicate(timeout=200)[0] for process in both}
    assert [process.returncode for process in both] == [0, 0]
    (folder,) = (Path(text.strip()) for text in folders)
    assert all((folder / "lib" / name).exists() for name in build.LIBRARIES)
    assert (folder / "ready").exists()
    calls = log.read_text().splitlines()
    assert len([call for call in calls if "-soname,libcuda.so.1 " in call]) == 1
    assert len([call for call in calls if " -c " in call]) == len(list((folder / "src").glob("*.cpp")))


def test_another_compiler_or_source_is_another_build(
    monkeypatch: pytest.MonkeyPatch, gpu_driver: Any
) -> None:
    compiler, include = toolkit.host_compiler(), toolkit.cuda_include()
    key = build.build_key(compiler, include)
    assert build.build_key(compiler, include) == key
    monkeypatch.setattr(build, "compiler_identity", lambda path: "another")
    assert build.build_key(compiler, include) != key


def test_the_stand_in_outlives_the_environment_that_built_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Builds are shared by all clones: one whose environment was removed left the others without a compiler."""
    link = tmp_path / "python"
    link.symlink_to(os.path.realpath(sys.executable))
    monkeypatch.setattr(sys, "executable", str(link))
    folder = tmp_path / "build"
    (folder / "bin").mkdir(parents=True)
    (folder / "python").mkdir()
    build._write_stand_in(folder, tmp_path)
    link.unlink()
    done = subprocess.run([folder / "bin" / "nvcc", "--version"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_modes_become_variables() -> None:
    assert options() == {}
    chosen = options(
        check=True, asynchronous=False, order="random", seed=7, capability=80, memory_mb=64, sticky=True
    )
    assert chosen == {
        "CUEMU_CHECK": "1",
        "CUEMU_ASYNC": "0",
        "CUEMU_ORDER": "random",
        "CUEMU_SEED": "7",
        "CUEMU_CC": "80",
        "CUEMU_MEM_MB": "64",
        "CUEMU_STICKY": "1",
    }
    with pytest.raises(ValueError, match="forward, reverse or random"):
        options(order="sideways")


def test_programs_run_on_it(gpu_driver: Any) -> None:
    code = "import pycuda.autoinit, pycuda.driver as d; print(d.Context.get_device().name())"
    done = cudaemu("run", "--capability", "80", sys.executable, "-c", code)
    assert done.stdout == "cuemu CPU device (sm_80)\n", done.stderr
    printed = cudaemu("env", "--check").stdout
    assert "export NEONLIKE_NVCC=" in printed
    assert "export CUEMU_CHECK=1" in printed


def test_it_is_active_once_a_process(gpu_driver: Any) -> None:
    again = activate()
    assert again.library._handle == gpu_driver.emulator.library._handle


def test_another_driver_that_is_loaded_already_is_noticed(gpu_driver: Any, tmp_path: Path) -> None:
    other = tmp_path / "libcuda.so.1"
    command = [
        toolkit.host_compiler(),
        "-shared",
        "-x",
        "c",
        os.devnull,
        "-Wl,-soname,libcuda.so.1",
        "-o",
        str(other),
    ]
    subprocess.run(command, check=True)
    code = f"import ctypes; ctypes.CDLL({str(other)!r})\nfrom tests.cudaemu import activate\nactivate()"
    environment = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert "another libcuda.so.1 is loaded in this process" in done.stderr


def test_sources_that_do_not_compile_are_no_reason_to_skip() -> None:
    with pytest.raises(toolkit.EmulatorBroken, match="cannot be built: false --now"):
        build._run(["false", "--now"])
    assert not issubclass(toolkit.EmulatorBroken, EmulatorUnavailable)


class TestWhatMayBeMissing:
    def test_a_compiler(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CUEMU_CXX", "absent-g++")
        with pytest.raises(EmulatorUnavailable, match=r"no absent-g\+\+.*install g\+\+"):
            toolkit.host_compiler()

    def test_the_headers(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(toolkit, "find_cuda_include", lambda: None)
        with pytest.raises(EmulatorUnavailable, match="`make gpu-setup` installs them"):
            toolkit.cuda_include()

    def test_headers_of_another_version_do_not_count(self, tmp_path: Path) -> None:
        for name in toolkit.HEADERS:
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text("#define CUDA_VERSION 12040\n")
        assert toolkit._version_of(tmp_path) == 12
        (tmp_path / "cuda_fp16.h").unlink()
        assert toolkit._version_of(tmp_path) == 0

    def test_pycuda(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setattr(install, "installed", lambda package: "")
        monkeypatch.setattr(install, "REASON", tmp_path / "reason.txt")
        assert "pycuda 2026.1 is needed (not installed); run `make gpu-setup`" in install.missing()
        install.REASON.write_text("there is no network\n")
        assert install.missing().endswith("the last attempt: there is no network")

    @pytest.mark.parametrize(
        ("nvcc", "found", "asked"), [("nvcc", None, True), ("nvcc", "it", False), (None, None, False)]
    )
    def test_the_disassembler(
        self, nvcc: str | None, found: str | None, asked: bool, monkeypatch: pytest.MonkeyPatch, capsys: Any
    ) -> None:
        """It is installed where there is a compiler without it; where that fails, tests are skipped."""
        commands: list[list[str]] = []

        def refuse(what: str, command: list[str]) -> None:
            commands.append(command)
            raise EmulatorUnavailable("there is no network")

        monkeypatch.setattr(install, "real_nvcc", lambda: nvcc)
        monkeypatch.setattr(install, "disassembler", lambda: found)
        monkeypatch.setattr(install, "_run", refuse)
        install.install_disassembler()
        assert [command[-1].partition(">")[0] for command in commands] == ["nvidia-cuda-nvdisasm"] * asked
        assert ("will be skipped: there is no network" in capsys.readouterr().err) is asked

    @pytest.mark.parametrize(("required", "status"), [("0", 0), ("1", 1)])
    def test_a_failed_installation_is_an_error_only_where_required(
        self,
        required: str,
        status: int,
        monkeypatch: pytest.MonkeyPatch,
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        def fail() -> None:
            raise EmulatorUnavailable("there is no g++")

        monkeypatch.setattr(install, "install", fail)
        monkeypatch.setattr(install, "REASON", tmp_path / "reason.txt")
        monkeypatch.setenv(install.REQUIRE_VARIABLE, required)
        assert install.main() == status
        assert "there is no g++" in capsys.readouterr().err
        assert install.REASON.read_text() == "there is no g++\n"

    def test_a_folder_that_others_can_write_to_is_not_used(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        tmp_path.chmod(0o777)
        monkeypatch.setenv(toolkit.CACHE_VARIABLE, str(tmp_path))
        with pytest.raises(EmulatorUnavailable, match="everybody can write to it"):
            toolkit.cache_folder()


class TestSkipping:
    """Messages of a test run without any kind of GPU."""

    SUITE = "import pytest\n@pytest.mark.parametrize('i', range(3))\ndef test_on_a_gpu(gpu_driver, i):\n    pass\n"

    def run(self, folder: Path, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
        test = folder / "test_sample.py"
        test.write_text(self.SUITE)
        # The tests' own conftest and helpers, with a compiler that does not exist.
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "no:cacheprovider",
            "-p",
            "tests.conftest",
            "-q",
            *options,
            str(test),
        ]
        kept = {
            name: value
            for name, value in os.environ.items()
            if name not in ("PYTEST_ADDOPTS", install.REQUIRE_VARIABLE)
        }
        return subprocess.run(
            command,
            cwd=ROOT,
            env={**kept, "CUEMU_CXX": "absent-g++", **environment},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def test_the_reason_and_the_count_are_shown(self, gpu_driver: Any, tmp_path: Path) -> None:
        done = self.run(tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "3 skipped" in done.stdout
        assert "3 GPU tests were skipped: Skipped: no GPU tests: there is no absent-g++" in done.stdout

    def test_nothing_is_skipped_where_gpu_tests_are_required(self, gpu_driver: Any, tmp_path: Path) -> None:
        done = self.run(tmp_path, NEONLIKE_REQUIRE_GPU_TESTS="1")
        assert done.returncode == 1
        assert "3 errors" in done.stdout
        assert "there is no absent-g++" in done.stdout

    def test_a_real_gpu_can_be_required(self, gpu_driver: Any, tmp_path: Path) -> None:
        if toolkit.real_devices():
            pytest.skip("there is a GPU on this machine")
        done = self.run(tmp_path, "--require-gpu")
        assert done.returncode == 4
        assert "--require-gpu: no CUDA driver offers a GPU on this machine" in done.stderr


def test_the_stand_in_reads_the_options_that_matter() -> None:
    request = Request(
        [
            "--cubin",
            "-arch=sm_80",
            "-Xptxas",
            "-v",
            "-DA=1",
            "-D",
            "B",
            "--std=c++20",
            "-use_fast_math",
            "-o",
            "out",
            "in.cu",
        ]
    )
    assert (request.mode, request.architecture, request.output, request.source) == (
        "cubin",
        "sm_80",
        "out",
        "in.cu",
    )
    assert request.cxx == ["-DA=1", "-DB", "-std=c++20", "-D__USE_FAST_MATH__"]
