"""How attention is cut for a GPU: the forms of its kernels, and the steps of its passes.

Everything follows from sizes, dtype and the precision of products, and so does the order of all sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from neonlike.backends.geometry.counts import ceil_div, round_up
from neonlike.backends.gpu.primitives.calls import Draft, Launched
from neonlike.backends.gpu.primitives.conv.plan import implicit_kind
from neonlike.backends.gpu.primitives.elements import conversions
from neonlike.backends.primitives.attention.definition import AttentionPass
from neonlike.kernels.codegen.emit import load_element
from neonlike.kernels.cuda.fit import ALIGNMENT
from neonlike.kernels.cuda.routine import CudaRoutine
from neonlike.kernels.cuda.step import Place
from neonlike.optree.dtypes import F64, DType, compute_dtype

FORWARD = CudaRoutine("cuda/attention/forward.cu.j2", "5Qd19q", "attention", ("ptx.h",))
QUERIES = CudaRoutine("cuda/attention/queries.cu.j2", "8Qd25q", "gradient of the queries of attention", ("ptx.h",))
KEYS = CudaRoutine("cuda/attention/keys.cu.j2", "8Qd25q", "gradients of keys and values of attention", ("ptx.h",))

WARP_LINES = 16
"""Queries, or keys, of a warp: the height of a tensor core's tile."""
STEP = 16
"""Sizes in shared memory are multiples of this, which all ways to multiply take whole."""
MOST_SUMS = 1024
"""Bytes of all lines that a warp sums at once, an eighth of them in each thread's registers."""
MOST_SIZE = {4: 256, 8: 96}
"""Elements of a line, by the bytes of what it is computed in: with more, sums would not stay in registers."""
MOST_SHARED = 160 << 10
"""Bytes of shared memory of a block: what compute capability 8.0 and 9.0 have, less what kernels declare."""
DECLARED = 1 << 10
"""Bytes that kernels declare besides, at most."""
MOST_LINES = 1 << 30
"""Queries and keys are counted in 32 bits."""


LSE = 4
LINED = {False: (0, 1, 2, 3), True: (0, 1, 2, 3, 5, 6, 7, 8)}
"""Which operand of a pass the logarithms of sums are; which, backward or not, have lines: the others."""
Lines = tuple[int, int, int]
"""Elements from an operand's sample to the next, from a head and from a line."""


class Form(NamedTuple):
    """How a kernel is cut: everything that the order of its sums depends on, and its shared memory.

    Attributes
    ----------
    kind : str
        What is multiplied: "f16", "bf16", "tf32", or "plain" for float32 and float64 as they are.
    dtype : dtype
    size, value_size : int
        Of lines in shared memory.
    others : int
        Lines of a tile that a block compares its own with.
    warps : int
        Of a block.
    shared : int
        Bytes.
    blocks : int
        That a multiprocessor should have at a time, which bounds the registers.
    """

    kind: str
    dtype: DType
    size: int
    value_size: int
    others: int
    warps: int
    shared: int
    blocks: int

    def context(self, wide: bool) -> dict[str, Any]:
        """The context that the templates need; wide: whether operands can be read and written 16 bytes at a time."""
        whole = ALIGNMENT // self.dtype.itemsize
        return {
            "kind": self.kind,
            **conversions(self.dtype),
            "load_a": load_element("a", self.dtype),
            "load_b": load_element("b", self.dtype),
            "suffix": "f64" if self.dtype == F64 else "f32",
            "itemsize": self.dtype.itemsize,
            "size": self.size,
            "value_size": self.value_size,
            "others": self.others,
            "warps": self.warps,
            "blocks": self.blocks,
            "unit": whole if wide else 1,
            "pad": whole,
        }


