"""Environment variables: one table, errors that name them, and nobody who reads around it."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from neonlike import settings
from neonlike.backends import cleanup_backend, gen_backend
from neonlike.backends.gpu import doctor
from neonlike.errors import ArgumentError
from neonlike.kernels.numpy_engine.blocks import parallel
from neonlike.kernels.run import threads
from neonlike.nervanaobject import NervanaObject
from neonlike.settings import SETTINGS
from tests import ROOT
from tests.support.engines import use_threads


@pytest.fixture(autouse=True)
def untold(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(settings, "_told", set())
    yield
    cleanup_backend()


# Values

WRONG = {
    "NEONLIKE_NUM_THREADS": ("abc", "0", "-3", "2.5", "99999"),
    "NEONLIKE_CPU_JIT": ("maybe", "2"),
    "NEONLIKE_OPTIMIZE": ("0", "4", "fast"),
    "NEONLIKE_AMX": ("off",),
    "NEONLIKE_FASTPATH": ("off",),
    "NEONLIKE_CACHE_MB": ("lots", "-1", "nan", "inf"),
    "NEONLIKE_KEEP_SOURCE": ("yes",),
    "NEONLIKE_BENCH": ("maybe", "report.xml"),
    "NEONLIKE_PRODUCT_PRECISION": ("float8",),
    "NEONLIKE_GPU_CONV": ("fft",),
    "NEONLIKE_GPU_RECURRENT": ("whole",),
    "NEONLIKE_GPU_POOL": ("big",),
    "NEONLIKE_GPU_GRAPHS": ("big",),
    "NEONLIKE_GPU_ATTENTION": ("big",),
    "NEONLIKE_GPU_TICKETS": ("big",),
    "NEONLIKE_GPU_PTX": ("big",),
    "NEONLIKE_GPU_PLAIN": ("big",),
    "NEONLIKE_GPU_SELFTEST": ("twice",),
    "NEONLIKE_CONTRACT": ("fast",),
    "NEONLIKE_BACKEND": ("cuda", "1"),
    "NEONLIKE_COMPAT_FORCE": ("true",),
    "NEONLIKE_MPI_OUTPUT": ("none",),
    "NEONLIKE_MPI_CHECK": ("yes",),
}


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in WRONG.items() for text in texts])
def test_nonsense_is_an_error_that_names_it(name: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = gen_backend("cpu")
    monkeypatch.setenv(name, text)
    with pytest.raises(ArgumentError, match=re.escape(f"{name}={text}: expected ")) as caught:
        gen_backend("cpu")
    allowed = next(setting.allowed for setting in SETTINGS if setting.name == name)
    assert f"expected {allowed}; correct it or unset it" in str(caught.value)
    assert NervanaObject.be is before, "the backend there was stays"
    assert not before.closed
    monkeypatch.undo()
    gen_backend("cpu")


def test_every_variable_of_ours_that_can_be_wrong_is_tested() -> None:
    # paths: whether they are good is seen later
    anything = {"NEONLIKE_CACHE_DIR", "NEONLIKE_NVCC", "NEONLIKE_CUBLAS", "NEONLIKE_NCCL"}
    assert {setting.name for setting in SETTINGS if setting.ours} == WRONG.keys() | anything


def test_all_faults_are_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEONLIKE_NUM_THREADS", "abc")
    monkeypatch.setenv("NEONLIKE_CPU_JIT", "maybe")
    with pytest.raises(ArgumentError, match=r"(?s)CPU_JIT=maybe.*NUM_THREADS=abc"):
        gen_backend("cpu")


def test_an_import_raises_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEONLIKE_NUM_THREADS", "abc")
    done = subprocess.run([sys.executable, "-c", "import neonlike.models"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_empty_value_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    for setting in SETTINGS:
        monkeypatch.setenv(setting.name, " ")
        assert setting.get() == setting.unset
        monkeypatch.undo()


def test_what_belongs_to_others_is_ignored_with_one_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("NEONLIKE_NUM_THREADS", raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "3,2")
    assert gen_backend("cpu").num_threads == 3
    monkeypatch.setenv("OMP_NUM_THREADS", "abc")
    cores = gen_backend("cpu").num_threads
    gen_backend("cpu")
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert cores == gen_backend("cpu").num_threads
    (message,) = [record.getMessage() for record in caplog.records]
    assert message.startswith("OMP_NUM_THREADS=abc: expected a whole number") and "ignored" in message


def test_a_misspelt_name_is_warned_of(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv("NEONLIKE_NUM_THREAD", "2")
    gen_backend("cpu")
    gen_backend("cpu")
    assert [record.getMessage() for record in caplog.records] == [
        "the environment variable NEONLIKE_NUM_THREAD is not known; did you mean NEONLIKE_NUM_THREADS?"
    ]


def test_names_of_other_programs_of_this_project_are_not_taken_for_misspelt(monkeypatch: pytest.MonkeyPatch) -> None:
    sources = [*ROOT.glob("tests/**/*.py"), *ROOT.glob("benchmarks/*.py"), ROOT / "Makefile", ROOT / ".ci" / "run"]
    used = set(re.findall(r"NEONLIKE_\w+", "".join(path.read_text(encoding="utf-8") for path in sources)))
    ours = {setting.name for setting in SETTINGS}
    others = used - ours - {"NEONLIKE_NUM_THREAD"}
    assert "NEONLIKE_TEST_BACKEND" in others
    for name in others:
        monkeypatch.setenv(name, "1")
    assert settings.misspelt() == {}


# Threads


def test_threads_are_set_in_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEONLIKE_NUM_THREADS", "3")
    be = gen_backend("cpu")
    assert be.num_threads == 3 and be.sm_count == 3
    be.num_threads = np.int64(2)
    assert be.num_threads == 2 and threads.thread_count() == 2
    assert gen_backend("cpu").num_threads == 2, "of the process: code goes before the environment"
    be.num_threads = None
    assert be.num_threads == 3


@pytest.mark.parametrize("count", [0, -1, 2.0, True, "2", 5000])
def test_a_wrong_number_of_threads_changes_nothing(count: Any) -> None:
    be = gen_backend("cpu")
    be.num_threads = 2
    with pytest.raises(ArgumentError, match="num_threads: expected a whole number from 1 to 4096, or None"):
        be.num_threads = count
    assert be.num_threads == 2


def test_kernels_and_blocks_take_the_number(monkeypatch: pytest.MonkeyPatch, be: Any) -> None:
    """Also launches that are kept from before."""
    from neonlike.kernels.c import stage as stage_c

    monkeypatch.setattr(stage_c, "PARALLEL_WORK", 1)
    a, out = be.ones((64, 64)), be.empty((64, 64))
    counts: list[int] = []

    def counted() -> int:
        counts.append(threads.thread_count())
        return counts[-1]

    monkeypatch.setattr(stage_c, "thread_count", counted)
    for count in (1, 2, 3):
        be.num_threads = count
        for _ in range(4):
            out[:] = a * 2 + 1
        assert np.all(out.get() == 3)
    # Once for a kernel that is started, and once for the launch that is kept of it.
    assert counts == sorted(counts) and len(counts) <= 6
    assert set(counts) == ({1, 2, 3} if be.engine.name == "c" else set())


def test_the_pool_has_so_many_threads() -> None:
    from threading import Barrier, get_ident

    threads.choose(3)
    together = Barrier(3, timeout=30)
    seen = set()

    def meet(_: int) -> None:
        together.wait()
        seen.add(get_ident())

    parallel(meet, range(3))
    assert len(seen) == 3


def test_the_pool_is_at_rest_when_work_has_failed() -> None:
    from threading import Barrier, Event

    threads.choose(2)
    together, raised = Barrier(2, timeout=30), Event()
    late = []

    def work(number: int) -> None:
        together.wait()
        if number == 0:
            raise MemoryError
        late.append(raised.wait(0.2))

    with pytest.raises(MemoryError):
        parallel(work, range(2))
    raised.set()
    assert late == [False]


def test_the_hot_path_does_not_read_the_environment(monkeypatch: pytest.MonkeyPatch, be: Any) -> None:
    be.bsz = 16
    a, out = be.ones((300, 300)), be.empty((300, 300))
    conv, pool = be.conv_layer(None, 16, 8, 8, H=12, W=12, R=3, S=3), be.pool_layer(None, "max", 16, 8, H=10, W=10)
    image, filters, maps = be.ones(conv.dimI2), be.ones(conv.dimF2), be.empty(conv.dimO2)
    pooled = be.empty(pool.dimO2)
    step = be.prepare(out, be.tanh(a))

    def work() -> None:
        out[:] = a * 2 + 1
        out[:] = be.sum(a, axis=1) + a
        out[:] = be.dot(a, a)
        be.compound_dot(a, a, out, beta=0.5)
        be.fprop_conv(conv, image, filters, maps)
        be.fprop_pool(pool, maps, pooled, be.empty(pooled.shape, dtype=np.uint8))
        step()

    for _ in range(3):
        work()
    asked: list[str] = []
    kind = type(settings.os.environ)
    real = kind.__getitem__
    monkeypatch.setattr(kind, "__getitem__", lambda self, name: asked.append(name) or real(self, name))
    assert settings.FASTPATH.text in ("", "0", "1") and asked == ["NEONLIKE_FASTPATH"], "this would be seen"
    asked.clear()
    work()
    monkeypatch.undo()
    assert asked == []


def test_the_environment_is_read_when_a_backend_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    use_threads(monkeypatch, 2)
    be = gen_backend("cpu")
    monkeypatch.setenv("NEONLIKE_NUM_THREADS", "3")
    assert be.num_threads == 2
    gen_backend("cpu")
    assert be.num_threads == 3


# The table is everywhere


def reads(source: str) -> Iterator[int]:
    """Lines that touch the environment."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and node.attr in ("environ", "environb", "getenv", "putenv", "unsetenv"):
            yield node.lineno
        elif isinstance(node, ast.ImportFrom) and node.module == "os":
            if {alias.name for alias in node.names} & {"environ", "environb", "getenv", "putenv", "unsetenv"}:
                yield node.lineno


