"""Register program of a stage for the NumPy engine, executed on one block of the iteration space.

Registers hold arrays: inputs, numbers, scratch blocks and outputs. Scratch is allocated by liveness, so that a chain of
any length needs only a few blocks, and blocks are kept between runs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import numpy as np

from neonlike.kernels.codegen.layout import element_strides
from neonlike.kernels.planning.lower import Arg, NumberArg, Value, ValueArg
from neonlike.kernels.planning.plan import Plan
from neonlike.kernels.run.convert import cast_into, converter
from neonlike.kernels.run.stage import Input, Mask, input_of, mask_of
from neonlike.optree import philox
from neonlike.optree.dtypes import F16, F32, U64, DType, DTypeRule, compute_dtype, is_float
from neonlike.optree.npfuncs import Array, is_inplace, takes_any_dtype
from neonlike.optree.ops import ORDERS, Kind
from neonlike.optree.shapes import Shape

POSITION, AXES = 0, 1
"""Registers of the block's coordinates and of the reduced axes; inputs follow."""

_FRAME_BYTES = 32 << 20
"""Maximum bytes of scratch kept between runs by a program, over all shapes, per thread."""


@dataclass(frozen=True, slots=True)
class Sink:
    """Destination of a result: a value or other argument, with mask and dtype of the receiving array."""

    arg: Arg
    mask: Mask
    dtype: DType
    direct: bool  # may be written by the op itself: it overlaps nothing still to be read


@dataclass(slots=True)
class BlockPosition:
    """Position of the current block in the space, for ops that need positions."""

    start: Shape
    space: Shape


class BlockProgram:
    """Instructions computing ``values`` of a plan on one block; see the module docstring.

    Parameters
    ----------
    plan : Plan
    values : sequence of int
        Values to compute, in topological order.
    boundary : dict
        Values read as inputs: index -> "temp" or "acc".
    sinks : sequence of Sink
    leaf_dtypes : sequence of dtype
    space : Shape
        The stage's space in the planning run; only its 1s matter.
    """

    def __init__(
        self,
        plan: Plan,
        values: Sequence[int],
        boundary: dict[int, str],
        sinks: Sequence[Sink],
        leaves: Sequence[tuple[Shape, DType]],
        space: Shape,
    ) -> None:
        self.plan, self.boundary, self.leaves = plan, boundary, leaves
        self.ndim = len(space)
        self.sinks = list(sinks)
        self.values = [plan.values[index] for index in values]
        self._gather_inputs()
        self.first_number = 2 + len(self.inputs)
        self.first_sink = self.first_number + len(self.number_slots)
        self.first_scratch = self.first_sink + len(self.sinks)
        self.scratch: list[tuple[DType, Mask]] = []
        self.instructions: list[tuple[Callable[..., Any], Callable[[list[Any]], tuple[Any, ...]]]] = []
        self.needs_coordinates = False
        _Assembler(self).assemble()
        self._local = threading.local()

    def _gather_inputs(self) -> None:
        """List the external arrays and numbers."""
        computed = {value.index for value in self.values}
        inputs: dict[Input, None] = {}
        numbers: dict[int, None] = {}
        for arg in [arg for value in self.values for arg in value.args] + [sink.arg for sink in self.sinks]:
            if isinstance(arg, NumberArg):
                numbers[arg.slot] = None
            elif not (isinstance(arg, ValueArg) and arg.perm is None and arg.value in computed):
                inputs[self.input_of(arg)] = None
        self.inputs, self.number_slots = list(inputs), list(numbers)

    def input_of(self, arg: Arg) -> Input:
        """The input that ``arg`` reads."""
        return input_of(self.plan, self.leaves, arg, self.ndim, self.boundary)

    def registers(self, shape: Shape, inputs: list[Array], numbers: list[Any], outputs: list[Array]) -> list[Any]:
        """Create a register file for a block of ``shape``.

        Parameters
        ----------
        shape : tuple of int
        inputs, outputs : list of arrays
            Parts of the block.
        numbers : list of numbers
        """
        return [None, None, *inputs, *numbers, *outputs, *self._frame(shape)]

    def _frame(self, shape: Shape) -> list[Array]:
        """Scratch arrays for a block of ``shape``, separate for each thread."""
        try:
            frames: dict[Shape, list[Array]] = self._local.frames
        except AttributeError:
            frames = self._local.frames = {}
        frame = frames.get(shape)
        if frame is None:
            if sum(a.nbytes for f in frames.values() for a in f) > _FRAME_BYTES or len(frames) > 64:
                frames.clear()
            if len(shape) == self.ndim:
                frame = [np.empty([n if m else 1 for n, m in zip(shape, mask)], dtype) for dtype, mask in self.scratch]
            else:  # flattened to one axis
                frame = [np.empty(shape if any(mask) else (1,), dtype) for dtype, mask in self.scratch]
            frames[shape] = frame
        return frame

    def run(self, registers: list[Any]) -> None:
        """Execute on a register file."""
        for function, arguments in self.instructions:
            function(*arguments(registers))

    def bind(self, registers: list[Any]) -> list[tuple[Callable[..., Any], tuple[Any, ...]]]:
        """Bind the instructions to their arrays, for repeated runs."""
        return [(function, arguments(registers)) for function, arguments in self.instructions]


