"""Compiling C kernels: the compiler found, libraries shared by processes, failures that say what to do."""

from __future__ import annotations

import ctypes
import dataclasses
import json
import logging
import os
import pickle
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from neonlike.errors import KernelCompileError
from neonlike.kernels import cache as cache_module
from neonlike.kernels import compile_c, toolchain
from neonlike.kernels.cache import DiskCache, default_cache
from neonlike.kernels.compile_c import KernelSource, build, build_many, kernel_key
from neonlike.kernels.toolchain import SUFFIX, Compiler, find_compiler
from neonlike.logger import logger

pytestmark = pytest.mark.skipif(os.name != "posix", reason="the compilers of these tests are shell scripts")

SOURCE = "int answer(void) { return 42; }\n"


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty cache, and nothing remembered of earlier tests but the machine's compiler."""
    monkeypatch.setenv("NEONLIKE_CACHE_DIR", str(tmp_path / "cache"))
    for name in ("NEONLIKE_CPU_JIT", "NEONLIKE_KEEP_SOURCE", "NEONLIKE_CACHE_MB"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(compile_c, "_libraries", {})
    monkeypatch.setattr(toolchain, "_unconfirmed", {})
    return tmp_path / "cache"


@pytest.fixture
def compiler() -> Compiler:
    found = find_compiler()
    if found is None:
        pytest.skip("there is no C compiler on this machine")
    return found


@pytest.fixture
def messages() -> Iterator[list[str]]:
    """The library's warnings, as text."""
    texts: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: texts.append(record.getMessage())  # type: ignore[method-assign]
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.WARNING)
    yield texts
    logger.removeHandler(handler)
    logger.setLevel(level)


