"""Compiled kernels for the hooks of ``AttentionFamily``.

Where ``be.product_precision`` says so, factors are packed as pairs of bfloat16 (``templates/c/pair_panels.h``); sums
and the softmax stay float32.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any

from neonlike.backends.cpu.primitives.compiled import CompiledFamily, strided, strided_written
from neonlike.backends.geometry.counts import ceil_div, round_up
from neonlike.backends.primitives.attention.definition import AttentionPass
from neonlike.backends.primitives.attention.family import AttentionFamily
from neonlike.backends.tensors.operands import Array
from neonlike.kernels.c.convert import as_floats, conversions, convertible
from neonlike.kernels.c.gemm import with_tiles
from neonlike.kernels.c.pairs import TILES, context_of
from neonlike.kernels.c.routine import POINTER, REAL, REAL_TYPES, TILE, Routine, threads_for
from neonlike.kernels.run.calls import KernelCall
from neonlike.optree.dtypes import compute_dtype, half_of
from neonlike.optree.shapes import contiguous_strides

_HEADERS = ("pair_panels.h", "tiles.h", *TILE)
FORWARD = Routine("c/attention/forward.c.j2", [POINTER] * 7 + [REAL], "attention", _HEADERS)
BACKWARD = Routine("c/attention/backward.c.j2", [POINTER] * 11 + [REAL], "gradients of attention", _HEADERS)

KEYS, BACKWARD_ROWS, MOST_ROWS = 192, 96, 384
"""Keys per tile of scores, and queries per block backward and forward, as in the templates."""
FEWEST_ROWS, BLOCK_ELEMENTS, BLOCKS = 96, 3 << 14, 8
"""Forward pass: minimum queries per block, because of packing costs; elements of a block's queries and sums that fit
in the L2 cache; and minimum number of blocks over all heads."""
TILE_ROWS, ROWS_BY_TILES, LANES = 12, 32, 16
"""Upper bounds of the rows of a register tile, rows that the processor's tiles multiply, and elements of a vector."""
UNITS = 16
"""Number of parts of the keys over all heads in the backward pass, if there are fewer heads."""
PARALLEL_PRODUCTS = 1 << 17
"""Multiplications below which starting threads does not pay."""
FEWEST_OF_PAIRS = 16
"""Elements of a query and of a value, and keys, from which making pairs of bfloat16 pays."""
FEWEST_BY_TILES = 16
"""Queries, elements of a query and of a value, and half the keys, from which pairs are multiplied by tiles
(``tiles.h``) where there are any: those of one tile.

No such processor was at hand. On a Zen 4 a kernel whose tiles do nothing took, of the time by ``vdpbf16ps``, 0.35
forward and 0.26 backward for eight heads of 1024 queries and keys of 64 elements; 0.5 to 0.9 for the least sizes; and
as long with 16 keys. Tiles have eight times the rate of ``vdpbf16ps``, as Intel says, or more.
"""

_WRITTEN = {False: {3: False, 4: False}, True: {4: True, 6: False, 7: False, 8: False}}
"""Arrays that the kernels write, forward and backward, and whether they read their old values."""


