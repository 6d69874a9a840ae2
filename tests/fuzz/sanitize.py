"""The C engine's kernels under AddressSanitizer and UndefinedBehaviorSanitizer, and proof that these see something.

The flags come with ``CC``, which is part of a kernel's key in the cache. The runtime of AddressSanitizer has to be in
the process before anything else: processes that run kernels start with it in ``LD_PRELOAD``, and take it out for the
compilers they start.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from neonlike import settings
from neonlike.kernels.c import compile as compile_c
from neonlike.kernels.run import memory
from tests.fuzz.check import Bench
from tests.fuzz.primitives import three_maps
from tests.fuzz.programs import Leaf, Op, Program, Ref, Target

FLAGS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer", "-g1")
MAIN = Path(__file__).with_name("__main__.py")

FAULTS: dict[str, tuple[str, str]] = {
    "overrun": ("i < last", "i <= last"),
    "underrun": ("int64_t i = first; i < last", "int64_t i = first - 1; i < last"),
    "undefined": ("* 3", "* (3 << (int)n)"),
    "value": ("i < last", "i < last - 1"),
    "map": ("&& k < m[MAPS];", "&& k <= m[MAPS];"),
}
"""Name -> what in the text of an elementwise kernel is replaced by what; "undefined" works on ARITHMETIC, and "map" on
the kernel of convolutions, which stores one map too many."""

ARITHMETIC = "#include <stdint.h>\nint32_t shifted(int32_t a, int64_t n) { return a * 3; }\n"
CAUGHT = {
    "overrun": "heap-buffer-overflow",
    "underrun": "heap-buffer-overflow",
    "undefined": "runtime error: shift exponent",
    "map": "heap-buffer-overflow",
}
"""What the sanitizers say of each fault."""


def environment(sanitized: bool) -> dict[str, str]:
    """Variables for a process that runs kernels.

    Raises
    ------
    SystemExit
        If the compiler has no sanitizers.
    """
    if not sanitized:
        return dict(os.environ)
    compiler = shlex.split(os.environ.get("CC", "gcc"))
    asked = subprocess.run([*compiler, "-print-file-name=libasan.so"], capture_output=True, text=True)
    runtime = asked.stdout.strip()
    if asked.returncode or not os.path.isabs(runtime):
        raise SystemExit(f"{shlex.join(compiler)} has no libasan.so; name a gcc that has sanitizers with CC")
    return {
        **os.environ,
        "CC": shlex.join((*compiler, *FLAGS)),
        "LD_PRELOAD": os.path.realpath(runtime),
        # Frames that ASan keeps elsewhere than on the stack misplace vectors of 64 bytes, which fault (gcc 12).
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=0:detect_stack_use_after_return=0",
        "UBSAN_OPTIONS": "print_stacktrace=1",
    }


def prepare() -> None:
    """To be called first in each process: where CC sanitizes, kernels are soon compiled, and steps too far are seen."""
    if "-fsanitize" in os.environ.get("CC", ""):
        # The checks stand in the code before it is optimized. With -O3 gcc copies them with the loops around them: a
        # kernel of convolutions takes 11 s of a processor's time to compile, with -O1 2 s.
        settings.OPTIMIZE.put("1")
        memory.ALIGNED_FROM = sys.maxsize  # memory ends where a tensor does


def run_fault(name: str) -> None:
    """Compile and run something wrong, in a cache of its own. To be called in a process of its own."""
    old, new = FAULTS[name]
    with tempfile.TemporaryDirectory(prefix="neonlike-fault-") as folder:
        os.environ["NEONLIKE_CACHE_DIR"] = folder
        if name == "undefined":
            compile_c.build(ARITHMETIC.replace(old, new), "shifted").shifted(1, 40)
            return
        commented, changed = compile_c.DRIVER.text, []

        def wrong(*arguments: object) -> str:
            text: str = commented(*arguments)  # type: ignore[arg-type]
            changed.append(old in text)
            return text.replace(old, new)

        compile_c.DRIVER.text = wrong  # type: ignore[method-assign]
        leaf = Leaf((0, 1), "f4", "plain", "real", 1)
        try:
            if name == "map":
                three_maps()
            else:
                Bench().check(Program((1, 5), (leaf, Op("mul", (Ref(0), 2))), (Target(1),)))
        finally:
            assert any(changed), f"no kernel holds {old!r} any more: write another fault into tests/fuzz/sanitize.py"


def prove(environment: dict[str, str]) -> None:
    """Prove that the sanitizers find planted faults.

    Raises
    ------
    SystemExit
        If a fault stays unseen.
    """
    for name, words in CAUGHT.items():
        command = [sys.executable, str(MAIN), "--fault", name]
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        if done.returncode == 0 or words not in done.stderr:
            raise SystemExit(f"The sanitizers miss a deliberate fault ({name}):\n{done.stdout}{done.stderr}")
    print(f"The sanitizers catch deliberate faults: {', '.join(CAUGHT)}", flush=True)
