"""The cases of ``gpu.py``: expressions, products, copies, and the problems of the CPU's scripts in other precisions.

A large case of expressions or products has several sets of operands and results, and each run takes the next: then
operands are not in the L2 cache any more. Results are poisoned before they are checked; all sets must give the same.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import _contenders
import _expressions
import _libraries
import numpy as np
from _cases import LEFT_OUT, OURS, Case, Contender
from _contenders import Set, cupy_function, cupy_set, jax_function, jax_set, torch_function, torch_set
from _expressions import Expression
from _layers import Cell, Conv, Layer, Maps, Pool, conv2d
from _libraries import Library, Made, Run, from_images, returns, writes
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

TOLERANCES = {"float32": 2e-5, "tf32": 5e-3, "float16": 5e-3, "bfloat16": 2e-2}
"""Largest error of a product, in parts of its largest value; float16 results have 11 bits, those of bfloat16 8."""
TOLERANCE_OF_4 = 5e-5
"""Largest error of Winograd's tiles of 4 x 4, whose transforms round more than sums do."""
SAMPLED = 8
"""Rows and columns of a product that are compared."""

METHODS: dict[str, tuple[str, bool | int]] = {
    "auto": ("auto", True), "columns": ("columns", False), "implicit": ("implicit", False),
    "winograd 2x2": ("winograd", 2), "winograd 4x4": ("winograd", 4),
}  # fmt: skip
"""Ways of ours to convolve, ``be.conv_method`` and ``be.enable_winograd``; the first is what users get."""
CUBLAS = "cublas"
"""The product that a window of one element is, by cuBLAS alone: what a convolution of 1x1 is compared with."""
WHOLE = "neonlike persistent"
"""Ours with all steps of a recurrent layer forward in one launch."""

BOTH = ("fprop", "fprop+bprop")


@dataclass(frozen=True)
class Field:
    """Who takes part.

    Parameters
    ----------
    ours : Neonlike
    peers : dict of Library, by name
    absent : dict
        Name of a library -> why it takes no part.
    cache : int
        Bytes of the L2 cache.
    """

    ours: Any
    peers: dict[str, Library]
    absent: dict[str, str]
    cache: int

    def refused(self, *names: str) -> dict[str, str]:
        """Why these take no part, of those who do not."""
        return {name: self.absent[name] for name in names if name in self.absent}


# Sets of operands -----------------------------------------------------------------------------------------------


def sets_for(nbytes: int, cache: int) -> int:
    """How many sets of operands a case of ``nbytes`` takes turns with."""
    return 1 if nbytes < ROTATE_FROM else max(1, min(MOST_SETS, math.ceil(CACHES * cache / nbytes)))


def contender(library: Library, name: str, sets: Sequence[Set], ours: bool = False) -> Contender:
    """A contender that takes the next of ``sets`` in each run."""
    following = itertools.cycle([each.run for each in sets])
    run: Run = sets[0].run if len(sets) == 1 else lambda: next(following)()

    def reset() -> None:
        nonlocal following
        following = itertools.cycle([each.run for each in sets])
        for each in sets:
            each.reset()

    def result() -> list[Any]:
        """Results of the first set; ours only if all other sets give the same."""
        library.synchronize()
        found = [library.get(array) for array in sets[0].results()]
        for each in sets[1:] if ours else ():
            next(following)()
            others = [library.get(array) for array in each.results()]
            if not all(np.array_equal(a, b) for a, b in zip(found, others)):
                raise ArithmeticError("the same operands elsewhere in memory give another result")
        return found

    return Contender(name, run, result, reset, ours, lambda loops: library.elapsed(run, loops))


PEERS: dict[str, tuple[str, Callable[..., Any], Callable[..., Set]]] = {
    "torch": ("torch", torch_function, torch_set),
    "torch.compile": ("torch", partial(torch_function, compiled=True), torch_set),
    "cupy": ("cupy", cupy_function, cupy_set),
    "cupy.fuse": ("cupy", partial(cupy_function, fused=True), cupy_set),
    "jax": ("jax", jax_function, jax_set),
}
"""Library, maker of the function of a problem, maker of a set that runs it."""
SLOW_TO_COMPILE = ("torch.compile", "cupy.fuse")


