"""Cuts a failing program down to the least that still fails, each candidate in a process of its own."""

from __future__ import annotations

import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.fuzz.growth import pruned
from tests.fuzz.programs import Leaf, Op, Program, Ref

TIMEOUT_S = 120.0
MAX_TRIES = 150
MAIN = Path(__file__).with_name("__main__.py")


def verdict(program: Program, environment: dict[str, str]) -> str | None:
    """Failure of ``program`` in a new process with ``environment``; None if it runs."""
    with tempfile.TemporaryDirectory(prefix="neonlike-fuzz-") as folder:
        file = Path(folder) / "program.pickle"
        file.write_bytes(pickle.dumps(program))
        command = [sys.executable, str(MAIN), "--replay", str(file)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return f"no end after {TIMEOUT_S:g} s"
    if done.returncode == 0:
        return None
    return "\n".join((done.stdout + done.stderr).strip().splitlines()[-40:])


def minimised(program: Program, fails: Callable[[Program], Any]) -> Program:
    """The smallest failing program that single cuts lead to, in at most MAX_TRIES of them."""
    tries, shrinking = 0, True
    while shrinking:
        shrinking = False
        for smaller in cuts(program):
            tries += 1
            if tries > MAX_TRIES:
                return program
            if fails(smaller):
                program, shrinking = smaller, True
                break
    return program


def cuts(program: Program) -> Iterator[Program]:
    """Programs with one thing less, largest cuts first."""
    if len(program.targets) > 1:
        for target in program.targets:
            yield pruned(replace(program, targets=(target,)))
        for index in range(len(program.targets)):
            yield pruned(replace(program, targets=program.targets[:index] + program.targets[index + 1 :]))
    if program.threads > 1:
        yield replace(program, threads=1)
    if program.way != "assign_many":
        yield replace(program, way="assign_many")
    for index, target in enumerate(program.targets):
        term = program.terms[target.term]
        refs = [o for o in getattr(term, "operands", ()) if isinstance(o, Ref)]
        for ref in refs:
            yield pruned(_with_target(program, index, replace(target, term=ref.term)))
        if target.leaf >= 0:
            yield pruned(_with_target(program, index, replace(target, leaf=-1)))
        elif target.layout != "plain" or target.lead:
            yield _with_target(program, index, replace(target, layout="plain", lead=False))
    yield from _without_ops(program)
    yield from _simpler(program)


def _with_target(program: Program, index: int, target: Any) -> Program:
    return replace(program, targets=(*program.targets[:index], target, *program.targets[index + 1 :]))


def _with_term(program: Program, index: int, term: Any) -> Program:
    return replace(program, terms=(*program.terms[:index], term, *program.terms[index + 1 :]))


def _without_ops(program: Program) -> Iterator[Program]:
    """Every user of an op's result takes one of its operands instead."""
    for index in range(len(program.terms) - 1, -1, -1):
        term = program.terms[index]
        for ref in {o for o in getattr(term, "operands", ()) if isinstance(o, Ref)}:
            terms = [_rewired(other, index, ref) for other in program.terms]
            targets = [replace(t, term=ref.term) if t.term == index else t for t in program.targets]
            yield pruned(replace(program, terms=tuple(terms), targets=tuple(targets)))


def _rewired(term: Any, old: int, new: Ref) -> Any:
    if not isinstance(term, Op):
        return term
    operands = tuple(new if isinstance(o, Ref) and o.term == old else o for o in term.operands)
    return replace(term, operands=operands)


def _simpler(program: Program) -> Iterator[Program]:
    """Plainer leaves, numbers instead of operands, a smaller space."""
    for index, term in enumerate(program.terms):
        if isinstance(term, Leaf):
            if term.layout != "plain":
                yield _with_term(program, index, replace(term, layout="plain"))
            if term.data not in ("whole", "real"):
                yield _with_term(program, index, replace(term, data="real"))
            if term.dtype != "f4":
                yield _with_term(program, index, replace(term, dtype="f4"))
    for axis, size in enumerate(program.space):
        for smaller in dict.fromkeys((1, size // 2, size - 1)):
            if 0 < smaller < size:
                yield replace(program, space=(*program.space[:axis], smaller, *program.space[axis + 1 :]))
