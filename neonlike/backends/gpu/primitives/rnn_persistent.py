"""All steps of a recurrent layer forward in one launch: how units are shared among blocks, and when that fits a GPU.

A product a step reads the whole recurrent weight at each step, and is queued at each. Here each block keeps the rows of
some units in shared memory over all steps; after a step blocks wait for each other and exchange states. So all blocks
must run at once: the driver promises that for a cooperative launch, or refuses it. Sizes and the GPU alone decide.
No GPU has run it yet: it is computed on the emulated one, and nothing is known of its speed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from neonlike.backends.geometry.counts import ceil_div, power_of_two, round_up
from neonlike.backends.gpu.memory.array import DeviceArray
from neonlike.backends.gpu.primitives.conv.program import has_copies
from neonlike.backends.gpu.primitives.rnn_layer import NUMBERS, Layer, padded, rows_of, variant
from neonlike.kernels.cuda.device import Capabilities
from neonlike.kernels.cuda.routine import CudaRoutine
from neonlike.kernels.cuda.tickets import tickets_of
from neonlike.kernels.run.program import Program

WARPS, AHEAD = 8, 8
"""Of a block; elements of the state that a thread has on their way at once."""
VECTOR_BYTES = 16
MOST_SAMPLES = 32
"""Of a block: those of a larger batch are shared among groups of blocks, each of which has the whole weight."""
LANE_ROWS, LEAST_ROWS = 8, 8
"""Most rows that a thread sums; fewest of a block in a product, as a barrier costs more than a few of them."""


class Phase(NamedTuple):
    """A product of a step, of ``gates`` rows of each unit; see ``rnn/persistent.cu.j2`` for the others.

    Attributes
    ----------
    tiles : int
        A block multiplies ``lane_rows * row_groups`` rows at a time.
    line : int
        Places from an element of a row that is kept to the next.
    """

    gates: int
    lane_rows: int
    row_groups: int
    tiles: int
    line: int

    @property
    def numbers(self) -> str:
        """As the template's functions take them."""
        return ", ".join(map(str, self))


class Form(NamedTuple):
    """How an unroll is cut.

    Attributes
    ----------
    own, blocks : int
        Units of a block; blocks that wait for each other.
    samples, groups, columns : int
        Samples of a block; such groups of blocks; neighbouring samples of a thread.
    phases : tuple of Phase
    shared : int
        Bytes.
    """

    own: int
    blocks: int
    samples: int
    groups: int
    columns: int
    phases: tuple[Phase, ...]
    shared: int


class Kind(NamedTuple):
    """A layer's cell: its name in the template, the gates of each product of a step, and the template's roles."""

    cell: str
    gates: tuple[int, ...]
    roles: dict[str, str]

    @property
    def routine(self) -> CudaRoutine:
        """The kernel."""
        return ROUTINES[self.cell]


SIMPLE = Kind("simple", (1,), {"h_prev": "h_prev_s", "ff": "h_ff_s", "h": "h_s"})
LSTM = Kind(
    "lstm", (4,),
    {
        "h_prev": "h_prev_s", "c_prev": "c_prev_s", "ff": "ifog_ff_s", "gates": "ifog_s", "c": "c_s",
        "c_act": "c_act_s", "h": "h_s",
    },
)  # fmt: skip
GRU = Kind(
    "gru", (2, 1),
    {"h_prev": "h_prev_s", "ff": "rzn_ff_s", "gates": "rzn_s", "reset": "reset_h_s", "h": "h_s"},
)  # fmt: skip
ROUTINES = {
    kind.cell: CudaRoutine(
        "cuda/rnn/persistent.cu.j2", f"3q{NUMBERS}dQqqQqQQ{'QqQqQqq' * len(kind.roles)}",
        f"recurrent layer, all steps ({kind.cell})", ("ptx.h",),
    )
    for kind in (SIMPLE, LSTM, GRU)
}  # fmt: skip


