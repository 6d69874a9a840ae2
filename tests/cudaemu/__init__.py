"""A CUDA driver without a GPU: real PyCUDA runs on it, kernels run on the processor. README.md says how."""

from .activate import Emulator, activate, activate_unless_real
from .toolkit import EmulatorUnavailable

__all__ = ["Emulator", "EmulatorUnavailable", "activate", "activate_unless_real"]
