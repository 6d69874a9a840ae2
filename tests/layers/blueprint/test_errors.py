"""Blueprints refuse mismatched inputs, with their names and the shapes in the error."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.backends.descriptors import TensorDesc
from neonlike.errors import ArgumentError, DTypeError, ShapeError
from neonlike.initializers import GlorotUniform

pytestmark = pytest.mark.engines("numpy")

N = 4

MISFITS: dict[str, tuple[Any, type[Exception], str]] = {
    "batch": (lambda m: m.inner_product((6, 4), (5, 3)), ShapeError,
              r"inner_product: the output \(5, 3\) has 3 samples, the input \(6, 4\) has 4"),
    "layout": (lambda m: m.inner_product(TensorDesc((4, 6), "float32", "NC"), 5), ArgumentError,
               r"inner_product: blueprints compute with the batch as the last axis, got .*'NC'.*be.transformer"),
    "integers": (lambda m: m.inner_product(TensorDesc((6, 4), "int32"), 5), DTypeError, "inner_product: needs floats"),
    "weights": (lambda m: m.fully_connected((6, 4), 5, weights_type="float16"), DTypeError,
                "fully_connected: weights of float16 cannot be multiplied with data of float32"),
    "activation": (lambda m: m.fully_connected((6, 4), 5, "rellu"), ArgumentError,
                   "fully_connected: there is no activation 'rellu', only .*; did you mean relu"),
    "alpha": (lambda m: m.fully_connected((6, 4), 5, "tanh", alpha=2), ArgumentError, "tanh has no parameter alpha"),
    "nothing": (lambda m: m.inner_product("x", 5), DTypeError, "inner_product: expected a TensorDesc, a shape"),
    "images": (lambda m: m.convolution((6, 4), 3, 5), ShapeError, r"convolution: needs images.*got \(6, 4\)"),
    "maps": (lambda m: m.convolution((2, 5, 5, 4), 3, (7, 5, 5, 4)), ShapeError,
             r"convolution: an input \(2, 5, 5, 4\) gives \(7, 3, 3, 4\), not the output \(7, 5, 5, 4\)"),
    "kernel": (lambda m: m.convolution((2, 4, 4, 3), 5, 3), ShapeError, "convolution: conv_layer: the filter is"),
    "window": (lambda m: m.pooling((2, 4, 4, 3), 5), ShapeError, "pooling: pool_layer: the window is larger"),
    "axes": (lambda m: m.inner_product((4,), 5), ShapeError, r"inner_product: TensorDesc: needs.*two axes, got \(4,\)"),
    "negative": (lambda m: m.inner_product((6, 4), -1), ShapeError, "inner_product: the output: got -1"),
    "algorithm": (lambda m: m.pooling((2, 5, 5, 4), 2, "median"), ArgumentError, "the algorithm must be 'max'"),
    "sd": (lambda m: m.gaussian_dropout((6, 4), -1), ArgumentError, "gaussian_dropout: .* must not be negative"),
    "sum": (lambda m: m.sum([(6, 4), (5, 4)]), ShapeError, r"sum: inputs must be of one shape.*\(6, 4\).*\(5, 4\)"),
    "concat": (lambda m: m.concat([(6, 2, 4), (5, 3, 4)]), ShapeError, r"concat: inputs may differ along axis 0 alone"),
    "axis": (lambda m: m.concat([(6, 4), (6, 4)], 1), ShapeError, r"concat: axis 1 of \(6, 4\) is the batch"),
    "branch": (lambda m: m.branch((6, 4), 0, [2, 3]), ShapeError, r"branch: parts \(2, 4\).*have 5.*\(6, 4\) has 6"),
    "part": (lambda m: m.branch((6, 4), 0, [(2, 3), 4]), ShapeError, r"branch: \(2, 3\) is no part of \(6, 4\)"),
    "outputs": (lambda m: m.inner_product(m.split((6, 4), 2), 5), ShapeError, "split: .* has 2 outputs; put concat"),
    "order": (lambda m: m.sequential([m.inner_product((6, 4), 5), m.inner_product((6, 4), 5)]), ShapeError,
              r"inner_product: \(6, 4\) -> \(5, 4\) cannot follow.*takes \(6, 4\) of float32, not \(5, 4\)"),
    "empty": (lambda m: m.sequential([]), ShapeError, "sequential: needs at least one blueprint"),
    "layer": (lambda m: m.sequential([1]), DTypeError, "sequential: takes blueprints, got 1"),
    "cost": (lambda m: m.cost("hinge", m.inner_product((6, 4), 5)), ArgumentError, "cost: there is no cost 'hinge'"),
    "entropy": (lambda m: m.cost("crossentropy", m.inner_product((6, 4), 5)), ArgumentError,
                r"cost: cross-entropy needs probabilities.*inner_product: \(6, 4\)"),
    "targets": (lambda m: m.cost("quadratic", m.inner_product((6, 4), 5), TensorDesc((4, 4))), ShapeError,
                r"cost: the targets \(4, 4\).*inner_product: \(6, 4\) -> \(5, 4\), \(5, 4\)"),
}  # fmt: skip


@pytest.mark.parametrize("case", MISFITS)
def test_what_does_not_fit_is_named(be: Backend, case: str) -> None:
    make, error, message = MISFITS[case]
    with pytest.raises(error, match=message):
        make(be.blueprints)


def test_blueprints_are_found_on_every_backend(be: Backend) -> None:
    assert "blueprints" in be._public_names() and repr(be.blueprints).startswith("<blueprints of <Nervana")
    with pytest.raises(AttributeError, match="no method or attribute 'bluprints'; did you mean blueprints"):
        be.bluprints  # noqa: B018


def test_layers_name_what_does_not_fit(be: Backend) -> None:
    bp = be.blueprints.inner_product((6, N), 5)
    narrow = be.ones((6, N), "float16")
    for source, error in ((be.ones((5, N)), ShapeError), (np.ones((6, N)), DTypeError), (narrow, DTypeError)):
        with pytest.raises(error, match=r"inner_product: \(6, 4\) -> \(5, 4\)"):
            bp.build(source=source)
    with pytest.raises(ArgumentError, match="backward is of training, the layer was built for inference"):
        bp.build(train=False).backward()
    with pytest.raises(ArgumentError, match=r"quadratic cost.*built for training"):
        be.blueprints.cost("quadratic", bp).build()
    with pytest.raises(DTypeError, match=r"inner_product: .* a workspace is what be.workspace\(bytes\) gives, got 128"):
        bp.build(workspace=128)
    with pytest.raises(ShapeError, match=r"inner_product: .* must have the shape \(5, 4\), got \(6, 4\)"):
        bp.build(output=be.ones((6, N)))
    with pytest.raises(DTypeError, match="init: expected an initializer such as"):
        bp.build().init(GlorotUniform)


def test_axes_may_be_called_otherwise(be: Backend) -> None:
    """Only the last axis of a layout matters: it must be the batch."""
    desc = TensorDesc((6, 5, N), "float32", "DHN")
    rnn = be.blueprints.rnn(desc, 8)
    assert rnn == be.blueprints.rnn((6, 5, N), 8)
    assert rnn.build(source=be.tensor(desc)).input.desc == desc
    turned = be.tensor(TensorDesc((5, N, 6), "float32", "TNC"))
    with pytest.raises(ArgumentError, match=r"rnn: \(6, 5, 4\) -> .*layout 'CTN', got 'TNC'; be.transformer"):
        rnn.build(source=turned)
    with pytest.raises(ArgumentError, match=r"rnn: blueprints compute with the batch as the last axis"):
        be.blueprints.rnn(turned, 8)
