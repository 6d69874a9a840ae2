"""The cases of ``gpu.py``: expressions, products, copies, and the problems of the CPU's scripts in other precisions.

A large case of expressions or products has several sets of operands and results, and each run takes the next: then
operands are not in the L2 cache any more. Results are poisoned before they are checked; all sets must give the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import _contenders
import _expressions
import numpy as np
from _cases import OURS, Case, Contender
from _contenders import ASSIGN, ON_GPU, PREPARED, SLOW_TO_COMPILE, TOO_SLOW
from _expressions import Expression
from _layers import Cell, Layer, Maps, Pool, conv2d
from _layers import Conv as ConvLayer
from _libraries import Library, Made, Run, contender, from_images, returns, writes
from _primitives import Problem
from attention import Attention, Heads
from batchnorm import EPS, RHO, BatchNorm
from conv import Convolution
from lrn import Lrn
from pool import Pooling
from rnn import Unrolled

ROTATE_FROM = 1 << 20
"""Cases that move fewer bytes use one set: they cost what calling costs, wherever the data is."""
CACHES, MOST_SETS = 4, 16
"""All sets together are so many times as large as the L2 cache; but there are not more than this."""

PRECISIONS = ("float32", "tf32", "float16", "bfloat16")
TOLERANCES = {"float32": 2e-5, "tf32": 5e-3, "float16": 5e-3, "bfloat16": 2e-2}
"""Largest error of a product, in parts of its largest value; float16 results have 11 bits, those of bfloat16 8."""
TOLERANCE_OF_4 = 5e-5
"""Largest error of Winograd's tiles of 4 x 4, whose transforms round more than sums do."""
SAMPLED = 8
"""Rows and columns of a product that are compared."""
CUBLAS = "cublas"
"""The product that a window of one element is, by cuBLAS alone: what a convolution of 1x1 is compared with."""
WHOLE = "neonlike persistent"
"""Ours with all steps of a recurrent layer forward in one launch."""

FORWARD, BACK, BOTH = ("fprop",), ("fprop", "bprop"), ("fprop", "fprop+bprop")
PASSES = ("fprop", "bprop", "update")


@dataclass(frozen=True)
class Field:
    """The libraries that take part, by name; why others do not; and the bytes of the L2 cache."""

    ours: Any
    peers: dict[str, Any]
    absent: dict[str, str]
    cache: int

    def refused(self, *names: str) -> dict[str, str]:
        """Why these take no part, of those who do not."""
        return {name: self.absent[name] for name in names if name in self.absent}


def sets_for(nbytes: int, cache: int) -> int:
    """How many sets of operands a case of ``nbytes`` takes turns with."""
    return 1 if nbytes < ROTATE_FROM else max(1, min(MOST_SETS, math.ceil(CACHES * cache / nbytes)))


# Expressions, products and copies -------------------------------------------------------------------------------


def expression_case(expression: Expression, size: int, field: Field, slow: bool) -> Case:
    """All contenders of ``expression`` at ``size``; ``slow`` admits those that take seconds to compile."""
    problem, ours = _contenders.Problem(expression, size), field.ours
    sets = range(sets_for(_expressions.nbytes(expression, size), field.cache))
    found = [
        contender(ours, name, *(_contenders.neonlike_set(problem, ours, name == PREPARED) for _ in sets), ours=True)
        for name in (ASSIGN, PREPARED)
    ]
    refused = {}
    for name in ON_GPU:
        peer = _contenders.PEERS[name]
        if peer.library in field.absent:
            refused[name] = field.absent[peer.library]
        elif not slow and name in SLOW_TO_COMPILE:
            refused[name] = TOO_SLOW
        elif library := field.peers.get(peer.library):
            function = peer.function(problem, library)
            found.append(contender(library, name, *(peer.made(problem, library, function) for _ in sets)))
    return problem.case(found, refused)


def stored(precision: str) -> np.dtype[Any]:
    """The dtype of arrays in a precision: that of this name, float32 where only products are rounded."""
    from neonlike.optree import dtypes

    return dtypes.as_dtype("float32" if precision == "tf32" else precision)


