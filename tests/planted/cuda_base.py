"""Faults in the base of all GPU code: captured graphs, streams and contexts of others, the choice of compilers."""

# ruff: noqa: E501  (one fault, one line: the tables read across)

from __future__ import annotations

from tests.planted.table import GPU, KERNELS, Mutant

GRAPHS, DEVICE, INTEROP, BACKEND = (GPU + f"{name}.py" for name in ("device/graphs", "device/device", "tensors/interop", "backend"))
COMPILE = KERNELS + "cuda/compile.py"


def fault(name: str, file: str, old: str, new: str) -> Mutant:
    """A row of this family."""
    return Mutant("base_cuda", name, file, old, new)


def foreign(name: str, old: str, new: str) -> Mutant:
    """A fault in the life of other libraries' memory."""
    return Mutant("foreign_cuda", name, GPU + "memory/foreign.py", old, new)


MUTANTS = (
    fault("what is captured runs at once", GRAPHS, "        here.stream = self.stream\n", ""),
    fault("a graph lets go of its memory", GRAPHS, "device, nodes, calls\n", "device, nodes, ()\n"),
    fault("copies and waits while a graph is captured", DEVICE, "if here.stream is not self.stream:\n            raise", "if False:\n            raise"),
    fault("a context that another library made current goes unnoticed", DEVICE, "if current != self._handle:", "if False:"),
    fault("wait_for: the other stream does not wait for ours", BACKEND, "        interop.follow(self.device, ours, theirs)\n", ""),
    fault("wait_for: ours does not wait for the other stream", BACKEND, "        interop.follow(self.device, theirs, ours)\n", ""),
    fault("DLPack: the stream that asks waits for nothing", INTEROP, "        follow(device, device.stream.handle, int(stream))\n", "        pass\n"),
    fault("compilers newer than the driver taken", COMPILE, " or bool(newest and compiler.major > newest)", ""),
    fault("a refused compiler asked again", COMPILE, "    _unfit.add(compiler.identity)\n", ""),
    fault("PTX without a zero at its end", COMPILE, 'return module + b"\\0" if compiler.is_ptx else module', "return module"),
    fault("a compiler that knows the GPU not preferred", COMPILE, "if not arch or found.target(arch) == arch:", "if True:"),
    foreign("foreign memory is let go at once", "            if not event.query():\n", "            if False:\n"),
    foreign("foreign memory is never let go", "            gone.append(owners)\n", "            gone.append(owners)\n            self.kept = [*getattr(self, 'kept', []), owners]\n"),
    foreign("any amount of foreign memory waits", "if self._bytes <= MOST_BYTES:", "if True:"),
    foreign("foreign memory is let go while a graph is captured", "if self.device.capture.is_active:", "if False:"),
)
