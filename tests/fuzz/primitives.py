"""Random calls of compound primitives, in working memory of exact size: kernels agree with the definitions.

A case makes tensors of random sizes, calls what it is about, and returns what was written. It runs on both engines with
the same random numbers; the number of its seed is all that it depends on.
"""

# ruff: noqa: E741 - I and O are what neon calls them

from __future__ import annotations

import ctypes
import itertools
import os
import sys
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np

from neonlike.backends.cpu.primitives.conv import hooks as conv_kernels
from neonlike.kernels.run import memory
from neonlike.logger import logger
from neonlike.nervanaobject import NervanaObject
from neonlike.optree.dtypes import BFLOAT16, bfloat16
from neonlike.transforms import Logistic, Rectlin, Tanh
from tests.fuzz.bounds_axes import NARROW_SUMS
from tests.fuzz.check import ENGINES, Complaints, environment, make_backend, threads_chosen
from tests.fuzz.workers import named, report, spread
from tests.support.engines import ON_GPU
from tests.support.float64.conv_loops import random_sizes
from tests.support.rounded import rounded

Array = np.ndarray[Any, Any]
Case = Callable[["Data"], list[Any]]
CLOSE = {"bfloat16": 1.6e-2, "float16": 4e-3, "float32": 1e-4, "float64": 1e-11}
"""Error, relative to the largest value of a tensor."""
ROUND_WITHIN = ("rnn", "attention")
"""Cases that multiply what they computed: with factors in bfloat16 that is rounded."""
LINE = 64
WORKING = (
    "neonlike.backends.cpu.", "neonlike.kernels.run.reuse", "neonlike.kernels.run.workspace", "neonlike.kernels.c.gemm",
)  # fmt: skip
"""Modules that start compiled kernels of primitives, and where the memory comes from that these work in."""
MOST_FAILURES = 10


class Data:
    """Makes the tensors of a case, and its other choices."""

    def __init__(self, be: Any, seed: int) -> None:
        self.be, self.rng = be, np.random.default_rng(seed)
        kinds = ("f4", "f4", "f8", "f2") if ON_GPU else ("f4", "f4", "f8", "f2", bfloat16())
        self.dtype = np.dtype(self.pick(*kinds))
        self.in_pairs = not ON_GPU and self.dtype == np.float32 and seed // len(NAMES) % 2 == 1
        if not ON_GPU:
            be.product_precision = "bfloat16" if self.in_pairs else "float32"

    def pick(self, *choices: Any) -> Any:
        """One of them."""
        return choices[int(self.rng.integers(len(choices)))]

    def on_gpu(self) -> None:
        """Options for a GPU's kernels alone: sometimes bfloat16, and a method of convolution."""
        if ON_GPU:
            self.dtype = np.dtype(self.pick(self.dtype, self.dtype, bfloat16()))
            method, tiles = self.pick("auto", "columns", "implicit", "winograd"), self.pick(False, True)
            if self.be.backend_name == "gpu":
                self.be.conv_method, self.be.enable_winograd = method, tiles

    def __call__(self, *shape: int, dtype: Any = None) -> Any:
        """A tensor of normal numbers; sometimes a view with steps."""
        values = self.rng.normal(size=shape)
        if self.in_pairs:  # numbers that are factors as they are
            values = rounded(values)
        made = self.be.empty((*shape[:-1], 2 * shape[-1] + 1), dtype=dtype or self.dtype)
        view = made[..., 1::2] if self.rng.random() < 0.1 else self.be.empty(shape, dtype=dtype or self.dtype)
        view.set(values.astype(view.dtype))
        return view

    def maybe(self, *shape: int) -> Any:
        """A tensor, or None."""
        return self(*shape) if self.rng.random() < 0.5 else None


# Cases --------------------------------------------------------------------------------------------------------------


