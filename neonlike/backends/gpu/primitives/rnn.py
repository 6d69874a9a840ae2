"""Recurrent unrolls on a GPU: a matrix product of cuBLAS and a kernel for the whole cell for each step (a GRU has two).

Forward, all steps are one launch instead if that is asked for and fits: see ``rnn_persistent.py``. An unroll is a
program whose arguments are all known, bound once to the tensors it works on; it runs again when the layer calls again.
What the kernels do not take (activations that are not elementwise, samples that are not neighbours) runs step by step
as the families define it, on the GPU as well. Sums are those of the products, or of the one kernel: results depend on
nothing but sizes and the GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from neonlike import settings
from neonlike.backends.gpu.memory.array import DeviceArray
from neonlike.backends.gpu.primitives import rnn_persistent as persistent
from neonlike.backends.gpu.primitives.operands import put_back
from neonlike.backends.gpu.primitives.rnn_layer import NUMBERS, THREADS, Layer, padded, rows_of, variant
from neonlike.backends.primitives.rnn.family import RecurrentFamily
from neonlike.backends.primitives.rnn.formula import Trace, activation, activations, joined, slope, slopes
from neonlike.backends.primitives.rnn.steps import Steps, Unroll, elements_apart, row_strides, same_or_apart
from neonlike.errors import ArgumentError, DeviceError, OutOfMemory, ShapeError
from neonlike.kernels.cuda.fit import NARROW, divisors
from neonlike.kernels.cuda.routine import CudaRoutine
from neonlike.kernels.cuda.step import Call, FixedRunner
from neonlike.kernels.run import calls
from neonlike.kernels.run.program import Program
from neonlike.logger import logger
from neonlike.optree.dtypes import F32, F64, DType, compute_dtype

VECTOR_BYTES, VECTORS_FROM = 16, 1 << 18
"""Bytes of sums that a thread reads at once, and from how many elements of a state on: fewer need all the threads."""


def _routine(cell: str, operands: int, title: str) -> CudaRoutine:
    return CudaRoutine(f"cuda/rnn/{cell}.cu.j2", f"6i{NUMBERS}dQ{'Qq' * (operands + 1)}", title)


class Cell(NamedTuple):
    """A kernel of a step: ``part`` says which of a template's."""

    routine: CudaRoutine
    part: str


SIMPLE, SIMPLE_BACK = (Cell(_routine("simple", 2, "recurrent cell"), part) for part in ("forward", "backward"))
LSTM = Cell(_routine("lstm", 6, "LSTM cell"), "forward")
LSTM_BACK = Cell(_routine("lstm", 7, "LSTM cell, backward"), "backward")
GRU_GATES, GRU_CANDIDATE, GRU_CANDIDATE_BACK = (
    Cell(_routine("gru", 4, f"GRU cell, {part}"), part) for part in ("gates", "candidate", "candidate back")
)
GRU_GATES_BACK = Cell(_routine("gru", 5, "GRU cell, gates back"), "gates back")