class Wrapper:
    """A compiler that writes down each of its calls; ``before`` is shell text run first."""

    def __init__(self, folder: Path, compiler: Compiler) -> None:
        self.path = folder / "wrapped-cc"
        self.log = folder / "calls"
        self.compiler = compiler
        self.write()

    def write(self, before: str = "") -> None:
        script = f'#!/bin/sh\necho "$*" >> {shlex.quote(str(self.log))}\n{before}\n'
        script += f'exec {shlex.join(self.compiler.command)} "$@"\n'
        # Never in place: the kernel refuses to run a script that is open for writing.
        temporary = self.path.with_suffix(".new")
        temporary.write_text(script)
        temporary.chmod(0o755)
        os.replace(temporary, self.path)

    def calls(self) -> list[str]:
        """What it was called with since the last look."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        self.log.unlink(missing_ok=True)
        return lines


@pytest.fixture
def wrapper(tmp_path: Path, compiler: Compiler, monkeypatch: pytest.MonkeyPatch) -> Wrapper:
    """CC is a script around the machine's compiler."""
    wrapper = Wrapper(tmp_path, compiler)
    monkeypatch.setenv("CC", str(wrapper.path))
    return wrapper


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a new process began."""
    for module, name in ((compile_c, "_libraries"), (toolchain, "_found"), (toolchain, "_unconfirmed")):
        monkeypatch.setattr(module, name, {})
    monkeypatch.setattr(cache_module, "_caches", {})


def python(code: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


# --- building


def test_a_kernel_is_compiled_called_and_stored(compiler: Compiler, fresh: Path) -> None:
    library = build(SOURCE, "answer")
    assert library.answer() == 42
    stored = list(fresh.rglob(f"*{SUFFIX}"))
    assert len(stored) == 1
    assert stored[0].name.startswith(kernel_key(KernelSource(SOURCE, "answer"), compiler))


def test_a_kernel_computes_on_arrays_with_math_and_threads(compiler: Compiler) -> None:
    source = """
    #include <math.h>
    #include <stdint.h>
    void kernel(double *out, const double *x, int64_t n) {
    #pragma omp parallel for
        for (int64_t i = 0; i < n; i++) out[i] = exp(x[i]);
    }
    """
    library = build(source, "exp")
    out, x = (ctypes.c_double * 3)(), (ctypes.c_double * 3)(0.0, 1.0, float("-inf"))
    library.kernel(out, x, ctypes.c_int64(3))
    assert list(out) == pytest.approx([1.0, 2.718281828459045, 0.0], rel=1e-15)


def test_the_same_source_gives_the_same_object(compiler: Compiler) -> None:
    first = build(SOURCE, "answer")
    assert build(SOURCE, "other name", "other expression") is first
    assert build(SOURCE + "\n", "answer") is not first


def test_nan_and_infinity_keep_their_rules(compiler: Compiler) -> None:
    """What -ffast-math would break, also with the optimiser looking."""
    source = """
    int isnan_(float x) { return x != x; }
    float reassociate(float a, float b) { return (a + b) - a; }
    float zero(float x) { return x * 0.0f; }
    float negative(float x) { return 0.0f + x; }
    """
    library = build(source, "ieee")
    real = ctypes.c_float
    for function in (library.reassociate, library.zero, library.negative):
        function.restype = real
    assert library.isnan_(real(float("nan"))) == 1
    assert library.reassociate(real(1e8), real(1.0)) == 0.0
    assert library.zero(real(float("inf"))) != library.zero(real(float("inf")))
    assert str(library.negative(real(-0.0))) == "0.0"
    assert not toolchain.UNSAFE_FLAGS.intersection(compiler.flags)
    assert sys.float_info.min / 2 > 0  # loading a library did not flush subnormals to zero


def test_headers_are_found_as_texts_and_in_directories(compiler: Compiler, tmp_path: Path) -> None:
    source = '#include "part/value.h"\nint value(void) { return VALUE; }\n'
    assert build(source, "v", headers={"part/value.h": "#define VALUE 1\n"}).value() == 1
    assert build(source, "v", headers={"part/value.h": "#define VALUE 2\n"}).value() == 2
    folder = tmp_path / "include" / "part"
    folder.mkdir(parents=True)
    (folder / "value.h").write_text("#define VALUE 3\n")
    assert build(source, "v", headers=[tmp_path / "include"]).value() == 3
    (folder / "value.h").write_text("#define VALUE 4\n")
    assert build(source, "v", headers=[tmp_path / "include"]).value() == 4


def test_the_key_holds_everything_that_changes_the_object(compiler: Compiler, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = KernelSource(SOURCE, "answer", "41 + 1", {"a.h": "x"})
    replace = dataclasses.replace
    keys = [
        kernel_key(kernel, compiler),
        kernel_key(kernel._replace(source=SOURCE + " "), compiler),
        kernel_key(kernel._replace(headers={"a.h": "y"}), compiler),
        kernel_key(kernel._replace(headers={"b.h": "x"}), compiler),
        kernel_key(kernel._replace(headers={}), compiler),
        kernel_key(kernel, replace(compiler, identity="another compiler")),
        kernel_key(kernel, replace(compiler, flags=(*compiler.flags, "-g"))),
        kernel_key(kernel, replace(compiler, command=("/opt/cc",))),
    ]
    monkeypatch.setattr(compile_c, "ABI_VERSION", "another")
    keys.append(kernel_key(kernel, compiler))
    assert len(set(keys)) == len(keys)
    monkeypatch.undo()
    assert kernel_key(KernelSource(SOURCE, "b", "c", {"a.h": "x"}), compiler) == keys[0]


def test_many_kernels_at_once_come_in_order(compiler: Compiler) -> None:
    kernels = [KernelSource(f"int f(void) {{ return {n}; }}", f"k{n}") for n in range(5)]
    assert [library.f() for library in build_many(kernels)] == list(range(5))
    assert build_many([]) == []
    plain = [("int f(void) { return 7; }", "plain"), ("int f(void) { return 8; }", "plain", "eight")]
    assert [library.f() for library in build_many(plain)] == [7, 8]  # type: ignore[arg-type]


def test_many_kernels_compile_side_by_side_and_no_more_than_allowed(
    wrapper: Wrapper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each compiler waits until it sees a second one; none may ever see a third."""
    assert find_compiler()
    running = tmp_path / "running"
    running.mkdir()
    wrapper.write(
        f"""
        mkdir {running}/$$; n=0
        until [ $(ls {running} | wc -l) -ge 2 ] || [ -e {tmp_path}/two ] || [ $n -ge 300 ]
        do sleep 0.1; n=$((n+1)); done
        ls {running} | wc -l >> {tmp_path}/counts; touch {tmp_path}/two; sleep 0.2; rmdir {running}/$$
        """
    )
    monkeypatch.setenv("NEONLIKE_NUM_THREADS", "2")
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    build_many([KernelSource(f"int f(void) {{ return {n}; }}", f"k{n}") for n in range(4)])
    counts = [int(line) for line in (tmp_path / "counts").read_text().split()]
    assert len(counts) == 4
    assert max(counts) == 2