def form(gates: Sequence[int], units: int, samples: int, itemsize: int, device: Capabilities) -> Form | None:
    """The form of an unroll; None if blocks that hold its weight, or wait for each other, do not fit on ``device``.

    Parameters
    ----------
    gates : sequence of int
        Rows of a unit in each product of a step.
    units, samples : int
    itemsize : int
        Bytes of an element.
    device : Capabilities
    """
    whole = VECTOR_BYTES // itemsize
    own_samples = 1 if samples == 1 else min(max(power_of_two(samples), whole), MOST_SAMPLES)
    columns = min(whole, own_samples)
    groups = ceil_div(samples, own_samples)
    most = device.multiprocessors // groups
    if not most:
        return None
    own = max(ceil_div(units, most), ceil_div(LEAST_ROWS, gates[0]))
    blocks = ceil_div(units, own)
    own = ceil_div(units, blocks)
    phases = tuple(_phase(each, own, own_samples // columns, whole) for each in gates)
    kept = sum(round_up(units * phase.line, whole) for phase in phases)
    parts = WARPS * own_samples * max(phase.lane_rows * phase.row_groups for phase in phases)
    shared = (kept + parts) * itemsize
    fits = shared <= device.shared_bytes_optin
    return Form(own, blocks, own_samples, groups, columns, phases, shared) if fits else None


def _phase(gates: int, own: int, column_groups: int, whole: int) -> Phase:
    rows = gates * own
    lane_rows = min(power_of_two(rows), LANE_ROWS)
    row_groups = min(power_of_two(ceil_div(rows, lane_rows)), 32 // column_groups)
    tiles = ceil_div(rows, lane_rows * row_groups)
    line = tiles * lane_rows * row_groups
    return Phase(gates, lane_rows, row_groups, tiles, line if line < LANE_ROWS else line + whole)


def program(layer: Layer, kind: Kind, text: str, numbers: tuple[float, ...]) -> Program | None:
    """The program of all steps; None if there is no form for them, or their tensors lie in another way.

    Parameters
    ----------
    layer : Layer
        Its elements are apart; see ``elements_apart``.
    kind : Kind
    text, numbers
        Formulas of the activations.
    """
    device, request = layer.device, layer.request
    if not device.starts.can_meet or not has_copies(device):
        return None
    cut = form(kind.gates, request.units, request.samples, request.dtype.itemsize, device.capabilities)
    if cut is None or not _follow(layer.roles["h_prev_s"], layer.roles["h_s"]):
        return None
    roles = [_evenly(layer.roles[name]) for name in kind.roles.values()]
    if any(role is None for role in roles):
        return None
    exchange = device.empty((2 * cut.groups * request.units, cut.samples), request.dtype)
    weight = layer.weight
    steps = (stride // weight.itemsize for stride in weight.strides)
    values = (
        request.units, request.samples, request.steps, *padded(numbers), weight.address, *steps,
        *rows_of(layer.bias), exchange.address, tickets_of(device), *(n for role in roles for n in role or ()),
    )  # fmt: skip
    call = kind.routine.bind_together(
        device, (cut.blocks, cut.groups, 1), (32 * WARPS, 1, 1), values, cut.shared,
        **context(kind, cut, text, request.dtype),
    )  # fmt: skip
    return Program((call,), 0, 0, on_device=True, keep=(layer, exchange))


def context(kind: Kind, cut: Form, text: str, dtype: Any) -> dict[str, Any]:
    """The context that the template needs.

    Parameters
    ----------
    kind : Kind
    cut : Form
    text : str
        CUDA text of the activations.
    dtype : dtype
    """
    name = {4: "float", 8: "double"}[dtype.itemsize]
    return {
        "cell": kind.cell, "roles": tuple(kind.roles), "activation": text, "vector": 1, "warps": WARPS, "ahead": AHEAD,
        "own": cut.own, "samples": cut.samples, "columns": cut.columns, "phases": cut.phases,
        "vector_type": name + (str(cut.columns) if cut.columns > 1 else ""), **variant(dtype),
    }  # fmt: skip


def _follow(before: Sequence[Any], after: Sequence[Any]) -> bool:
    """Whether each of ``before`` but the first is what the step before it computes."""
    return all(rows_of(mine) == rows_of(its) for mine, its in zip(before[1:], after))


def _evenly(arrays: Sequence[DeviceArray | None]) -> tuple[int, ...] | None:
    """A role of the template, as numbers; None if the tensors between the first and the last are not evenly apart."""
    first, last, middle = rows_of(arrays[0]), rows_of(arrays[-1]), [rows_of(each) for each in arrays[1:-1]]
    rest = middle[0] if middle else (0, 0)
    apart = middle[1][0] - rest[0] if len(middle) > 1 else 0
    if any(each != (rest[0] + place * apart, rest[1]) for place, each in enumerate(middle)):
        return None
    itemsize = next((each.itemsize for each in arrays if each is not None), 1)
    return (*first, *last, *rest, apart // itemsize) if apart % itemsize == 0 else None
