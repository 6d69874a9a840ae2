"""Generation of named lines of C or CUDA from a stage: one walk over its values for all languages.

Every value becomes one line ``const float v3 = nl_exp_f32(v2);`` (common subexpressions are single values, so each is
written once). Conversions are explicit; numbers are arguments, never literals, so one kernel serves all values.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from neonlike.kernels.planning.graph import Graph
from neonlike.kernels.planning.lower import Arg, LeafArg, NumberArg, Perm, Value, ValueArg
from neonlike.kernels.planning.plan import Plan, Stage
from neonlike.optree.dtypes import F16, F32, F64, I64, U64, DType, DTypeRule, compute_dtype, half_of, is_float
from neonlike.optree.ops import ORDERS, Kind, OpSpec
from neonlike.optree.shapes import Shape

STORAGE = {
    "float16": "uint16_t", "bfloat16": "uint16_t", "float32": "float", "float64": "double", "bool": "uint8_t",
    "int8": "int8_t", "uint8": "uint8_t", "int16": "int16_t", "uint16": "uint16_t",
    "int32": "int32_t", "uint32": "uint32_t", "int64": "int64_t", "uint64": "uint64_t",
}  # fmt: skip
"""C type of an element in memory, by dtype name."""
NARROW = {"float16": "f16", "bfloat16": "bf16"}
"""dtypes stored as bits that ``nl_f16_to_f32`` and ``nl_f32_to_f16`` convert, and their name there."""
NUMBERS = {"double": F64, "int64_t": I64, "uint64_t": U64}
"""C types of number arguments."""
WHOLE = (I64, U64)
"""Compute dtype of integers."""
_SUFFIX = {F32: "f32", F64: "f64", I64: "i64", U64: "u64"}
_SUFFIX |= {np.dtype(f"{kind}{n}"): f"{kind}{8 * n}" for kind in "iu" for n in (1, 2, 4)}
_CALL = re.compile(r"\b([a-z_][a-z_0-9]*)\(")
_LITERAL = re.compile(r"(?<![\w.])(\d+\.\d+(?:e[+-]?\d+)?)(?![\w.])")


@dataclass(frozen=True, slots=True)
class Array:
    """A pointer argument.

    ``kind`` is "leaf" (slot), "temp" (value), "target" (slot) or "counter" (value); ``shape`` is the array's in the
    planning run, with axes permuted by ``perm``. A counter is not memory, but a position that moves like a pointer: its
    steps make it the number of the element (``rand``) or the position along an axis (``onehot``).

    The text of a kernel does not depend on the array's identity or size: the ``repr``, which identifies kernels, leaves
    them out, so that arrays of other sizes share the kernel.
    """

    name: str
    kind: str
    index: int = field(repr=False)
    dtype: DType
    shape: Shape = field(repr=False)
    perm: Perm = field(default=None, repr=False)

    @property
    def half(self) -> str:
        """The kind of a 16-bit float, in names of functions that convert blocks of it (``halves.h``); else empty."""
        return half_of(self.dtype)

    @property
    def ctype(self) -> str:
        """Element type in memory."""
        return STORAGE[self.dtype.name]

    @property
    def declaration(self) -> str:
        """The argument in C."""
        return f"int64_t {self.name}" if self.kind == "counter" else f"{self.ctype} *{self.name}"


@dataclass(frozen=True, slots=True)
class Number:
    """A number argument: double, int64 where integers compute with it, or uint64 beyond that."""

    name: str
    slot: int = field(repr=False)
    ctype: str


@dataclass(frozen=True, slots=True)
class Line:
    """``const {ctype} {name} = {text};``"""

    name: str
    ctype: str
    text: str


@dataclass(slots=True)
class Kernel:
    """Arguments and values of a kernel, from which templates are rendered.

    Attributes
    ----------
    inputs, outputs : lists of Array
    numbers : list of Number
    values : list of Value
        In topological order.
    """

    plan: Plan
    stage: Stage
    inputs: list[Array] = field(default_factory=list)
    outputs: list[Array] = field(default_factory=list)
    sinks: list[Arg] = field(default_factory=list)
    numbers: list[Number] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    overlaps: set[tuple[str, str]] = field(default_factory=set)
    """Names of (output, input) pairs that share memory."""

    def find(self, arg: Arg) -> Array | None:
        """The input array read by ``arg``; None for a value computed here or a number."""
        if isinstance(arg, NumberArg):
            return None
        key = ("leaf", arg.slot) if isinstance(arg, LeafArg) else ("temp", arg.value)
        for array in self.inputs:
            if (array.kind, array.index) == key and array.perm == arg.perm:
                return array
        return None

    def streamable(self) -> list[Array]:
        """Outputs that overlap no input, so that they can be written past the cache."""
        return [a for a in self.outputs if all(a.name != output for output, _ in self.overlaps)]

    def counter(self, value: Value) -> Array | None:
        """The counter read by ``value``, if it is computed from positions."""
        return next((a for a in self.inputs if a.kind == "counter" and a.index == value.index), None)


def type_of(dtype: DType) -> str:
    """C type of computation for ``dtype``."""
    return STORAGE[compute_dtype(dtype).name]


def make_kernel(plan: Plan, stage: Stage, graph: Graph) -> Kernel:
    """Collect the arguments of ``stage``'s kernel.

    Parameters
    ----------
    plan : Plan
    stage : Stage
    graph : Graph
    """
    kernel = Kernel(plan, stage, values=[plan.values[i] for i in stage.values])
    here = set(stage.values)
    stores = [store.arg for store in stage.stores]
    for value in kernel.values:
        for arg in value.args:
            _add_argument(kernel, arg, here, graph, _number_type(value, plan, graph))
        if value.spec.kind is Kind.ZERO:
            kernel.inputs.append(Array(f"a{len(kernel.inputs)}", "counter", value.index, I64, value.shape))
    for index, arg in enumerate(stores):
        target = graph.targets[stage.stores[index].target]
        whole = target.dtype.kind in "iub" or target.dtype.itemsize == 2  # float64 would round once before 16 bits do
        _add_argument(kernel, arg, here, graph, "whole" if whole else "double")
    for position, index in enumerate(stage.saved):
        value = plan.values[index]
        kernel.outputs.append(Array(f"s{position}", "temp", index, compute_dtype(value.dtype), value.shape))
        kernel.sinks.append(ValueArg(index))
    for position, store in enumerate(stage.stores):
        target = graph.targets[store.target]
        kernel.outputs.append(Array(f"o{position}", "target", store.target, target.dtype, target.shape))
        kernel.sinks.append(store.arg)
        for array in kernel.inputs:
            if array.kind == "leaf" and not store.buffered:
                leaf = graph.leaves[array.index]
                if leaf is target or leaf.alias_of(target):
                    kernel.overlaps.add((f"o{position}", array.name))
    return kernel


def _number_type(value: Value, plan: Plan, graph: Graph) -> str:
    """C type of whole numbers for ``value``: integral where integers compute or compare with them."""
    if value.spec.kind is Kind.ZERO:
        return "int64_t"  # seeds and calls, which change between runs
    dtypes = [value.dtype]
    if value.spec.dtype is DTypeRule.TRUTH:
        leaves = [graph.leaves[arg.slot].dtype for arg in value.args if isinstance(arg, LeafArg)]
        dtypes = leaves + [plan.values[arg.value].dtype for arg in value.args if isinstance(arg, ValueArg)]
    return "whole" if all(compute_dtype(dtype) in WHOLE for dtype in dtypes) else "double"


def _add_argument(kernel: Kernel, arg: Arg, here: set[int], graph: Graph, number_type: str) -> None:
    if isinstance(arg, NumberArg):
        number = graph.numbers[arg.slot]
        ctype = number_type if isinstance(number, int) else "double"
        if ctype == "whole":
            ctype = "int64_t" if number < 2**63 else "uint64_t"
        if all(number.slot != arg.slot for number in kernel.numbers):
            kernel.numbers.append(Number(f"c{arg.slot}", arg.slot, ctype))
    elif isinstance(arg, ValueArg) and arg.perm is None and arg.value in here:
        return
    elif kernel.find(arg) is None:
        if isinstance(arg, LeafArg):
            leaf = graph.leaves[arg.slot]
            kind, index, dtype, shape = "leaf", arg.slot, leaf.dtype, leaf.shape
        else:
            value = kernel.plan.values[arg.value]
            kind, index, dtype, shape = "temp", arg.value, compute_dtype(value.dtype), value.shape
        if arg.perm is not None:
            shape = tuple(shape[i] for i in arg.perm)
        kernel.inputs.append(Array(f"a{len(kernel.inputs)}", kind, index, dtype, shape, arg.perm))


# Text ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Writer:
    """Generator for the lines of a kernel.

    Attributes
    ----------
    kernel : Kernel
    language : str
        "c" or "cuda".
    whole : dtype
        Compute dtype of integers: int64, or a narrower one that holds all of them (see ``narrow``).
    saturated : set of int
        Sums and differences that saturate in that dtype.
    element_texts : mapping
        Text of an element by its array's name, for arrays that are loaded in advance or stored later than their
        elements are computed.
    wide : mapping
        As ``element_texts``, for float16 arrays converted in stretches: the text is already a float.
    single : set of int
        float64 values that are computed in float32.
    rounded : mapping
        Digits and arguments of ``rand``, by the name of an output with stochastic rounding.
    """

    kernel: Kernel
    language: str = "c"
    whole: DType = I64
    saturated: Collection[int] = ()
    single: Collection[int] = ()
    element_texts: Mapping[str, str] = field(default_factory=dict)
    wide: Mapping[str, str] = field(default_factory=dict)
    rounded: Mapping[str, tuple[int, str]] = field(default_factory=dict)

    def load(self, array: Array, index: str) -> Line:
        """Load ``array[index]`` in its compute dtype."""
        if array.kind == "counter":
            return Line(_element(array), "int64_t", f"{array.name} + {index}")
        if array.name in self.wide:
            return Line(_element(array), type_of(array.dtype), self.wide[array.name])
        read = self.element_texts.get(array.name) or f"{array.name}[{index}]"
        ctype = STORAGE[self._computed(array.dtype).name]
        text = load_element(read, array.dtype)
        return Line(_element(array), ctype, text if is_float(array.dtype) else f"({ctype}){text}")

    def store(self, array: Array, arg: Arg, index: str) -> str:
        """Statement that stores ``arg``, converted, in ``array[index]``.

        Parameters
        ----------
        array : Array
        arg : Arg
        index : str
            Text of the position.
        """
        text, dtype = self.operand(arg)
        if array.name in self.wide:
            return f"{self.wide[array.name]} = {_odd(text, dtype)};"
        place = self.element_texts.get(array.name) or f"{array.name}[{index}]"
        if array.name in self.rounded:
            text, dtype = _round(text, dtype, array.dtype, *self.rounded[array.name])
        return f"{place} = {convert_store(text, dtype, array.dtype)};"

    def operand(self, arg: Arg) -> tuple[str, DType]:
        """Text and compute dtype of an operand."""
        if isinstance(arg, NumberArg):
            number = next(n for n in self.kernel.numbers if n.slot == arg.slot)
            return number.name, NUMBERS[number.ctype]
        array = self.kernel.find(arg)
        if array is not None:
            return _element(array), self._computed(array.dtype)
        assert isinstance(arg, ValueArg)
        return f"v{arg.value}", self._dtype_of(self.kernel.plan.values[arg.value])

    def _dtype_of(self, value: Value) -> DType:
        return F32 if value.index in self.single else self._computed(value.dtype)

    def _computed(self, dtype: DType) -> DType:
        computed = compute_dtype(dtype)
        return self.whole if computed == I64 else computed

    def line(self, value: Value) -> Line:
        """Line of an elementwise value."""
        dtype = self._dtype_of(value)
        ctype = STORAGE[dtype.name]
        wanted = self._operand_dtypes(value, dtype)
        texts = self.converted_operands(value)
        if value.spec.kind is Kind.ZERO:
            counter = self.kernel.counter(value)
            assert counter is not None
            texts.append(_cast(_element(counter), I64, F64 if F64 in wanted else I64))
            wanted = [dtype]
        if value.spec.name == "broadcast":
            return Line(f"v{value.index}", ctype, texts[0])
        if value.index in self.saturated:
            return Line(f"v{value.index}", ctype, f"nl_sat_{value.spec.name}_{_SUFFIX[dtype]}({', '.join(texts)})")
        if value.spec.name in ORDERS and set(wanted) == {I64, U64}:
            texts, wanted = _compared(texts, wanted), [I64]
        text = expression(value.spec, texts, wanted[-1] if wanted else dtype, self.language)
        if value.spec.dtype is DTypeRule.TRUTH:
            text = f"({ctype}){text}"
        return Line(f"v{value.index}", ctype, text)

    def converted_operands(self, value: Value) -> list[str]:
        """Operands of an elementwise value, converted to its compute dtypes."""
        wanted = self._operand_dtypes(value, self._dtype_of(value))
        return [_cast(*self.operand(arg), to) for arg, to in zip(value.args, wanted)]

    def _operand_dtypes(self, value: Value, dtype: DType) -> list[DType]:
        """Dtype of each operand after conversion."""
        if value.spec.kind is Kind.ZERO:  # numbers of a draw, indices: whole, or compared with positions as double
            return [I64 if self.operand(arg)[1] == I64 else F64 for arg in value.args]
        if value.spec.name == "where":
            return [self.operand(value.args[0])[1], dtype, dtype]
        if value.spec.dtype is not DTypeRule.TRUTH:
            return [dtype] * len(value.args)
        typed = [self.operand(arg)[1] for arg in value.args if not isinstance(arg, NumberArg)]
        numbers = {self.operand(arg)[1] for arg in value.args if isinstance(arg, NumberArg)}
        if value.spec.name in ORDERS and U64 in typed and {*typed, *numbers} <= set(WHOLE):
            return [self.operand(arg)[1] for arg in value.args]
        common = typed[0] if len(set(typed)) == 1 else F64
        if (common == I64 and F64 in numbers) or (common == U64 and len(value.args) > 1):
            common = F64
        return [common] * len(value.args)


def _compared(texts: Sequence[str], dtypes: Sequence[DType]) -> list[str]:
    """Replacement operands for comparing uint64 with int64: the result of an exact comparison, and 0."""
    if dtypes[0] == U64:
        return [f"nl_compared_u64({texts[0]}, {texts[1]})", "0"]
    return ["0", f"nl_compared_u64({texts[1]}, {texts[0]})"]


def _element(array: Array) -> str:
    return f"x{array.name[1:]}"


def _cast(text: str, have: DType, want: DType) -> str:
    return text if have == want else f"({STORAGE[want.name]}){text}"


_WRAPPING = {
    "add": "wrap_add({0}, {1})", "sub": "wrap_sub({0}, {1})", "mul": "wrap_mul({0}, {1})",
    "neg": "wrap_sub(0, {0})", "sqr": "wrap_mul({0}, {0})",
}  # fmt: skip
"""Rows with C operators that are undefined on int64 overflow: they wrap, as in NumPy."""


def expression(spec: OpSpec, operands: Sequence[str], dtype: DType, language: str) -> str:
    """Fill ``operands`` into ``spec``'s template, with math names and literals for ``dtype``.

    Parameters
    ----------
    spec : OpSpec
    operands : sequence of str
        Texts.
    dtype : dtype
        Dtype of computation.
    language : "c" or "cuda"
    """
    template = spec.cuda if language == "cuda" and spec.cuda is not None else spec.c
    if dtype.kind in "iu":
        template = _WRAPPING.get(spec.name, template)
    suffix = _SUFFIX[dtype]
    text = _CALL.sub(lambda m: f"nl_{m.group(1)}_{suffix}(", template)
    if dtype == F32:
        text = _LITERAL.sub(r"\1f", text)
    return text.format(*operands)


def load_element(text: str, dtype: DType) -> str:
    """Convert ``text``, an element of ``dtype`` in memory, to a number."""
    return f"nl_{NARROW[dtype.name]}_to_f32({text})" if dtype.name in NARROW else text


def convert_store(text: str, have: DType, want: DType) -> str:
    """Convert ``text`` from dtype ``have`` to an element of ``want``: rounded to nearest, integers saturated.

    Parameters
    ----------
    text : str
    have, want : dtype
    """
    if want.name in NARROW:
        return f"nl_f32_to_{NARROW[want.name]}({_odd(text, have)})"
    if is_float(want):
        return _cast(text, have, want)
    if want.kind == "b":
        return f"({text} != 0)"
    if have == want or (have.kind == "i" == want.kind and have.itemsize < want.itemsize):
        return text
    return f"nl_sat_{_SUFFIX[have]}_{_short(want)}({text})"


def _odd(text: str, have: DType) -> str:
    """Round ``text`` to a float (to odd) that rounds to 16 bits as the number itself would."""
    if have == F32:
        return text
    if have in WHOLE:
        return f"nl_odd_{'whole' if have == I64 else 'unsigned'}({text})"
    return f"nl_odd_f64({_cast(text, have, F64)})"


def _round(text: str, have: DType, want: DType, digits: int, draw: str) -> tuple[str, DType]:
    """Round ``text`` stochastically, so that storing it as ``want`` is exact; see conversions.h."""
    if want.kind == "b" or (have in WHOLE and not is_float(want)):
        return text, have
    if want == F64:
        return f"nl_stochastic_f64({_cast(text, have, F64)}, {digits}, nl_rand_f64{draw})", F64
    if is_float(want):
        least = SUBNORMAL_F16 if want == F16 else 0
        return f"nl_stochastic_f32({_cast(text, have, F32)}, {digits}, {least}, nl_rand_f32{draw})", F32
    return f"nl_stochastic_whole({_cast(text, have, F64)}, nl_rand_f64{draw})", F64


SUBNORMAL_F16 = 113
"""float32 exponent below which float16's unit stays constant."""


def _short(dtype: DType) -> str:
    return f"{dtype.kind}{dtype.itemsize * 8}"


REDUCTIONS = frozenset(("sum", "prod", "max", "min", "any", "all", "argmax", "argmin"))
"""Reductions known to the templates; a row has no C text for a reduction."""


def unsupported(values: Iterable[Value]) -> str | None:
    """Name of the first op without text; None if all have one."""
    for value in values:
        if value.spec.kind in (Kind.ELEMENTWISE, Kind.ZERO) and not value.spec.c:
            return value.spec.name
        if value.spec.kind is Kind.REDUCTION and value.spec.name not in REDUCTIONS:
            return value.spec.name
        if value.spec.kind not in (Kind.ELEMENTWISE, Kind.REDUCTION, Kind.ZERO) and value.spec.name != "broadcast":
            return value.spec.name
    return None
