"""The C compiler: the choice among several, its abilities, and messages without one."""

from __future__ import annotations

import dataclasses
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from neonlike.errors import KernelCompileError
from neonlike.kernels.build.cache import DiskCache, default_cache
from neonlike.kernels.build.source import KernelSource
from neonlike.kernels.c import toolchain
from neonlike.kernels.c.compile import build, kernel_key
from neonlike.kernels.c.toolchain import Compiler, find_compiler
from tests.support.compiling import SOURCE, Wrapper, compiler, forget, fresh, messages, python, wrapper  # noqa: F401

pytestmark = [
    pytest.mark.skipif(os.name != "posix", reason="the compilers of these tests are shell scripts"),
    pytest.mark.cpu_only("the C compiler and its cache"),
]


# --- finding the compiler


def test_what_is_found_is_used_and_described(compiler: Compiler) -> None:
    assert set(toolchain.required_flags()) <= set(compiler.flags)
    assert os.path.isabs(compiler.command[0])
    version = subprocess.run([*compiler.command, "--version"], capture_output=True, text=True, check=True).stdout
    assert version.splitlines()[0] in compiler.identity
    assert find_compiler() is compiler
    with pytest.raises(dataclasses.FrozenInstanceError):
        compiler.flags = ()  # type: ignore[misc]


def test_how_far_kernels_are_optimized_is_a_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels of different levels have different keys: a cache may hold both."""
    keys = set()
    for level in ("", "3", "1", ""):
        monkeypatch.setenv("NEONLIKE_OPTIMIZE", level)
        found = find_compiler()
        assert found is not None
        assert [flag for flag in found.flags if flag.startswith("-O")] == [f"-O{level or 3}"]
        assert build(SOURCE, "answer").answer() == 42
        keys.add(kernel_key(KernelSource(SOURCE, "answer", "", {}), found))
    assert len(keys) == 2


@pytest.mark.optimized
def test_whole_vectors_are_used_on_processors_with_avx512(compiler: Compiler, tmp_path: Path) -> None:
    """Compilers would use half of them on Intel's."""
    source = tmp_path / "scale.c"
    source.write_text("void scale(float *a) { for (int i = 0; i < 1024; i++) a[i] *= 3; }")
    command = [*compiler.command, *compiler.flags, "-march=icelake-server", "-S", "-o", "-", source]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "icelake-server" in done.stderr:
        pytest.skip("the compiler does not know this processor")
    assert "%zmm" in done.stdout


def test_the_jit_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEONLIKE_CPU_JIT", "0")
    assert find_compiler() is None
    with pytest.raises(KernelCompileError, match="NEONLIKE_CPU_JIT"):
        build(SOURCE, "answer", "41 + 1")
    monkeypatch.setenv("NEONLIKE_CPU_JIT", "1")
    monkeypatch.setenv("CC", "")
    find_compiler()


@pytest.mark.parametrize("command", ["/bin/false", "/nowhere/cc", "no-such-compiler-anywhere -O2", "/bin/true"])
def test_a_cc_that_does_not_work_is_reported_once(
    monkeypatch: pytest.MonkeyPatch, messages: list[str], command: str
) -> None:
    monkeypatch.setenv("CC", command)
    forget(monkeypatch)
    assert find_compiler() is None
    assert find_compiler() is None
    assert len(messages) == 1
    for part in (f"CC={command}", "unset it", "NumPy engine"):
        assert part in messages[0]


def test_the_words_of_a_cc_that_does_not_work_are_shown(
    monkeypatch: pytest.MonkeyPatch, messages: list[str], tmp_path: Path
) -> None:
    script = tmp_path / "cc"
    script.write_text("#!/bin/sh\necho 'the licence server is down' >&2\nexit 3\n")
    script.chmod(0o755)
    monkeypatch.setenv("CC", str(script))
    assert find_compiler() is None
    assert "the licence server is down" in messages[0]


