"""Sizes of pooling layers and of their workspaces, and errors of mismatched sizes."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.backends.layer_cpu import PoolLayer
from neonlike.errors import ArgumentError, DTypeError, MissingArgument, ShapeError
from neonlike.kernels.run.calls import KernelCall
from tests.support.engines import backend, use_threads
from tests.support.float64.pool_loops import Sizes, backward, close, forward, layer_of, steps

pytestmark = pytest.mark.engines("numpy", "c")


ATTRIBUTES: dict[str, Any] = {
    "op": "max", "N": 8, "C": 6, "D": 4, "H": 9, "W": 10, "K": 3, "M": 5, "P": 5, "Q": 4, "JTRS": (2, 2, 3, 4),
    "DHW": (4, 9, 10), "MPQ": (5, 5, 4), "padding": (0, 1, 1, 2), "strides": (2, 1, 2, 3), "dimI": (6, 4, 9, 10, 8),
    "dimO": (3, 5, 5, 4, 8), "dimI2": (2160, 8), "dimO2": (300, 8), "dimF2": None, "sizeI": 17280, "sizeO": 2400,
    "nOut": 300, "overlap": 8.0, "flops": 0, "dtype": np.dtype(np.float32), "is_mklop": False,
}  # fmt: skip


def test_attributes(be: Backend) -> None:
    layer = be.pool_layer(
        np.float32, "max", 8, 6, 4, 9, 10, J=2, T=2, R=3, S=4, pad_d=1, pad_h=1, pad_w=2, str_d=1, str_h=2, str_w=3
    )
    assert isinstance(layer, PoolLayer)
    found = {name: getattr(layer, name) for name in ATTRIBUTES}
    assert found == ATTRIBUTES
    for text in ("max", "(6, 4, 9, 10, 8)", "(3, 5, 5, 4, 8)", "(2, 2, 3, 4)", "(0, 1, 1, 2)", "(2, 1, 2, 3)"):
        assert text in str(layer)
    assert hash(layer) == hash(be.pool_layer(
        np.float32, "max", 8, 6, 4, 9, 10, 2, 2, 3, 4, 0, 1, 1, 2, None, 1, 2, 3
    ))  # fmt: skip


def test_layers_that_were_used_may_be_copied_and_pickled(be: Backend) -> None:
    layer = layer_of(be, "l2", 1, C=1, H=4, W=4, R=2, S=2)
    image, pooled, delta = be.ones((16, 3)), be.empty((4, 3)), be.empty((16, 3))
    be.fprop_pool(layer, image, pooled)
    for made in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert made == layer and made.dimO == layer.dimO
        with pytest.raises(MissingArgument, match="l2 pooling needs inputs"):
            be.bprop_pool(made, pooled, delta)
        be.fprop_pool(made, image, pooled)
    be.bprop_pool(layer, pooled, delta)


def test_overlap_is_zero_for_windows_apart(be: Backend) -> None:
    assert layer_of(be, "avg", 1, C=1, H=4, W=4, R=2, S=2).overlap == 0.0
    assert layer_of(be, "avg", 1, C=1, H=4, W=4, R=2, S=2, str_w=1).overlap == 2.0


def test_sizes_in_caffe_mode(be: Backend) -> None:
    cases = [(5, 0), (5, 1), (6, 0), (6, 1), (7, 0), (7, 1), (8, 0), (8, 1)]
    sizes = [[layer_of(be, "max", 1, C=1, W=X, S=3, str_w=2, pad_w=pad).Q for X, pad in cases]]
    be.set_caffe_compat()
    sizes.append([layer_of(be, "max", 1, C=1, W=X, S=3, str_w=2, pad_w=pad).Q for X, pad in cases])
    assert sizes == [[2, 3, 2, 3, 3, 4, 3, 4], [2, 3, 3, 4, 3, 4, 4, 5]]
    # Of 3 and 4 values the second window would start behind the last one, 5 - 1 from the first.
    assert [layer_of(be, "max", 1, C=1, W=W, S=2, str_w=5, pad_w=1).Q for W in (3, 4, 5)] == [1, 1, 2]


def test_windows_cut_at_the_end_in_caffe_mode(be: Backend) -> None:
    be.set_caffe_compat()
    layer = layer_of(be, "avg", 2, C=1, W=6, S=3, str_w=2)
    pooled, delta = be.empty((3, 2)), be.empty((6, 2))
    be.fprop_pool(layer, be.array(np.arange(12).reshape(6, 2)), pooled)
    assert pooled.get().tolist() == [[2, 3], [6, 7], [9, 10]]
    be.bprop_pool(layer, be.array([[3.0, 3], [6, 6], [10, 10]]), delta)
    assert np.allclose(delta.get()[:, 0], [1, 1, 3, 2, 7, 5])


@pytest.mark.parametrize("op", ["max", "avg", "l2"])
def test_the_tensors_say_how_many_images(be: Backend, op: str) -> None:
    layer = layer_of(be, op, 4, C=2, H=4, W=4, R=2, S=2)
    for N in (4, 1, 7, 7):
        x = steps(np.random.default_rng(N), (2, 1, 4, 4, N))
        sizes = Sizes(N, C=2, H=4, W=4, R=2, S=2)
        pooled, argmax, delta = be.empty((8, N)), be.empty((8, N), dtype=np.uint8), be.empty((32, N))
        be.fprop_pool(layer, be.array(x), pooled, argmax)
        close(pooled, forward(op, sizes, x), np.float32)
        be.bprop_pool(layer, be.ones((8, N)), delta, argmax)
        close(delta, backward(op, sizes, x, np.ones(sizes.dimO)), np.float32)
    assert layer.N == 4
    assert layer.at_batch(4) is layer
    assert layer.at_batch(7).dimO == (2, 1, 2, 2, 7)


def test_no_images_at_all(be: Backend) -> None:
    layer = layer_of(be, "max", 4, C=2, H=4, W=4, R=2, S=2)
    image, pooled, argmax = be.empty((32, 0)), be.empty((8, 0)), be.empty((8, 0), dtype=np.uint8)
    assert be.fprop_pool(layer, image, pooled, argmax) is None
    assert be.bprop_pool(layer, pooled, image, argmax) is None


@pytest.mark.cpu_only("the compiled kernels of the CPU")
@pytest.mark.parametrize("op", ["max", "avg", "l2"])
@pytest.mark.parametrize("n", [1, 4, 64])
def test_workspace_is_what_kernels_take(op: str, n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """And of l2's gradient the norms of all windows, which a forward pass makes first."""
    taken, start = list[int](), KernelCall.start
    monkeypatch.setattr(KernelCall, "start", lambda *given: (taken.append(given[0].work), start(*given)))
    for be in backend("c"):
        layer = layer_of(be, op, n, C=32, H=9, W=8, R=3, S=3, str_h=1, str_w=1)
        image, pooled, delta = be.ones(layer.dimI), be.ones(layer.dimO), be.empty(layer.dimI)
        argmax = be.zeros(layer.dimO, dtype=layer.argmax_dtype) if op == "max" else None
        for threads in ("1", "3"):
            use_threads(monkeypatch, threads)
            stated = {name: be.workspace_bytes(layer, name) for name in ("fprop", "bprop")}
            taken.clear()
            be.fprop_pool(layer, image, pooled, argmax)
            assert taken == [stated["fprop"]]
            be.bprop_pool(layer, pooled, delta, argmax)
            norms = layer.sizeO * 4 if op == "l2" else 0
            assert max(taken[1:]) + norms == stated["bprop"]


