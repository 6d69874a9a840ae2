"""Traffic between the host and a GPU while a call runs: copies, and waits for queued work."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import neonlike

LIBRARY = str(Path(neonlike.__file__).parent)


@dataclass
class Traffic:
    """Copies and waits during a call; each entry is the library's lines that asked for it, the last call first.

    Attributes
    ----------
    down : list of str
        Copies to the host, which wait for all that was queued before.
    up : list of str
        Copies from the host.
    waits : list of str
        Calls of ``synchronize``.
    """

    down: list[str] = field(default_factory=list)
    up: list[str] = field(default_factory=list)
    waits: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.down) + len(self.up) + len(self.waits)

    def __str__(self) -> str:
        listed = {"to the host": self.down, "to the device": self.up, "wait": self.waits}
        return "\n".join(f"{what}: {line}" for what, lines in listed.items() for line in lines) or "nothing"


@contextmanager
def traffic(be: Any) -> Iterator[Traffic]:
    """Count the copies and waits between the host and the GPU of ``be`` in this block."""
    seen = Traffic()
    with ExitStack() as patches:
        for name, into in (("to_host", seen.down), ("from_host", seen.up), ("synchronize", seen.waits)):
            patches.enter_context(mock.patch.object(be.device, name, _noting(getattr(be.device, name), into)))
        yield seen


def _noting(function: Callable[..., Any], into: list[str]) -> Callable[..., Any]:
    def noted(*args: Any) -> Any:
        into.append(_asked_by())
        return function(*args)

    return noted


def _asked_by(most: int = 5) -> str:
    """The library's lines on the stack, the last call first."""
    frames = [frame for frame in traceback.extract_stack() if frame.filename.startswith(LIBRARY)]
    return " < ".join(f"{Path(f.filename).stem}.{f.name}:{f.lineno}" for f in frames[: -most - 1 : -1])
