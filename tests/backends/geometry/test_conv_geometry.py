"""Layers of convolution and deconvolution: attributes, output sizes, errors, words, the memory that calls take."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend, cleanup_backend
from neonlike.backends.layer_cpu import ConvLayer, DeconvLayer
from neonlike.errors import ArgumentError, DTypeError, ShapeError
from tests.support.engines import backend, current_backend, needs_compiler, use_threads

SIZES = {"D": 5, "H": 11, "W": 12, "T": 2, "R": 3, "S": 4, "pad_d": 1, "pad_h": 2}
STEPS = {"str_d": 3, "str_h": 2, "str_w": 4, "dil_d": 1, "dil_h": 3, "dil_w": 2}

# Attributes ---------------------------------------------------------------------------------------------------------


def test_attributes_of_a_convolution(be: Backend) -> None:
    layer = be.conv_layer(np.float32, 8, 6, 10, **SIZES, **STEPS, groups=2)
    assert isinstance(layer, ConvLayer)
    assert layer.dtype == np.float32
    assert (layer.N, layer.C, layer.K, layer.NCK, layer.groups) == (8, 6, 10, (8, 6, 10), 2)
    assert (layer.DHW, layer.TRS) == ((5, 11, 12), (2, 3, 4))
    # (5 + 2 - 2) // 3 + 1, (11 + 4 - 7) // 2 + 1, (12 - 7) // 4 + 1
    assert (layer.MPQ, layer.M, layer.P, layer.Q) == ((2, 5, 2), 2, 5, 2)
    assert (layer.padding, layer.strides, layer.dilation) == ((1, 2, 0), (3, 2, 4), (1, 3, 2))
    assert layer.dimI == (6, 5, 11, 12, 8)
    assert layer.dimF == (3, 2, 3, 4, 10)
    assert layer.dimFb == (10, 2, 3, 4, 3)
    assert layer.dimO == (10, 2, 5, 2, 8)
    assert (layer.dimI2, layer.dimF2, layer.dimF2t, layer.dimO2) == ((3960, 8), (72, 10), (10, 72), (200, 8))
    assert (layer.dimS, layer.nOut) == ((10, 1), 200)
    assert (layer.sizeI, layer.sizeF, layer.sizeO) == (3960 * 8, 720, 1600)
    assert layer.flops == 2 * 1600 * 72
    assert not layer.dot
    assert set(layer.all_params) >= {8, 6, 10, 5, 11, 12}
    assert not layer.is_mklop
    layer.set_is_mklop()
    assert not layer.get_is_mklop()
    layer.set_not_mklop()


def test_sizes_of_numpys_narrow_integers(be: Backend) -> None:
    """Products of them, such as the elements of an image, would overflow."""
    narrow = {name: np.uint8(value) for name, value in {**SIZES, **STEPS}.items()}
    shape, deconvolution = {**SIZES, **STEPS}, dict(zip("MPQ", (60, 70, 80)))
    N, C, K = np.array([8, 6, 10], np.uint8)
    assert repr(be.conv_layer(None, N, C, K, **narrow)) == repr(be.conv_layer(None, 8, 6, 10, **shape))
    wide = {name: np.uint8(value) for name, value in deconvolution.items()}
    made = be.deconv_layer(None, N, C, K, **wide, str_h=np.uint8(9))
    assert repr(made) == repr(be.deconv_layer(None, 8, 6, 10, **deconvolution, str_h=9))
    assert made.sizeI == 8 * 6 * 60 * (69 * 9 + 1) * 80
    pool, lrn = (N, C, *map(np.uint8, (5, 11, 12, 2, 1, 3, 4))), (N, C, *map(np.uint8, (5, 11, 12, 3)))
    assert repr(be.pool_layer(None, "max", *pool)) == repr(be.pool_layer(None, "max", *map(int, pool)))
    assert repr(be.lrn_layer(None, *lrn)) == repr(be.lrn_layer(None, *map(int, lrn)))
    assert be.output_dim(np.uint8(200), np.uint8(3), np.uint8(100), np.uint8(1)) == 398


def test_attributes_of_a_deconvolution(be: Backend) -> None:
    sizes = {"M": 2, "P": 5, "Q": 3, "T": 2, "R": 3, "S": 4, "pad_d": 1, "pad_h": 2}
    layer = be.deconv_layer(np.float64, 8, 6, 10, **sizes, **STEPS)
    assert isinstance(layer, DeconvLayer)
    # (2 - 1) 3 - 2 + 1 + 1, (5 - 1) 2 - 4 + 3 * 2 + 1, (3 - 1) 4 + 2 * 3 + 1
    assert (layer.DHW, layer.H, layer.W) == ((3, 11, 15), 11, 15)
    assert (layer.MPQ, layer.M, layer.P, layer.Q) == ((2, 5, 3), 2, 5, 3)
    assert (layer.NCK, layer.TRS, layer.dtype) == ((8, 6, 10), (2, 3, 4), np.dtype(np.float64))
    assert (layer.padding, layer.strides, layer.dilation) == ((1, 2, 0), (3, 2, 4), (1, 3, 2))
    assert layer.dimI == (6, 3, 11, 15, 8)
    assert layer.dimF == (6, 2, 3, 4, 10)
    assert layer.dimO == (10, 2, 5, 3, 8)
    assert (layer.dimI2, layer.dimF2, layer.dimO2) == ((2970, 8), (144, 10), (300, 8))
    assert (layer.sizeI, layer.sizeF, layer.sizeO, layer.nOut) == (23760, 1440, 2400, 2970)
    assert layer.flops == 2 * 2400 * 144


def test_a_convolution_of_a_deconvolution_has_its_input_size(be: Backend) -> None:
    for m, s, pad, step, dil in itertools.product((1, 2, 5), (1, 2, 3, 5), (0, 1), (1, 2, 3), (1, 2)):
        extent = (m - 1) * step - 2 * pad + dil * (s - 1) + 1
        if extent < 1:
            continue
        given = {"S": s, "pad_w": pad, "str_w": step, "dil_w": dil}
        layer = be.deconv_layer(np.float32, 1, 1, 1, Q=m, **given)
        assert layer.DHW == (1, 1, extent)
        assert be.conv_layer(np.float32, 1, 1, 1, W=extent, **given).MPQ == layer.MPQ == (1, 1, m)


def test_a_convolution_that_is_a_matrix_product(be: Backend) -> None:
    assert be.conv_layer(np.float32, 2, 3, 4, H=5, W=6).dot
    assert be.deconv_layer(np.float32, 2, 3, 4, P=5, Q=6).dot
    for name, value in {"R": 3, "str_w": 2, "pad_d": 1, "dil_h": 2, "S": 2}.items():
        assert not be.conv_layer(np.float32, 2, 3, 4, H=5, W=6, **{name: value}).dot


def test_layers_are_values(be: Backend) -> None:
    first, again = (be.conv_layer(np.float32, 2, 3, 4, H=5, W=6, R=3) for _ in range(2))
    assert first == again
    assert hash(first) == hash(again)
    assert first.all_params == again.all_params
    for other in ({"R": 2}, {"pad_h": 1}, {"str_w": 2}, {"dil_h": 2}, {"W": 7}):
        changed = be.conv_layer(np.float32, 2, 3, 4, **{"H": 5, "W": 6, "R": 3, **other})
        assert first != changed
        assert first.all_params != changed.all_params
    with pytest.raises(dataclasses.FrozenInstanceError):
        first.N = 3
    assert be.conv_layer(None, 1, 1, 1).dtype == be.default_np_dtype
    assert be.conv_layer("float16", 1, 1, 1).dtype == np.float16
    assert be.conv_layer(np.float32, np.int64(2), 1, 1).N == 2


def test_words(be: Backend) -> None:
    layer = be.conv_layer(np.float32, 8, 6, 10, **SIZES, **STEPS, groups=2)
    words = "input 6x5x11x12, filter 2x3x4, 10 maps of 2x5x2, padding 1x2x0, strides 3x2x4, dilation 1x3x2, 2 groups"
    assert str(layer) == f"convolution of 8 images: {words}"
    plain = be.conv_layer(np.float32, 1, 2, 3, H=4, W=5)
    assert str(plain) == "convolution of 1 images: input 2x1x4x5, filter 1x1x1, 3 maps of 1x4x5"
    turned = be.deconv_layer(np.float32, 4, 2, 3, P=4, Q=5, S=2, str_w=2)
    assert str(turned).startswith("transposed convolution of 4 images")
    assert "input 2x1x4x10, filter 1x1x2, 3 maps of 1x4x5, strides 1x1x2" in str(turned)


# Output sizes -------------------------------------------------------------------------------------------------------

CHECKED = {
    "caffe": dict(zip(itertools.product((5, 6, 7, 8), (0, 1)), (2, 3, 3, 4, 3, 4, 4, 5))),
    "normal": dict(zip(itertools.product((5, 6, 7, 8), (0, 1)), (2, 3, 2, 3, 3, 4, 3, 4))),
}
"""Sizes and paddings -> number of windows of 3 with stride 2, under either rule."""


@pytest.mark.backend
@pytest.mark.parametrize("mode", ["normal", "caffe"])
def test_output_dim(mode: str) -> None:
    be = current_backend(batch_size=2, compat_mode="caffe" if mode == "caffe" else None)
    try:
        for (length, pad), wanted in CHECKED[mode].items():
            assert be.output_dim(length, 3, pad, 2, pooling=True) == wanted
            assert be.output_dim(length, 3, pad, 2) == CHECKED["normal"][length, pad]
            assert (
                be.conv_layer(np.float32, 1, 1, 1, W=length, S=3, pad_w=pad, str_w=2).Q
                == CHECKED["normal"][length, pad]
            )
            assert be.pool_layer(np.float32, "max", 1, 1, W=length, S=3, pad_w=pad, str_w=2).MPQ[2] == wanted
        for length, size, pad, step, dil in itertools.product(range(7, 12), (1, 2, 3), (0, 1, 2), (1, 2, 3), (1, 2, 3)):
            places = range(-pad, length + pad - dil * (size - 1), step)  # where windows start
            assert be.output_dim(length, size, pad, step, dilation=dil) == len(places)
        with pytest.raises(ValueError, match="padding 3 must be less than the pooling window's extent 3"):
            be.output_dim(8, 3, 3, 2, pooling=True)
        assert be.output_dim(8, 3, 4, 2) == 7  # no rule for convolution
    finally:
        cleanup_backend()


# Errors -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["conv_layer", "deconv_layer"])
@pytest.mark.parametrize(
    ("error", "words", "given"),
    [
        (ArgumentError, "N must be at least 1, got 0", {"N": 0}),
        (ArgumentError, "C must be at least 1", {"C": -1}),
        (ArgumentError, r"TRS\[1\] must be at least 1", {"R": 0}),
        (ArgumentError, r"strides\[2\] must be at least 1", {"str_w": 0}),
        (ArgumentError, r"dilation\[0\] must be at least 1", {"dil_d": 0}),
        (ArgumentError, r"padding\[0\] must be at least 0, got -1", {"pad_d": -1}),
        (DTypeError, r"S must be an integer, got 1\.5", {"S": 1.5}),
        (DTypeError, "K must be an integer, got True", {"K": True}),
        (ArgumentError, "groups must divide C and K, got C=4, K=6, groups=4", {"groups": 4}),
        (ArgumentError, "groups must divide C and K", {"groups": 3}),
        (ArgumentError, "groups must be at least 1", {"groups": 0}),
        (DTypeError, "not a dtype", {"dtype": "image"}),
        (DTypeError, "must be float16, bfloat16, float32 or float64, got int32", {"dtype": np.int32}),
    ],
)
def test_sizes_that_do_not_fit(be: Any, kind: str, error: type[Exception], words: str, given: dict[str, Any]) -> None:
    arguments = {"dtype": np.float32, "N": 2, "C": 4, "K": 6, "R": 2, "S": 2, **given}
    arguments |= {"H": 4, "W": 5} if kind == "conv_layer" else {"P": 4, "Q": 5}
    with pytest.raises(error, match=f"{kind}: .*{words}"):
        getattr(be, kind)(**arguments)


def test_filters_larger_than_the_image(be: Backend) -> None:
    for axis, given in (
        ("width", {"W": 3, "S": 6, "pad_w": 1}),
        ("height", {"H": 4, "R": 3, "dil_h": 2}),
        ("depth", {"T": 2}),
    ):
        with pytest.raises(ShapeError, match=f"larger than the padded input along the {axis}: .*input 2x"):
            be.conv_layer(np.float32, 1, 2, 1, **given)
    with pytest.raises(ShapeError, match=r"deconv_layer: .*leave an output of \(1, 1, 0\)"):
        be.deconv_layer(np.float32, 1, 2, 1, Q=2, pad_w=1)
    with pytest.raises(ArgumentError, match=r"deconv_layer: MPQ\[1\] must be at least 1"):
        be.deconv_layer(np.float32, 1, 2, 1, P=0)


# Memory -------------------------------------------------------------------------------------------------------------

SLACK = 64 << 10
"""Bytes that a call may take beside its stated workspace: small arrays, padding to cache lines, objects of Python."""

MEMORY = """
import json, sys, threading, tracemalloc
import numpy as np
from neonlike.backends import gen_backend
be = gen_backend("cpu", batch_size=2)
found = []

