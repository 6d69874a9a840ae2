"""Training by several processes at once, the ranks of a program that an MPI launcher starts: ``mpiexec -n 4 python``.

Every rank runs the same script on its share of each global batch. Gradients are summed over all ranks before each step
of an optimizer, so that all have the same weights.
"""

from neonlike.distributed.ranks import ALONE, Ranks
from neonlike.distributed.variables import Synchronised, average_gradients

__all__ = ["ALONE", "Ranks", "Synchronised", "average_gradients"]
