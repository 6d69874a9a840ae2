"""The steps from a source to a compiled kernel that C and CUDA share, with a made-up language."""

from __future__ import annotations

import logging
import os
import select
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from neonlike.errors import KernelCompileError
from neonlike.kernels.build import process
from neonlike.kernels.build.cache import default_cache, key_of
from neonlike.kernels.build.driver import Driver
from neonlike.kernels.build.process import CompilerRefused, compile_files, run_command
from neonlike.kernels.build.source import KernelSource
from neonlike.logger import logger

pytestmark = pytest.mark.cpu_only("compilers and their cache")


@dataclass(frozen=True)
class Loud:
    """A compiler that writes texts in capitals."""

    identity: str = "loud 1"
    refuses: str = "whisper"

    def command_line(self, contracted: bool = False) -> str:
        return "loud --all"


class Capitals(Driver[Loud, list[str]]):
    """A compiled kernel is the list of the words in capitals; "DAMAGED" does not load."""

    suffix, source_suffix, advice = ".caps", ".txt", "\nspeak up"

    def __init__(self) -> None:
        super().__init__()
        self.runs: list[str] = []
        self.adopted: list[str] = []
        self.updated: Loud | None = None
        self.other: Loud | None = None

    def key(self, kernel: KernelSource, compiler: Loud) -> str:
        return key_of("capitals", compiler.identity, str(kernel.source))

    def confirmed(self, compiler: Loud) -> Loud:
        return self.updated or compiler

    def compile(self, kernel: KernelSource, text: str, compiler: Loud) -> bytes:
        self.runs.append(compiler.identity)
        if compiler.refuses in text:
            raise CompilerRefused(f"{compiler.refuses}: cannot hear you")
        return str(kernel.source).upper().encode()

    def find(self, kernel: KernelSource, key: str) -> list[str] | None:
        data = default_cache().read(key, self.suffix)
        return None if data is None or data == b"DAMAGED" else data.decode().split()

    def store(self, kernel: KernelSource, key: str, data: bytes) -> list[str]:
        default_cache().put(key, data, self.suffix)
        return data.decode().split()

    def adopt(self, key: str, built: list[str], compiler: Loud) -> None:
        self.adopted.append(compiler.identity)
        self.loaded[key] = built

    def instead(self, compiler: Loud, error: Exception) -> Loud | None:
        return self.other


KERNEL = KernelSource("a b", "name", "a + b")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NEONLIKE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("NEONLIKE_KEEP_SOURCE", raising=False)
    return tmp_path / "cache"


@pytest.fixture
def log() -> Iterator[list[str]]:
    """Log messages of the library, from INFO on."""
    texts: list[str] = []
    handler = logging.Handler(logging.INFO)
    handler.emit = lambda record: texts.append(record.getMessage())  # type: ignore[method-assign]
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield texts
    logger.setLevel(before)
    logger.removeHandler(handler)


def test_a_kernel_is_compiled_once_and_found_from_then_on(log: list[str]) -> None:
    driver = Capitals()
    assert not driver.is_built(KERNEL, Loud())
    built = driver.build(KERNEL, Loud())
    assert built == ["A", "B"]
    assert driver.build(KERNEL._replace(name="other", expression=""), Loud()) is built
    assert driver.is_built(KERNEL, Loud())
    assert driver.compiled == {driver.key(KERNEL, Loud())}
    assert [text.partition(" in ")[0] for text in log] == ["kernel name: compiled"]
    later = Capitals()  # another process
    assert later.is_built(KERNEL, Loud())
    assert later.build(KERNEL, Loud()) == built
    assert (driver.runs, later.runs, later.compiled) == (["loud 1"], [], set())
    assert driver.adopted == later.adopted == ["loud 1"]


def test_what_does_not_load_is_compiled_again() -> None:
    driver = Capitals()
    default_cache().put(driver.key(KERNEL, Loud()), b"DAMAGED", driver.suffix)
    assert driver.build(KERNEL, Loud()) == ["A", "B"]
    assert driver.runs == ["loud 1"]


