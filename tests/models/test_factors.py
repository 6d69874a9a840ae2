"""Precision of products, as ``model.explain`` and ``be.explain`` tell it, against what the kernels do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.backends.geometry.products import ProductSizes
from neonlike.errors import ArgumentError
from neonlike.initializers import Constant
from neonlike.kernels.c.pairs import spoken
from neonlike.kernels.c.simd import pair_form
from neonlike.layers import (
    GRU,
    LSTM,
    Affine,
    BiLSTM,
    BinaryAffine,
    Conv,
    Convolution,
    Deconv,
    DepthwiseConv,
    Linear,
    MultiHeadAttention,
    Pooling,
    Recurrent,
)
from neonlike.models import Model
from neonlike.transforms import Identity, Logistic, Rectlin, Tanh

pytestmark = [pytest.mark.engines("c", batch_size=32), pytest.mark.cpu_only("the GPU tells nothing of its products")]

ODD = 1 + 2.0**-10
"""A number that is 1 in bfloat16."""


@pytest.fixture(autouse=True)
def without_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products have the instruction of other kernels; ``kernels/c/test_tiles.py`` has the text of tiles."""
    monkeypatch.setenv("NEONLIKE_AMX", "0")


def told(be: Backend) -> str:
    """The text for products in bfloat16 on this machine."""
    return "bfloat16 by vdpbf16ps" if pair_form(be.compiler) else "bfloat16 in plain arithmetic"


def said(layers: Any, shape: Any) -> list[str]:
    """The note on products in each line of ``model.explain()``, without others."""
    model = Model(layers)
    model.initialize(shape)
    lines = model.explain().splitlines()[1:]
    notes = [line.partition("  | ")[2].split("; ") for line in lines]
    return [next((note for note in found if note.startswith("multiplies")), "") for found in notes]


def test_each_form_of_pairs_has_a_text_of_its_own(be: Backend) -> None:
    texts = [spoken(pairs, np.dtype(np.float16), be.compiler) for pairs in (0, 1, 2)]
    assert texts == ["float32", told(be), "bfloat16 in plain arithmetic"]
    assert spoken(0, np.dtype(np.float64), be.compiler) == "float64"


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_layers_tell_the_precision_of_their_products(be: Backend, precision: str) -> None:
    be.product_precision = precision
    text = f"multiplies {told(be) if precision == 'bfloat16' else 'float32'}"
    init = Constant(0.5)
    assert said([*Affine(128, init, activation=Rectlin()), *BinaryAffine(64, init)], 128) == [text, "", ""]
    assert said([*Conv((3, 3, 16), init), Pooling(2), *Deconv((2, 2, 8), init)], (8, 12, 12)) == [text, "", text]
    recurrent = [LSTM(64, init, activation=Tanh(), gate_activation=Logistic()), Recurrent(64, init, activation=Tanh())]
    assert said(recurrent, (64, 8)) == [text, text]
    bidirectional = [BiLSTM(64, init, activation=Tanh(), gate_activation=Logistic())]
    assert said(bidirectional, (64, 8)) == [text]
    assert said([MultiHeadAttention(2, init)], (64, 32)) == [text]


def test_products_that_would_not_gain_stay_float32(be: Backend) -> None:
    """Small layers, depthwise convolutions, unrolls of few units below a large product of the inputs."""
    be.product_precision = "bfloat16"
    init, text = Constant(0.5), told(be)
    assert said([*Affine(10, init)], 20)[0] == "multiplies float32"
    assert said([*DepthwiseConv((3, 3, 8), init)], (8, 12, 12))[0] == "multiplies float32"
    gru = GRU(24, init, activation=Tanh(), gate_activation=Logistic())
    assert said([gru], (64, 8)) == [f"multiplies {text} and float32"]
    assert said([MultiHeadAttention(8, init)], (64, 32)) == [f"multiplies {text} and float32"]
    first = said([Convolution((3, 3, 16), init=init), Convolution((3, 3, 6), init=init, groups=2)], (8, 12, 12))[1]
    assert first.startswith(f"multiplies {text} forward, ") and "float32" in first


def test_each_pass_of_a_convolution_has_its_own_answer(be: Backend) -> None:
    """Rows of an odd number of outputs of a single image make no pairs for the gradient of filters."""
    be.product_precision = "bfloat16"
    one = be.conv_layer(None, 1, 16, 16, H=9, W=9, R=3, S=3)
    assert [be.factors_of(one, name) for name in ("fprop", "bprop", "update")] == [told(be), told(be), "float32"]


def test_tensors_of_16_bits_are_told_too(be: Backend) -> None:
    init = Constant(0.5)
    for dtype in ("bfloat16", "float16"):
        be.default_dtype = dtype
        text = f"multiplies {told(be) if dtype == 'bfloat16' and pair_form(be.compiler) else 'float32'}"
        assert said([*Affine(128, init)], 128)[0] == text
        assert said([*Conv((3, 3, 16), init)], (8, 12, 12)) == [text]
        assert said([Recurrent(128, init, activation=Tanh())], (64, 8)) == [text]
        assert said([MultiHeadAttention(2, init)], (64, 32)) == [text]