class _Assembler:
    """Generates a program's instructions, allocating scratch registers by liveness."""

    def __init__(self, program: BlockProgram) -> None:
        self.program = program
        self.register: dict[int, int] = {}  # computed value -> register
        self.dtype: dict[int, DType] = {}  # register -> dtype
        self.free: dict[tuple[DType, Mask], list[int]] = {}
        self.owner: dict[int, tuple[DType, Mask]] = {}  # scratch register -> its class
        self.input = {source: 2 + position for position, source in enumerate(program.inputs)}
        self.number = {slot: program.first_number + position for position, slot in enumerate(program.number_slots)}
        self.widened: dict[int, int] = {}  # bfloat16 input -> scratch register, for the whole program
        self.last_use: dict[int, int] = {}
        for position, source in enumerate(program.inputs):
            self.dtype[2 + position] = source.dtype
        end = len(program.values)
        for position, value in enumerate(program.values):
            for arg in value.args:
                if isinstance(arg, ValueArg) and arg.perm is None:
                    self.last_use[arg.value] = position
        for sink in program.sinks:
            if isinstance(sink.arg, ValueArg) and sink.arg.perm is None:
                self.last_use[sink.arg.value] = end
        self.direct = self._direct_sinks()

    def _direct_sinks(self) -> dict[int, int]:
        """Map each value to the sink that its own instruction writes."""
        program = self.program
        computed = {value.index: value for value in program.values}
        found: dict[int, int] = {}
        for position, sink in enumerate(program.sinks):
            if not isinstance(sink.arg, ValueArg) or sink.arg.perm is not None:
                continue
            value = computed.get(sink.arg.value)
            if (
                value is not None
                and (sink.direct or self._is_last_write(value))
                and value.index not in found
                and mask_of(value.shape, program.ndim) == sink.mask
                and compute_dtype(value.dtype) == sink.dtype
            ):
                found[value.index] = position
        return found

    def _is_last_write(self, value: Value) -> bool:
        """True if ``value``'s instruction may overwrite its operands, and nothing is read after it."""
        program = self.program
        last = len(program.sinks) == 1 and program.values[-1] is value
        return last and value.spec.kind is Kind.ELEMENTWISE and isinstance(value.spec.numpy, np.ufunc)

    def assemble(self) -> None:
        """Emit every value, then the stores that no value's instruction performs."""
        for position, value in enumerate(self.program.values):
            self._emit(position, value)
        for position, sink in enumerate(self.program.sinks):
            out = self.program.first_sink + position
            if isinstance(sink.arg, ValueArg) and self.direct.get(sink.arg.value) == position and sink.arg.perm is None:
                continue
            self._append(converter(sink.dtype), (self._read(sink.arg), out))

    def _append(self, function: Callable[..., Any], registers: tuple[int, ...]) -> None:
        self.program.instructions.append((function, itemgetter(*registers)))

    def _read(self, arg: Arg) -> int:
        program = self.program
        if isinstance(arg, NumberArg):
            return self.number[arg.slot]
        if isinstance(arg, ValueArg) and arg.perm is None and arg.value in self.register:
            return self.register[arg.value]
        source = program.input_of(arg)
        register = self.input[source]
        return register if source.dtype.kind != "V" else self._widen(register, source.mask)

    def _widen(self, register: int, mask: Mask) -> int:
        """Convert a bfloat16 input to float32, since NumPy's functions and promotions do not support it."""
        if register not in self.widened:
            self.widened[register] = self._allocate(F32, mask)
            self._append(cast_into, (register, self.widened[register]))
        return self.widened[register]

    def _emit(self, position: int, value: Value) -> None:
        spec, dtype = value.spec, compute_dtype(value.dtype)
        mask = mask_of(value.shape, self.program.ndim)
        reads = [self._read(arg) for arg in value.args]
        function: Callable[..., Any] = spec.numpy
        borrowed: list[int] = []
        if spec.kind is Kind.ZERO:
            self.program.needs_coordinates = True
            function = _rand(value) if spec.name == "rand" else _onehot(value)
            reads.insert(0, POSITION)
        elif isinstance(function, np.ufunc):
            if spec.dtype is DTypeRule.TRUTH:
                kinds = {self.dtype.get(register) for register in reads}
                if len(reads) == 2 and kinds == {F16, None}:
                    function = _comparing(function, F32)
                elif spec.name in ORDERS and U64 in kinds and not any(k is not None and is_float(k) for k in kinds):
                    function = _comparing_whole(function)
            elif any(self.dtype.get(r, dtype) != dtype for r in reads):
                function = _typed(function, dtype)
        elif spec.dtype not in (DTypeRule.TRUTH, DTypeRule.INDEX) and not takes_any_dtype(function):
            reads = [self._cast(r, arg, dtype, borrowed) for r, arg in zip(reads, value.args)]
        if spec.kind is Kind.REDUCTION:
            reads.append(AXES)
        if is_inplace(spec.numpy):
            self._release(position, value, borrowed)
            out = self._output(value, dtype, mask)
        else:
            out = self._output(value, dtype, mask)
            self._release(position, value, borrowed)
        self._append(function, (*reads, out))

    def _cast(self, register: int, arg: Arg, dtype: DType, borrowed: list[int]) -> int:
        """Return ``register``, or a scratch copy of it in ``dtype``."""
        if isinstance(arg, NumberArg) or self.dtype[register] == dtype:
            return register
        if isinstance(arg, ValueArg) and arg.value in self.register:
            mask = mask_of(self.program.plan.values[arg.value].shape, self.program.ndim)
        else:
            mask = self.program.input_of(arg).mask
        copy = self._allocate(dtype, mask)
        borrowed.append(copy)
        self._append(cast_into, (register, copy))
        return copy

    def _output(self, value: Value, dtype: DType, mask: Mask) -> int:
        if value.index in self.direct:
            register = self.program.first_sink + self.direct[value.index]
        else:
            register = self._allocate(dtype, mask)
        self.register[value.index] = register
        self.dtype[register] = dtype
        return register

    def _allocate(self, dtype: DType, mask: Mask) -> int:
        available = self.free.get((dtype, mask))
        if available:
            return available.pop()
        register = self.program.first_scratch + len(self.program.scratch)
        self.program.scratch.append((dtype, mask))
        self.owner[register] = (dtype, mask)
        self.dtype[register] = dtype
        return register

    def _release(self, position: int, value: Value, borrowed: list[int]) -> None:
        """Release scratch registers that are not read after instruction ``position``."""
        for register in borrowed:
            self.free.setdefault(self.owner[register], []).append(register)
        for index in {arg.value for arg in value.args if isinstance(arg, ValueArg) and arg.perm is None}:
            register_or_none = self.register.get(index)
            if self.last_use.get(index) == position and register_or_none in self.owner:
                assert register_or_none is not None
                self.free.setdefault(self.owner[register_or_none], []).append(register_or_none)


