"""How far the C compiler optimizes the kernels of a test: in `make test`, as little as gives the same results.

gcc takes two and a half times as long for a kernel with -O3 as with -O1, most of it for copies of loops for lengths and
alignments; the loops that kernels mark for vectors become vectors with both. So in a run that takes a sample of cases
kernels are compiled with -O1, but for tests marked ``optimized``: those with which a fault that shows in optimized code
alone would be found. All other runs have -O3 everywhere, as programs have.
"""

from __future__ import annotations

import pytest

from neonlike.kernels.c.routine import Routine
from neonlike.settings import OPTIMIZE
from tests.support.engines import sampling

LITTLE = "1"
_given = OPTIMIZE.text
"""What the environment says, which holds for all tests."""


def optimizes_less() -> bool:
    """Whether tests that do not ask for more have kernels that are optimized little."""
    return sampling.on and not _given


def choose_for(item: pytest.Item) -> None:
    """Have the kernels of this test, and of processes that it starts, optimized as far as its marks say."""
    if optimizes_less():
        OPTIMIZE.put(OPTIMIZE.unset if item.get_closest_marker("optimized") else LITTLE)


def optimize_alike(monkeypatch: pytest.MonkeyPatch, *routines: Routine) -> None:
    """Have the kernels of these routines compiled anew in this test, all as far as its marks say.

    Those that a test before has had compiled are used on, and with -O3 a compiler fuses other products and sums than
    with -O1: the last bits of results of two kernels are the same only if both were optimized alike.
    """
    for routine in routines:
        monkeypatch.setattr(routine, "variants", {})
