"""Losses for the tests of repeated backward passes, and results of a pass, repeated or played."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from neonlike import autograd as ag
from neonlike.autograd import passes
from neonlike.backends import Backend

Loss = Callable[..., Any]


def layers(x: Any, w: Any, v: Any, t: Any) -> Any:
    return -ag.sum(t * ag.log_softmax(ag.relu(x @ w) @ v, 1)) * (1 / 6)


def variables(be: Backend, seed: int, rows: int = 6) -> list[Any]:
    rng = np.random.default_rng(seed)
    x, w, v = (be.array(rng.standard_normal(shape)) for shape in ((rows, 5), (5, 7), (7, 3)))
    t = be.array(np.eye(3)[rng.integers(0, 3, rows)])
    return [ag.param(x), ag.param(w), ag.param(v), ag.const(t)]


def outcome(loss: Any, given: list[Any]) -> list[bytes]:
    """The bytes of the value, after a pass, and of derivatives."""
    found = [loss.get(), *(one.partial_derivative.get() for one in given if one.needs_grad)]
    return [array.tobytes() for array in found]


def played(be: Backend, build: Loss, given: list[Any], monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Outcome, as :func:`outcome`, of a pass that plays the tape; accumulated derivatives are cleared."""
    with monkeypatch.context() as patch:
        patch.setattr(passes, "_tape_of", lambda be, root, how: None)
        loss = build(*given)
        loss.backprop()
    found = outcome(loss, given)
    ag.zero_grad(given)
    return found


def repeated(be: Backend, values: bool = False) -> int:
    """How many backward passes are known; ``values``: how many computations of values."""
    known = [one for one in be.executor.replay.passes.values() if isinstance(one, passes.Pass)]
    return sum((one.gradients == ()) == values for one in known)
