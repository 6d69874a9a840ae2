"""Compiled kernels of the batchnorm family, for the hooks of ``families/batchnorm.py``."""

from __future__ import annotations

from neonlike.backends.families.batchnorm import BatchNormFamily


class BatchNormKernels(BatchNormFamily):
    """Overrides of BatchNormFamily's hooks."""
