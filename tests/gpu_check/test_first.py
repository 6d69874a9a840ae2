"""The first run on a GPU, on the emulated one: whatever fails costs its own row, and the rest has its time."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import textwrap
import time
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parent
PLANTED = """
import os, time
import numpy as np
from tests.gpu_check.cases import CASES
from neonlike.errors import KernelCompileError

kept = {name: CASES[name] for name in ("elementwise", "softmax")}
CASES.clear()


def hangs(be):
    time.sleep(600 if be.backend_name == "gpu" else 0)
    yield "never", be.ones((2, 2))


def crashes(be):
    if be.backend_name == "gpu":
        os.abort()
    yield "never", be.ones((2, 2))


def is_wrong(be):
    value = 2.0 if be.backend_name == "gpu" else 1.0
    yield "right", be.ones((3, 4))
    x = be.ones((3, 4))
    x[1, 2] = value
    yield "wrong", x


def does_not_compile(be):
    raise KernelCompileError("kernel k: nvcc refuses the source: identifier undefined")
    yield


def breaks_the_gpu(be):
    '''An error of the GPU stays with its process: what comes behind must not suffer from it.'''
    if be.backend_name == "gpu":
        os.environ["BROKEN"] = "1"
        raise RuntimeError("cuLaunchKernel failed: an illegal memory access was encountered")
    yield "never", be.ones((2, 2))


def is_right_in_a_good_process(be):
    assert "BROKEN" not in os.environ
    yield "fine", be.ones((2, 2))


def needs_plain_loads(be):
    good = be.backend_name == "cpu" or os.environ.get("NEONLIKE_GPU_PLAIN") == "1"
    yield "matrix", be.array(np.full((2, 2), float(good)))


def ends_the_process(be):
    if be.backend_name == "gpu":
        raise SystemExit(3)
    yield "never", be.ones((2, 2))


