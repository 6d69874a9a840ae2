"""Faults in NCCL between the GPUs of ranks: order of streams, groups, dtypes, the agreement to use it."""

# ruff: noqa: E501  (one fault, one line: the tables read across)

from __future__ import annotations

from tests.planted.table import GPU, MACHINE, Mutant

BINDING, COMMUNICATOR, AGREEMENT = (GPU + f"ranks/{name}.py" for name in ("nccl", "communicator", "agreement"))


def fault(name: str, file: str, old: str, new: str) -> Mutant:
    """A row of this family."""
    return Mutant("nccl", name, file, old, new)


MUTANTS = (
    fault("sums do not wait for what computes their tensors", COMMUNICATOR, "            self._stream.wait_for_event(self._before)\n", ""),
    fault("what follows does not wait for sums", COMMUNICATOR, "            device.stream.wait_for_event(self._behind)\n", ""),
    fault("a group is begun and not ended", COMMUNICATOR, '            raise\n        call("ncclGroupEnd")\n', "            raise\n"),
    fault("a group that failed is not ended", COMMUNICATOR, '            with contextlib.suppress(Refused):\n                call("ncclGroupEnd")\n            raise\n', "            raise\n"),
    fault("elements taken to lie in order", COMMUNICATOR, "return tensor if tensor.is_contiguous else", "return tensor if True else"),
    fault("a copy of elements is not copied back", COMMUNICATOR, "        for tensor, one in zip(tensors, laid_out):\n            if one is not tensor:\n", "        for tensor, one in zip(tensors, laid_out):\n            if False:\n"),
    fault("a communicator is used after an error", COMMUNICATOR, "        handle, self._handle = self._handle, 0\n        if handle:\n", "        handle = self._handle\n        if handle:\n"),
    fault("a collective while a graph is captured", COMMUNICATOR, "device.attend_uncaptured(doing)", "device.attend()"),
    fault("calls on GPUs are not counted", COMMUNICATOR, "        self._ranks.queueing(doing)\n", ""),
    fault("a copy of elements, not of bytes", COMMUNICATOR, "one.nbytes, nccl.BYTES", "one.size, nccl.BYTES"),
    fault("the codes of both 16-bit dtypes swapped", BINDING, '"float16": 6, "float32": 7, "float64": 8, "bfloat16": 9', '"float16": 9, "float32": 7, "float64": 8, "bfloat16": 6'),
    fault("the codes of min and max swapped", BINDING, '"max": 2, "min": 3', '"max": 3, "min": 2'),
    fault("a status is no error", BINDING, "        if status:\n            raise Refused(function", "        if False:\n            raise Refused(function"),
    fault("versions too old are taken", BINDING, "found.version < OLDEST", "found.version < 2"),
    fault("ranks on one GPU", AGREEMENT, "        if first != rank:\n", "        if False:\n"),
    fault("a rank without NCCL", AGREEMENT, "        if offer.lack:\n", "        if False:\n"),
    fault("allreduce through the host though GPUs are linked", MACHINE + "ranks.py", "if links is not None and links.reduces(tensor.dtype):", "if False:"),
    fault("a closed backend keeps its communicator", GPU + "backend.py", "            links.close()\n", "            pass\n"),
)