class Binder:
    """Binds the time steps of a layer as steps of a program; working memory is taken from the pool now.

    Parameters
    ----------
    layer : Layer
    text : str
        CUDA text of the activations.
    numbers : tuple of float
        Numbers in that text.
    """

    def __init__(self, layer: Layer, text: str, numbers: tuple[float, ...]) -> None:
        self.layer, self.text = layer, text
        self.numbers = padded(numbers)
        request = layer.request
        self.dtype: DType = compute_dtype(request.dtype)
        arrays = [array for role in layer.roles.values() for array in role if array is not None]
        self.vector = _vector(request, self.dtype, arrays)
        vectors = request.samples // self.vector
        self.size = (request.units * vectors, *divisors([vectors], False), request.units, request.samples)
        self._steps: list[Call] = []
        self._working: list[DeviceArray] = []

    def fresh(self, blocks: int, dtype: DType) -> DeviceArray:
        """Working memory for ``blocks`` states."""
        request = self.layer.request
        self._working.append(self.layer.device.empty((blocks * request.units, request.samples), dtype))
        return self._working[-1]

    def multiply(self, a: DeviceArray, b: DeviceArray, out: DeviceArray, beta: float = 0.0) -> None:
        """out = a.b + beta out.

        Parameters
        ----------
        a, b, out : DeviceArray (m, k), (k, n), (m, n)
        beta : float
        """
        self._steps.append(self.layer.products.ready(a, b, out, self.dtype, 1.0, beta))

    def compute(self, cell: Cell, sums: DeviceArray | None, *operands: DeviceArray | None) -> None:
        """The kernel ``cell``; ``sums`` is the product that it finishes.

        Parameters
        ----------
        cell : Cell
        sums : DeviceArray or None
        *operands : DeviceArray or None
            As the template takes them.
        """
        layer, dtype = self.layer, self.layer.request.dtype
        given = [number for operand in (layer.bias, *operands) for number in rows_of(operand)]
        values = (*self.size, *self.numbers, 0 if sums is None else sums.address, *given)
        grid = -(-self.size[0] // THREADS), 1, 1
        launch = cell.routine.bind(
            layer.device, grid, (THREADS, 1, 1), values, part=cell.part, activation=self.text, vector=self.vector,
            **variant(dtype),
        )  # fmt: skip
        self._steps.append(launch)

    def program(self) -> Program:
        """The program of what was bound."""
        return Program(tuple(self._steps), 0, 0, on_device=True, keep=(self.layer, self._working))


def _vector(request: Unroll, dtype: DType, arrays: Sequence[DeviceArray]) -> int:
    """Samples for each thread: 1, or as many as make whole vectors in all arrays."""
    vector = VECTOR_BYTES // dtype.itemsize
    if request.units * request.samples < VECTORS_FROM or request.samples % vector:
        return 1
    nbytes = vector * request.dtype.itemsize
    return 1 if any(array.address % nbytes or array.strides[0] % nbytes for array in arrays) else vector


# The steps of each kind of layer


def _simple_forward(layer: Layer, to: Binder) -> None:
    sums = to.fresh(1, to.dtype)
    for h_prev, ff, h in layer.each("h_prev_s", "h_ff_s", "h_s"):
        to.multiply(layer.weight, h_prev, sums)
        to.compute(SIMPLE, sums, ff, h)


def _simple_backward(layer: Layer, to: Binder) -> None:
    for delta_prev, delta, h in layer.each("delta_prev_s", "delta_s", "h_s"):
        to.compute(SIMPLE_BACK, None, delta, h)
        if delta_prev is not None:
            to.multiply(layer.weight, delta, delta_prev, 1.0)


def _lstm_forward(layer: Layer, to: Binder) -> None:
    sums = to.fresh(4, to.dtype)
    names = ("h_prev_s", "c_prev_s", "ifog_ff_s", "ifog_s", "c_s", "c_act_s", "h_s")
    for h_prev, *operands in layer.each(*names):
        to.multiply(layer.weight, h_prev, sums)
        to.compute(LSTM, sums, *operands)


def _lstm_backward(layer: Layer, to: Binder) -> None:
    names = ("delta_s", "c_delta_prev_s", "c_delta_s", "ifog_delta_s", "ifog_s", "c_prev_s", "c_act_s")
    for delta_prev, d, *operands in layer.each("delta_prev_s", "ifog_delta_s", *names):
        to.compute(LSTM_BACK, None, *operands)
        if delta_prev is not None:
            to.multiply(layer.weight, d, delta_prev, 1.0)


def _gru_forward(layer: Layer, to: Binder) -> None:
    n = layer.request.units
    sums, kept = to.fresh(2, to.dtype), to.fresh(1, layer.request.dtype)
    for h_prev, ff, rzn, reset_h, h in layer.each("h_prev_s", "rzn_ff_s", "rzn_s", "reset_h_s", "h_s"):
        reset = kept if reset_h is None else reset_h
        to.multiply(layer.weight[: 2 * n], h_prev, sums)
        to.compute(GRU_GATES, sums, h_prev, ff, rzn, reset)
        to.multiply(layer.weight[2 * n :], reset, sums[:n])
        to.compute(GRU_CANDIDATE, sums, h_prev, ff, rzn, h)


def _gru_backward(layer: Layer, to: Binder) -> None:
    n = layer.request.units
    q = to.fresh(1, to.dtype)
    w_rz, w_n = layer.weight[:, : 2 * n], layer.weight[:, 2 * n :]
    names = ("delta_prev_s", "delta_s", "rzn_delta_s", "rzn_s", "h_prev_s")
    for delta_prev, delta, d, rzn, h_prev in layer.each(*names):
        to.compute(GRU_CANDIDATE_BACK, None, delta, d, rzn, h_prev)
        to.multiply(w_n, d[2 * n :], q)
        to.compute(GRU_GATES_BACK, q, delta_prev, delta, d, rzn, h_prev)
        if delta_prev is not None:
            to.multiply(w_rz, d[: 2 * n], delta_prev, 1.0)


class Unrolled(NamedTuple):
    """A kind of unroll.

    Attributes
    ----------
    trace : callable
        Formulas of its activations, by name.
    bind : callable
        ``bind(layer, binder)`` binds all steps.
    in_place : tuple of pairs of roles
        Those whose tensors may be the same, but must not overlap otherwise.
    apart : tuple of str
        Two roles whose tensors must share no memory, though the definition allows it.
    whole : Kind or None
        The cell of the kernel of all steps, if there is one.
    """

    trace: Trace
    bind: Callable[[Layer, Binder], None]
    in_place: tuple[tuple[str, str], ...] = ()
    apart: tuple[str, ...] = ()
    whole: persistent.Kind | None = None

    def run(self, backend: Any, request: Unroll, steps: Steps, weight: Any, bias: Any = None) -> calls.Unrolled | None:
        """Queue ``steps``; None if there are no kernels for them, and nothing was queued.

        Parameters
        ----------
        backend : NervanaGPU
        request : Unroll
        steps : Steps
        weight : GPUTensor
        bias : GPUTensor or None
        """
        if row_strides(steps) is None or request.units * request.samples >= NARROW:
            return None
        if not all(same_or_apart(a, b, steps) for a, b in self.in_place):
            return None
        if self.apart and any(a is not None and b is not None and a.alias_of(b) for a, b in steps.each(*self.apart)):
            return None
        if any(tensor is not None and tensor.rounding for role in steps.roles.values() for tensor in role):
            return None
        try:
            flat = None if bias is None else bias.array.reshape(bias.size, 1)
        except ShapeError:
            return None
        roles = {name: [None if t is None else t.array for t in role] for name, role in steps.roles.items()}
        layer = Layer(backend.device, backend.products, request, roles, weight.array, flat)
        method = backend.recurrent_method
        may_meet = method == "persistent" and self.whole is not None and elements_apart(steps)
        launch = BoundUnroll(self, layer, method, may_meet)
        return launch if launch.again(backend, (request.activation, request.gate_activation)) else None


class BoundUnroll:
    """An unroll on fixed arrays: chooses the program that fits its activations and precision, and has it run.

    ``method``: how it is unrolled, for another one it has to be replaced; ``may_meet``: whether a kernel of all steps
    may compute it.

    Parameters
    ----------
    kind : Unrolled
    layer : Layer
    method : str
    may_meet : bool
    """

    lasts = True

    def __init__(self, kind: Unrolled, layer: Layer, method: str, may_meet: bool) -> None:
        self.kind, self.layer, self._method, self._may_meet = kind, layer, method, may_meet
        self._made_for: Any = None
        self._run: FixedRunner | None = None

    def again(self, backend: Any, functions: tuple[Any, ...]) -> bool:
        """Queue it with these activations; False, and nothing is queued, if there are no kernels, or a new method."""
        if backend.recurrent_method != self._method:
            return False
        request = replace(self.layer.request, **dict(zip(("activation", "gate_activation"), functions)))
        formulas = joined(self.kind.trace(backend, request, "cuda"))
        if formulas is None or len(formulas[1]) > NUMBERS:
            return False
        wanted = (*formulas, backend.product_precision)
        if self._run is None or wanted != self._made_for:
            self._run = self._started(backend, *formulas)
            self._made_for = wanted
        else:
            self._run()
        return True

    def _started(self, backend: Any, text: str, numbers: tuple[float, ...]) -> FixedRunner:
        """The runner of the program that fits, after its first run: one kernel for all steps, or kernels for each."""
        device = self.layer.device
        if (whole := self._whole(backend, text, numbers)) is not None:
            run = FixedRunner(device, whole)
            try:
                run()
                return run
            except (DeviceError, OutOfMemory) as error:
                logger.info("recurrent unrolls are queued step by step: %s", error)
                self._may_meet = False
        binder = Binder(self.layer, text, numbers)
        self.kind.bind(self.layer, binder)
        run = FixedRunner(device, binder.program())
        run()
        return run

    def _whole(self, backend: Any, text: str, numbers: tuple[float, ...]) -> Program | None:
        """The program of one kernel for all steps; None if that does not fit, or tensor cores may multiply."""
        kind, dtype = self.kind.whole, self.layer.request.dtype
        precise = dtype == F64 or (dtype == F32 and backend.product_precision == "float32")
        if kind is None or not self._may_meet or not precise:
            return None
        return persistent.program(self.layer, kind, text, numbers)


class RecurrentKernels(RecurrentFamily):
    """Overrides of the hooks of RecurrentFamily and GatedFamily."""

    _recurrent_method: str | None = None

    @property
    def recurrent_method(self) -> str:
        """How recurrent unrolls are computed forward: "steps", the default, or "persistent".

        With "steps" by a product and a kernel for each step, with "persistent" by one kernel for all steps wherever
        it fits the GPU, which has only run on an emulated GPU and was not measured; see docs/gpu.md. May be set, also
        between passes; backends start from the variable ``NEONLIKE_GPU_RECURRENT``.
        """
        if self._recurrent_method is None:
            self._recurrent_method = settings.GPU_RECURRENT.get()
        return self._recurrent_method

    @recurrent_method.setter
    def recurrent_method(self, method: str) -> None:
        if method not in settings.RECURRENT_METHODS:
            raise ArgumentError(
                f"recurrent_method: got {method!r}; one of {', '.join(settings.RECURRENT_METHODS)} is expected"
            )
        self._recurrent_method = method

    def _rnn_fprop(self, request: Unroll, steps: Steps, weight: Any, bias: Any) -> calls.Unrolled | None:
        launch = _SIMPLE_FORWARD.run(self, request, steps, weight, bias)
        return _known(launch, super()._rnn_fprop, (request, steps, weight, bias), "h_s")

    def _rnn_bprop(self, request: Unroll, steps: Steps, weight: Any) -> calls.Unrolled | None:
        launch = _SIMPLE_BACKWARD.run(self, request, steps, weight)
        return _known(launch, super()._rnn_bprop, (request, steps, weight), "delta_s", "delta_prev_s")

    def _lstm_fprop(self, request: Unroll, steps: Steps, weight: Any, bias: Any) -> calls.Unrolled | None:
        launch = _LSTM_FORWARD.run(self, request, steps, weight, bias)
        return _known(launch, super()._lstm_fprop, (request, steps, weight, bias), "ifog_s", "c_s", "c_act_s", "h_s")

    def _lstm_bprop(self, request: Unroll, steps: Steps, weight: Any) -> calls.Unrolled | None:
        launch = _LSTM_BACKWARD.run(self, request, steps, weight)
        roles = "delta_prev_s", "c_delta_prev_s", "c_delta_s", "ifog_delta_s"
        return _known(launch, super()._lstm_bprop, (request, steps, weight), *roles)

    def _gru_fprop(self, request: Unroll, steps: Steps, weight: Any, bias: Any) -> calls.Unrolled | None:
        launch = _GRU_FORWARD.run(self, request, steps, weight, bias)
        return _known(launch, super()._gru_fprop, (request, steps, weight, bias), "rzn_s", "reset_h_s", "h_s")

    def _gru_bprop(self, request: Unroll, steps: Steps, weight: Any) -> calls.Unrolled | None:
        launch = _GRU_BACKWARD.run(self, request, steps, weight)
        return _known(launch, super()._gru_bprop, (request, steps, weight), "rzn_delta_s", "delta_prev_s")


def _known(
    launch: calls.Unrolled | None, definition: Callable[..., Any], given: tuple[Any, ...], *roles: str
) -> calls.Unrolled | None:
    """``launch``; without one the ``definition`` is run, and tensors in these roles are put back if memory runs out."""
    if launch is None:
        _, steps, *_ = given
        with put_back(tensor for role in roles for tensor in steps.roles[role]):
            definition(*given)
    return launch


_SIMPLE_FORWARD = Unrolled(activation, _simple_forward, (("h_s", "h_ff_s"),), whole=persistent.SIMPLE)
_SIMPLE_BACKWARD = Unrolled(slope, _simple_backward, apart=("delta_prev_s", "delta_s"))
_LSTM_FORWARD = Unrolled(
    activations, _lstm_forward, (("ifog_s", "ifog_ff_s"), ("c_s", "c_prev_s")), whole=persistent.LSTM
)
_LSTM_BACKWARD = Unrolled(slopes, _lstm_backward, (("c_delta_s", "c_delta_prev_s"),))
_GRU_FORWARD = Unrolled(
    activations, _gru_forward, (("rzn_s", "rzn_ff_s"), ("h_s", "h_prev_s")), whole=persistent.GRU
)
_GRU_BACKWARD = Unrolled(slopes, _gru_backward, (("delta_s", "delta_prev_s"),))
