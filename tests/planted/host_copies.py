"""Faults in copies between host arrays and tensors that kernels make."""

# ruff: noqa: E501  (one fault, one line: the tables read across)

from __future__ import annotations

from tests.planted.table import BACKENDS, Mutant

MUTANTS = tuple(
    Mutant("host_copies", name, BACKENDS + "cpu/tensor.py", old, new)
    for name, old, new in (
        ("misaligned arrays are read by vectors", "if not host.flags.aligned or any(", "if any("),
        ("arrays in reverse are tensors", "any(step <= 0 or step % size", "any(step % size"),
        ("arrays of any dtype are tensors", " or not holds(host.dtype):", ":"),
        ("kernels copy while a pass is recorded", "return self.backend.executor.replay.table is not None\n", "return True\n"),
        ("kernels copy what NumPy copies as fast", "host.nbytes < SCATTERED or (host.nbytes < IN_ORDER and host.flags.c_contiguous)", "False"),
        ("copies of a tensor are its memory", "        made = np.empty(self.shape, self.dtype)\n", "        made = source\n"),
    )
)