def run(layer, operation, dtype, flags):
    I, F, O = (be.ones(dims, dtype=dtype) for dims in (layer.dimI, layer.dimF, layer.dimO))
    rows = layer.C if operation == "bprop" else layer.K
    X = be.ones(layer.dimI if operation == "bprop" else layer.dimO, dtype=dtype)
    column = lambda: be.ones((rows, 1), dtype=dtype)
    extra = dict(bias=column(), bsum=column(), relu=True, X=X, beta=0.5) if flags else {}

    def call():
        if operation == "fprop":
            be.fprop_conv(layer, I, F, O, **extra)
        elif operation == "bprop":
            be.bprop_conv(layer, F, O, I, **extra)
        else:
            be.update_conv(layer, I, O, F, **(dict(beta=0.5, grad_bias=column()) if flags else {}))

    for _ in range(2):  # the first compiles; each in a thread of its own, which has no memory kept from before
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
        peak = tracemalloc.get_traced_memory()[1] - before
    stated = be.workspace_bytes(layer, operation)
    found.append([str(layer), operation, str(dtype), flags, peak, stated, layer.sizeI, layer.sizeO])

tracemalloc.start()
for dtype, flags, n, sizes in json.loads(sys.argv[1]):
    layer = be.conv_layer(np.dtype(dtype), n, **sizes)
    for operation in ("fprop", "bprop", "update"):
        run(layer, operation, np.dtype(dtype), flags)