def product_case(size: int, precision: str, field: Field) -> Case:
    """Square matrices of ``size``, multiplied by our layer over cuBLAS and by what calls the same library."""
    dtype, rng = stored(precision), np.random.default_rng(size)
    a, b = (rng.standard_normal((size, size), dtype=np.float32).astype(dtype) for _ in range(2))
    some = np.unique(np.linspace(0, size - 1, SAMPLED).astype(int))
    count, ours, peers = sets_for(3 * a.nbytes, field.cache), field.ours, field.peers

    def sample(product: Any) -> list[Any]:
        return [product[some], product[:, some]]

    def reference() -> list[Any]:
        wide = a.astype(np.float64), b.astype(np.float64)
        return [wide[0][some] @ wide[1], wide[0] @ wide[1][:, some]]

    def made(library: Library, name: str, multiply: Callable[[Any, Any, Any], Run]) -> Contender:
        sets = []
        for _ in range(count):
            out = library.put(np.full((size, size), np.nan, dtype))
            sets.append(writes(multiply(library.put(a), library.put(b), out), out))
            sets[-1].reset = lambda out=out: library.set(out, np.nan)  # type: ignore[misc]
        return contender(library, name, *sets, sample=sample, ours=library is ours)

    found = [made(ours, PREPARED, lambda x, y, out: ours.be.prepare(out, ours.be.dot(x, y)))]
    if torch := peers.get("torch"):
        mm = torch.torch.mm
        found.append(made(torch, "torch", lambda x, y, out: rounding(torch, precision, lambda: mm(x, y, out=out))))
    if (cupy := peers.get("cupy")) and precision in ("float32", "float16"):
        found.append(made(cupy, "cupy", lambda x, y, out: lambda: cupy.cupy.matmul(x, y, out=out)))
    return Case(
        precision, f"{precision} product, {size} x {size} x {size}", size, found, reference, 3 * a.nbytes,
        TOLERANCES[precision], field.refused("torch", "cupy"), flops=2 * size**3,
    )  # fmt: skip


def rounding(library: Any, precision: str, run: Run) -> Run:
    """``run`` of PyTorch, with factors rounded or not."""
    torch, tf32 = library.torch, precision == "tf32"

    def rounded() -> None:
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
        run()

    return rounded


def copy_case(size: int, down: bool, field: Field) -> Case:
    """``size`` float32 elements from the host's memory to the GPU, or back; PyTorch from pinned memory is the limit."""
    host, peers = np.random.default_rng(size).standard_normal((size, 1), dtype=np.float32), field.peers
    methods = (lambda array, values: array.set(values)), (lambda array: array.get())
    found = [_copy(field.ours, OURS, host, down, *methods)]
    if torch := peers.get("torch"):
        found += [_copy(torch, "torch", host, down, torch.set, torch.get), _pinned_copy(torch, host, down)]
    if cupy := peers.get("cupy"):
        found.append(_copy(cupy, "cupy", host, down, *methods))
    name = "to the host" if down else "to the GPU"
    return Case(name, name, size, found, lambda: [host], host.nbytes, 0.0, field.refused("torch", "cupy"))


def _copy(library: Library, name: str, host: Any, down: bool, put: Any, get: Any) -> Contender:
    there, last = library.put(host), [np.full_like(host, np.nan)]

    def run() -> None:
        if down:
            last[0] = get(there)
        else:
            put(there, host)

    def reset() -> None:
        if not down:
            library.set(there, np.float32(np.nan))

    result = lambda: last if down else [library.get(there)]  # noqa: E731
    return Contender(name, run, result, reset, name == OURS, lambda loops: library.wall(run, loops))


def _pinned_copy(library: Any, host: Any, down: bool) -> Contender:
    pinned, there = library.torch.from_numpy(host).pin_memory(), library.put(host)
    target, source = (pinned, there) if down else (there, pinned)
    run = lambda: target.copy_(source, non_blocking=True)  # noqa: E731
    reset = lambda: None if down else there.fill_(math.nan)  # noqa: E731
    result = lambda: [target.cpu().numpy()]  # noqa: E731
    return Contender("torch pinned", run, result, reset, False, lambda loops: library.wall(run, loops))


# Primitives -----------------------------------------------------------------------------------------------------