def test_one_failure_of_many_leaves_the_others_compiled(compiler: Compiler, wrapper: Wrapper) -> None:
    good = [KernelSource(f"int f(void) {{ return {n}; }}", f"k{n}") for n in range(2)]
    with pytest.raises(KernelCompileError, match="kernel broken"):
        build_many([KernelSource("int f(void) {", "broken"), *good])
    wrapper.calls()
    assert [library.f() for library in build_many(good)] == [0, 1]
    assert wrapper.calls() == []


def test_threads_that_want_the_same_kernel_compile_it_once(wrapper: Wrapper) -> None:
    assert find_compiler()
    wrapper.calls()
    libraries: list[ctypes.CDLL] = []
    threads = [threading.Thread(target=lambda: libraries.append(build(SOURCE, "answer"))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(libraries) == 6
    assert len(set(map(id, libraries))) == 1
    assert len(wrapper.calls()) == 1


# --- the cache, as processes see it


def test_a_second_process_does_not_start_the_compiler(wrapper: Wrapper) -> None:
    code = f"from neonlike.kernels.compile_c import build; print(build({SOURCE!r}, 'answer').answer())"
    assert python(code).stdout == "42\n"
    assert len(wrapper.calls()) >= 2
    assert python(code).stdout == "42\n"
    assert wrapper.calls() == []


@pytest.mark.parametrize("damage", ["truncated", "flipped", "empty", "not a library"])
def test_a_damaged_library_is_compiled_again(
    wrapper: Wrapper, fresh: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    build(SOURCE, "answer")
    (stored,) = fresh.rglob(f"*{SUFFIX}")
    content = stored.read_bytes()
    middle = len(content) // 2
    if damage == "not a library":  # with a digest that fits, as after a change of the C library
        cache, key = default_cache(), stored.name.split(".")[0]
        stored.unlink()
        cache.put(key, b"not a library", SUFFIX)
    else:
        flipped = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
        changed = {"truncated": content[:middle], "flipped": flipped, "empty": b""}[damage]
        stored.unlink()  # the library is mapped: a file changed in place would change under it
        stored.write_bytes(changed)
    forget(monkeypatch)
    wrapper.calls()
    assert build(SOURCE, "answer").answer() == 42
    assert [call for call in wrapper.calls() if "answer.c" in call]
    forget(monkeypatch)
    assert build(SOURCE, "answer").answer() == 42
    assert wrapper.calls() == []


def test_many_processes_start_at_once_on_an_empty_cache(compiler: Compiler, fresh: Path, tmp_path: Path) -> None:
    code = """
import sys, time, pathlib
from neonlike.kernels.compile_c import KernelSource, build_many
folder, me = pathlib.Path(sys.argv[1]), sys.argv[2]
(folder / f"ready{me}").touch()
while not (folder / "go").exists():
    time.sleep(0.002)
sources = [f"int f(void) {{ return {n}; }}" for n in (10, 20, 30)]
print([library.f() for library in build_many([KernelSource(s, "f") for s in sources])])
"""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path), str(number)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(8)
    ]
    while len(list(tmp_path.glob("ready*"))) < 8:
        assert not any(process.poll() for process in processes)
    (tmp_path / "go").touch()
    outputs = [process.communicate(timeout=120) for process in processes]
    assert outputs == [("[10, 20, 30]\n", "")] * 8
    cache = DiskCache(fresh)
    keys = {path.name.split(".")[0] for path in fresh.rglob(f"*{SUFFIX}")}
    assert len(keys) == 3
    assert all(cache.get(key, SUFFIX) for key in keys)
    assert not list(fresh.rglob(".tmp-*"))


@pytest.mark.parametrize("error", ["EROFS", "ENOSPC"])
def test_a_cache_that_cannot_be_written_is_done_without(compiler: Compiler, fresh: Path, error: str) -> None:
    code = f"""
import errno, os, logging
from neonlike.logger import logger
logger.setLevel(logging.WARNING)
real = os.replace
def replace(source, target):
    if str(target).startswith({str(fresh)!r}):
        raise OSError(errno.{error}, os.strerror(errno.{error}))
    real(source, target)
os.replace = replace
from neonlike.kernels.compile_c import build
print(build({SOURCE!r}, "answer").answer(), build("int f(void) {{ return 1; }}", "f").f())
"""
    done = python(code)
    assert done.stdout == "42 1\n"
    assert len(done.stderr.splitlines()) == 1
    assert "kernel cache" in done.stderr
    assert not [path for path in fresh.rglob("*") if path.is_file() and path.name != "last-trim"]


def test_nothing_is_loaded_from_a_directory_open_to_all(compiler: Compiler, fresh: Path, messages: list[str]) -> None:
    fresh.mkdir()
    fresh.chmod(0o777)
    assert build(SOURCE, "answer").answer() == 42
    assert list(fresh.iterdir()) == []
    assert len(messages) == 1


def test_a_cache_from_which_nothing_may_be_loaded_is_done_without(
    compiler: Compiler, fresh: Path, monkeypatch: pytest.MonkeyPatch, messages: list[str]
) -> None:
    """As on a file system mounted noexec."""
    real = ctypes.CDLL

    def load(path: str) -> ctypes.CDLL:
        if path.startswith(str(fresh)):
            raise OSError(f"{path}: failed to map segment from shared object")
        return real(path)

    monkeypatch.setattr(ctypes, "CDLL", load)
    assert build(SOURCE, "answer").answer() == 42
    assert build("int f(void) { return 1; }", "f").f() == 1
    assert len(messages) == 1
    assert "failed to map" in messages[0]


def test_a_full_disk_everywhere_is_a_compile_error(compiler: Compiler, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(KernelCompileError, match="No space left") as raised:
        build(SOURCE, "answer", "41 + 1")
    assert raised.value.source_path is None
    assert "could not be written" in str(raised.value)
    monkeypatch.undo()
    assert build(SOURCE, "answer", compiler=compiler).answer() == 42


# --- failures and kept sources


def test_a_compile_error_shows_everything(compiler: Compiler, fresh: Path) -> None:
    with pytest.raises(KernelCompileError) as raised:
        build("int f(void) {\n    return undeclared_thing;\n}\n", "my kernel", "sig(a*b + c) /* odd */")
    error = raised.value
    assert error.expression == "sig(a*b + c) /* odd */"
    assert "undeclared_thing" in error.compiler_output
    assert error.source_path is not None
    for part in ("my kernel", error.expression, "undeclared_thing", error.source_path, "NEONLIKE_CPU_JIT=0"):
        assert part in str(error)
    kept = Path(error.source_path)
    assert fresh in kept.parents
    line = next(n for n, text in enumerate(kept.read_text().splitlines(), 1) if "undeclared_thing" in text)
    assert f"my_kernel.c:{line}:" in error.compiler_output  # the line numbers fit the kept file
    assert "sig(a*b + c)" in kept.read_text()


def test_a_failure_can_be_followed_by_success_and_is_not_remembered(compiler: Compiler) -> None:
    source = '#include "x.h"\nint f(void) { return X; }\n'
    with pytest.raises(KernelCompileError):
        build(source, "f", headers={"x.h": ""})
    with pytest.raises(KernelCompileError):
        build(source, "f", headers={"x.h": ""})
    assert build(source, "f", headers={"x.h": "#define X 5\n"}).f() == 5


def test_a_library_that_does_not_load_is_a_compile_error(compiler: Compiler) -> None:
    source = "extern int missing_symbol; int *f(void) { return &missing_symbol; }\n"
    with pytest.raises(KernelCompileError, match="missing_symbol"):
        build(source, "unresolved")


def test_the_expression_cannot_end_its_comment(compiler: Compiler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEONLIKE_KEEP_SOURCE", "1")
    expression = 'a */ #error "b" /* \\\n // c\nd'
    assert build(SOURCE, "answer", expression).answer() == 42


def test_sources_are_kept_on_request(
    compiler: Compiler, fresh: Path, monkeypatch: pytest.MonkeyPatch, wrapper: Wrapper
) -> None:
    build(SOURCE, "an answer", "41 + 1")
    assert not list(fresh.rglob("*.c"))
    forget(monkeypatch)
    wrapper.calls()
    monkeypatch.setenv("NEONLIKE_KEEP_SOURCE", "1")
    build(SOURCE, "an answer", "41 + 1")  # from the cache
    build(SOURCE + "//\n", "an answer", "42 * 1")  # compiled
    library_keys = {path.name.split(".")[0] for path in fresh.rglob(f"*{SUFFIX}")}
    kept = {path.name: path.read_text() for path in fresh.rglob("*.c")}
    assert set(kept) == {f"an_answer_{key}.c" for key in library_keys}
    assert {text.splitlines()[0] for text in kept.values()} == {"/* 41 + 1", "/* 42 * 1"}
    assert all(SOURCE in text for text in kept.values())


# --- finding the compiler


def test_what_is_found_is_used_and_described(compiler: Compiler) -> None:
    assert set(toolchain.REQUIRED_FLAGS) <= set(compiler.flags)
    assert compiler.openmp == ("-fopenmp" in compiler.flags)
    assert os.path.isabs(compiler.command[0])
    version = subprocess.run([*compiler.command, "--version"], capture_output=True, text=True, check=True).stdout
    assert version.splitlines()[0] in compiler.identity
    assert find_compiler() is compiler
    with pytest.raises(dataclasses.FrozenInstanceError):
        compiler.openmp = False  # type: ignore[misc]


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
        ("-fopenmp", {"-fopenmp"}, set()),
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
    """-mcpu=native is what some processors' compilers say for -march=native; here the script translates it."""
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
    assert found.openmp == ("-fopenmp" in found.flags)
    assert build(SOURCE, "answer").answer() == 42


def test_openmp_that_is_accepted_but_ignored_does_not_count(
    wrapper: Wrapper, monkeypatch: pytest.MonkeyPatch, compiler: Compiler
) -> None:
    wrapper.write('for arg in "$@"; do shift; [ "$arg" = -fopenmp ] || set -- "$@" "$arg"; done')
    forget(monkeypatch)
    found = find_compiler()
    assert found is not None
    assert not found.openmp
    assert "-fopenmp" not in found.flags


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


# --- fork


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_fork_of_a_process_that_ran_threads_runs_on_one(compiler: Compiler) -> None:
    """A loop over two threads would hang in the child with GCC's OpenMP."""
    code = """
import os, signal, threading, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 on fork beside threads: the very case
from neonlike.kernels import compile_c, toolchain
source = '''
int sum(int threads) {
    int total = 0;
#pragma omp parallel for num_threads(threads) reduction(+:total)
    for (int i = 0; i < 100; i++) total += i;
    return total;
}
'''
kernel = compile_c.build(source, "sum")
assert not compile_c.after_fork_serial() and not compile_c.forked
assert kernel.sum(2) == 4950
held, release = threading.Event(), threading.Event()
def hold():  # as a thread that is compiling
    with compile_c._lock, toolchain._lock:
        held.set()
        release.wait()
threading.Thread(target=hold).start()
held.wait()
child = os.fork()
if child == 0:
    signal.alarm(60)  # ends a child that waits for a lock for ever
    assert compile_c.after_fork_serial() and compile_c.forked
    assert compile_c.build(source, "sum").sum(1) == 4950
    assert compile_c.build("int f(void) { return 3; }", "f").f() == 3
    os._exit(7)
release.set()
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
assert not compile_c.after_fork_serial()
"""
    done = python(code)
    assert (done.returncode, done.stderr) == (0, "")


# --- errors


def test_a_compile_error_survives_pickling(compiler: Compiler) -> None:
    error = KernelCompileError("message", "/path/k.c", "words", "a + b")
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.source_path, again.compiler_output, again.expression) == (
        "message",
        "/path/k.c",
        "words",
        "a + b",
    )
    assert isinstance(again, RuntimeError)


FORKED = """
import os, sys, time
from neonlike.backends import gen_backend
be = gen_backend("cpu", rng_seed=1)
x, o = be.ones((2000, 1000)), be.empty((2000, 1000))
step = be.prepare(o, x * 3 + 1)
def work():
    o[:] = x * 2 + 1
    o[:] = x - be.sum(x, axis=1)
    step()
work()
child = os.fork()
if child == 0:
    work()
    os._exit(int(o.get()[0, 0] != 4))
for _ in range(600):
    done, status = os.waitpid(child, os.WNOHANG)
    if done:
        sys.exit(os.waitstatus_to_exitcode(status))
    time.sleep(0.05)
os.kill(child, 9)
sys.exit("the child hangs")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_fork_runs_what_its_parent_ran_on_threads(compiler: Compiler) -> None:
    environment = {**os.environ, "NEONLIKE_NUM_THREADS": "2", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", FORKED], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_a_fork_that_ends_leaves_the_parents_compile_alone(tmp_path: Path) -> None:
    """The child runs exit handlers, and may not remove the directory in which the parent's compiler works."""
    code = """
import os, pathlib, subprocess, sys, threading, time
from neonlike.kernels import compile_c, toolchain

run, entered = toolchain._run, threading.Event()
def slow(command, *where):
    if "slow.c" in command:
        entered.set()
        time.sleep(0.5)
    return run(command, *where)
toolchain._run = slow
thread = threading.Thread(target=lambda: results.append(compile_c.build("int f(void) { return 3; }", "slow").f()))
results = []
thread.start()
assert entered.wait(60)
child = os.fork()
if child == 0:
    sys.exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
thread.join()
assert results == [3]
"""
    done = python(code)
    assert (done.returncode, done.stderr) == (0, "")