def conv(data: Data) -> list[Any]:
    """Forward, data gradient and weight gradient with flags, in vectors of some width."""
    data.on_gpu()
    be, sizes = data.be, random_sizes(data.rng)
    layer = sizes.layer(be, data.dtype)
    width = data.pick(None, None, None, 32, 16)
    I, F, E = data(*layer.dimI), data(*layer.dimF), data(*layer.dimO)
    found = []
    with patch.object(conv_kernels, "vector_bytes", lambda _: width) if width else ExitStack():
        for call, first, dims in ((be.fprop_conv, (I, F), layer.dimO), (be.bprop_conv, (F, E), layer.dimI)):
            target, bsum = data(*dims), data.maybe(dims[0], 1)
            flags = {"alpha": data.pick(1.0, 0.5), "beta": data.pick(0.0, 0.5), "slope": data.pick(0.0, 0.1)}
            flags |= {"relu": data.pick(False, True), "brelu": data.pick(False, True)}
            call(layer, *first, target, X=data.maybe(*dims), bias=data.maybe(dims[0], 1), bsum=bsum, **flags)
            found += [target, bsum]
        gradient, bias = data(*layer.dimF), data.maybe(layer.K, 1)
        be.update_conv(layer, I, E, gradient, alpha=data.pick(1.0, 0.5), beta=data.pick(0.0, 0.5), grad_bias=bias)
    return [*found, gradient, bias]


def pool(data: Data) -> list[Any]:
    """Windows over any axes."""
    data.on_gpu()
    window = [data.pick(1, 2, 3), data.pick(1, 1, 2), data.pick(1, 2, 3, 4), data.pick(1, 2, 3)]
    pads = [int(data.rng.integers(size)) for size in window]
    sizes = [max(1, size - 2 * pad) + data.pick(0, 1, 2, 5) for size, pad in zip(window, pads)]
    steps, op = [data.pick(1, 2, 3) for _ in window], data.pick("max", "avg", "l2")
    N = data.pick(1, 2, 3, 16, 33, 64)
    layer = data.be.pool_layer(data.dtype, op, N, *sizes, *window, *pads, *steps)
    I, O, E, delta = data(*layer.dimI), data(*layer.dimO), data(*layer.dimO), data(*layer.dimI)
    argmax = data.be.empty(layer.dimO, dtype=np.int32) if op == "max" else None
    data.be.fprop_pool(layer, I, O, argmax, alpha=0.5, beta=data.pick(0.0, 0.5))
    data.be.bprop_pool(layer, E, delta, argmax, alpha=0.5, beta=data.pick(0.0, 0.5), inputs=I)
    return [O, argmax, delta]


def lrn(data: Data) -> list[Any]:
    """Normalisation across channels."""
    sizes = data.pick(1, 2, 7, 33), data.pick(1, 2), data.pick(1, 3), data.pick(1, 5)
    layer = data.be.lrn_layer(data.dtype, data.pick(1, 2, 16, 33), *sizes, data.pick(1, 3, 5))
    I, O, E, delta, denom = (data(*layer.dimI) for _ in range(5))
    powers = {"ascale": 0.3, "bpower": data.pick(0.5, 0.75, 1.0)}
    data.be.fprop_lrn(layer, I, O, denom, 0.5, data.pick(0.0, 0.5), **powers)
    data.be.bprop_lrn(layer, I, O, E, delta, denom, 0.5, data.pick(0.0, 0.5), **powers)
    return [O, denom, delta]


def sums(data: Data) -> list[Any]:
    """Compensated sums, whose compensation starts anew after some."""
    data.on_gpu()
    shape = data.pick(1, 3, 33), data.pick(1, 2, 40, 700)
    total, lost, reset = data(*shape), data(*shape), data.pick(0, 2)
    lost.fill(0)
    lost.kahan_reset = reset
    for _ in range(4):
        data.be.compensated_sum(total, lost, data(*data.pick(shape, (1, shape[1]))), data.pick(1.0, 0.5), 1e-3)
    return [total]