class OnGpu(BatchNorm):
    """Batch normalization: forward with relu, backward without, by PyTorch's own kernels.

    (Whether a result is above 0 may depend on rounding; relu's gradient would make that a large error.)
    """

    relu = False

    def sample(self, *made: Any) -> list[Any]:
        """Maps alone: sums over all images round more."""
        return super().sample(made[0])

    def reference(self) -> list[Any]:
        return super().reference()[:1]

    def peer(self, library: Any, who: str) -> Made:
        aten = library.torch.ops.aten
        x, g = library.images(self.I), library.images(self.E)
        weights = [library.put(array.ravel()) for array in (self.gamma, self.beta)]
        moving = [library.put(np.zeros(self.layer.C, np.float32)) for _ in range(2)]
        if self.direction == "fprop":
            run = lambda: aten.native_batch_norm(x, *weights, *moving, True, 1 - RHO, EPS)[0].relu_()  # noqa: E731
            return returns(run, from_images)
        _, *saved = aten.native_batch_norm(x, *weights, *moving, True, 1 - RHO, EPS)
        back = aten.native_batch_norm_backward
        return returns(lambda: back(g, x, weights[0], *moving, *saved, True, EPS, [True] * 3)[:1], from_images)


@dataclass(frozen=True)
class Table(Layer):
    """A lookup table of ``words`` rows, whose minibatch has few frequent words."""

    words: int = 1
    width: int = 1

    def nbytes(self, N: int) -> int:
        """Words, rows and results."""
        return 4 * (N + 2 * self.width * N)


class Lookup(Problem):
    """Rows of a table, or the gradient of the table.

    Attributes
    ----------
    table, E : float32 arrays (words, width), (width, N)
    """

    def __init__(self, layer: Table, N: int, direction: str) -> None:
        super().__init__(layer, N, direction)
        rng = np.random.default_rng(layer.words)
        self.chosen = (rng.zipf(1.2, N) % layer.words).astype(np.int32)
        self.table = rng.standard_normal((layer.words, layer.width), dtype=np.float32)
        self.E = rng.standard_normal((layer.width, N), dtype=np.float32)
        if direction == "bprop":
            self.nbytes = self.chosen.nbytes + self.E.nbytes + self.table.nbytes

    def sample(self, *made: Any) -> list[Any]:
        return list(made)

    def reference(self) -> list[Any]:
        if self.direction == "fprop":
            return [self.table[self.chosen].T.astype(np.float64)]
        wanted = np.zeros(self.table.shape)
        np.add.at(wanted, self.chosen, self.E.T.astype(np.float64))
        return [wanted]

    def ours(self, library: Any) -> Made:
        be = library.be
        words, table, E = (library.put(array) for array in (self.chosen.reshape(1, -1), self.table, self.E))
        out, gradient = be.empty(self.E.shape), be.zeros(self.table.shape)

        def forward() -> None:
            out[:] = be.take(table, words, 0).T

        def backward() -> None:
            gradient.fill(0)
            be.compound_bprop_lut(1, words, E, None, gradient)

        return writes(forward, out) if self.direction == "fprop" else writes(backward, gradient)

    def peer(self, library: Any, who: str) -> Made:
        aten = library.torch.ops.aten
        words, table, E = (library.put(array) for array in (self.chosen.astype(np.int64), self.table, self.E.T))
        if self.direction == "fprop":
            return returns(lambda: aten.embedding(table, words), lambda found: [found.T])
        return returns(lambda: aten.embedding_dense_backward(E, words, self.layer.words, -1, False))



# Sections of primitives -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Way:
    """One of ours: the backend's settings, of which layers, N, precision and backend it takes part in, what it runs."""

    name: str = OURS
    settings: Mapping[str, Any] = field(default_factory=dict)
    takes: Callable[[Any, int, str, Any], bool] = lambda layer, N, precision, be: True
    made: Callable[[Any, Any], Made] = lambda problem, library: problem.ours(library)
    tolerance: float | None = None


Layers = tuple[tuple[Any, int], ...]
"""Layers and their minibatches."""


@dataclass(frozen=True)
class Section:
    """Passes of layers beside PyTorch, in some precisions."""

    heading: str
    word: str
    """First word of the texts of its cases."""
    kinds: Mapping[type, tuple[type[Problem], Sequence[str]]]
    """Class of a layer -> its problem, and the passes that PyTorch has kernels for."""
    layers: Layers
    quick: tuple[int, ...]
    """Positions of the layers that a quick run takes."""
    emulated: Layers
    """Instead, for an emulated GPU."""
    precisions: Sequence[str] = ("float32",)
    ways: Sequence[Way] = (Way(),)
    copies: bool = False
    """Copies run beside them."""

    def chosen(self, quick: bool, emulated: bool) -> Layers:
        """The layers of a run."""
        if emulated:
            return self.emulated
        return tuple(self.layers[place] for place in self.quick) if quick else self.layers

    def passes(self, layer: Any) -> Sequence[str]:
        """The passes of a layer."""
        return self.kinds[type(layer)][1]