CASES.update({
    "elementwise": kept["elementwise"], "hangs": hangs, "crashes": crashes, "is wrong": is_wrong,
    "does not compile": does_not_compile, "breaks the GPU": breaks_the_gpu, "behind it": is_right_in_a_good_process,
    "needs plain loads": needs_plain_loads, "ends": ends_the_process, "softmax": kept["softmax"],
})
"""


@pytest.fixture
def check() -> SimpleNamespace:
    """The modules of the check."""
    names = ("first", "parts", "summary", "record", "results", "crew", "switches", "steps")
    return SimpleNamespace(**{name: import_module(f"tests.gpu_check.{name}") for name in names})


# The plan -------------------------------------------------------------------------------------------------------


def test_the_plan_fills_its_time(check: Any) -> None:
    assert sum(seconds for _, seconds, _ in check.first.PLAN) + check.first.INSTALL == check.first.TOTAL <= 510
    assert check.first.INSTALL >= 20
    names = [name for name, _, _ in check.first.PLAN]
    assert names[:4] == ["machine", "start", "kernels", "switches"], "what one learns most from comes first"
    assert names[-1] == "profile"


def test_a_part_that_fails_keeps_no_other_from_its_time(check: Any, monkeypatch: Any, tmp_path: Path) -> None:
    seen: list[tuple[str, float]] = []

    def part(name: str, *, fails: bool = False) -> Any:
        def run(run: Any, seconds: float) -> None:
            seen.append((name, seconds))
            if fails:
                raise ValueError("planted")

        return name, 5.0, run

    monkeypatch.setattr(check.first, "PLAN", (part("one", fails=True), part("two"), part("three")))
    step = check.steps.Step("install", 5.0, (sys.executable, "-c", "raise SystemExit('no wheel')"), "setup.log")
    monkeypatch.setattr(check.first, "install_step", lambda asked, site: step)
    asked = check.first.parse(["--emulated", "--out", str(tmp_path), "--seconds", "60"])
    monkeypatch.setattr(check.first, "environment", lambda *given: {})
    record = check.first.go(asked, tmp_path, tmp_path / "work")
    assert [name for name, _ in seen] == ["one", "two", "three"]
    assert all(seconds >= 5 for _, seconds in seen)
    assert seen[-1][1] > 14, "what others leave is the next one's"
    failed = {fact["name"]: fact["text"] for fact in record.of("step") if fact["state"] == "failed"}
    assert failed == {"install": "status 1; no wheel", "one": "ValueError('planted')"}
    assert check.summary.status(record.facts) == 1
    assert "no wheel" in check.summary.text(record.facts)
    assert [fact["text"].endswith("no wheel\n") for fact in record.of("log")] == [True], "the whole log goes along"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["facts.jsonl", "logs.tar.gz", "work"]


def test_a_run_that_is_interrupted_keeps_what_it_had(check: Any, monkeypatch: Any, tmp_path: Path, capsys: Any) -> None:
    def interrupted(run: Any, seconds: float) -> None:
        run.record.add("case", "one", state="right")
        raise KeyboardInterrupt

    late = ("late", 5.0, lambda run, seconds: 1 / 0)
    monkeypatch.setattr(check.first, "PLAN", (("kernels", 5.0, interrupted), late))
    monkeypatch.setattr(check.first, "prepare", lambda asked, run: None)
    assert check.first.main(["--emulated", "--out", str(tmp_path), "--work", str(tmp_path / "work")]) == 1
    said = capsys.readouterr().out
    assert "cases: 1 right" in said and "the run: it was interrupted" in said


def test_what_has_no_time_is_said(check: Any, monkeypatch: Any, tmp_path: Path) -> None:
    monkeypatch.setattr(check.first, "PLAN", (("late", 5.0, lambda run, seconds: 1 / 0),))
    monkeypatch.setattr(check.first, "prepare", lambda asked, run: None)
    asked = check.first.parse(["--emulated", "--out", str(tmp_path), "--seconds", "1"])
    (fact,) = check.first.go(asked, tmp_path, tmp_path / "work").of("step")
    assert (fact["state"], fact["text"]) == ("not run", "no time was left")


# Facts ----------------------------------------------------------------------------------------------------------


def test_facts_are_there_when_a_run_is_stopped(check: Any, tmp_path: Path) -> None:
    record = check.record.Record(tmp_path)
    record.add("case", "one", state="right")
    with record.path.open("a") as file:
        file.write('{"kind": "case", "name": "cut o')
    assert [fact["name"] for fact in check.record.read(tmp_path)] == ["one"]


def test_the_summary_has_what_is_worth_most_and_fits(check: Any) -> None:
    facts = [{"kind": "figure", "name": f"case {k}", "section": "optree", "size": 64, "contender": who, "median": t}
             for k in range(400) for who, t in (("neonlike assign", 1e-6), ("torch", 2e-6))]  # fmt: skip
    facts += [{"kind": "case", "name": f"bad {k}", "state": "wrong", "text": "off by 1"} for k in range(9)]
    facts += [{"kind": "switch", "name": "no graphs", "case": "bad 3", "state": "right"},
              {"kind": "switch", "name": "PTX", "case": "bad 3", "state": "wrong"},
              {"kind": "switch", "name": "PTX", "case": "bad 4", "state": "wrong"}]  # fmt: skip
    text = check.summary.text(facts)
    assert len(text) < 12_000
    said = ("bad 3: off by 1", "bad 3: right with NEONLIKE_GPU_GRAPHS=0\n", "torch 2.00")
    places = [text.index(each) for each in said]
    assert places == sorted(places)
    assert "bad 4: no switch helps" in text
    assert "cut: see facts.jsonl" in text


def test_every_switch_is_a_setting_or_cudas(check: Any) -> None:
    from neonlike import settings

    known = {setting.name for setting in settings.SETTINGS} | {"CUDA_LAUNCH_BLOCKING"}
    assert {name for variables in check.switches.SWITCHES.values() for name in variables} <= known


def test_what_failed_is_run_once_more(check: Any, tmp_path: Path, capsys: Any) -> None:
    record = check.record.Record(tmp_path)
    for name, state in (("one", "right"), ("two", "hung"), ("three", "not run")):
        record.add("case", name, state=state)
    for name, state in (("layers", "failed"), ("memcheck", "ok"), ("kernels", "failed"), ("install", "failed")):
        record.add("step", name, state=state)
    assert check.first.again(str(tmp_path)) == (["two", "three"], ["layers", "kernels", "switches"])
    assert check.first.again("attention, fprop_conv") == (["fprop_conv"], ["attention", "kernels", "switches"])
    good = tmp_path / "good"
    good.mkdir()
    check.record.Record(good).add("case", "one", state="right")
    with pytest.raises(SystemExit):
        check.first.parse(["--again", str(good)])
    assert "nothing failed in" in capsys.readouterr().err


def test_the_machine_is_read_and_left_alone(check: Any, monkeypatch: Any, tmp_path: Path) -> None:
    smi = tmp_path / "nvidia-smi"
    said = "NVIDIA H100, 580.1, 81559 MiB, 345, 1980, 2619, 700"
    smi.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/asked\necho "{said}"\n')
    smi.chmod(smi.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    run = SimpleNamespace(record=check.record.Record(tmp_path), environment=dict(os.environ))
    check.parts.machine(run, 20.0)
    (fact,) = run.record.of("machine")
    assert (fact["gpu name"], fact["gpu driver_version"], fact["torch"]) == ("NVIDIA H100", "580.1", fact["torch"])
    asked = (tmp_path / "asked").read_text().split()
    assert asked == [f"--query-gpu={','.join(check.parts.SMI)}", "--format=csv,noheader"]
    smi.write_text("#!/bin/sh\necho 'NVIDIA-SMI has failed' >&2; exit 9\n")
    check.parts.machine(run, 20.0)
    assert run.record.of("machine")[-1]["gpu name"] == "NVIDIA-SMI has failed"


def test_the_page_of_results_has_what_was_measured_alone(check: Any, tmp_path: Path, capsys: Any) -> None:
    record, page = check.record.Record(tmp_path), tmp_path / "page.md"
    with pytest.raises(SystemExit):
        check.results.main([str(tmp_path / "none")])
    record.add("machine", "machine", **{"gpu name": "NVIDIA H100"})
    with pytest.raises(SystemExit):
        check.results.main([str(tmp_path), "--target", str(page)])
    assert "nothing was measured" in capsys.readouterr().err
    record.add("case", "fprop_conv", state="wrong", text="off | by 1")
    record.add("switch", "PTX", case="fprop_conv", state="right")
    for who, seconds in (("neonlike assign", 2e-6), ("torch", 3e-6)):
        record.add("figure", "sigmoid", section="optree", size=64, contender=who, median=seconds)
    record.add("figure", "copy within the GPU", section="copies", value=3000.0, unit="GB/s")
    record.add("profile", "k0", time="3 us")
    assert check.results.main([str(tmp_path), "--target", str(page)]) == 0
    text = page.read_text()
    assert "| gpu name | NVIDIA H100 |" in text
    assert "| fprop_conv | wrong | off / by 1 | NEONLIKE_GPU_PTX=1 |" in text
    assert "| sigmoid | 64 | 2.0 us | torch 1.50 |" in text
    assert "* copy within the GPU: 3000.0 GB/s" in text and "* `k0`: time 3 us" in text
    record.add("stage", "device", state="right", text="cuemu CPU device")
    with pytest.raises(SystemExit):
        check.results.main([str(tmp_path)])
    assert "emulated GPU, whose times say nothing" in capsys.readouterr().err


# On the emulated GPU --------------------------------------------------------------------------------------------


@pytest.fixture
def with_kernels_of_other_tests(check: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The environment of the check's processes, but for its empty cache of kernels."""
    made = check.steps.environment
    kept = os.environ["NEONLIKE_CACHE_DIR"]

    def environment(*given: Any) -> dict[str, str]:
        return {**made(*given), "NEONLIKE_CACHE_DIR": kept}

    monkeypatch.setattr(check.first, "environment", environment)
    return environment


