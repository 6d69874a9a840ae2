"""Calls of attention beyond their numbers: the layer, lengths of 0, bench mode, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.errors import AliasError, ArgumentError, DTypeError, ShapeError
from tests.support.engines import check_other_backends, new_backend
from tests.support.float64.attention_reference import Case

pytestmark = pytest.mark.engines("numpy", "c")

DIMS = 2, 3, 5, 7, 4, 6


def test_repeat_times_and_computes(be: Backend) -> None:
    case = Case(be, DIMS)
    assert case.fprop() is None
    for run, check in ((case.fprop, case.check_fprop), (case.bprop, case.check_bprop)):
        milliseconds, rate = run(repeat=2)
        assert milliseconds > 0
        assert rate > 0
        check()


def test_the_same_call_again(be: Backend) -> None:
    """Other tensors of the layout, and the same with other values."""
    for seed in range(3):
        values = np.random.default_rng(seed).standard_normal((2, 3, 5, 4))
        Case(be, DIMS, q=values).check()
    case = Case(be, DIMS)
    case.check()
    case.arrays[1] = case.arrays[1][:, :, ::-1].copy()
    case.K.set(case.arrays[1])
    case.check()


def test_lengths_of_nothing(be: Backend) -> None:
    """Without queries there is nothing to do; without keys, outputs and gradients are 0."""
    for dims in ((0, 2, 3, 4, 5, 6), (1, 2, 0, 4, 5, 6)):
        case = Case(be, dims)
        case.gradients[1].fill(3)
        case.fprop()
        case.bprop()
        assert not case.gradients[1].get().any()
    case = Case(be, (1, 2, 3, 0, 5, 6))
    case.fprop()
    case.bprop()
    assert not case.O.get().any()
    assert (case.lse.get() == -np.inf).all()
    assert not case.gradients[0].get().any()


# The layer ------------------------------------------------------------------------------------------------------------


def test_the_layer(be: Backend) -> None:
    layer = be.attention_layer(np.float64, 2, 8, 100, 64)
    assert (layer.keys, layer.value_size, layer.causal, layer.scale) == (100, 64, False, 0.125)
    assert (layer.dimQ, layer.dimK, layer.dimL) == ((2, 8, 100, 64), (2, 8, 100, 64), (2, 8, 100))
    assert layer.flops == 2 * 16 * 100 * 100 * 128
    assert layer.lse_dtype == np.float64
    other = be.attention_layer(None, 2, 8, 4, 64, keys=3, value_size=5, causal=True, scale=2)
    assert (other.dimV, other.dimO, other.pairs, other.scale) == ((2, 8, 3, 5), (2, 8, 4, 5), 1 + 2 + 3 + 3, 2.0)
    assert be.attention_layer(None, 1, 1, 2, 1, keys=5, causal=True).pairs == 3
    assert be.attention_layer(np.float16, 1, 1, 2, 1).lse_dtype == np.float32
    assert "causal attention of 4 queries of size 64 to 3 keys" in str(other)
    with pytest.raises(AttributeError):
        layer.keys = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"heads": 0}, ArgumentError, "heads must be at least 1"),
        ({"queries": -1}, ArgumentError, "queries must be at least 0"),
        ({"keys": 2.5}, DTypeError, "keys must be an integer"),
        ({"size": 0}, ArgumentError, "size must be at least 1"),
        ({"scale": "1"}, DTypeError, "scale"),
        ({"dtype": np.int32}, DTypeError, "dtype must be float16"),
    ],
)
def test_wrong_layers(be: Backend, options: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        be.attention_layer(**{"dtype": None, "N": 1, "heads": 2, "queries": 3, "size": 4, **options})


def test_workspace_bytes(be: Backend) -> None:
    layer = be.attention_layer(np.float16, 2, 3, 50, 8, causal=True)
    assert be.workspace_bytes(layer) <= be.workspace_bytes(layer, "bprop") > 0
    with pytest.raises(ArgumentError, match="fprop or bprop"):
        be.workspace_bytes(layer, "update")


# Errors ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["Q", "K", "V", "O", "E", "dK"])
def test_wrong_shapes(be: Backend, name: str) -> None:
    case = Case(be, DIMS)
    case.fprop()
    before = [tensor.get() for tensor in case.gradients]
    operands = case.Q, case.K, case.V, case.O, case.lse, case.E, *case.gradients
    tensors = dict(zip("Q K V O lse E dQ dK dV".split(), operands))
    wrong = be.empty((*tensors[name].shape[:-1], 9))
    with pytest.raises(ShapeError, match=f"{name} must have the shape .* got .*9"):
        be.bprop_attention(case.layer, *(tensors | {name: wrong}).values())
    for tensor, values in zip(case.gradients, before):
        np.testing.assert_array_equal(tensor.get(), values)


def test_wrong_operands(be: Backend) -> None:
    case = Case(be, DIMS)
    run = be.fprop_attention
    with pytest.raises(ShapeError, match="two to four axes"):
        run(case.layer, be.empty((1, 2, 3, 5, 4)), case.K, case.V, case.O)
    with pytest.raises(ShapeError, match="lse must have"):
        run(case.layer, case.Q, case.K, case.V, case.O, be.empty((3, 2)))
    with pytest.raises(DTypeError, match="lse must be of float32"):
        run(case.layer, case.Q, case.K, case.V, case.O, be.empty((6, 5), dtype=np.float64))
    with pytest.raises(DTypeError, match="one float dtype"):
        run(case.layer, case.Q.astype(np.float64), case.K, case.V, case.O)
    with pytest.raises(DTypeError, match="V must be a tensor, got None"):
        run(case.layer, case.Q, case.K, None, case.O)
    with pytest.raises(DTypeError, match="lse must be a tensor, got None"):
        be.bprop_attention(case.layer, case.Q, case.K, case.V, case.O, None, case.E, *case.gradients)
    with pytest.raises(DTypeError, match=r"be\.attention_layer"):
        run(be.lrn_layer(None, 1, 1), case.Q, case.K, case.V, case.O)


def test_shared_memory(be: Backend) -> None:
    case = Case(be, (2, 3, 5, 5, 4, 4))
    with pytest.raises(AliasError, match="O shares memory with V"):
        be.fprop_attention(case.layer, case.Q, case.K, case.V, case.V)
    case.fprop()
    with pytest.raises(AliasError, match="dQ shares memory with dV"):
        operands = case.Q, case.K, case.V, case.O, case.lse, case.E
        be.bprop_attention(case.layer, *operands, *case.gradients[:2], case.gradients[0])
    case.bprop()
    case.check_bprop()


@pytest.mark.backend
def test_other_backends() -> None:
    case = Case(new_backend(rng_seed=0), DIMS)
    case.fprop()
    check_other_backends(case)