def label(layer: Any, N: int) -> str:
    """Name of a layer; of attention and cells, which have none, their sizes."""
    return f"{layer.text}, N = {N}" if isinstance(layer, (Cell, Heads)) else layer.name


def primitive_case(
    section: Section, layer: Any, N: int, which: str, precision: str, field: Field, libraries: Mapping[str, Any]
) -> Case:
    """A pass of a layer; ``libraries``: ours by the name of their way."""
    problem = section.kinds[type(layer)][0](layer, N, which)
    problem.cast(stored(precision))
    name, found, refused = label(layer, N), [], field.refused("torch")
    for way in section.ways:
        library = libraries[way.name]
        if way.takes(layer, N, precision, library.be):
            made, more = way.made(problem, library), {"tolerance": way.tolerance}
            found.append(contender(library, way.name, made, sample=problem.sample, ours=True, **more))
        elif way.name == WHOLE and isinstance(layer, Cell):
            refused[WHOLE] = "the recurrent weight does not fit the shared memory of this GPU"
    if torch := field.peers.get("torch"):
        made = problem.peer(torch, "torch")
        made.run = rounding(torch, precision, made.run)
        found.append(contender(torch, "torch", made, sample=problem.sample))
    nbytes = problem.nbytes * stored(precision).itemsize // 4
    if isinstance(layer, Pool) and layer.op == "max":
        nbytes += problem.E.size  # positions, of one byte each
    return Case(
        f"{name} {which}", f"{section.word} {which} {precision}, {name}", N, found, problem.reference, nbytes,
        TOLERANCES[precision], refused, problem.flops,
    )  # fmt: skip


# Ways of ours


def is_one(layer: Any) -> bool:
    """Whether a convolution is a product of matrices: a window of one element, without stride."""
    return max(layer.window) == max(layer.stride) == layer.groups == 1


def is_tiled(layer: Any) -> bool:
    """Whether Winograd's method has a form for a convolution, in float32."""
    return layer.window[1:] == (3, 3) and max(layer.stride) == layer.groups == 1


def _is_tiled_here(layer: Any, N: int, precision: str, be: Any) -> bool:
    return is_tiled(layer) and precision == "float32"


def _is_whole(layer: Any, N: int, precision: str, be: Any) -> bool:
    """Whether all steps forward are one launch where that is asked for."""
    from neonlike.backends.gpu.primitives import rnn_persistent as persistent

    if not isinstance(layer, Cell):
        return False
    kind = {"rnn": persistent.SIMPLE, "lstm": persistent.LSTM, "gru": persistent.GRU}[layer.kind]
    return persistent.form(kind.gates, layer.hidden, N, 4, be.device.capabilities) is not None


def _product(problem: Any, library: Any) -> Made:
    """The product that a convolution of 1x1 is."""
    be, layer = library.be, problem.layer
    I, F, E = (  # noqa: E741
        library.put(array.reshape(shape))
        for array, shape in ((problem.I, (layer.C, -1)), (problem.F, (layer.C, layer.K)), (problem.E, (layer.K, -1)))
    )
    if problem.direction == "fprop":
        return writes(lambda: be.compound_dot(F.T, I, E), E, shapes=[problem.E.shape])
    if problem.direction == "bprop":
        return writes(lambda: be.compound_dot(F, E, I), I, shapes=[problem.I.shape])
    return writes(lambda: be.compound_dot(I, E.T, F), F, shapes=[problem.F.shape])


def _convolves(method: str, tiles: int = 0, **more: Any) -> Way:
    name = f"{OURS} {method}" + f" {tiles}x{tiles}" * bool(tiles)
    return Way(name, {"conv_method": method, "enable_winograd": tiles or False}, **more)


WAYS_TO_CONVOLVE = (
    Way(), _convolves("columns"), _convolves("implicit"),
    _convolves("winograd", 2, takes=_is_tiled_here),
    _convolves("winograd", 4, takes=_is_tiled_here, tolerance=TOLERANCE_OF_4),
    Way(CUBLAS, takes=lambda layer, N, precision, be: is_one(layer), made=_product),
)  # fmt: skip
"""The first is what users get."""
WAYS_TO_UNROLL = (Way(), Way(WHOLE, {"recurrent_method": "persistent"}, _is_whole))