class AttentionKernels(CompiledFamily, AttentionFamily):
    """Overrides of AttentionFamily's hooks."""

    def _fprop_attention(
        self, request: AttentionPass, Q: Any, K: Any, V: Any, O: Any, lse: Any  # noqa: E741
    ) -> KernelCall | None:
        kernel, pairs = self._attention_kernel(FORWARD, request, Q)
        if kernel is None:
            return super()._fprop_attention(request, Q, K, V, O, lse)
        with ExitStack() as stack:
            sums = None if lse is None else stack.enter_context(self._stored_written(lse, lse.shape, False))
            arrays = [*map(self._as_read, (Q, K, V)), stack.enter_context(self._as_written(O))]
            call = self._converting(_call(kernel, request, (), arrays, pairs), (*arrays, sums), _WRITTEN[False])
            return _launch(call, (Q, K, V, O))

    def _bprop_attention(
        self,
        request: AttentionPass,
        Q: Any,
        K: Any,
        V: Any,
        O: Any,  # noqa: E741
        lse: Any,
        E: Any,
        dQ: Any,
        dK: Any,
        dV: Any,
    ) -> KernelCall | None:
        kernel, pairs = self._attention_kernel(BACKWARD, request, Q)
        if kernel is None:
            return super()._bprop_attention(request, Q, K, V, O, lse, E, dQ, dK, dV)
        with ExitStack() as stack:
            sums = stack.enter_context(self._stored_written(lse, lse.shape, True))
            arrays = [self._as_read(tensor) for tensor in (Q, K, V, O, E)]
            arrays += [stack.enter_context(self._as_written(tensor)) for tensor in (dQ, dK, dV)]
            call, given = _call(kernel, request, (), arrays, pairs), (*arrays[:4], sums, *arrays[4:])
            call = self._converting(call, given, _WRITTEN[True])
            return _launch(call, (Q, K, V, O, E, dQ, dK, dV))

    def _as_read(self, tensor: Any) -> Array:
        """Values of a tensor with any strides; of 16-bit floats without gaps, as ``_stored``."""
        return self._stored(tensor) if half_of(tensor.dtype) else strided(tensor)

    def _as_written(self, tensor: Any) -> AbstractContextManager[Array]:
        """An array for writing a tensor, as :meth:`_as_read` has its values."""
        half = half_of(tensor.dtype)
        return self._stored_written(tensor, tensor.shape, False) if half else strided_written(tensor)

    def _planned_attention(self, arrays: Sequence[Any], request: AttentionPass) -> KernelCall | None:
        kind = compute_dtype(request.layer.dtype)
        sums = arrays[4]
        plain = tuple(sums.strides) == contiguous_strides(sums.shape, sums.itemsize)
        kernel, pairs = self._attention_kernel(BACKWARD if request.backward else FORWARD, request, arrays[0])
        given = [as_floats(array) if convertible(array.dtype, self.compiler) else array for array in arrays]
        if kernel is None or not plain or any(array is None or array.dtype != kind for array in given):
            return None
        call = _call(kernel, request, tuple(arrays), (*given[:4], *given[5:]), pairs)
        return call._replace(converted=conversions(arrays, self.compiler, _WRITTEN[request.backward]))

    def _attention_kernel(self, routine: Routine, request: AttentionPass, tensor: Any) -> tuple[Any, int]:
        """The kernel, None if there is none, and the form of pairs that it rounds factors to."""
        real, pairs = REAL_TYPES[compute_dtype(tensor.dtype)], self._attention_pairs(request)
        suffix = "f32" if real == "float" else "f64"
        return routine.variant(self.compiler, real=real, suffix=suffix, **context_of(pairs)), pairs

    def _attention_pairs(self, request: AttentionPass) -> int:
        """The form of pairs for tensors of the layer; 0 where they would not pay."""
        layer = request.layer
        fewest = min(layer.size, layer.value_size, layer.keys)
        if fewest < FEWEST_OF_PAIRS:
            return 0
        pairs = self._pairs_of(layer.dtype)
        full = min(fewest, layer.queries, layer.keys // 2) >= FEWEST_BY_TILES
        return with_tiles(pairs, self.compiler) if full else pairs

    def _attention_workspace(self, request: AttentionPass) -> int:
        """Workspace of the kernels, and of operand copies in the compute dtype."""
        layer = request.layer
        kind = compute_dtype(layer.dtype)
        if self.compiler is None:
            return super()._attention_workspace(request)
        count = 1 + request.backward
        elements = request.heads * (layer.queries + layer.keys) * (layer.size + layer.value_size)
        copies = 0 if kind == layer.dtype else count * elements + request.heads * layer.queries * layer.value_size
        pairs = self._attention_pairs(request)
        return (_elements(request, _threads(request), pairs)[-1] + copies) * kind.itemsize


def _launch(call: KernelCall, tensors: Sequence[Any]) -> KernelCall | None:
    """Make a call; return it if it may be kept, for tensors without gaps, whose byte size marks their end."""
    call.run()
    return call if all(tensor.is_contiguous for tensor in tensors) else None


def _call(
    kernel: Any, request: AttentionPass, addresses: tuple[Any, ...], arrays: Sequence[Any], pairs: int
) -> KernelCall:
    """The kernel call for arrays with the strides of ``arrays``, which are all except the sums."""
    layer = request.layer
    outer, inner = (1, 1, *request.leading)[-2:]
    threads = _threads(request)
    numbers = [outer, inner, layer.queries, layer.keys, layer.size, layer.value_size, int(layer.causal)]
    for array in arrays:
        steps = [step // array.itemsize for step in array.strides]
        numbers += [0] * (4 - len(steps)) + steps
    *sizes, total = _elements(request, threads, pairs)
    numbers += [*sizes, threads]
    meta = (ctypes.c_int64 * len(numbers))(*numbers)
    work = total * compute_dtype(layer.dtype).itemsize
    return KernelCall(kernel, addresses, (ctypes.addressof(meta), layer.scale), work, meta)


def _threads(request: AttentionPass) -> int:
    layer = request.layer
    return threads_for(request.heads * layer.pairs * (layer.size + layer.value_size), PARALLEL_PRODUCTS)


def _elements(request: AttentionPass, threads: int, pairs: int) -> tuple[int, ...]:
    """Elements of each thread's working memory, and of the total as the last entry.

    Before them, forward: queries per block. Between them, backward: elements of a part's sums and of all such sums, and
    parts per head.
    """
    layer = request.layer
    tile = _tile_rows(pairs)
    size, value_size, pitch = round_up(layer.size, LANES), round_up(layer.value_size, LANES), KEYS + LANES
    if not request.backward:
        rows = _block_rows(request, tile)
        each = rows * (size + value_size) + KEYS * (layer.size + value_size) + tile * pitch
        return rows, each, threads * each
    each = KEYS * (layer.size + layer.value_size + 2 * size + value_size)
    each += BACKWARD_ROWS * (size + value_size + 2 * pitch)
    if pairs:
        each += BACKWARD_ROWS * (size + value_size) + tile * pitch
    high = round_up(layer.queries, tile) * size
    parts = max(1, min(ceil_div(UNITS, request.heads), ceil_div(layer.keys, KEYS)))
    sums = high * (request.heads * parts if parts > 1 else threads)
    return each, high, sums, parts, sums + threads * each + request.heads * layer.queries


def _tile_rows(pairs: int) -> int:
    """Rows of scores that are computed at a time, or more."""
    return ROWS_BY_TILES if pairs == TILES else TILE_ROWS


def _block_rows(request: AttentionPass, tile: int) -> int:
    """Queries per block of the forward pass: nearly equal blocks of whole tiles, determined by sizes alone."""
    layer = request.layer
    fitting = min(max(BLOCK_ELEMENTS // (layer.size + layer.value_size), FEWEST_ROWS), MOST_ROWS)
    wanted = min(ceil_div(BLOCKS, request.heads), ceil_div(layer.queries, FEWEST_ROWS))
    blocks = max(ceil_div(layer.queries, fitting), wanted)
    return min(round_up(ceil_div(layer.queries, blocks), tile), MOST_ROWS)
