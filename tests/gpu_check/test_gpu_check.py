"""The check of a GPU machine: its steps are stopped and told as they should be, and it runs on the emulated GPU."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests import ROOT

FOLDER = ROOT / "tests" / "gpu_check"


def load(name: str) -> ModuleType:
    """A module of the check, which is a program and no package."""
    spec = importlib.util.spec_from_file_location(f"gpu_check_{name.strip('_')}", FOLDER / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


check, packages = load("__main__"), load("packages")


def step(code: str, limit: float = 60.0, **more: Any) -> Any:
    return check.Step("a step", limit, (sys.executable, "-c", code), "log", **more)


def test_a_step_is_told_with_the_last_line_of_its_log(tmp_path: Path) -> None:
    good = check.run(step("print('first'); print('== 3 passed in 1 s ==')"), tmp_path, dict(os.environ), 60.0)
    bad = check.run(step("import sys; print('2 failed'); sys.exit(3)"), tmp_path, dict(os.environ), 60.0)
    assert (good.good, good.text) == (True, "3 passed in 1 s")
    assert (bad.good, bad.text) == (False, "status 3; 2 failed")
    assert (tmp_path / "log").read_text().count("$ ") == 2


def test_a_step_gets_its_variables(tmp_path: Path) -> None:
    told = check.run(
        step("import os; print(os.environ['MARK'])", environment={"MARK": "here"}), tmp_path, dict(os.environ), 60.0
    )
    assert told.text == "here"


@pytest.mark.parametrize(("limit", "left"), [(0.5, 60.0), (60.0, 1.5)])
def test_a_step_that_hangs_is_stopped_with_what_it_started(limit: float, left: float, tmp_path: Path) -> None:
    mark = tmp_path / "survived"
    child = f"import time, pathlib; time.sleep(3); pathlib.Path({str(mark)!r}).touch()"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    outcome = check.run(step(code, limit), tmp_path, dict(os.environ), left)
    assert not outcome.good
    assert outcome.text.startswith("stopped after")
    assert outcome.seconds < 3
    assert not mark.exists()


def test_a_step_whose_time_is_up_tells_what_it_found(tmp_path: Path) -> None:
    code = "import time\ntry: time.sleep(60)\nexcept KeyboardInterrupt: print('3 failed, 40 passed')"
    outcome = check.run(step(code, 1.5), tmp_path, dict(os.environ), 60.0)
    assert (outcome.good, outcome.text) == (False, "stopped after 2 s; 3 failed, 40 passed")


def test_what_cannot_be_run_is_no_success(tmp_path: Path) -> None:
    absent = check.Step("sanitizer", 10.0, (), "log", why="there is no compute-sanitizer")
    assert check.run(absent, tmp_path, {}, 60.0) == check.Outcome(
        "sanitizer", False, 0.0, "there is no compute-sanitizer"
    )
    assert check.run(step("print(1)"), tmp_path, {}, 0.5).text == "no time was left"


def test_the_summary_has_the_targets_and_the_status(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "benchmark.log").write_text("noise\n16M, share of a copy: met\nPython for one call: MISSED\n")
    good, bad = check.Outcome("one", True, 1.0, "fine"), check.Outcome("two", False, 2.0, "status 1; 2 failed")
    assert check.summary([good], tmp_path) == 0
    assert check.summary([good, bad], tmp_path) == 1
    said = capsys.readouterr().out
    assert "  16M, share of a copy: met\n  Python for one call: MISSED\n" in said
    assert "noise" not in said
    assert "FAILED: two: status 1; 2 failed\n1 of 2 steps did well" in said


def test_the_steps_of_a_real_gpu_require_it(tmp_path: Path) -> None:
    planned = {s.name: s for s in check.steps(check.parse([]), tmp_path)}
    first = ["doctor", "memcheck", "racecheck", "kernels", "peers"]
    assert list(planned) == [*first, "tests", "optree", "benchmark"], "what the rest depends on comes first"
    for name in ("tests", "peers"):
        assert "--require-gpu" in planned[name].command
    assert {"--require-gpu", "--backend"} <= set(planned["optree"].command)
    assert "--results" in planned["benchmark"].command
    assert planned["kernels"].environment == {"NEONLIKE_GPU_SELFTEST": "1"}
    emulated = {s.name: s for s in check.steps(check.parse(["--emulated"]), tmp_path)}
    assert "--require-gpu" in emulated["tests"].command, "the tests that a real GPU gets"
    assert emulated["memcheck"].environment["CUEMU_CHECK"] == "1"
    assert max(s.limit for s in planned.values()) < check.TOTAL < 480
    assert len({s.log for s in planned.values()} | {"benchmark.json", "RESULTS-gpu.md", "what the caller adds"}) <= 10


def test_each_part_ends_within_ten_minutes(tmp_path: Path) -> None:
    parts = {part: list(check.steps(check.parse(["--part", part]), tmp_path)) for part in check.PARTS}
    assert check.PART_TOTAL < 600
    for part, planned in parts.items():
        assert planned and sum(s.limit for s in planned) <= check.PART_TOTAL, part
    (bench,), (nets,) = parts["benchmark"], parts["networks"]
    sections = bench.command[bench.command.index("--sections") + 1].split(",")
    assert sections[:3] == ["convolutions", "dispatch", "optree"]
    told = [sys.executable, str(ROOT / "benchmarks" / "gpu.py"), "--help"]
    wide = {**os.environ, "COLUMNS": "1000"}
    page = subprocess.run(told, capture_output=True, text=True, check=True, env=wide).stdout
    known = re.search(r"--sections NAME,NAME\s+(.*)", page)
    assert known is not None and sorted(sections) == sorted(re.findall(r"\w+", known[1]))
    assert ("--backend", "gpu") == nets.command[nets.command.index("--backend") :][:2]
    assert "--gpu" in parts["fuzz"][0].command


def test_nothing_follows_a_gpu_whose_kernels_are_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def told(name: str, code: str, **more: Any) -> Any:
        return check.Step(name, 60.0, (sys.executable, "-c", code), "log", **more)

    wrong = told("kernels", "raise SystemExit(4)", gate=True)
    planned = [told("early", "raise SystemExit(3)"), wrong, told("late", "")]
    monkeypatch.setattr(check, "steps", lambda asked, out: planned)
    monkeypatch.setattr(check, "install_step", lambda asked, site: told("install", ""))
    outcomes = check.check(check.parse([]), tmp_path, tmp_path)
    assert [(o.name, o.good) for o in outcomes] == [("install", True), ("early", False), ("kernels", False)]
    assert "The rest is left out: mend what kernels found first" in capsys.readouterr().out


@pytest.mark.parametrize(("worker", "usable", "given_up"), [(True, False, [70]), (True, True, []), (False, False, [])])
def test_a_worker_that_has_lost_its_gpu_is_given_up(
    monkeypatch: pytest.MonkeyPatch, worker: bool, usable: bool, given_up: list[int]
) -> None:
    from tests import conftest

    device = SimpleNamespace(_opened={0: SimpleNamespace(usable=True), 1: SimpleNamespace(usable=usable)})
    ended: list[int] = []
    with monkeypatch.context() as pretended:
        pretended.setitem(sys.modules, "neonlike.backends.gpu.device.device", device)  # type: ignore[arg-type]
        pretended.setattr(os, "_exit", ended.append)
        pretended.delenv("PYTEST_XDIST_WORKER", raising=False)
        if worker:
            pretended.setenv("PYTEST_XDIST_WORKER", "gw0")
        conftest.pytest_runtest_logfinish()
    assert ended == given_up


@pytest.mark.emulator
def test_the_check_runs_on_the_emulated_gpu(
    gpu_driver: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["--emulated", "--out", str(tmp_path / "out"), "--work", str(tmp_path / "work")]
    steps = ["--steps", "doctor,optree", "--optree", "tests/optree/test_overlap.py"]
    assert check.main([*asked, *steps]) == 0, (tmp_path / "out" / "setup.log").read_text()
    said = capsys.readouterr().out
    assert re.search(r"^ok +install .*PyCUDA was there$", said, re.MULTILINE)
    assert re.search(r"^ok +doctor .*gen_backend\('gpu'\): can run$", said, re.MULTILINE)
    assert re.search(r"^ok +optree .* passed", said, re.MULTILINE)
    assert "3 of 3 steps did well" in said


def test_a_wrong_kernel_is_told() -> None:
    compared, right = load("kernels").Compared, np.ones((2, 2), np.float32)

    def told(got: Any, case: str = "sums") -> list[str]:
        found = compared(case)
        found.add("row", got, right)
        return found.wrong

    assert told(right) == []
    (line,) = told(right + np.float32(1e-3))
    assert line.startswith("row: 4 of 4 differ, at (0, 0) by 1.00e-03 (1.001") and line.endswith("allowed is 2.00e-05")
    assert told(right + np.float32(1e-3), "products in tf32") == []
    assert "expected (2, 2) of float32" in told(right.astype(np.float64))[0]
    assert "4 of 4 differ" in told(right * np.nan)[0]
    both = compared("sums")
    both.add("row", right * np.nan, right * np.nan)
    assert not both.wrong, "nan where nan is right"


# Packages -------------------------------------------------------------------------------------------------------


def test_versions_are_those_of_the_project() -> None:
    assert set(packages.pins()) == {"pycuda", "scikit-cuda", "setuptools"}
    assert packages.pins()["pycuda"].startswith("pycuda==")


def test_what_is_lacking_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    there = dict.fromkeys(packages.NEEDED, "1.0") | {"scikit-cuda": packages.pins()["scikit-cuda"].partition("==")[2]}

    def version(name: str) -> str:
        if name not in there:
            raise importlib.metadata.PackageNotFoundError(name)
        return there[name]

    monkeypatch.setattr(importlib.metadata, "version", version)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    assert packages.lacking() == []
    there["scikit-cuda"] = "0.4"
    del there["Mako"]
    assert packages.lacking() == ["Mako", packages.pins()["scikit-cuda"]]
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert packages.lacking()[-1] == packages.pins()["setuptools"], "a newer setuptools has no pkg_resources"


def test_a_package_that_is_not_to_be_had_stops_no_other(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked = []

    def run(*command: str) -> None:
        asked.append(command[-1])
        if command[-1] == "Mako":
            raise SystemExit("failed with status 1")

    monkeypatch.setattr(packages, "run", run)
    monkeypatch.setattr(packages, "lacking", lambda: ["Mako", "pytools"])
    monkeypatch.setattr(packages, "_pinned", lambda name: True)
    monkeypatch.setattr(packages, "_imports", lambda *arguments: True)
    monkeypatch.setattr(sys, "path", [*sys.path])
    packages.install(tmp_path / "site", tmp_path / "wheels", emulated=False)
    assert asked == ["Mako", "pytools"]


def test_a_wheel_of_pycuda_that_cannot_be_installed_is_built_anew(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[str] = []

    def run(*command: str) -> None:
        asked.append(Path(command[-1]).name)
        if "broken" in command[-1]:
            raise SystemExit("failed with status 1")

    (tmp_path / f"pycuda-1-{packages._tag()}-broken.whl").touch()
    monkeypatch.setattr(packages, "run", run)
    monkeypatch.setattr(packages, "lacking", lambda: [])
    monkeypatch.setattr(packages, "_pinned", lambda name: False)
    monkeypatch.setattr(packages, "_imports", lambda *arguments: "built.whl" in asked)
    monkeypatch.setattr(packages, "driver_library", lambda: Path("libcuda.so.1"))
    monkeypatch.setattr(packages, "build_pycuda", lambda *arguments: tmp_path / "built.whl")
    monkeypatch.setattr(sys, "path", [*sys.path])
    packages.install(tmp_path / "site", tmp_path, emulated=False)
    assert asked == [f"pycuda-1-{packages._tag()}-broken.whl", "built.whl"]


def test_a_machine_without_a_driver_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> Any:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(packages.ctypes, "CDLL", refuse)
    with pytest.raises(SystemExit, match=r"no driver of a GPU on this machine: libcuda\.so\.1"):
        packages.driver_library()


def test_the_headers_are_found_by_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "include").mkdir()
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    for name in packages.HEADERS:
        assert not (tmp_path / "include" / name).exists()
        (tmp_path / "include" / name).touch()
        found = packages.cuda_include() == tmp_path / "include" if name == packages.HEADERS[-1] else None
    assert found, "where all that PyCUDA includes is there"
    monkeypatch.setattr(packages, "HEADERS", ("cuda.h", "made_up.h"))
    with pytest.raises(SystemExit, match=r"cuda\.h and made_up\.h were not found in one folder"):
        packages.cuda_include()


@pytest.mark.parametrize("can", [True, False])
def test_a_wheel_of_pycuda_travels_along_where_it_can_be_built(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], can: bool
) -> None:
    wheel = tmp_path / "cache" / "pycuda-1-cp312-cp312-linux_x86_64.whl"
    wheel.parent.mkdir()
    wheel.write_bytes(b"wheel")
    asked: list[str] = []

    def run(command: list[str], **options: Any) -> Any:
        if command[1:] == ["-c", ""]:
            return subprocess.CompletedProcess(command, 0)
        asked.append(command[-1])
        return subprocess.CompletedProcess(command, int(not can), f"Building\n{wheel}\n", "no g++")

    python = tmp_path / "python3.12"
    python.touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(packages.subprocess, "run", run)
    (tmp_path / "wheels").mkdir()
    assert packages.build_for(tmp_path / "wheels", "3.12") is can
    assert [path.name for path in (tmp_path / "wheels").iterdir()] == [wheel.name][:can]
    assert can or "(no g++): the other machine builds it" in capsys.readouterr().out
    assert not packages.build_for(tmp_path / "wheels", "9.99")
    assert asked == [str(python)]


def test_a_python_that_does_not_run_is_passed_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As pyenv's stand-in for a version that is not the chosen one."""
    words = {"shims": "exit 127", "root/versions/9.9.1/bin": "exit 0", "root/versions/9.8.1/bin": "exit 0"}
    for folder, word in words.items():
        (tmp_path / folder).mkdir(parents=True)
        program = tmp_path / folder / "python9.9"
        program.write_text(f"#!/bin/sh\n{word}\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "shims"), prepend=os.pathsep)
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "root"))
    assert list(packages.pythons("9.9")) == [str(tmp_path / "root/versions/9.9.1/bin/python9.9")]
