"""The extension that starts assignments: made in the background, found in the cache, done without where it fails."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from neonlike.kernels.c import fastpath
from neonlike.kernels.c.toolchain import find_compiler
from tests.support.compiling import Wrapper, compiler, fresh, python, wrapper  # noqa: F401

pytestmark = [
    pytest.mark.cpu_only("replayed assignments of the CPU"),
    pytest.mark.skipif(os.name != "posix", reason="the compilers of these tests are shell scripts"),
    pytest.mark.skipif(find_compiler() is None, reason="there is no C compiler on this machine"),
    pytest.mark.skipif(bool(fastpath.obstacle()), reason=fastpath.obstacle()),
]

START = """
import os, sys, time
from pathlib import Path
from neonlike.backends import gen_backend
from neonlike.kernels.c import fastpath
be = gen_backend("cpu", rng_seed=0)
a, out = be.ones((3, 4)), be.empty((3, 4))
def run(count):
    for k in range(count):
        out[:] = a * 2 + k
        assert out.get().tolist() == [[2 + k] * 4] * 3
"""
RUN = f"{START}\nrun(10)\nif fastpath._state.thread: fastpath._state.thread.join()\nrun(10)\n"
HITS = "print(be.executor.replay.table.hits if be.executor.replay.table else None)"


def extensions(cache: Path) -> list[Path]:
    return list(cache.glob(f"*/*{fastpath.SUFFIX}"))


def test_the_extension_is_compiled_with_all_its_files() -> None:
    folder = Path(fastpath.__file__).parent.parent / "templates" / "c"
    assert {path.name for path in (folder / "fastpath").iterdir()} == {
        Path(name).name for name in (fastpath.SOURCE, *fastpath.HEADERS) if "/" in name
    }
    assert fastpath.build()


def test_python_does_it_until_the_extension_is_compiled(wrapper: Wrapper, fresh: Path, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    wrapper.write(f'case "$*" in *fastpath.c*) while [ ! -e {gate} ]; do sleep 0.02; done;; esac')
    code = f"""{START}
run(20)
thread = fastpath._state.thread
assert thread.is_alive() and be.executor.replay.table is None
Path({str(gate)!r}).touch()
thread.join()
run(20)
{HITS}
"""
    done = python(code, CC=str(wrapper.path))
    assert (done.returncode, done.stdout, done.stderr) == (0, "19\n", "")
    assert sum("fastpath.c" in call for call in wrapper.calls()) == 1
    assert len(extensions(fresh)) == 1


def test_it_is_found_in_the_cache_by_the_next_process(wrapper: Wrapper, fresh: Path) -> None:
    assert python(RUN, CC=str(wrapper.path)).returncode == 0
    wrapper.calls()
    done = python(f"{START}run(10)\nassert fastpath._state.thread is None\n{HITS}", CC=str(wrapper.path))
    assert (done.returncode, done.stdout, done.stderr) == (0, "7\n", "")
    assert wrapper.calls() == []


def test_one_assignment_does_not_ask_for_it(wrapper: Wrapper, fresh: Path) -> None:
    code = START.replace("be.ones((3, 4))", "be.empty((3, 4))") + "out[:] = a + 1\nassert not fastpath._state.asked"
    done = python(code, CC=str(wrapper.path))
    assert (done.returncode, done.stderr) == (0, "")
    assert extensions(fresh) == []


def test_the_second_call_of_a_primitive_asks_for_it(fresh: Path) -> None:
    """Also where nothing is assigned, and pooling as well as products."""
    code = """
from neonlike.backends import gen_backend
from neonlike.kernels.c import fastpath
be = gen_backend("cpu", rng_seed=0)
layer = be.pool_layer("float32", "avg", 2, 3, 1, 4, 4, R=2, S=2)
a, b, out = be.wrap(__import__("numpy").ones((48, 2), "float32")), be.empty((12, 2)), be.empty((48, 48))
for call in (lambda: be.compound_dot(a, a.T, out), lambda: be.fprop_pool(layer, a, b)):
    fastpath._state.asked, be.executor.replay.to_ask, be.executor.replay._was_called = False, True, False
    call()
    before = fastpath._state.asked
    call()
    print(before, fastpath._state.asked or fastpath._state.module is not None)
