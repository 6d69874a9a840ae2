"""``python -m neonlike``: a script's kernels are compiled ahead of its runs, and the cache can be looked after."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from neonlike.kernels.c.toolchain import SUFFIX, find_compiler
from tests import ROOT
from tests.support.compiling import SOON, keeping

pytestmark = [
    pytest.mark.cpu_only("the C compiler and its cache"),
    pytest.mark.skipif(os.name != "posix", reason="the compilers of these tests are shell scripts"),
    pytest.mark.skipif(find_compiler() is None, reason="there is no C compiler on this machine"),
]

MLP = """
    import numpy as np
    from neonlike.backends import gen_backend
    from neonlike.callbacks import Callbacks
    from neonlike.data import ArrayIterator
    from neonlike.initializers import Constant, GlorotUniform
    from neonlike.layers import Affine, Dropout, GeneralizedCost
    from neonlike.models import Model
    from neonlike.optimizers import Adam
    from neonlike.transforms import CrossEntropyMulti, Misclassification, Rectlin, Softmax

    gen_backend("cpu", rng_seed=0, batch_size=16)
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((60, 5)), rng.integers(0, 3, 60)
    train = ArrayIterator(x, y, nclass=3)
    init = GlorotUniform()
    hidden = Affine(nout=7, init=init, bias=Constant(0), activation=Rectlin())
    model = Model([hidden, Dropout(keep=0.8), Affine(nout=3, init=init, activation=Softmax())])
    model.fit(
        train, cost=GeneralizedCost(costfunc=CrossEntropyMulti()), optimizer=Adam(), num_epochs=2,
        callbacks=Callbacks(model, eval_set=train, eval_freq=1, metric=Misclassification(), progress_bar=False),
    )
    print(model.eval(train, metric=Misclassification()).shape)
"""

LAYOUTS = """
    import numpy as np
    from neonlike.backends import gen_backend

    be = gen_backend("cpu", rng_seed=0)
    for shape in (5, 7), (300, 200):
        a, b = (be.array(np.random.default_rng(i).standard_normal(shape)) for i in range(2))
        for x, y in (a, b), (a[1:4, 2:5], b[1:4, 2:5]), (a.T, b.T), (a, b[0]), (a[:, :1], b[:1]), (a[:1], b[:1]):
            be.empty((x * y).shape)[:] = be.tanh(x) * y + 2
            e = be.exp(x - be.max(x, axis=0))
            be.empty(x.shape)[:] = e / be.sum(e, axis=0)
            (be.argmax(x, axis=1) + 1).astensor()
    be.assign_many([(a, a + b), (b, be.mean(a, axis=0) - b)])
    step = be.prepare(be.empty((5, 5)), be.dot(a[:5], a[:5].T) * be.rand() - 1)
    step(), step()
"""

SET_UP = """
    import numpy as np
    from neonlike.backends import gen_backend
    be = gen_backend("cpu", rng_seed=0)
    a, out = be.array(np.ones((4, 4))), be.empty((4, 4))
"""
ONE = f"{SET_UP}    out[:] = a + a * a\n"

FORKS = """
    import os, sys
    import numpy as np
    from neonlike.backends import gen_backend

    be = gen_backend("cpu", rng_seed=0)
    a, out = be.array(np.ones((4, 4))), be.empty((4, 4))
    if not (child := os.fork()):
        out[:] = be.tanh(a) - 3
        sys.exit(0)
    out[:] = a + a * a
    sys.exit(os.waitpid(child, 0)[1])
"""

LOOP = """
    try:
        step = be.prepare(out, a + a * a)
        while True:
            {}
    finally:
        print("cleaned up")
"""


PRIMITIVES = """
import numpy as np
from neonlike.backends import gen_backend
be = gen_backend("cpu", rng_seed=0)
for k in range(6):
    be.ones((2, 3))[:] = be.rand() + k * be.ones((2, 3)) * k
    out = be.empty((7, 5))
    out[:] = [be.exp, be.sqrt, be.tanh, be.sig, be.fabs, be.log][k](be.ones((7, 5)))