@pytest.mark.emulator
@pytest.mark.usefixtures("with_kernels_of_other_tests")
def test_each_planted_failure_costs_its_own_row(
    gpu_driver: Any, check: Any, monkeypatch: Any, tmp_path: Path, capsys: Any
) -> None:
    plant, out = tmp_path / "plant.py", tmp_path / "out"
    plant.write_text(textwrap.dedent(PLANTED))
    monkeypatch.setenv("GPU_CHECK_PLANT", str(plant))
    few = {name: check.switches.SWITCHES[name] for name in ("no graphs", "plain loads")}
    monkeypatch.setattr(check.parts, "usable", lambda: few)
    parts = "machine,start,kernels,switches,dispatch"
    begin = time.monotonic()
    asked = ["--emulated", "--out", str(out), "--work", str(tmp_path / "work"), "--each", "6", "--seconds", "300"]
    status = check.first.main([*asked, "--parts", parts])
    assert status == 1 and time.monotonic() - begin < 240
    facts = list(check.record.read(out))
    cases = {fact["name"]: fact for fact in facts if fact["kind"] == "case"}
    assert {name: fact["state"] for name, fact in cases.items()} == {
        "elementwise": "right", "softmax": "right", "behind it": "right", "hangs": "hung", "crashes": "crashed",
        "ends": "crashed", "is wrong": "wrong", "does not compile": "failed", "breaks the GPU": "failed",
        "needs plain loads": "wrong",
    }  # fmt: skip
    assert "ended by SIGABRT" in cases["crashes"]["text"] and "status 3" in cases["ends"]["text"]
    assert "1 of 12 differ, at (1, 2) by 1.00e+00 (2.0 for 1.0)" in cases["is wrong"]["text"]
    assert "identifier undefined" in cases["does not compile"]["text"]
    said = capsys.readouterr().out
    assert "needs plain loads: right with NEONLIKE_GPU_PLAIN=1\n" in said
    assert "is wrong: no switch helps" in said
    steps = {fact["name"]: fact["state"] for fact in facts if fact["kind"] == "step"}
    assert steps.pop("kernels") == "failed"
    assert steps == dict.fromkeys(("install", "machine", "start", "switches", "dispatch"), "ok")
    stages = [fact["name"] for fact in facts if fact["kind"] == "stage" and fact["state"] == "right"]
    assert stages[-1] == "first product"
    assert any(fact["kind"] == "figure" and fact["section"] == "dispatch" for fact in facts), "PyTorch or not"