def _typed(function: np.ufunc, dtype: DType) -> Callable[..., Any]:
    """A ufunc that computes in ``dtype`` regardless of its operands' dtypes."""

    def call(*operands: Any) -> None:
        function(*operands, dtype=dtype)

    return call


def _comparing(function: np.ufunc, dtype: DType) -> Callable[..., Any]:
    """A comparison ufunc that compares in ``dtype``: NumPy would round a number to float16."""
    signature = (dtype, dtype, np.dtype(bool))

    def call(*operands: Any) -> None:
        function(*operands, signature=signature)

    return call


def _comparing_whole(function: np.ufunc) -> Callable[..., Any]:
    """A ufunc that compares uint64 with integers of any dtype, or with a number, exactly."""

    def call(a: Any, b: Any, out: Array) -> None:
        (a, below), (b, b_below) = _unsigned(a), _unsigned(b)
        function(a, b, out)
        np.copyto(out, function(0, 1), where=below)
        np.copyto(out, function(1, 0), where=b_below)

    return call


def _unsigned(value: Any) -> tuple[Any, Any]:
    """Convert ``value`` to uint64, and flag negative values, which are below any uint64."""
    if isinstance(value, int):
        return U64.type(max(value, 0)), value < 0
    if isinstance(value, float) or value.dtype == U64:
        return value, False
    below = np.less(value, 0)
    return np.where(below, 0, value).astype(U64), below