print(json.dumps(found))
"""

LAYERS: list[dict[str, int]] = [
    {"C": 16, "K": 24, "H": 20, "W": 20, "R": 3, "S": 3, "pad_h": 1, "pad_w": 1},
    {"C": 96, "K": 64, "H": 7, "W": 9},
    {"C": 3, "K": 8, "H": 33, "W": 31, "R": 7, "S": 7, "str_h": 2, "str_w": 2},
    {"C": 32, "K": 32, "D": 3, "H": 9, "W": 9, "T": 2, "R": 3, "S": 3, "groups": 32},
]


def in_a_process(text: str, *arguments: str, **variables: str) -> Any:
    """Run a fresh interpreter; return its output, parsed as JSON."""
    done = subprocess.run(
        [sys.executable, "-c", text, *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **variables},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.cpu_only("the compiled kernels of the CPU")
@pytest.mark.parametrize("threads", ["1", "3"])
def test_calls_take_no_more_memory_than_the_layer_says(threads: str) -> None:
    """Arrays of NumPy, which is where kernels work, are seen by tracemalloc."""
    needs_compiler()
    cases = [
        [dtype, flags, n, sizes]
        for dtype in ("f4", "f8")
        for flags in (0, 1)
        for n, sizes in zip((16, 64, 5, 3), LAYERS)
    ]
    found = in_a_process(MEMORY, json.dumps(cases), NEONLIKE_NUM_THREADS=threads)
    assert len(found) == 3 * len(cases)
    for *what, peak, stated, size_i, size_o in found:
        assert peak <= stated + SLACK, f"{what}: took {peak} bytes, stated are {stated}"
        assert peak > 0
        # the stated memory itself is bounded: packed filters, and a few MB for each thread
        assert stated < 8 * (size_i + size_o) + (int(threads) << 23), what


def test_calls_in_float16_take_no_more_memory_than_the_layer_says() -> None:
    needs_compiler()
    cases = [["f2", flags, 16, sizes] for flags in (0, 1) for sizes in LAYERS]
    for *what, peak, stated, _, _ in in_a_process(MEMORY, json.dumps(cases), NEONLIKE_NUM_THREADS="2"):
        assert peak <= stated + SLACK, f"{what}: took {peak} bytes, stated are {stated}"


RESIDENT = """
import json, resource
import numpy as np
from neonlike.backends import gen_backend
be = gen_backend("cpu", batch_size=2)