def expression_case(expression: Expression, size: int, field: Field, slow: bool) -> Case:
    """All contenders of ``expression`` at ``size``; ``slow`` admits those that take seconds to compile."""
    problem = _contenders.Problem(expression, size)
    count, ours = sets_for(_expressions.nbytes(expression, size), field.cache), field.ours
    found = [
        contender(ours, name, [_contenders.neonlike_set(problem, ours, prepared) for _ in range(count)], ours=True)
        for name, prepared in ((_contenders.ASSIGN, False), (_contenders.PREPARED, True))
    ]
    refused = {name: field.absent[library] for name, (library, _, _) in PEERS.items() if library in field.absent}
    for name, (of, function, make) in PEERS.items():
        if of not in field.peers:
            continue
        if not slow and name in SLOW_TO_COMPILE:
            refused[name] = f"{LEFT_OUT}, compiling takes seconds"
            continue
        library = field.peers[of]
        made = function(problem, library)
        found.append(contender(library, name, [make(problem, library, made) for _ in range(count)]))
    return problem.case(found, refused)


# Products and copies --------------------------------------------------------------------------------------------


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

    def reference() -> list[Any]:
        wide = a.astype(np.float64), b.astype(np.float64)
        return [wide[0][some] @ wide[1], wide[0] @ wide[1][:, some]]

    def made(library: Library, name: str, multiply: Callable[[Any, Any, Any], Run], is_ours: bool = False) -> Contender:
        sets = []
        for _ in range(count):
            out = library.put(np.full((size, size), np.nan, dtype))
            run = multiply(library.put(a), library.put(b), out)
            sets.append(Set(run, lambda out=out: [out], lambda out=out: library.set(out, np.nan)))
        each = contender(library, name, sets, is_ours)
        return replace(each, result=lambda: _rows_and_columns(each.result()[0], some))

    found = [made(ours, _contenders.PREPARED, lambda x, y, out: ours.be.prepare(out, ours.be.dot(x, y)), True)]
    if torch := peers.get("torch"):
        mm = torch.torch.mm
        found.append(
            made(torch, "torch", lambda x, y, out: rounding(torch, precision, lambda: mm(x, y, out=out)))
        )
    if (cupy := peers.get("cupy")) and precision in ("float32", "float16"):
        found.append(made(cupy, "cupy", lambda x, y, out: lambda: cupy.cupy.matmul(x, y, out=out)))
    return Case(
        precision, f"{precision} product, {size} x {size} x {size}", size, found, reference, 3 * a.nbytes,
        TOLERANCES[precision], field.refused("torch", "cupy"), flops=2 * size**3,
    )  # fmt: skip


def _rows_and_columns(product: Any, some: Any) -> list[Any]:
    return [product[some], product[:, some]]


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
        return returns(
            lambda: back(g, x, weights[0], *moving, *saved, True, EPS, [True] * 3)[:1], from_images
        )


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


Layers = tuple[tuple[Any, int], ...]
"""Layers and their minibatches."""


def _pool(name: str, op: str, C: int, size: int, window: int, stride: int = 1, pad: int = 0) -> Pool:
    return Pool("gpu", name, 1, op, C, size, size, window, stride, pad)


def _norm(name: str, C: int, size: int, window: int = 0) -> Maps:
    return Maps("gpu", name, 1, C, size, size, window)