def moments(data: Data) -> list[Any]:
    """Variances, deviations and norms around any offset, of any magnitudes, each within the bound of its algorithm."""
    data.on_gpu()
    be, computed = data.be, np.dtype("f8" if data.dtype == np.float64 else "f4")
    half, wide = data.dtype.itemsize == 2, computed == np.float64
    sizes = (1.0,) if half else (1.0, 1e200, 1e-250) if wide else (1.0, 1e15, 1e-25)
    offset = data.pick(0, 3, 100) if half else data.pick(0, 1e3, -1e5)
    axis, long = data.pick(0, 1, (0, 2), (1, 2)), data.pick(5, 40, 700, 3000)
    shape = [long if axis == 0 and k == 0 else n for k, n in enumerate((7, 6, 33 if axis == 0 else long))]
    kept = [1 if k in np.atleast_1d(axis) else n for k, n in enumerate(shape)]
    x, size = data(*shape), np.full(kept, data.pick(*sizes))
    few = data.rng.random(size.shape) < data.pick(0, 0, 0.05, 0.5)
    size[few] = data.rng.choice(sizes, size.shape)[few]  # of other magnitude than the rest
    x.set((size * (x.get().astype("f8") + offset)).astype(x.dtype))
    right, found = x.get().astype(np.longdouble) / size, []
    middle = right - right.mean(axis, keepdims=True)
    spread = (middle**2).mean(axis, keepdims=True)
    norm = np.sqrt((right**2).sum(axis, keepdims=True))
    unit = NARROW_SUMS * float(np.finfo(computed).eps)
    with np.errstate(divide="ignore"):  # rounded to few bits, all numbers may be equal
        lost = unit * (1 + (unit * offset) ** 2 / spread)  # of a mean that is off by as much as its sum may be
    wanted = [(be.std, size, np.sqrt(spread), lost), (be.norm2, size, norm, unit)]
    for method, scale, value, bound in [*wanted, (be.var, 1, spread, lost)] if (size == 1).all() else wanted:
        out = be.empty(spread.shape, dtype=computed)
        out[:] = method(x, axis)
        got = out.get().astype(np.longdouble) / scale
        with np.errstate(divide="ignore", invalid="ignore"):
            off = np.where(got == value, 0, np.abs(got - value) / value)
        what = f"{method.__name__} over {axis} of {x.shape} {x.dtype} around {offset}"
        assert np.all(off <= bound), f"{what} is off by {off.max()}"
        found.append(out)
    return found


def batchnorm(data: Data) -> list[Any]:
    """Training and inference, both ways."""
    be, rows, columns = data.be, data.pick(1, 2, 5, 33), data.pick(2, 3, 16, 33, 700)
    x, y, delta, error = (data(rows, columns) for _ in range(4))
    xsum, xvar, mean, var, gamma, beta, dgamma, dbeta = (data(rows, 1) for _ in range(8))
    var.set(np.abs(var.get()) + 1)
    relu, inference = data.pick(False, True), data.pick(False, False, True)
    flags = {"accumbeta": data.pick(0.0, 0.5), "relu": relu, "inference": inference}
    be.compound_fprop_bn(x, xsum, xvar, mean, var, gamma, beta, y, 0.1, 0.9, True, **flags)
    if inference:
        return [y]
    be.compound_bprop_bn(delta, dgamma, dbeta, error, x, xsum, xvar, gamma, 0.1)
    return [y, xsum, xvar, mean, var, delta, dgamma, dbeta]


def rnn(data: Data) -> list[Any]:
    """A simple recurrence, both ways."""
    nout, N, steps = data.pick(1, 2, 7, 16, 33, 70), data.pick(1, 3, 16, 33), data.pick(1, 2, 4)
    used, activation = data.pick(None, 1), data.pick(Tanh, Logistic, Rectlin)()
    W, bias, first = data(nout, nout), data.maybe(nout, 1), data(nout, N)
    W.set(W.get() / nout)
    ff, h, deltas = ([data(nout, N) for _ in range(steps)] for _ in range(3))
    before = [first, *h[:-1]]
    data.be.compound_rnn_unroll_fprop(W, before, ff, h, bias, nout, steps, used, activation)
    passed = [data(nout, N), *deltas[:-1]]
    data.be.compound_rnn_unroll_bprop(W.T, passed, deltas, h, nout, steps, used, activation)
    return [*h, *deltas, passed[0]]


def lut(data: Data) -> list[Any]:
    """The gradient of a lookup table."""
    words, embedding, count = data.pick(1, 5, 40), data.pick(1, 3, 16, 33), data.pick(1, 7, 64, 300)
    inputs = data.be.array(data.rng.integers(words, size=(1, count)), dtype=np.int32)
    dW, error = data(words, embedding), data(embedding, count)
    data.be.compound_bprop_lut(1, inputs, error, None, dW, pad_idx=data.pick(None, 0), alpha=0.5, beta=1)
    return [dW]


def roi(data: Data) -> list[Any]:
    """Pooling of regions that may reach beyond the map."""
    C, H, W, N, count = data.pick(1, 3, 20), data.pick(1, 5, 9), data.pick(1, 6), data.pick(1, 2, 17), data.pick(1, 4)
    size = data.pick(1, 2, 3), data.pick(1, 4)
    corners = data.rng.integers(-3, 12, (count, 4))
    corners[:, 2:] += corners[:, :2]
    regions = np.concatenate([data.rng.integers(N, size=(count, 1)), corners], axis=1)
    I, O = data(C * H * W, N), data(C * size[0] * size[1], count)
    rois, argmax = data.be.array(regions, dtype=np.float32), data.be.empty(O.shape, dtype=np.int32)
    data.be.roipooling_fprop(I, rois, O, argmax, count, C, H, W, *size, 0.5)
    delta, error = data(*I.shape), data(*O.shape)
    data.be.roipooling_bprop(error, rois, delta, argmax, count, C, H, W, *size, 0.5)
    return [O, argmax, delta]


