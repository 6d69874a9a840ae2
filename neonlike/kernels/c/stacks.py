"""Products of stacks of matrices: the kernel of one product, run for each."""

from __future__ import annotations

from typing import NamedTuple

from neonlike.kernels.c.gemm import GemmLaunch
from neonlike.kernels.c.gemm_blas import BlasLaunch
from neonlike.kernels.run.placing import after
from neonlike.kernels.run.program import Program, Source, Step, Word


class StackLaunch(NamedTuple):
    """The products of a stack of matrices, one after the other.

    Attributes
    ----------
    launch : GemmLaunch or BlasLaunch
        Of one product.
    steps : tuple of three int
        Bytes from one matrix to the next, of A, B and C.
    size : int
        Number of products.
    """

    launch: GemmLaunch | BlasLaunch
    steps: tuple[int, int, int]
    size: int

    def __call__(self, a: int, b: int, c: int, alpha: float, beta: float) -> None:
        """Multiply the stacks at these addresses.

        Parameters
        ----------
        a, b, c : int
            Addresses.
        alpha, beta : float
        """
        one, other, into = self.steps
        for i in range(self.size):
            self.launch(a + i * one, b + i * other, c + i * into, alpha, beta)

    def program(self, alpha: float, beta: float) -> Program:
        """The program of the products; its operands are the stacks."""
        one = self.launch.program(alpha, beta)
        found = [
            Step(step.entry, tuple(self._of(word, i) for word in step.words))
            for i in range(self.size)
            for step in one.steps
        ]
        return one._replace(steps=tuple(found))

    def _of(self, word: Word, i: int) -> Word:
        """A word of the product ``i``."""
        return after(word, i * self.steps[word[1]]) if word[0] is Source.OPERAND else word