CONVOLVED: Layers = (
    (conv2d("gpu", "ResNet 1x1", 256, 56, 64, 1), 64),
    (conv2d("gpu", "ResNet 3x3", 128, 28, 128, 3, 1, 1), 64),
    (conv2d("gpu", "ResNet 3x3/2", 256, 28, 256, 3, 2, 1), 64),
    (conv2d("gpu", "ResNet first", 3, 224, 64, 7, 2, 3), 64),
    (conv2d("gpu", "VGG 3x3", 512, 14, 512, 3, 1, 1), 64),
    (conv2d("gpu", "depthwise", 256, 28, 256, 3, 1, 1, groups=256), 64),
)
IMAGES: Layers = (
    (_pool("max 3x3/2", "max", 64, 112, 3, 2, 1), 64),
    (_pool("max 2x2", "max", 256, 56, 2, 2), 64),
    (_pool("max 3x3", "max", 256, 28, 3, 1, 1), 64),
    (_pool("mean of maps", "avg", 2048, 7, 7), 64),
    (_norm("LRN over 5", 96, 55, 5), 64),
)
ATTENDED: Layers = (
    (Heads("16x64", "4096", 1, 16, 64, 4096, 4096), 4),
    (Heads("16x64", "causal 4096", 1, 16, 64, 4096, 4096, True), 4),
    (Heads("16x128", "causal 2048", 1, 16, 128, 2048, 2048, True), 8),
    (Heads("8x64", "512", 1, 8, 64, 512, 512), 64),
)
OTHERS: Layers = (
    (_norm("batch norm 64x112x112", 64, 112), 64),
    (_norm("batch norm 512x7x7", 512, 7), 64),
    (Table("gpu", "50k words of 512", 1, 50_000, 512), 1 << 14),
    (Cell("lstm", "1024", 1, "lstm", 1024, 1024), 32),
    (Cell("rnn", "1024", 1, "rnn", 1024, 1024), 32),
    (Cell("lstm", "512", 1, "lstm", 512, 512, 200), 1),
)
QUICK = {"convolutions": (1,), "images": (0,), "attention": (1,), "layers": (0, 2, 3)}
"""Positions in the tables above that a quick run takes."""
ALL = {"convolutions": CONVOLVED, "images": IMAGES, "attention": ATTENDED, "layers": OTHERS}
EMULATED: dict[str, Layers] = {
    "convolutions": (
        (conv2d("gpu", "small 3x3/2", 10, 7, 12, 3, 2, 1), 4),
        (conv2d("gpu", "small groups", 18, 5, 20, 3, 1, 1, groups=2), 2),
        (conv2d("gpu", "small 3x3", 4, 6, 5, 3, 1, 1), 2),
        (conv2d("gpu", "small 1x1", 10, 5, 12, 1), 4),
    ),
    "images": ((_pool("small max", "max", 8, 9, 3, 2, 1), 16), (_norm("small LRN", 6, 3, 5), 4)),
    "attention": ((Heads("2x8", "causal 12", 1, 2, 8, 12, 12, True), 2),),
    "layers": (
        (_norm("small batch norm", 3, 8), 32),
        (Table("gpu", "9 words of 5", 1, 9, 5), 40),
        (Cell("lstm", "4", 1, "lstm", 4, 3, 3), 2),
    ),
}  # fmt: skip
"""For an emulated GPU."""


def layers(section: str, quick: bool, emulated: bool) -> Layers:
    """The layers that a section measures, with their minibatches."""
    if emulated:
        return EMULATED[section]
    return tuple(ALL[section][place] for place in QUICK[section]) if quick else ALL[section]


def is_one(layer: Any) -> bool:
    """Whether a convolution is a product of matrices: a window of one element, without stride."""
    return max(layer.window) == max(layer.stride) == layer.groups == 1


def is_tiled(layer: Any) -> bool:
    """Whether Winograd's method has a form for a convolution, in float32."""
    return layer.window[1:] == (3, 3) and max(layer.stride) == layer.groups == 1


def problem_case(
    problem: Problem, name: str, text: str, size: int, precision: str, field: Field, ways: Mapping[str, Any],
    **more: Any,
) -> Case:  # fmt: skip
    """The case of a problem in a precision: ``ways`` are ours by name, beside PyTorch."""
    found = [
        _libraries.contender(
            library, who, problem.ours(library), problem.sample, ours=True,
            tolerance=TOLERANCE_OF_4 if "4x4" in who else None,
        )
        for who, library in ways.items()
    ]  # fmt: skip
    if torch := field.peers.get("torch"):
        made = problem.peer(torch, "torch")
        made.run = rounding(torch, precision, made.run)
        found.append(_libraries.contender(torch, "torch", made, problem.sample))
    case = Case(
        name, text, size, found, problem.reference, problem.nbytes, TOLERANCES[precision], field.refused("torch"),
        problem.flops,
    )  # fmt: skip
    return replace(case, **more)