def product(data: Data) -> list[Any]:
    """A matrix product with all that may be around it, of factors that lie in any order."""
    be, (m, k, n) = data.be, [int(size) for size in 2 ** data.rng.uniform(0, 9, 3)]
    A, B = (data(*s[::-1]).T if data.pick(False, True) else data(*s) for s in ((m, k), (k, n)))
    C, bsum = data(m, n), data.maybe(m, 1)
    flags = {"alpha": data.pick(1.0, 0.5), "beta": data.pick(0.0, 0.5), "relu": data.pick(False, True)}
    be.compound_dot(A, B, C, bsum=bsum, **flags)
    D = data(m, n)
    D[:] = be.dot(A, B) + 1
    return [C, bsum, D]


def xnor(data: Data) -> list[Any]:
    """A product of signs."""
    m, k, n = data.pick(1, 3, 17, 40), data.pick(1, 63, 64, 65, 200), data.pick(1, 2, 33)
    C, bsum = data(m, n), data.maybe(m, 1)
    data.be.xnor_compound_dot(data(m, k), data(k, n), C, beta=data.pick(0.0, 0.5), bsum=bsum)
    return [C, bsum]


def boxes(data: Data) -> list[Any]:
    """Suppression of boxes that overlap."""
    found = np.abs(data.rng.normal(size=(data.pick(1, 5, 70), 5))).astype(np.float32)
    found[:, 2:4] += found[:, :2]
    return [np.array(data.be.nms(found, 0.3, normalized=True))]


def attention(data: Data) -> list[Any]:
    """Both ways, of lengths around the sizes of tiles, in tensors whose axes may lie in another order."""
    be, N, heads = data.be, data.pick(1, 2), data.pick(1, 3)
    queries, keys = (data.pick(1, 2, 11, 13, 64, 97, 191, 193, 200) for _ in range(2))
    size, value_size = (data.pick(1, 3, 16, 17, 31, 33, 64) for _ in range(2))
    layer = be.attention_layer(data.dtype, N, heads, queries, size, keys, value_size, data.pick(False, True))
    axes = data.pick((0, 1, 2, 3), (0, 2, 1, 3), (0, 1, 3, 2))  # each turns itself back

    def made(dims: Any) -> Any:
        return data(*(dims[axis] for axis in axes)).permuted(axes)

    Q, K, V, O, E, dQ, dK, dV = (made(getattr(layer, f"dim{name}")) for name in "QKVOOQKV")
    lse = data(*layer.dimL, dtype=layer.lse_dtype)
    be.fprop_attention(layer, Q, K, V, O, lse)
    be.bprop_attention(layer, Q, K, V, O, lse, E, dQ, dK, dV)
    return [O, lse, dQ, dK, dV]


CASES: dict[str, Case] = {
    "conv": conv, "product": product, "pool": pool, "lrn": lrn, "batchnorm": batchnorm, "rnn": rnn, "lut": lut,
    "roi": roi, "xnor": xnor, "nms": boxes, "attention": attention, "sums": sums, "moments": moments,
}  # fmt: skip
NAMES = [*itertools.repeat("conv", 4), *CASES]
"""Of which each seed takes one."""


# Running them -------------------------------------------------------------------------------------------------------


def exact_memory(shape: Any, dtype: Any) -> Array:
    """Memory that starts at a cache line and ends where it should, full of nan, from the allocator itself."""
    nbytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
    libc, place = ctypes.CDLL(None), ctypes.c_void_p()
    status = libc.posix_memalign(ctypes.byref(place), ctypes.c_size_t(LINE), ctypes.c_size_t(max(nbytes, 1)))
    assert status == 0 and place.value
    owner = np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(place.value))
    weakref.finalize(owner, libc.free, ctypes.c_void_p(place.value))
    owner[:] = 255
    return owner.view(dtype).reshape(shape)


