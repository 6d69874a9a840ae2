"""Planted faults, and the folders that the tables name."""

from __future__ import annotations

from typing import NamedTuple

BACKENDS = "neonlike/backends/"
EXPRESSIONS = "neonlike/backends/expressions/"
MACHINE = "neonlike/backends/machine/"
PRIMITIVES = "neonlike/backends/primitives/"
TENSORS = "neonlike/backends/tensors/"
CPU = "neonlike/backends/cpu/"
GEOMETRY = "neonlike/backends/geometry/"
OPTREE = "neonlike/optree/"
KERNELS = "neonlike/kernels/"
LAYERS = "neonlike/layers/"
MODELS = "neonlike/models/"
OPTIMIZERS = "neonlike/optimizers/"
TRANSFORMS = "neonlike/transforms/"
C = "neonlike/kernels/templates/c/"
GPU = "neonlike/backends/gpu/"
CUDA = "neonlike/kernels/templates/cuda/"


class Mutant(NamedTuple):
    """One fault.

    Attributes
    ----------
    family : str
        Whose tests must catch it, see ``mutants.TESTS``.
    name : str
        The fault in words.
    file : str
        Path below the root of the repository.
    old, new : str
        The text there, which occurs once, and what it is replaced by.
    """

    family: str
    name: str
    file: str
    old: str
    new: str

    @property
    def checked(self) -> bool:
        """Whether tests see it only if the emulated GPU checks every access and runs queued work late."""
        return self.name.endswith("(checked)")