def test_workspace_is_stated_for_every_backend(be: Backend) -> None:
    layer = layer_of(be, "l2", 4, C=2, H=8, W=8, R=3, S=3)
    assert be.workspace_bytes(layer, "bprop") >= layer.sizeO * 4  # the norms, at least
    assert be.workspace_bytes(layer, "fprop") > 0 or be.backend_name == "gpu"
    with pytest.raises(ArgumentError, match="operation must be fprop or bprop, got 'update'"):
        be.workspace_bytes(layer, "update")
    with pytest.raises(DTypeError, match="layer must come from"):
        be.workspace_bytes(be.lrn_layer(None, 1, 3))


@pytest.mark.parametrize(
    ("error", "words", "given"),
    [
        (ArgumentError, "op must be one of", {"op": "min"}),
        (ValueError, "padding 2 must be less", {"pad_w": 2}),
        (ShapeError, "larger than the padded input along the width", {"S": 9}),
        (ShapeError, "larger than the padded input along the channels", {"J": 3}),
        (ArgumentError, "str_h must be at least 1", {"str_h": 0}),
        (ArgumentError, "pad_d must be at least 0", {"pad_d": -1}),
        (DTypeError, "R must be an integer", {"R": 1.5}),
        (ArgumentError, "N must be at least 0", {"N": -1}),
        (DTypeError, "not a dtype", {"dtype": "image"}),
    ],
)
def test_sizes_that_do_not_fit(be: Any, error: type[Exception], words: str, given: dict[str, Any]) -> None:
    arguments = {"dtype": np.float32, "op": "max", "N": 2, "C": 2, "H": 4, "W": 4, "R": 2, "S": 2, **given}
    with pytest.raises(error, match=words):
        be.pool_layer(**arguments)