"""
    done = python(code)
    assert (done.returncode, done.stdout, done.stderr) == (0, "False True\n" * 2, "")


@pytest.mark.parametrize("damage", [b"", b"not a library", None])
def test_a_damaged_entry_is_compiled_again(wrapper: Wrapper, fresh: Path, damage: bytes | None) -> None:
    assert python(RUN, CC=str(wrapper.path)).returncode == 0
    (entry,) = extensions(fresh)
    entry.write_bytes(entry.read_bytes()[:5000] if damage is None else damage)
    done = python(RUN + HITS, CC=str(wrapper.path))
    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout) >= 9


def test_a_failure_goes_unnoticed(wrapper: Wrapper, fresh: Path) -> None:
    wrapper.write('case "$*" in *fastpath.c*) echo no >&2; exit 1;; esac')
    done = python(RUN + HITS, CC=str(wrapper.path))
    assert (done.returncode, done.stdout, done.stderr) == (0, "None\n", "")
    assert sum("fastpath.c" in call for call in wrapper.calls()) == 1, "it is tried once a process"


def test_a_library_that_does_not_load_goes_unnoticed(wrapper: Wrapper, fresh: Path) -> None:
    other = "case \"$*\" in *fastpath.c*) printf 'int other;' > fastpath.c;; esac"
    wrapper.write(other)
    done = python(RUN + HITS, CC=str(wrapper.path))
    assert (done.returncode, done.stdout, done.stderr) == (0, "None\n", "")


@pytest.mark.parametrize(
    "setting",
    [
        "os.environ['NEONLIKE_FASTPATH'] = '0'",
        "fastpath._include = lambda: Path('/nowhere')",
        "fastpath.sysconfig.get_config_var = lambda name: 1",
        "sys.implementation.name = 'other'",
    ],
)
def test_where_there_is_no_use_for_it_nothing_is_compiled(wrapper: Wrapper, fresh: Path, setting: str) -> None:
    done = python(f"{START}{setting}\nrun(10)\nassert fastpath._state.thread is None\n{HITS}", CC=str(wrapper.path))
    assert (done.returncode, done.stdout, done.stderr) == (0, "None\n", "")
    assert extensions(fresh) == []


def test_every_build_of_python_has_its_own(compiler: object, monkeypatch: pytest.MonkeyPatch) -> None:
    found = find_compiler()
    assert found is not None
    keys = {fastpath._key(found)}
    monkeypatch.setattr(fastpath.sys, "version", "4.0")
    keys.add(fastpath._key(found))
    monkeypatch.setattr(fastpath, "HEADERS", fastpath.HEADERS[:1])
    keys.add(fastpath._key(found))
    assert len(keys) == 3


def test_warming_the_cache_compiles_it(wrapper: Wrapper, fresh: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(START + "run(3)\n")
    done = subprocess.run(
        [sys.executable, "-m", "neonlike", "warm", str(script)],
        env={**os.environ, "CC": str(wrapper.path)}, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert len(extensions(fresh)) == 1
    wrapper.calls()
    assert python(RUN, CC=str(wrapper.path)).returncode == 0
    assert wrapper.calls() == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_child_forked_while_it_compiles_asks_anew(wrapper: Wrapper, fresh: Path, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    wrapper.write(f'case "$*" in *fastpath.c*) while [ ! -e {gate} ]; do sleep 0.02; done;; esac')
    code = f"""{START}
import signal, warnings
warnings.simplefilter("ignore", DeprecationWarning)
run(5)
assert fastpath._state.thread.is_alive()
child = os.fork()
if child == 0:
    signal.alarm(60)
    run(5)
    mine = gen_backend("cpu", rng_seed=0)
    b = mine.ones((2, 2))
    Path({str(gate)!r}).touch()
    for k in range(3):
        b[:] = k
    fastpath._state.thread.join()
    for k in range(3):
        b[:] = k
    os._exit(7 if mine.executor.replay.table.hits == 2 and b.get().tolist() == [[2, 2], [2, 2]] else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
fastpath._state.thread.join()
run(5)
{HITS}
"""
    done = python(code, CC=str(wrapper.path))
    assert (done.returncode, done.stdout, done.stderr) == (0, "4\n", "")
