"""Who waits for a compiler is told so, once; nobody else is."""

from __future__ import annotations

import io
import os
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from neonlike.errors import KernelCompileError
from neonlike.kernels.build import waiting
from neonlike.kernels.build.source import KernelSource
from neonlike.kernels.c.compile import build, build_kernel
from neonlike.kernels.run.ahead import build_many
from tests.support.compiling import SOURCE, Wrapper, compiler, fresh, messages, wrapper  # noqa: F401

pytestmark = [
    pytest.mark.skipif(os.name != "posix", reason="the compilers of these tests are shell scripts"),
    pytest.mark.cpu_only("the C compiler and its cache"),
]

WAITED = "Compiling for the first use of "
WATCHES = waiting._somebody_watches
SLOW = 'case "$*" in *answer*) sleep 0.5;; esac'


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiler that takes SLOW is told of on a terminal, whatever was said before."""
    monkeypatch.setattr(waiting, "_somebody_watches", lambda: True)
    monkeypatch.setattr(waiting, "PATIENCE_S", 0.05)
    monkeypatch.setattr(waiting, "_last", -waiting.QUIET_S)


def test_a_wait_is_told_with_what_and_where_it_is_kept(wrapper: Wrapper, messages: list[str], fresh: Path) -> None:
    wrapper.write(SLOW)
    build(SOURCE, "answer", "sig(t0)")
    assert len(messages) == 1
    assert messages[0].startswith(f"{WAITED}sig(t0) (1 kernel in work)") and str(fresh) in messages[0]


def test_what_is_in_the_cache_is_not_told(
    wrapper: Wrapper, messages: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "PATIENCE_S", threading.TIMEOUT_MAX)
    build(SOURCE, "answer")
    monkeypatch.setattr(waiting, "PATIENCE_S", 0.0)
    build(SOURCE, "answer")
    assert messages == []


def test_side_by_side_compilations_are_one_wait(wrapper: Wrapper, messages: list[str]) -> None:
    wrapper.write(SLOW)
    kernels = [KernelSource(f"{SOURCE}int more{i};\n", f"answer{i}", f"f{i}(t0)") for i in range(5)]
    build_many(kernels, build_kernel)
    assert len(messages) == 1 and messages[0].startswith(f"{WAITED}f0(t0), f1(t0), f2(t0), ... (")


def test_another_wait_soon_after_is_not_told(wrapper: Wrapper, messages: list[str]) -> None:
    wrapper.write(SLOW)
    build(SOURCE, "answer")
    build(SOURCE + "int more;\n", "answer")
    assert len(messages) == 1


def test_a_compilation_in_the_background_is_told_by_who_waits_for_it(wrapper: Wrapper, messages: list[str]) -> None:
    wrapper.write(SLOW)
    thread = threading.Thread(target=build, args=(SOURCE, "answer"), name=f"{waiting.THREADS}-1")
    thread.start()
    thread.join()
    assert messages == []
    other = SOURCE + "int more;\n"
    thread = threading.Thread(target=build, args=(other, "answer"), name=f"{waiting.THREADS}-1")
    thread.start()
    build(other, "answer")
    thread.join()
    assert len(messages) == 1


def test_a_failure_ends_the_wait(wrapper: Wrapper, messages: list[str]) -> None:
    build(SOURCE, "answer")  # the compiler is known from here on
    messages.clear()
    before = threading.active_count()
    with pytest.raises(KernelCompileError):
        build("int answer(void) { return", "broken")
    assert threading.active_count() == before and waiting._compiling == []


def test_pipes_stay_as_they_are(wrapper: Wrapper, messages: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    monkeypatch.setattr(waiting, "_somebody_watches", WATCHES)
    wrapper.write(SLOW)
    build(SOURCE, "answer")
    assert messages == []
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert WATCHES()


def test_cells_of_notebooks_are_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    shell = type("Shell", (), {"__module__": "ipykernel.zmqshell"})()
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    for found, watched in ((None, False), (shell, True)):
        monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda found=found: found))
        monkeypatch.setitem(sys.modules, "ipykernel", SimpleNamespace())
        assert WATCHES() == watched
