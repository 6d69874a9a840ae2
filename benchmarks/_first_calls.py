"""The process that ``coldstart.py`` starts: times the first calls of one expression or primitive, as JSON."""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import _machine  # finds neonlike in a checkout
from _first_primitives import PRIMITIVES

SIZE = 4096
"""Elements of an operand: few, since compiling and loading are measured, not running."""

PARTS = {
    "linearize": ["neonlike.backends.executor:linearize"],
    "plan": ["neonlike.kernels.planning.plan_cache:make_plan"],
    "emit": ["neonlike.kernels.c.stage:make_kernel", "neonlike.kernels.c.stage:CStage._source"],
    "render": ["neonlike.kernels.codegen.render:TemplateSource.__str__"],
    "find compiler": ["neonlike.kernels.c.compile:find_compiler", "neonlike.kernels.c.stage:compile_c.find_compiler"],
    "key": ["neonlike.kernels.c.compile:CDriver.key"],
    "read, digest": ["neonlike.kernels.build.cache:DiskCache.get"],
    "dlopen": ["neonlike.kernels.c.toolchain:ctypes.CDLL"],
    "launch": ["neonlike.kernels.c.stage:CStage.run"],
}
"""Part of a first call -> functions whose own time, without that of the others, is counted to it."""


class Parts:
    """Own time of the functions in ``PARTS``, measured by wrapping them."""

    def __init__(self) -> None:
        self.own: dict[str, float] = dict.fromkeys(PARTS, 0.0)
        self.missing: list[str] = []
        self._inner: list[float] = []
        for part, places in PARTS.items():
            for place in places:
                self._wrap(part, place)

    def _wrap(self, part: str, place: str) -> None:
        module, _, path = place.partition(":")
        *owners, name = path.split(".")
        try:
            owner: Any = importlib.import_module(module)
            for step in owners:
                owner = getattr(owner, step)
            function = getattr(owner, name)
        except (ImportError, AttributeError):
            self.missing.append(place)
            return
        setattr(owner, name, self.timed(part, function))

    def timed(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """``function``, with its own time added to ``part``."""

        def call(*args: Any, **named: Any) -> Any:
            self._inner.append(0.0)
            start = time.perf_counter()
            try:
                return function(*args, **named)
            finally:
                elapsed = time.perf_counter() - start
                self.own[part] += elapsed - self._inner.pop()
                if self._inner:
                    self._inner[-1] += elapsed

        return call


def timed(run: Callable[[], object]) -> float:
    """Seconds that ``run`` takes."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def neonlike(name: str, another_first: bool, with_parts: bool) -> dict[str, Any]:
    """First and second call of an expression or a compound primitive on the C engine."""
    import _contenders
    from _libraries import Neonlike

    start = time.perf_counter()  # NumPy is imported already
    from neonlike.backends import gen_backend

    found: dict[str, Any] = {"import": time.perf_counter() - start}
    from _expressions import EXPRESSIONS

    start = time.perf_counter()
    be = gen_backend("cpu", rng_seed=0)
    found["backend"] = time.perf_counter() - start
    if name in PRIMITIVES:
        run: Callable[[], object] = PRIMITIVES[name](be)
    else:
        expression = next(e for e in EXPRESSIONS if e.name == name)
        run = _contenders.neonlike_set(_contenders.Problem(expression, SIZE), Neonlike(be), prepared=False).run
    if another_first:
        out, x = be.zeros((3, 5)), be.ones((3, 5))
        found["another"] = timed(lambda: out.__setitem__(slice(None), -abs(x)))
    parts = Parts() if with_parts else None
    found["first"] = timed(run)
    if parts is not None:
        found["parts"] = parts.own | {"rest": found["first"] - sum(parts.own.values())}
        found["missing"] = parts.missing
    found["second"] = timed(run)
    return found


def torch(name: str, another_first: bool) -> dict[str, Any]:
    """The same with torch.compile."""
    start = time.perf_counter()
    import torch

    found: dict[str, Any] = {"import": time.perf_counter() - start}
    import _contenders
    from _expressions import EXPRESSIONS

    expression = next(e for e in EXPRESSIONS if e.name == name)
    problem = _contenders.Problem(expression, SIZE)
    run = _contenders.peer_made(problem, "torch.compile", _contenders.library_on_cpu("torch")).run
    if another_first:
        x = torch.ones(3, 5)
        found["another"] = timed(lambda: torch.compile(lambda x: -abs(x))(x))
    return found | {"first": timed(run), "second": timed(run)}


def main() -> None:
    """Measure what the command line names."""
    parser = argparse.ArgumentParser(description="First calls of one expression, as JSON.")
    parser.add_argument("library", choices=("neonlike", "torch"))
    parser.add_argument("expression")
    parser.add_argument("--another-first", action="store_true", help="compile another expression before")
    parser.add_argument("--parts", action="store_true", help="split the first call; this makes it a little slower")
    given = parser.parse_args()
    if given.library == "torch":
        found = torch(given.expression, given.another_first)
    else:
        found = neonlike(given.expression, given.another_first, given.parts)
    json.dump(found | {"cores": _machine.cores()}, sys.stdout)
    print()


if __name__ == "__main__":
    main()