def run(n, *operations):
    layer = be.conv_layer(np.float32, n, 16, 16, H=64, W=64, R=3, S=3, pad_h=1, pad_w=1)
    I, F, O = (be.ones(dims) for dims in (layer.dimI, layer.dimF, layer.dimO))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for operation in operations:
        if operation == "fprop":
            be.fprop_conv(layer, I, F, O)
        elif operation == "bprop":
            be.bprop_conv(layer, F, O, I)
        else:
            be.update_conv(layer, I, O, F)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return (after - before) << 10, max(be.workspace_bytes(layer, operation) for operation in operations)

run(2, "fprop", "bprop", "update")
print(json.dumps(run(64, "fprop", "bprop", "update")))
"""


@pytest.mark.cpu_only("the compiled kernels of the CPU")
@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss has other units elsewhere")
def test_the_process_grows_no_more_than_the_layer_says() -> None:
    """Memory that kernels would take by themselves is seen here; the image has 17 MB, all its windows 150 MB."""
    needs_compiler()
    grown, stated = in_a_process(RESIDENT, NEONLIKE_NUM_THREADS="2")
    assert grown <= stated + (4 << 20)


def test_stated_memory_follows_images_and_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    for be in backend("c"):
        layer = be.conv_layer(np.float32, 32, 16, 16, H=20, W=20, R=3, S=3)
        use_threads(monkeypatch, "1")
        alone = [be.workspace_bytes(layer, operation) for operation in ("fprop", "bprop", "update")]
        assert be.workspace_bytes(layer) == alone[0]
        assert min(alone) > math.prod(layer.dimF) * 4
        use_threads(monkeypatch, "4")
        for operation, less in zip(("fprop", "bprop", "update"), alone):
            assert be.workspace_bytes(layer, operation) > less
        half = be.conv_layer(np.float16, 32, 16, 16, H=20, W=20, R=3, S=3)
        copies = layer.sizeI + layer.sizeF + layer.sizeO  # in float32, in which it is computed
        assert be.workspace_bytes(half, "update") == be.workspace_bytes(layer, "update") + 4 * copies
        more = layer.sizeO + layer.K  # and of X and the bias
        assert be.workspace_bytes(half) == be.workspace_bytes(layer) + 4 * (copies + more)
        with pytest.raises(ArgumentError, match="operation must be fprop, bprop or update, got 'forward'"):
            be.workspace_bytes(layer, "forward")
        other = be.deconv_layer(np.float32, 32, 16, 16, P=18, Q=18, R=3, S=3)
        assert be.workspace_bytes(other, "bprop") == be.workspace_bytes(layer, "bprop")