@pytest.mark.emulator
def test_kernels_are_right_with_each_switch(
    gpu_driver: Any, check: Any, tmp_path: Path, with_kernels_of_other_tests: Any
) -> None:
    """A switch that goes round a failure has to be right itself."""
    names = ("elementwise", "sums and extremes", "implicit convolution float16", "fprop_attention", "compound_dot")
    env = with_kernels_of_other_tests(SimpleNamespace(emulated=True), tmp_path / "site", tmp_path)
    for name, variables in check.switches.usable().items():
        if name in ("nvcc", "waiting after each launch"):  # of the real compiler and driver
            continue
        ends: list[dict[str, Any]] = []
        more = {"NEONLIKE_CPU_JIT": "0", "NEONLIKE_GPU_SELFTEST": "0"}
        check.crew.Crew(env | more | variables, tmp_path / "log").run(names, 200.0, ends.append)
        assert {end["end"]: end["state"] for end in ends} == dict.fromkeys(names, "right"), (name, ends)


COVERED = """
import sys
from pathlib import Path
from neonlike.kernels.codegen import render
seen, init = set(), render.TemplateSource.__init__

def noted(self, template, *given, **more):
    seen.add(template)
    init(self, template, *given, **more)

render.TemplateSource.__init__ = noted
from tests.gpu_check import kernels
kernels.main(["--table"])
root = Path(render.__file__).parent.parent / "templates"
every = {str(path.relative_to(root)) for path in root.glob("cuda/**/*.cu.j2")}
included = {"cuda/batchnorm/rows.cu.j2"}
print(sorted(every - seen - included))
"""


@pytest.mark.usefixtures("gpu_driver")
def test_cases_are_right_and_take_every_template() -> None:
    """Each kind of kernel runs in the first run on a GPU, and computes what the CPU does."""
    env = {**os.environ, "PYTHONPATH": str(FOLDER.parent.parent), "NEONLIKE_GPU_SELFTEST": "0"}
    done = subprocess.run([sys.executable, "-c", COVERED], env=env, capture_output=True, text=True, check=False)
    assert ", 0 wrong" in done.stdout and done.stdout.splitlines()[-1] == "[]", done.stdout + done.stderr


def test_cases_are_listed_and_unknown_ones_refused() -> None:
    command = [sys.executable, str(FOLDER / "kernels.py")]
    env = {**os.environ, "PYTHONPATH": str(FOLDER.parent.parent)}
    done = subprocess.run([*command, "--list"], capture_output=True, text=True, env=env, check=True)
    assert {"elementwise", "fprop_conv", "three threads", "64-bit offsets"} <= set(done.stdout.splitlines())
    assert not any("," in name for name in done.stdout.splitlines()), "names are listed with commas between them"
    done = subprocess.run([*command, "elementwise", "none"], capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 2 and "there is no case none; --list shows those there are" in done.stderr