def conv_case(layer: Conv, N: int, which: str, precision: str, field: Field, ways: Mapping[str, Library]) -> Case:
    """A pass of a convolution; ``ways``: ours by method."""
    problem = Convolution(layer, N, which)
    problem.cast(stored(precision))
    tiled = is_tiled(layer) and precision == "float32"
    named = {
        OURS if method == "auto" else f"{OURS} {method}": library
        for method, library in ways.items()
        if tiled or METHODS[method][0] != "winograd"
    }
    text = f"convolution {which} {precision}, {layer.name}"
    case = problem_case(problem, f"{layer.name} {which}", text, N, precision, field, named)
    if is_one(layer):
        made, library = _product(problem, ways["auto"]), ways["auto"]
        case.contenders.insert(len(named), _libraries.contender(library, CUBLAS, made, problem.sample, ours=True))
    return case


def _product(problem: Convolution, library: Any) -> Made:
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


def image_case(layer: Any, N: int, which: str, precision: str, field: Field) -> Case:
    """A pass of pooling or local response normalisation."""
    problem = Pooling(layer, N, which) if isinstance(layer, Pool) else Lrn(layer, N, which)
    problem.cast(stored(precision))
    nbytes = problem.I.nbytes + problem.E.nbytes * (1 if isinstance(layer, Pool) else 2)
    if getattr(layer, "op", "") == "max":
        nbytes += problem.E.size  # positions, of one byte each
    text = f"images, {layer.name} {which} {precision}"
    ours = {OURS: field.ours}
    return problem_case(
        problem, f"{layer.name} {which}", text, problem.I.size, precision, field, ours, nbytes=nbytes
    )


def passes(layer: Any) -> tuple[str, ...]:
    """The passes of images that PyTorch has kernels for."""
    return ("fprop", "bprop") if isinstance(layer, Pool) else ("fprop",)


def attention_case(layer: Heads, N: int, which: str, precision: str, field: Field) -> Case:
    """A pass of some heads of ``N`` samples."""
    problem = Attention(layer, N, which)
    problem.cast(stored(precision))
    text = f"attention {which} {precision}, {layer.text}, N = {N}"
    ours = {OURS: field.ours}
    return problem_case(problem, f"{layer.text} {which}", text, problem.E.size, precision, field, ours)


def layer_case(layer: Any, N: int, which: str, field: Field, whole: Any) -> Case:
    """A pass of a layer; ``whole``: ours with the kernels of all steps of recurrent layers."""
    ways: dict[str, Any] = {OURS: field.ours}
    refused, name, size = field.refused("torch"), f"{layer.name} {which}", N
    problem: Problem
    if isinstance(layer, Cell):
        problem, name = Unrolled(layer, N, which), f"{layer.text}, N = {N} {which}"
        if _is_whole(whole.be, layer, N):
            ways[WHOLE] = whole
        else:
            refused[WHOLE] = "the recurrent weight does not fit the shared memory of this GPU"
    else:
        problem = (OnGpu if isinstance(layer, Maps) else Lookup)(layer, N, which)
        size = problem.table.size if isinstance(layer, Table) and which == "bprop" else problem.E.size
    return problem_case(problem, name, f"layer, {name}", size, "float32", field, ways, refused=refused)


def passes_of(layer: Any) -> tuple[str, ...]:
    """The passes of other layers."""
    return BOTH if isinstance(layer, Cell) else ("fprop", "bprop")


def _is_whole(be: Any, cell: Cell, N: int) -> bool:
    """Whether all steps forward are one launch where that is asked for."""
    from neonlike.backends.gpu.primitives import rnn_persistent as persistent

    kind = {"rnn": persistent.SIMPLE, "lstm": persistent.LSTM, "gru": persistent.GRU}[cell.kind]
    return persistent.form(kind.gates, cell.hidden, N, 4, be.device.capabilities) is not None
