"""Faults in queueing repeated assignments and products on the GPU: the extension in C, recipes, kept arguments."""

# ruff: noqa: E501  (one fault, one line: the tables read across)

from __future__ import annotations

from tests.planted.table import KERNELS, C, Mutant

DEVICE, PLACES, WALK, ASKED = (C + f"fastpath/fastpath_{name}.h" for name in ("device", "places", "walk", "asked"))
STAGE, STEP = KERNELS + "cuda/stage.py", KERNELS + "cuda/step.py"
STARTS, GRAPHS = "neonlike/backends/gpu/device/starts.py", "neonlike/backends/gpu/device/graphs.py"
REDUCE = KERNELS + "templates/cuda/reduce.cu.j2"
LINALG, BLAS = "neonlike/backends/gpu/products/linalg.py", "neonlike/backends/gpu/products/blas.py"


def fault(name: str, file: str, old: str, new: str) -> Mutant:
    """A row of this family."""
    return Mutant("cuda_dispatch", name, file, old, new)


def reduction(name: str, file: str, old: str, new: str) -> Mutant:
    """A fault that the tests of reductions on the GPU must catch."""
    return Mutant("reductions_cuda", name, file, old, new)


def ahead(name: str, old: str, new: str) -> Mutant:
    """A fault in batches that begin to cross to the GPU before their turn."""
    return Mutant("ahead_cuda", name, "neonlike/backends/gpu/memory/ahead.py", old, new)


MUTANTS = (
    ahead("a tensor is filled before the copy is there", "stream.wait_for_event(sent.buffer.event)", "pass"),
    ahead("a buffer is filled while it is read", "self._stream.wait_for_event(part.free)", "pass"),
    ahead("a buffer counts as read too early", "part.free.record(stream)", "pass"),
    ahead("pinned memory is written while it is copied", "sent.buffer.queued(self._stream)", "sent.buffer.event.record(self._stream)"),
    ahead("pinned memory is written while a tensor is filled from it", "sent.buffer.queued(stream)", "pass"),
    ahead("what was not asked for is still found", "if known[1] is not sent}", "if known}"),
    ahead("what was not asked for keeps its buffer", "lane.free.append(sent.part)", "pass"),
    ahead("arrays of a batch trade places", "self._place = 0\n\n", "pass\n\n"),
    ahead("a buffer that is too small", "if part.nbytes >= nbytes:", "if part.nbytes:"),
    ahead("nothing is copied next", "        lane.free.append(part)\n        self._start(lane)", "        lane.free.append(part)"),
    ahead("memory stays", "            while self._parts:\n", "            while self._lanes and not self._parts:\n"),
    ahead("what was sent may be written", "host.flags.writeable = False", "host.flags.writeable = True"),
    ahead("the reading thread keeps the context", "                self._leave()", "                pass"),
    reduction("a block count does not go back to 0", REDUCE, "gridDim.y - 1) ==", "gridDim.y) =="),
    reduction("the first block of a row merges", REDUCE, "== gridDim.y - 1;", "== 0;"),
    reduction("all rows share a count", REDUCE, "tickets + blockIdx.x,", "tickets,"),
    reduction("half of the warps are left out", KERNELS + "templates/cuda/reduce_folds.j2", '"T / 64")', '"T / 128")'),
    reduction("more rows than counts", KERNELS + "cuda/fit.py", "split and grid[0] <= TICKETS", "split"),
    Mutant("conv_cuda", "places of steps begin where their tensors do", STEP, "at[slot] + offset", "at[slot]"),
    Mutant("conv_cuda", "what is known of a launch is left out", STEP, "        arguments = self.pack(*values) + self.arguments\n", "        arguments = self.pack(*values)\n"),
    reduction("working memory of a prepared sum is given back", STEP, "[*at, room.address], (room, keep)", "[*at, room.address], keep"),
    fault("strides are not part of the key", PLACES, "axes, axes + MAX_AXES, PyLong_AsVoidPtr", "axes, axes, PyLong_AsVoidPtr"),
    fault("stochastic rounding is forgotten", WALK, "place->words[0] & ON_DEVICE && rounds(target)", "place->words[0] & ON_DEVICE && !target"),
    fault("queued while a graph is captured", DEVICE, " || *device->paused", ""),
    fault("only the first of several kernels", DEVICE, "k < device->steps", "k < 1"),
    fault("sizes of an argument too early", DEVICE, "memcpy(arguments + head,", "memcpy(arguments + head - 8,"),
    fault("a capture does not pause the extension", GRAPHS, "starts.paused.value = 1", "starts.paused.value = 0"),
    fault("working memory is given back while it is used", STAGE, "keep=(block, room, steps)", "keep=(block, steps)"),
    fault("working memory behind sizes", STAGE, 'struct.pack("=Q", room.address) + steps[0].arguments', 'steps[0].arguments + struct.pack("=Q", room.address)'),
    fault("a real number passed as a whole one", KERNELS + "run/placing.py", 'Source.REAL if number.ctype == "double" else Source.WHOLE', "Source.WHOLE"),
    fault("product: alpha is not part of the key", BLAS, "out.dtype, alpha, beta,\n", "out.dtype, beta,\n"),
    fault("product: strides are not part of the key", BLAS, "a.shape, a.strides, a.dtype", "a.shape, a.dtype"),
    fault("product: calls of the old precision kept", LINALG, "        self.executor.replay.clear()  # calls multiply as was set when they were made\n", ""),
    fault("product: stochastic rounding is forgotten", ASKED, " || (place->words[0] & ON_DEVICE && rounds(asked->at[k]))", ""),
)
