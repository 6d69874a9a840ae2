"""Contenders in processes of their own: while one is measured, the others stand still.

In one process the idle threads of one library spin on the cores that another one needs. So a script starts itself once
for each contender, with ``--child NAME``, and asks it: make and check this case, time so many calls. Requests and
answers are lines of JSON, which can be typed by hand too:

    $ python benchmarks/conv.py --child neonlike
    ["check", "vgg_a conv7", 32, "fprop"]
    ["elapsed", 10]

Between its answers a process is stopped (SIGSTOP), with all its threads. What is measured, and how, is the harness's:
to it, a process is a contender as any other.
"""

from __future__ import annotations

import ctypes
import dataclasses
import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from _cases import Case, Contender, Result, nothing
from harness import check, timed

SHARED = ("name", "text", "size", "nbytes", "flops")
"""Attributes of a case that every process knows; the rest stays in the contender's."""

PATIENCE = 20
"""Seconds a process has to end when it is told to."""

ENVIRONMENT = dict(os.environ)
"""As the user gave it: libraries add settings of their own to it when they are loaded, which are not for others."""


# In the process of a contender ----------------------------------------------------------------------------------


class Desk:
    """Answers requests in the process of a contender; a request is the name of a method and its arguments.

    Parameters
    ----------
    make : callable
        Makes a case with this contender, from a key of plain values.
    facts : dict, optional
        Added to the description of the machine.
    """

    def __init__(self, make: Callable[..., Case], facts: dict[str, str] | None = None) -> None:
        self._make, self._facts = make, facts or {}
        self._able: Contender | None = None

    def facts(self) -> dict[str, str]:
        """Facts about the contender, such as the engine in use."""
        return self._facts

    def clear(self) -> None:
        """Free the last case and its memory."""
        self._able = None

    def check(self, *key: Any) -> dict[str, Any]:
        """Make the case, run it once and compare: what it is, what was found, and whether it can be measured."""
        case = self._make(*key)
        able, results = check(case)
        if able:  # what only the check needed is freed
            self._able = dataclasses.replace(able[0], result=list, reset=nothing, reference=None)
        return {
            "case": {name: getattr(case, name) for name in SHARED},
            "results": [dataclasses.asdict(result) for result in results],
            "verb": "" if not able else "sample" if able[0].sample else "elapsed",
        }

    def elapsed(self, loops: int) -> float:
        """Seconds that ``loops`` calls take."""
        assert self._able is not None, "the case is checked before it is measured"
        return timed(self._able, loops)

    def sample(self) -> float:
        """Seconds of a call, measured in the contender's own way."""
        assert self._able is not None and self._able.sample is not None
        return self._able.sample()


def serve(desk: Any) -> int:
    """Answer what comes on stdin until it ends; whatever libraries print goes to stderr."""
    _end_with_parent()
    with os.fdopen(os.dup(1), "w") as out:
        os.dup2(2, 1)
        for line in sys.stdin:
            verb, *given = json.loads(line)
            try:
                answer = {"answer": getattr(desk, verb)(*given)}
            except Exception:
                answer = {"failed": traceback.format_exc()}
            print(json.dumps(answer), file=out, flush=True)
    return 0


def keep_busy() -> None:
    """Tell the parent that it has started, then compute in an endless loop."""
    _end_with_parent()
    print("busy", flush=True)
    while True:
        pass


def _end_with_parent() -> None:
    """A process that stands still does not see that its pipe was closed; nor is Ctrl-C meant for it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


# In the script that measures ------------------------------------------------------------------------------------


class Link(Protocol):
    """How a script reaches a desk."""

    def ask(self, verb: str, *given: Any) -> Any:
        """Send a request; the answer."""

    def close(self) -> None:
        """Release the case, and end the process if there is one."""


class Running:
    """A process that is stopped (SIGSTOP) except while it is measured."""

    def __init__(self, command: Sequence[str], more: Mapping[str, str] | None = None, **pipes: Any) -> None:
        env = ENVIRONMENT | dict(more or {})
        self.process = subprocess.Popen([sys.executable, *command], env=env, text=True, **pipes)

    def rest(self) -> None:
        """Stop all its threads, where the system can."""
        if hasattr(signal, "SIGSTOP"):
            self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Undo :meth:`rest`."""
        if hasattr(signal, "SIGCONT"):
            self.process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        """End it, and have its time counted to ours."""
        self.process.kill()
        self.process.wait()


class Busy(Running):
    """A process that keeps a core busy while it is not stopped."""

    def __init__(self) -> None:
        folder = Path(__file__).resolve().parent
        super().__init__(["-c", "import _apart; _apart.keep_busy()"], stdout=subprocess.PIPE, cwd=folder)
        assert self.process.stdout is not None
        self.process.stdout.readline()
        self.rest()

    def close(self) -> None:
        """End the process."""
        super().close()
        assert self.process.stdout is not None
        self.process.stdout.close()


class Child(Running):
    """The process of one contender: ``script`` with ``argv`` and ``--child name``, and ``more`` in its environment."""

    def __init__(
        self, name: str, script: str | Path, argv: Sequence[str], more: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        command = [str(script), *argv, "--child", name]
        super().__init__(command, more, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, verb: str, *given: Any) -> Any:
        """The answer to a request.

        Raises
        ------
        RuntimeError
            The process ended, or could not answer; the text is what it said.
        """
        assert self.process.stdin is not None and self.process.stdout is not None
        self.go_on()
        try:
            print(json.dumps([verb, *given]), file=self.process.stdin, flush=True)
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise RuntimeError(f"the process of {self.name} ended with status {self.process.wait()} at {verb} {given}")
        self.rest()
        answer = json.loads(line)
        if "failed" in answer:
            raise RuntimeError(f"{self.name} could not {verb} {given}:\n{answer['failed']}")
        return answer["answer"]

    def close(self) -> None:
        """Ask the process to exit, so that it can end the processes it started."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.go_on()
        try:
            self.process.stdin.close()
            self.process.wait(PATIENCE)
        except (OSError, subprocess.TimeoutExpired):
            super().close()
        self.process.stdout.close()


class Apart:
    """The contenders of a script, each behind a link of its own.

    Parameters
    ----------
    names : sequence of str
    link : callable
        Makes the link to a contender.

    Attributes
    ----------
    facts : dict
        What the contenders add to the description of the machine.
    """

    def __init__(self, names: Sequence[str], link: Callable[[str], Link]) -> None:
        self._links: dict[str, Link] = {}
        self.facts: dict[str, str] = {}
        try:
            for name in names:
                self._links[name] = link(name)
                self.facts |= self._links[name].ask("facts")
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Apart:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def close(self) -> None:
        """End the processes of all contenders."""
        for link in self._links.values():
            link.close()

    def ask(self, name: str, verb: str, *given: Any) -> Any:
        """The answer of one contender."""
        return self._links[name].ask(verb, *given)

    def case(self, *key: Any) -> Case:
        """The case of ``key``, checked, its contenders being processes."""
        for link in self._links.values():
            link.ask("clear")
        made: dict[str, Any] = {}
        checked: list[Result] = []
        able = []
        for name, link in self._links.items():
            said = link.ask("check", *key)
            made = said["case"]
            checked += [Result(**found) for found in said["results"]]
            if verb := said["verb"]:
                able.append(Contender(name, partial(link.ask, "elapsed", 1), list, **{verb: partial(link.ask, verb)}))
        return Case(contenders=able, reference=list, checked=checked, **made)