# Ops that need positions ----------------------------------------------------------------------------------------


def _own_part(at: BlockPosition, value: Value) -> tuple[Shape, Shape]:
    """Start of the block and extent of the space in ``value``'s own axes, ignoring broadcast ones."""
    mask = mask_of(value.shape, len(at.space))
    start = tuple([s if m else 0 for s, m in zip(at.start, mask)])
    return start, tuple([n if m else 1 for n, m in zip(at.space, mask)])


def _rand(value: Value) -> Callable[..., None]:
    perm = value.perm

    def rand(at: BlockPosition, seed: int, call: int, out: Array) -> None:
        start, space = _own_part(at, value)
        all_strides = element_strides(space, perm)
        first = sum(s * t for s, t in zip(start, all_strides))
        strides = all_strides[len(space) - out.ndim :]
        last = first + sum((n - 1) * t for n, t in zip(out.shape, strides))
        consecutive = perm is None and last - first == out.size - 1
        if consecutive:
            index = np.arange(first, last + 1, dtype=np.int64)
        else:
            index = np.full(out.shape, first, dtype=np.int64)
            for axis, stride in enumerate(strides):
                steps = np.arange(out.shape[axis], dtype=np.int64) * stride
                index += steps.reshape([-1 if a == axis else 1 for a in range(out.ndim)])
        philox.uniform(index, call, seed, out, consecutive)

    return rand


def _onehot(value: Value) -> Callable[..., None]:
    (axis,) = value.axes

    def onehot(at: BlockPosition, indices: Array, out: Array) -> None:
        axis_here = axis - len(value.shape) + out.ndim
        start = _own_part(at, value)[0][axis - len(value.shape)]
        steps = np.arange(start, start + out.shape[axis_here])
        np.equal(indices, steps.reshape([-1 if a == axis_here else 1 for a in range(out.ndim)]), out)

    return onehot