def _pool(name: str, op: str, C: int, size: int, window: int, stride: int = 1, pad: int = 0) -> Pool:
    return Pool("gpu", name, 1, op, C, size, size, window, stride, pad)


def _norm(name: str, C: int, size: int, window: int = 0) -> Maps:
    return Maps("gpu", name, 1, C, size, size, window)


SECTIONS = {
    "convolutions": Section(
        "Convolutions", "convolution", {ConvLayer: (Convolution, PASSES)},
        (
            (conv2d("gpu", "ResNet 1x1", 256, 56, 64, 1), 64),
            (conv2d("gpu", "ResNet 3x3", 128, 28, 128, 3, 1, 1), 64),
            (conv2d("gpu", "ResNet 3x3/2", 256, 28, 256, 3, 2, 1), 64),
            (conv2d("gpu", "ResNet first", 3, 224, 64, 7, 2, 3), 64),
            (conv2d("gpu", "VGG 3x3", 512, 14, 512, 3, 1, 1), 64),
            (conv2d("gpu", "depthwise", 256, 28, 256, 3, 1, 1, groups=256), 64),
        ),
        (1,),
        (
            (conv2d("gpu", "small 3x3/2", 10, 7, 12, 3, 2, 1), 4),
            (conv2d("gpu", "small groups", 18, 5, 20, 3, 1, 1, groups=2), 2),
            (conv2d("gpu", "small 3x3", 4, 6, 5, 3, 1, 1), 2),
            (conv2d("gpu", "small 1x1", 10, 5, 12, 1), 4),
        ),
        PRECISIONS[:3], WAYS_TO_CONVOLVE,  # those of bfloat16 run on the kernels of float16
    ),
    "images": Section(
        "Pooling and local response normalisation", "images", {Pool: (Pooling, BACK), Maps: (Lrn, FORWARD)},
        (
            (_pool("max 3x3/2", "max", 64, 112, 3, 2, 1), 64),
            (_pool("max 2x2", "max", 256, 56, 2, 2), 64),
            (_pool("max 3x3", "max", 256, 28, 3, 1, 1), 64),
            (_pool("mean of maps", "avg", 2048, 7, 7), 64),
            (_norm("LRN over 5", 96, 55, 5), 64),
        ),
        (0,),
        ((_pool("small max", "max", 8, 9, 3, 2, 1), 16), (_norm("small LRN", 6, 3, 5), 4)),
        ("float32", "float16"), copies=True,
    ),
    "attention": Section(
        "Attention", "attention", {Heads: (Attention, BOTH)},
        (
            (Heads("16x64", "4096", 1, 16, 64, 4096, 4096), 4),
            (Heads("16x64", "causal 4096", 1, 16, 64, 4096, 4096, True), 4),
            (Heads("16x128", "causal 2048", 1, 16, 128, 2048, 2048, True), 8),
            (Heads("8x64", "512", 1, 8, 64, 512, 512), 64),
        ),
        (1,),
        ((Heads("2x8", "causal 12", 1, 2, 8, 12, 12, True), 2),),
        PRECISIONS,
    ),
    "layers": Section(
        "Batch normalization, lookup tables, recurrent layers", "layer",
        {Maps: (OnGpu, BACK), Table: (Lookup, BACK), Cell: (Unrolled, BOTH)},
        (
            (_norm("batch norm 64x112x112", 64, 112), 64),
            (_norm("batch norm 512x7x7", 512, 7), 64),
            (Table("gpu", "50k words of 512", 1, 50_000, 512), 1 << 14),
            (Cell("lstm", "1024", 1, "lstm", 1024, 1024), 32),
            (Cell("rnn", "1024", 1, "rnn", 1024, 1024), 32),
            (Cell("lstm", "512", 1, "lstm", 512, 512, 200), 1),
        ),
        (0, 2, 3),
        (
            (_norm("small batch norm", 3, 8), 32),
            (Table("gpu", "9 words of 5", 1, 9, 5), 40),
            (Cell("lstm", "4", 1, "lstm", 4, 3, 3), 2),
        ),
        ways=WAYS_TO_UNROLL, copies=True,
    ),
}  # fmt: skip
