"""Compiling C kernels: libraries shared by processes, failures with a remedy in the message."""

from __future__ import annotations

import ctypes
import dataclasses
import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from neonlike.errors import KernelCompileError
from neonlike.kernels.build.cache import DiskCache, default_cache
from neonlike.kernels.build.source import KernelSource
from neonlike.kernels.c import compile as compile_c
from neonlike.kernels.c import toolchain
from neonlike.kernels.c.compile import build, build_kernel, kernel_key
from neonlike.kernels.c.toolchain import SUFFIX, Compiler, find_compiler
from neonlike.kernels.run.ahead import build_many
from tests.support.compiling import SOURCE, Wrapper, compiler, forget, fresh, messages, python, wrapper  # noqa: F401
from tests.support.engines import use_threads

pytestmark = [
    pytest.mark.skipif(os.name != "posix", reason="the compilers of these tests are shell scripts"),
    pytest.mark.cpu_only("the C compiler and its cache"),
]


# --- building


def test_a_kernel_is_compiled_called_and_stored(compiler: Compiler, fresh: Path) -> None:
    library = build(SOURCE, "answer")
    assert library.answer() == 42
    stored = list(fresh.rglob(f"*{SUFFIX}"))
    assert len(stored) == 1
    assert stored[0].name.startswith(kernel_key(KernelSource(SOURCE, "answer"), compiler))


def test_a_kernel_computes_on_arrays_with_math(compiler: Compiler) -> None:
    source = """
    #include <math.h>
    #include <stdint.h>
    void kernel(double *out, const double *x, int64_t n) {
    #pragma omp simd
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
    """The rules that -ffast-math would break hold, also under the optimiser."""
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
    assert [library.f() for library in build_many(kernels, build_kernel)] == list(range(5))
    assert build_many([], build_kernel) == []


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
    use_threads(monkeypatch, "2")
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    build_many([KernelSource(f"int f(void) {{ return {n}; }}", f"k{n}") for n in range(4)], build_kernel)
    counts = [int(line) for line in (tmp_path / "counts").read_text().split()]
    assert len(counts) == 4
    assert max(counts) == 2


def test_one_failure_of_many_leaves_the_others_compiled(compiler: Compiler, wrapper: Wrapper) -> None:
    good = [KernelSource(f"int f(void) {{ return {n}; }}", f"k{n}") for n in range(2)]
    with pytest.raises(KernelCompileError, match="kernel broken"):
        build_many([KernelSource("int f(void) {", "broken"), *good], build_kernel)
    wrapper.calls()
    assert [library.f() for library in build_many(good, build_kernel)] == [0, 1]
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
    code = f"from neonlike.kernels.c.compile import build; print(build({SOURCE!r}, 'answer').answer())"
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
from neonlike.kernels.run.ahead import build_many
from neonlike.kernels.c.compile import build_kernel
from neonlike.kernels.build.source import KernelSource
folder, me = pathlib.Path(sys.argv[1]), sys.argv[2]
(folder / f"ready{me}").touch()
while not (folder / "go").exists():
    time.sleep(0.002)
sources = [f"int f(void) {{ return {n}; }}" for n in (10, 20, 30)]
print([library.f() for library in build_many([KernelSource(s, "f") for s in sources], build_kernel)])
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
from neonlike.kernels.c.compile import build
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
