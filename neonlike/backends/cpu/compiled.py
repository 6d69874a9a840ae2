"""What the hooks that run compiled kernels share: the C compiler that their backend was made with."""

from __future__ import annotations

from neonlike.backends.families.base import Family
from neonlike.kernels.toolchain import Compiler


class CompiledFamily(Family):
    """Base of the families' overrides.

    Attributes
    ----------
    compiler : Compiler or None
        As it was found when the backend was made: asking the environment at each call takes longer than small kernels.
        None: the families' definitions run.
    """

    compiler: Compiler | None