@contextmanager
def strict(threads: int) -> Iterator[None]:
    """Kernels work in memory of exact size that they do not keep, and start ``threads`` for little work."""
    with ExitStack() as stack:

        def put(module: Any, name: str, value: Any) -> None:
            if hasattr(module, name):
                stack.enter_context(patch.object(module, name, value))

        for module in [module for name, module in sys.modules.items() if name.startswith(WORKING)]:
            put(module, "aligned_empty", exact_memory)
            put(module, "ALIGNED_FROM", 1)
            put(module, "LEAST", sys.maxsize)  # nothing is used again
            put(module, "KEPT_BYTES", -1)
            for kept in ("_kept", "_local"):  # what they keep for a thread
                put(module, kept, SimpleNamespace())
            for limit in [name for name in vars(module) if name.startswith(("PARALLEL_", "SERIAL"))]:
                put(module, limit, 1)
        put(memory, "ALIGNED_FROM", sys.maxsize)  # tensors of exact size too
        stack.enter_context(threads_chosen(threads))
        yield


class Calls:
    """Runs cases on both engines and compares."""

    def __init__(self) -> None:
        self.backends = {engine: make_backend(engine) for engine in ENGINES}
        self.complaints = Complaints()
        logger.addHandler(self.complaints)

    def check(self, seed: int) -> str:
        """The name of the case of ``seed``; AssertionError if the engines differ, or nothing was compiled."""
        name, results = NAMES[seed % len(NAMES)], []
        self.complaints.texts.clear()
        for engine, be in self.backends.items():
            jit, bound = (
                environment({"NEONLIKE_CPU_JIT": str(int(engine == "c"))}),
                patch.object(NervanaObject, "be", be),
            )
            with jit, bound, strict(1 + seed % 3):
                data = Data(be, seed)
                written = CASES[name](data)
            results.append([None if t is None else t.get() if hasattr(t, "get") else t for t in written])
        assert not self.complaints.texts, self.complaints.texts[0]
        for number, (wanted, found) in enumerate(zip(*results)):
            if wanted is not None:
                assert wanted.shape == found.shape
                close = CLOSE.get(wanted.dtype.name, 0.0)
                if data.in_pairs and name in ROUND_WITHIN:
                    close = max(close, 3 * CLOSE[BFLOAT16])
                if wanted.dtype.name == BFLOAT16:
                    wanted, found = wanted.astype(np.float32), found.astype(np.float32)
                most = close * np.abs(wanted[np.isfinite(wanted)]).max(initial=1)
                np.testing.assert_allclose(found, wanted, rtol=0, atol=most, err_msg=f"{name}, result {number}")
        return name


def three_maps() -> None:
    """A small direct convolution, compiled. Its maps do not fill a tile; one map would have a kernel of its own."""
    be = make_backend("c")
    with strict(1):
        layer = be.conv_layer(np.float32, 1, 2, 3, W=2, S=2)
        be.fprop_conv(layer, be.ones(layer.dimI), be.ones(layer.dimF), be.empty(layer.dimO))


def work(first: int, step: int, last: int) -> int:
    """A worker: seeds first, first + step, ... below last; one line of JSON for each."""
    calls = Calls()
    return report(range(first, last, step), lambda seed: {"name": calls.check(seed)}, named)


def seeds(count: int, first: int, case: str | None = None) -> range:
    """``count`` seeds from ``first`` on: all, or of one ``case`` only."""
    if case is None:
        return range(first, first + count)
    first += (NAMES.index(case) - first) % len(NAMES)
    return range(first, first + count * len(NAMES), len(NAMES))


def fuzz(chosen: range, workers: int, variables: dict[str, str]) -> int:
    """Check the calls of the ``chosen`` seeds in processes with these environment ``variables``; the exit status."""
    names: Counter[str] = Counter()
    failures: list[str] = []

    def hear(seed: int, report: dict[str, Any]) -> bool:
        names.update([report["name"]] if "name" in report else [])
        if "failure" in report:
            failures.append(f"call {seed} ({NAMES[seed % len(NAMES)]}): {report['failure']}")
        return len(failures) < MOST_FAILURES

    spread("--work-calls", chosen, workers, variables, hear)
    print(f"calls of primitives: {', '.join(f'{name} {names[name]}' for name in CASES)}; {len(failures)} failures")
    for words in failures[:MOST_FAILURES]:
        print(f"{words}\n  again: python tests/fuzz --call {words.split()[1]}", flush=True)
    return int(bool(failures))


def again(seed: int, variables: dict[str, str]) -> int:
    """Run one call in a process with these environment ``variables``."""
    return fuzz(seeds(1, seed), 1, {**os.environ, **variables})