pool = be.pool_layer(np.float32, "max", 32, 3, 1, 8, 8, 1, 1, 2, 2)
be.fprop_pool(pool, be.ones(pool.dimI2), be.empty(pool.dimO2), be.empty(pool.dimO2, dtype=np.uint8))
conv = be.conv_layer(np.float32, 32, 3, 4, 1, 8, 8)
be.fprop_conv(conv, be.ones(conv.dimI2), be.ones(conv.dimF2), be.empty(conv.dimO2))
"""


class Place:
    """A folder with scripts, a cache of its own, and a compiler that writes down each of its calls."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.cache, self.log = folder, folder / "cache", folder / "calls"
        self.compiler = folder / "wrapped-cc"
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith("NEONLIKE_")}
        self.environment |= {"CC": str(self.compiler), "NEONLIKE_CACHE_DIR": str(self.cache)}
        self.environment |= {"PYTHONPATH": str(ROOT), "HOME": str(folder)}
        self.environment["NEONLIKE_FASTPATH"] = "0"  # to compile it takes longer than the kernels of most scripts here
        self.wrap()

    def wrap(self, before: str = "") -> None:
        """Make the compiler anew; ``before`` is shell text run first."""
        found = find_compiler()
        assert found is not None
        text = f'#!/bin/sh\necho "$*" >> {shlex.quote(str(self.log))}\n{before}\n'
        self.compiler.write_text(f'{text}{SOON}\n{keeping(found)}')
        self.compiler.chmod(0o755)

    def script(self, text: str, name: str = "script.py") -> str:
        """The path of a script with this text."""
        (self.folder / name).write_text(textwrap.dedent(text))
        return str(self.folder / name)

    def python(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run Python in the folder."""
        command = [sys.executable, *arguments]
        return subprocess.run(
            command, env=self.environment, cwd=self.folder, capture_output=True, text=True, timeout=120, check=False
        )

    def warm(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """``python -m neonlike warm``."""
        return self.python("-m", "neonlike", "warm", *arguments)

    def calls(self) -> list[str]:
        """Calls of the compiler since the last look."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        self.log.unlink(missing_ok=True)
        return lines

    def kernels(self) -> set[str]:
        """The libraries in the cache."""
        return {path.name for path in self.cache.glob(f"??/*{SUFFIX}")}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


# --- what it is for


@pytest.mark.compiles(3, "mlp", "layouts", "primitives")
@pytest.mark.parametrize("name", ["mlp", "digits", "layouts", "primitives"])
def test_a_run_after_it_compiles_nothing(place: Place, name: str) -> None:
    if name == "digits":
        arguments = [str(ROOT / "examples" / "digits_mlp.py"), "--epochs", "1", "--no_progress_bar"]
    else:
        arguments = [place.script({"mlp": MLP, "layouts": LAYOUTS, "primitives": PRIMITIVES}[name])]
    if name == "mlp":
        del place.environment["NEONLIKE_FASTPATH"]  # it is compiled ahead too
    warmed = place.warm("--idle", "0", *arguments)
    assert warmed.returncode == 0, warmed.stderr
    compiled = place.kernels()
    assert f"{len(compiled)} kernels in " in warmed.stderr and f": {len(compiled)} compiled\n" in warmed.stderr
    assert sum(" nl_" in call for call in place.calls()) == len(compiled) > 5
    run = place.python(*arguments)
    assert run.returncode == 0, run.stderr
    assert place.calls() == [] and place.kernels() == compiled
    again = place.warm("--idle", "0", *arguments)
    assert f"{len(compiled)} in the cache already" in again.stderr and " compiled" not in again.stderr
    next(place.cache.glob(f"??/*{SUFFIX}")).unlink()
    assert place.python(*arguments).returncode == 0
    assert sum(" nl_" in call for call in place.calls()) == 1, "the run uses each of the kernels"


def test_the_script_runs_as_it_would_alone(place: Place) -> None:
    text = "import os, sys; print(sys.argv, __name__, os.path.basename(__file__), sys.path[0])"
    (place.folder / "inner").mkdir()
    arguments = [place.script(text, "inner/tool.py"), "--idle", "3", "-m", "--", "x y"]
    warmed = place.warm(*arguments)
    assert warmed.stdout == place.python(*arguments).stdout != ""
    assert warmed.returncode == 0 and "0 kernels" in warmed.stderr and "no expression was run" in warmed.stderr


def test_a_module(place: Place) -> None:
    place.script("import sys\nfrom collections import abc\nprint(sys.argv[1:], __name__, __spec__.name)", "tool.py")
    assert place.warm("-m", "tool", "-m", "1").stdout == "['-m', '1'] __main__ tool\n"


def test_a_script_that_forks(place: Place) -> None:
    script = place.script(FORKS)
    warmed = place.warm(script)
    assert warmed.returncode == 0 and warmed.stderr.count("1 kernel in ") == 1, warmed.stderr
    assert len(place.kernels()) == 2
    place.calls()
    assert place.python(script).returncode == 0 and place.calls() == []


# --- ends that are not the script's end


def test_errors_of_the_script_are_shown(place: Place) -> None:
    warmed = place.warm(place.script(ONE + "    be.empty((2, 2))[:] = {}['missing key']\n"))
    assert warmed.returncode == 1
    assert warmed.stderr.splitlines()[-1] == "KeyError: 'missing key'"
    assert 'script.py", line 7' in warmed.stderr and "{}['missing key']" in warmed.stderr
    assert "1 kernel in " in warmed.stderr and len(place.kernels()) == 1, "what was met before is kept"


@pytest.mark.parametrize(("code", "status", "failed"), [("", 0, False), ("0", 0, False), ("3", 3, True)])
def test_the_exit_status_of_the_script(place: Place, code: str, status: int, failed: bool) -> None:
    warmed = place.warm(place.script(ONE + f"    raise SystemExit({code})\n"))
    assert warmed.returncode == status and ("the script failed" in warmed.stderr) is failed
    assert "1 kernel in " in warmed.stderr


@pytest.mark.parametrize(("option", "loop"), [("--idle", "step()"), ("--seconds", "out[:] = a + a * a")])
def test_a_script_that_goes_on_is_stopped(place: Place, option: str, loop: str) -> None:
    warmed = place.warm(option, "0.3", place.script(SET_UP + LOOP.format(loop)))
    assert warmed.returncode == 0 and warmed.stdout == "cleaned up\n"
    assert "stopped the script: " in warmed.stderr and "1 kernel in " in warmed.stderr


def test_an_interrupt(place: Place) -> None:
    script = place.script(textwrap.dedent(ONE) + "print('begun', flush=True)\nwhile True:\n    out[:] = a * 2")
    command = [sys.executable, "-m", "neonlike", "warm", "--idle", "0", script]
    with subprocess.Popen(
        command, env=place.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "begun\n"
        process.send_signal(signal.SIGINT)
        words = process.communicate(timeout=60)[1]
    assert process.returncode == -signal.SIGINT and words.splitlines()[-1] == "KeyboardInterrupt"
    assert "neonlike warm: interrupted\n" in words


# --- what can be wrong


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"NEONLIKE_CPU_JIT": "0"}, "NEONLIKE_CPU_JIT=0 forbids"),
        ({"CC": "/nowhere/cc"}, "CC=/nowhere/cc does not work"),
        ({"CC": "", "PATH": "/nowhere"}, "Install gcc or clang"),
    ],
)
def test_without_a_compiler_it_says_so(place: Place, variables: dict[str, str], words: str) -> None:
    place.environment |= variables
    place.script("raise SystemExit('no zig')", "ziglang.py")  # hides an installed one
    place.environment["PYTHONPATH"] = f"{place.folder}{os.pathsep}{ROOT}"
    warmed = place.warm(place.script("print('ran')"))
    assert warmed.returncode == 1 and warmed.stdout == ""
    assert words in warmed.stderr and warmed.stderr.splitlines()[-1].startswith("neonlike warm: ")
    assert "Traceback" not in warmed.stderr