@pytest.mark.engines("numpy", batch_size=32)
def test_without_compiled_kernels_nothing_is_rounded(be: Backend) -> None:
    be.product_precision = "bfloat16"
    compiler, be.compiler = be.compiler, None
    try:
        assert said([*Affine(128, Constant(0.5))], 128)[0] == "multiplies float32"
    finally:
        be.compiler = compiler


@pytest.mark.parametrize("size", [16, 64, 128])
@pytest.mark.parametrize("kind", ["linear", "conv", "update", "recurrent", "attention"])
@pytest.mark.parametrize("form", [1, 2])
def test_what_is_told_is_what_is_done(be: Backend, form: int, kind: str, size: int) -> None:
    """Factors of 1 + 2^-10 show in the result whether they were rounded, by the instruction or in plain arithmetic."""
    be.product_precision = "bfloat16"
    be.executor.own_engine.pairs = form
    if kind == "attention":
        layer = be.attention_layer(None, 2, 2, size // 4, size // 4)
        q, k, v, out = (be.zeros((2, 2, size // 4, size // 4)) for _ in range(4))
        v[:] = ODD
        be.fprop_attention(layer, q, k, v, out)
        found, text = out.get(), be.factors_of(layer)
        assert text.startswith("bfloat16") == (size > 16)
    else:
        found, text = _computed(be, kind, size)
    assert text in {1: ("float32", told(be)), 2: ("float32", "bfloat16 in plain arithmetic")}[form]
    np.testing.assert_allclose(found, 1.0 if text.startswith("bfloat16") else ODD, rtol=1e-5)


def _computed(be: Backend, kind: str, size: int) -> tuple[np.ndarray, str]:
    """A result that is 1, or 1 + 2^-10 if that factor was not rounded; and what is told of it."""
    shape = {"linear": size, "recurrent": (1, 1)}.get(kind, (size // 8, 6, 6))
    one = {
        "linear": Linear(size, Constant(1 / size)),
        "recurrent": Recurrent(size, Constant(1 / size), activation=Identity()),
    }.get(kind) or Convolution((1, 1, 16), init=Constant(8 / size))
    model = Model([one])
    model.initialize(shape)
    x = be.zeros((int(np.prod(shape)), be.bsz))
    if kind == "recurrent":
        state = be.zeros((size, be.bsz))
        state[:] = ODD
        return one.fprop(x, init_state=state).get(), be.factors_of(*one.products()[1])
    x[:] = ODD
    found = one.fprop(x).get()
    if kind == "update":
        error = be.ones((16 * 36, be.bsz))
        one.bprop(error)
        return one.dW.get() / (36 * be.bsz), be.factors_of(one.nglayer, "update")
    return found, be.factors_of(*one.products()[0])


# -- expressions -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_an_explained_expression_tells_it_of_each_product(be: Backend, dtype: str) -> None:
    a, b = be.ones((128, 64), dtype=dtype), be.ones((64, 128), dtype=dtype)
    rounded = dtype == "bfloat16" and pair_form(be.compiler)
    text = be.explain(be.dot(a, b) + 1)
    assert f"  factors {told(be) if rounded else 'float32'}\n" in text
    assert ("factors rounded to bfloat16" in text) == bool(rounded)
    be.product_precision = "bfloat16"
    text = be.explain(be.dot(a, b) + 1)
    assert f"  factors {told(be)}\n" in text and text.count("  factors ") == 1
    assert "  factors float32" in be.explain(be.dot(a[:4], b))
    assert "factors" not in be.explain(a[:64] + b[:, :64])


def test_an_explained_expression_tells_it_of_each_primitive(be: Backend) -> None:
    be.product_precision = "bfloat16"
    x = be.ones((8, 12, 12, 32))
    assert f"\n  factors {told(be)}" in be.explain(be.conv(x, be.ones((8, 3, 3, 16))))
    q = be.ones((2, 32, 32))
    assert f"\n  factors {told(be)}" in be.explain(be.attention(q, q, q))
    assert "\n  factors float32" in be.explain(be.attention(q[:, :8], q[:, :8], q[:, :8]))


def test_other_calls_have_no_products(be: Backend) -> None:
    layer = be.pool_layer(None, "max", 8, 4, H=8, W=8, R=2, S=2)
    assert be.factors_of(layer) == "" and be.factors_of(None) == ""
    assert be.factors_of(ProductSizes(8, 8, 8, np.dtype(np.float64))) == "float64"
    conv = be.conv_layer(None, 8, 4, 4, H=8, W=8)
    with pytest.raises(ArgumentError, match="factors_of: operation must be fprop, bprop or update, got 'forward'"):
        be.factors_of(conv, "forward")