def test_a_machine_without_a_compiler_is_reported_once(
    monkeypatch: pytest.MonkeyPatch, messages: list[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(toolchain.importlib.util, "find_spec", lambda name: None)  # type: ignore[attr-defined]
    assert find_compiler() is None
    assert find_compiler() is None
    assert len(messages) == 1
    assert "Install gcc or clang" in messages[0]


def test_the_first_compiler_that_works_is_taken(
    monkeypatch: pytest.MonkeyPatch, messages: list[str], tmp_path: Path, wrapper: Wrapper
) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "cc").write_text("#!/bin/sh\nexit 1\n")
    (folder / "cc").chmod(0o755)
    shutil.copy(wrapper.path, folder / "clang")
    monkeypatch.delenv("CC")
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr(toolchain, "_run", with_path(os.defpath))
    found = find_compiler()
    assert found is not None
    assert found.command == (str(folder / "clang"),)
    assert messages == []


def with_path(path: str):  # type: ignore[no-untyped-def]
    """As ``toolchain._run``, with another PATH, so that a compiler finds its parts."""
    real = toolchain._run

    def run(command: tuple[str, ...], directory: Path | None = None) -> tuple[int, str]:
        return real(("/usr/bin/env", f"PATH={path}", *command), directory)

    return run


def test_cc_may_hold_arguments_but_no_unsafe_ones(
    monkeypatch: pytest.MonkeyPatch, messages: list[str], compiler: Compiler
) -> None:
    monkeypatch.setenv("CC", f"{shlex.join(compiler.command)} -DANSWER='6 * 7' -ffast-math")
    found = find_compiler()
    assert found is not None
    assert found.command == (*compiler.command, "-DANSWER=6 * 7")
    assert build("int answer(void) { return ANSWER; }", "answer").answer() == 42
    assert len(messages) == 1
    assert "-ffast-math is left out" in messages[0]


def test_the_ziglang_package_serves_as_a_compiler(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, compiler: Compiler
) -> None:
    """A package of that name that passes everything on to the compiler of this machine."""
    package = tmp_path / "site" / "ziglang"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    # The compiler of this machine may itself be the real package: it must not find this one.
    outside = {"PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    script = "import os, subprocess, sys\nassert sys.argv[1] == 'cc'\n"
    script += f"command = [*{list(compiler.command)!r}, *sys.argv[2:]]\n"
    script += f"sys.exit(subprocess.call(command, env={{**os.environ, **{outside!r}}}))\n"
    (package / "__main__.py").write_text(script)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(shutil, "which", lambda name: name if os.path.isabs(name) else None)
    forget(monkeypatch)
    found = find_compiler()
    assert found is not None
    assert found.command == (sys.executable, "-m", "ziglang", "cc")
    assert build(SOURCE, "answer").answer() == 42


@pytest.mark.parametrize(
    ("refused", "missing", "instead"),
    [
        ("-fopenmp-simd", {"-fopenmp-simd"}, set()),
        ("-march=native", {"-march=native"}, {"-mcpu=native"}),
        ("native", {"-march=native", "-mcpu=native"}, set()),
        ("-fno-trapping-math", {"-fno-trapping-math"}, set()),
    ],
)
def test_a_flag_that_the_compiler_refuses_is_left_out(
    wrapper: Wrapper,
    monkeypatch: pytest.MonkeyPatch,
    compiler: Compiler,
    refused: str,
    missing: set[str],
    instead: set[str],
) -> None:
    """Some processors' compilers take -mcpu=native for -march=native; here the script translates it."""
    wrapper.write(
        f"""
        case "$*" in *{refused}*) echo "unknown option {refused}"; exit 1;; esac
        for arg in "$@"; do shift; [ "$arg" = -mcpu=native ] || set -- "$@" "$arg"; done
        """
    )
    forget(monkeypatch)
    found = find_compiler()
    assert found is not None
    assert set(found.flags) == set(compiler.flags) - missing | instead
    assert build(SOURCE, "answer").answer() == 42


def meanwhile(monkeypatch: pytest.MonkeyPatch, act: Callable[[Path], object]) -> None:
    """Call ``act`` with the first file that is put into a cache, before it is loaded: another process does so."""
    put, acted = DiskCache.put, []

    def put_and_act(*args: Any, **kwargs: Any) -> Path:
        path = put(*args, **kwargs)
        if not acted:
            acted.append(True)
            act(path)
        return path

    monkeypatch.setattr(DiskCache, "put", put_and_act)


def test_processes_that_probe_at_once_leave_each_other_their_files(
    compiler: Compiler, fresh: Path, messages: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = (*compiler.flags, "-O1")  # others than those of which this process may have a library loaded
    probe = f"from neonlike.kernels.c import toolchain; toolchain._try_flags({compiler.command}, {flags})"
    others: list[int] = []
    meanwhile(monkeypatch, lambda path: others.append(python(probe).returncode))
    toolchain._try_flags(compiler.command, flags)
    assert (others, messages) == ([0], [])


def test_a_cache_that_is_cleared_before_a_kernel_is_loaded(
    compiler: Compiler, fresh: Path, messages: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    find_compiler()
    meanwhile(monkeypatch, lambda path: default_cache().clear())
    assert build(SOURCE, "answer").answer() == 42
    assert messages == []
    assert list(fresh.rglob(f"*{toolchain.SUFFIX}"))


def test_the_processor_is_part_of_the_identity(wrapper: Wrapper, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache on a network disk: the same compiler, another instruction set."""
    first = find_compiler()
    monkeypatch.setattr(toolchain, "_processor", lambda: "another one")
    wrapper.write('case "$*" in *-dM*) echo "#define __AVX1024__ 1"; exit 0;; esac')
    forget(monkeypatch)
    second = find_compiler()
    assert first is not None
    assert second is not None
    assert first.identity != second.identity


def test_another_processor_does_not_inherit_what_was_probed(wrapper: Wrapper, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_compiler()
    wrapper.calls()
    forget(monkeypatch)
    assert find_compiler()
    assert wrapper.calls() == []
    forget(monkeypatch)
    monkeypatch.setattr(toolchain, "_processor", lambda: "another one")
    assert find_compiler()
    assert wrapper.calls() != []


@pytest.mark.parametrize("text", ["", "{}", "[1, 2]", "null", '{"identity": 1}', "no json"])
def test_a_useless_note_about_a_compiler_is_made_again(
    wrapper: Wrapper, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    first = find_compiler()
    key = toolchain._probe_key((str(wrapper.path),))
    assert json.loads(default_cache().read(key, ".json") or b"")["identity"] == first.identity  # type: ignore[union-attr]
    default_cache().discard(key, ".json")
    default_cache().put(key, text.encode(), ".json")
    forget(monkeypatch)
    assert find_compiler() == first


def test_a_changed_compiler_is_probed_again(wrapper: Wrapper, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file says nothing (a script around another compiler): the version is asked for before it compiles."""
    first = find_compiler()
    assert first is not None
    build(SOURCE, "answer")
    key = toolchain._probe_key(first.command)
    monkeypatch.setattr(toolchain, "_probe_key", lambda command: key)
    wrapper.write('[ "$*" = --version ] && { echo "cc 99.0"; exit 0; }')
    forget(monkeypatch)
    wrapper.calls()
    assert build(SOURCE, "answer").answer() == 42  # a kernel of the old one, in the cache
    assert wrapper.calls() == []
    assert build("int f(void) { return 1; }", "f").f() == 1
    second = find_compiler()
    assert second is not None
    assert second.identity.startswith("cc 99.0")
    assert first.identity != second.identity


def test_a_relative_cc_works_from_everywhere(wrapper: Wrapper, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(wrapper.path.parent)
    monkeypatch.setenv("CC", f"./{wrapper.path.name}")
    found = find_compiler()
    assert found is not None
    assert found.command == (str(wrapper.path),)


def test_a_compiler_does_not_see_cc(wrapper: Wrapper) -> None:
    """`zig cc` calls the compiler that CC names, without an end where that is itself."""
    assert find_compiler()
    wrapper.write('[ -z "${CC+set}" ] || { echo "CC is $CC"; exit 1; }')
    assert build(SOURCE, "answer").answer() == 42


def test_what_does_not_compile_c_is_refused(
    monkeypatch: pytest.MonkeyPatch, messages: list[str], compiler: Compiler
) -> None:
    """A C++ compiler takes the source and gives functions other names."""
    monkeypatch.setenv("CC", f"{shlex.join(compiler.command)} -Dneonlike_probe=_Z14neonlike_probev")
    assert find_compiler() is None
    assert "C++" in messages[0]


def test_a_cc_with_a_space_in_its_path_needs_no_quotation_marks(
    wrapper: Wrapper, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "my tools"
    folder.mkdir()
    shutil.copy(wrapper.path, folder / "cc")
    monkeypatch.setenv("CC", str(folder / "cc"))
    found = find_compiler()
    assert found is not None
    assert found.command == (str(folder / "cc"),)


def test_a_process_without_path_has_a_compiler(
    monkeypatch: pytest.MonkeyPatch, messages: list[str], compiler: Compiler
) -> None:
    """Python looks for commands where systems have theirs then, and compilers have to for their parts."""
    monkeypatch.setenv("CC", shlex.join(compiler.command))
    monkeypatch.delenv("PATH")
    assert find_compiler() is not None, messages