def test_a_cache_that_nothing_is_kept_in(place: Place) -> None:
    place.cache.mkdir()
    place.cache.chmod(0o777)
    for arguments in ["warm", place.script("print('ran')")], ["cache"], ["cache", "--clear"]:
        done = place.python("-m", "neonlike", *arguments)
        assert done.returncode == 1 and done.stdout == ""
        assert "everybody can write to it" in done.stderr and "NEONLIKE_CACHE_DIR" in done.stderr
    assert list(place.cache.iterdir()) == []


def test_a_kernel_that_does_not_compile(place: Place) -> None:
    place.wrap('case "$*" in *nl_*) echo "out of registers" >&2; exit 1;; esac')
    warmed = place.warm(place.script(ONE))
    assert warmed.returncode == 1
    assert "1 kernel in" in warmed.stderr and "1 not compiled" in warmed.stderr and "out of registers" in warmed.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "COMMAND"),
        (["warn"], "invalid choice"),
        (["warm"], "SCRIPT"),
        (["warm", "missing.py"], "there is no script missing.py"),
        (["warm", "-m", "no.such.module"], "there is no module no.such.module"),
        (["warm", "--idle", "soon", "x.py"], "invalid seconds value"),
        (["warm", "--seconds", "-1", "x.py"], "invalid seconds value"),
    ],
)
def test_a_wrong_command_line(place: Place, arguments: list[str], words: str) -> None:
    done = place.python("-m", "neonlike", *arguments)
    assert done.returncode == 2 and words in done.stderr and "Traceback" not in done.stderr


# --- the cache


def test_the_cache_is_shown_and_cleared(place: Place) -> None:
    def cache(*arguments: str) -> str:
        done = place.python("-m", "neonlike", "cache", *arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert cache() == f"{place.cache}\nnothing there yet\n" and not place.cache.exists()
    assert place.python(place.script(ONE)).returncode == 0
    assert cache().splitlines()[0] == str(place.cache)
    assert cache().splitlines()[1].startswith("1 kernel, 0.") and "of 512 MB" in cache()
    (place.cache / "notes.txt").write_text("mine")
    # a kernel, the worker threads that it uses, and what is known of the compiler
    assert cache("--clear") == f"{place.cache}\n3 files removed\n"
    assert "0 kernels, 0.0 of" in cache()
    assert (place.cache / "notes.txt").read_text() == "mine" and not place.kernels()