def form(request: AttentionPass, dtype: DType, precision: str, own: str) -> Form | None:
    """The form of a kernel whose blocks have ``own`` ("queries" or "keys"); None if it would not fit a GPU.

    Parameters
    ----------
    request : AttentionPass
    dtype : dtype
    precision : str
        The backend's ``product_precision``.
    own : str
    """
    layer, real = request.layer, compute_dtype(dtype).itemsize
    kind = implicit_kind(dtype, precision)
    kind = "plain" if kind in (None, "f32") else kind
    assert kind is not None
    size, value_size = round_up(layer.size, STEP), round_up(layer.value_size, STEP)
    if max(size, value_size) > MOST_SIZE[real] or max(layer.queries, layer.keys) >= MOST_LINES:
        return None
    half, widest = dtype.itemsize == 2, max(size, value_size)
    others = 64 if half and widest <= (64 if own == "keys" else 128) else 32 if real == 4 else 16
    count = layer.queries if own == "queries" else layer.keys
    warps = 8 if half and widest <= 64 and count > 4 * WARP_LINES else 4
    while True:
        lines = warps * WARP_LINES
        pad = ALIGNMENT // dtype.itemsize
        room = lines * (size + pad) + others * (size + value_size + 2 * pad)
        room = room + lines * (value_size + pad) if request.backward else max(room, lines * (value_size + pad))
        shared = room * dtype.itemsize + (lines * (others + 4) * real if kind == "plain" else 0)
        if shared <= MOST_SHARED:
            wanted = (3 if own == "queries" else 2) * 4 // warps
            blocks = max(min(wanted, MOST_SHARED // shared), 1)
            return Form(kind, dtype, size, value_size, others, warps, shared, blocks)
        if warps == 1:
            return None
        warps //= 2


class _Steps:
    """The kernels of a pass as they are added; ``lines``: of each operand that has some, its :data:`Lines`."""

    def __init__(self, device: Any, precision: str, request: AttentionPass, dtype: DType, wide: bool) -> None:
        self.program, self.precision, self.request = Draft(device), precision, request
        self.dtype, self.wide = dtype, wide

    def add(
        self, routine: CudaRoutine, own: str, places: Sequence[Place | None], lines: Sequence[Lines], **flags: bool
    ) -> None:
        """A kernel of blocks of ``own``, queries or keys, and a head each."""
        request, layer = self.request, self.request.layer
        cut = form(request, self.dtype, self.precision, own)
        assert cut is not None, "form() was asked before"
        blocks = ceil_div(layer.queries if own == "queries" else layer.keys, cut.warps * WARP_LINES)
        heads = (1, *request.leading)[-1]
        sizes = heads, layer.queries, layer.keys, layer.size, layer.value_size, blocks, int(layer.causal)
        numbers = layer.scale, *sizes, *(step for steps in lines for step in steps)
        grid = (request.heads * blocks, 1, 1), (32 * cut.warps, 1, 1)
        context = cut.context(self.wide) | flags
        step = Launched(self.program.device, routine, grid, places, numbers, context, cut.shared)
        self.program.steps.append(step)


def attention_program(
    device: Any,
    precision: str,
    request: AttentionPass,
    dtype: DType,
    lines: Sequence[Lines],
    wide: bool = True,
    sums: bool = True,
) -> Draft:
    """The kernels of a pass.

    Parameters
    ----------
    device : GpuDevice
    precision : str
        ``product_precision`` of the backend.
    request : AttentionPass
    dtype : dtype
        Of the tensors.
    lines : sequence of Lines
        Of the operands ``LINED``.
    wide : bool
        Whether all that is read and written are whole units of 16 bytes.
    sums : bool
        Whether a forward pass stores the logarithms of sums.
    """
    steps = _Steps(device, precision, request, dtype, wide)
    places = [*map(Place, range(9))]
    at = dict(zip(LINED[request.backward], lines))
    if not request.backward:
        steps.add(FORWARD, "queries", [*places[:LSE], places[LSE] if sums else None], lines)
        return steps.program
    layer, real = request.layer, compute_dtype(dtype).itemsize
    q, k, v, out, lse, error, of_q, of_k, of_v = places
    delta = steps.program.room(request.heads * layer.queries * real)
    operands = [q, k, v, out, error, lse, of_q, delta]
    steps.add(QUERIES, "queries", operands, [at[slot] for slot in (0, 1, 2, 3, 5, 6)])
    elements = round_up(layer.size, STEP) + round_up(layer.value_size, STEP)
    together = elements * real <= MOST_SUMS
    for keys, values in ((True, True),) if together else ((True, False), (False, True)):
        operands = [q, k, v, error, lse, delta, of_k, of_v]
        both = [at[slot] for slot in (0, 1, 2, 5, 7, 8)]
        steps.add(KEYS, "keys", operands, both, of_keys=keys, of_values=values)
    return steps.program