def test_threads_compile_a_kernel_once_and_others_beside_it() -> None:
    both = threading.Barrier(2, timeout=60)

    class Slow(Capitals):
        def compile(self, kernel: KernelSource, text: str, compiler: Loud) -> bytes:
            both.wait()  # until the other kernel is being compiled too
            return super().compile(kernel, text, compiler)

    driver, other = Slow(), KERNEL._replace(source="c")
    threads = [threading.Thread(target=driver.build, args=(kernel, Loud())) for kernel in (KERNEL, other) * 3]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not both.broken
    assert len(driver.runs) == len(driver.loaded) == 2


def test_an_updated_compiler_takes_the_place_of_the_one_that_was_found() -> None:
    driver, now = Capitals(), Loud("loud 2")
    driver.updated = now
    assert driver.build(KERNEL, Loud()) == ["A", "B"]
    assert driver.runs == ["loud 2"]
    assert set(driver.loaded) == {driver.key(KERNEL, Loud()), driver.key(KERNEL, now)}
    assert driver.compiled == {driver.key(KERNEL, now)}


def test_another_compiler_is_tried_where_the_first_is_at_fault() -> None:
    driver = Capitals()
    driver.other = Loud("shout 1", refuses="silence")
    kernel = KERNEL._replace(source="whisper")
    assert driver.build(kernel, Loud()) == ["WHISPER"]
    assert driver.runs == ["loud 1", "shout 1"]


@pytest.mark.parametrize("failure", ["the compiler", "the disk"])
def test_an_error_has_the_source_the_words_and_the_advice(failure: str, monkeypatch: pytest.MonkeyPatch) -> None:
    driver, kernel = Capitals(), KERNEL._replace(source="line\nwhisper" if failure == "the compiler" else "a")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    if failure == "the disk":
        monkeypatch.setattr(driver, "store", full)
    with pytest.raises(KernelCompileError) as caught:
        driver.build(kernel, Loud())
    error = caught.value
    words = {"the compiler": "whisper: cannot hear you", "the disk": "No space left"}[failure]
    assert words in error.compiler_output
    assert error.expression == "a + b" and error.source_path is not None
    assert Path(error.source_path).read_text() == f"/* a + b\n * loud --all\n */\n{kernel.source}"
    assert Path(error.source_path).name == f"name_{driver.key(kernel, Loud())}.txt"
    assert all(part in str(error) for part in ("loud --all (loud 1)", "speak up", error.source_path))
    assert (driver.loaded, driver.compiled) == ({}, set())


def test_sources_are_kept_on_request_of_kernels_found_and_compiled(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Capitals().build(KERNEL, Loud())
    assert list(cache.rglob("*.txt")) == []
    monkeypatch.setenv("NEONLIKE_KEEP_SOURCE", "1")
    Capitals().build(KERNEL, Loud())
    Capitals().build(KERNEL._replace(source="c"), Loud())
    assert sorted(path.read_text().splitlines()[-1] for path in cache.rglob("*.txt")) == ["a b", "c"]


def test_files_are_compiled_in_a_directory_that_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    files = {"a.txt": "one", "part/b.txt": "two"}
    join = ("sh", "-c", "cat a.txt part/b.txt > both; echo done")
    assert compile_files(join, files, "both") == b"onetwo"
    for command, words in ((("sh", "-c", "echo no >&2; exit 3"), "no"), (("true",), "exit status 0 without a word")):
        with pytest.raises(CompilerRefused, match=words):
            compile_files(command, files, "both")
    assert list(tmp_path.iterdir()) == []
    assert run_command((str(tmp_path / "missing"),))[0] == 127
    assert run_command(("sh", "-c", "echo $A"), environment={"A": "b"}) == (0, "b\n")


@pytest.mark.skipif(os.name != "posix", reason="the compiler is a shell script")
def test_a_compiler_that_hangs_is_ended_with_what_it_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As gcc and ccache start others; a pipe ends when all who have it open are gone."""
    monkeypatch.setattr(process, "TIMEOUT_S", 1.0)
    os.mkfifo(tmp_path / "alive")
    with open(os.open(tmp_path / "alive", os.O_RDONLY | os.O_NONBLOCK), "rb", buffering=0) as alive:
        failed, words = run_command(("sh", "-c", "(echo begun; exec sleep 60) > alive & wait"), tmp_path)
        assert failed and "timed out" in words
        os.set_blocking(alive.fileno(), True)
        assert alive.read(100) == b"begun\n"
        assert select.select([alive], [], [], 30)[0], "it goes on"
        assert alive.read(100) == b""