def test_nobody_else_touches_the_environment() -> None:
    own = ROOT / "neonlike" / "settings.py"
    assert len(list(reads(own.read_text(encoding="utf-8")))) >= 4
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in sorted((ROOT / "neonlike").rglob("*.py"))
        if path != own
        for line in reads(path.read_text(encoding="utf-8"))
    ]
    assert found == []


@pytest.mark.parametrize("source", ["import os\nos.getenv('A')", "from os import environ", "import os\nos.environ"])
def test_a_planted_read_is_found(source: str) -> None:
    assert list(reads(source)) == [source.count("\n") + 1]


def test_the_page_is_current() -> None:
    assert (ROOT / "docs" / "environment.md").read_text(encoding="utf-8") == settings.page(), "run: make docs"


def test_pages_name_variables_that_exist() -> None:
    ours = {setting.name for setting in SETTINGS}
    outside = {"NEONLIKE_COMMIT"}  # of benchmarks
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    named = {name for page in pages for name in re.findall(r"NEONLIKE_\w+", page.read_text(encoding="utf-8"))}
    assert named - ours - outside == {"NEONLIKE_"} & named


def test_the_doctor_shows_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEONLIKE_CACHE_MB", "lots")
    monkeypatch.setenv("NEONLIKE_FASTPATH", "0")
    monkeypatch.setenv("NEONLIKE_NUM_THREAD", "2")
    monkeypatch.delenv("NEONLIKE_BENCH", raising=False)
    text, status = doctor.report()
    lines = text.splitlines()
    for setting in SETTINGS:
        assert any(line.split()[1:2] == [setting.name] for line in lines), setting.name
    line = next(line for line in lines if "  NEONLIKE_FASTPATH " in line)
    assert line.startswith("ok") and " 0 " in line and settings.FASTPATH.effect in line
    assert "not set: 0" in next(line for line in lines if "NEONLIKE_BENCH" in line)
    assert "NO  NEONLIKE_CACHE_MB" in text and "NEONLIKE_CACHE_MB=lots: expected a number of megabytes from 0" in text
    assert "did you mean NEONLIKE_NUM_THREADS?" in text
    assert status == 2 and "gen_backend('cpu'): cannot run" in text
