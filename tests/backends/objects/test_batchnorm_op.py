"""Batch normalisation as an object: layouts, modes, blending, statistics, records, nan, and errors."""

from __future__ import annotations

import itertools
import json
from typing import Any

import numpy as np
import pytest

from neonlike.backends.descriptors import TensorDesc
from neonlike.backends.objects.batchnorm import BatchNormOp, TooEarly
from neonlike.errors import (
    AliasError,
    ArgumentError,
    ArgumentTypeError,
    BackendUnavailable,
    DTypeError,
    OtherBackend,
    ShapeError,
)
from neonlike.nervanaobject import NervanaObject
from tests.backends.objects.batchnorm_rows import LAYOUTS, Rows
from tests.support.engines import new_backend, sampled, sampling

pytestmark = pytest.mark.engines("numpy", "c")
MODES = ("spatial", "per_activation", "spatial_persistent")
EPS = 1e-3
BLENDS = [((1, 0.0), 0.1), ((-0.5, 0.75), 1.0), ((2, 1), 0.0)]
"""(alpha, beta) and averaging factors."""


def train(be: Any, rows: Rows, blend: tuple[float, float] = (1, 0), factor: float = 0.25) -> tuple[Any, dict[str, Any]]:
    """Object after a training call, and the tensors that the call wrote."""
    op, t = rows.staged(be), rows.tensors(be, "x", "scale", "bias", "y")
    op.forward_training(*blend, factor, EPS, **t)
    found = {"y": t["y"], "mean": op.running_mean, "variance": op.running_variance, "saved_mean": op.saved_mean}
    return op, found


def policies(be: Any) -> tuple[bool, ...]:
    """Whether nan is ignored: in `make test` only once where that compiles some twenty kernels."""
    return (False,) if sampling.on and be.engine.name != "numpy" else (False, True)


# As a user does it ----------------------------------------------------------------------------------------------------


def test_a_training_loop_and_inference(be: Any, rng: np.random.Generator) -> None:
    """Stage by a descriptor, make parameters by the object's own, train, look at unseen data, save and restore."""
    x_desc = TensorDesc((16, 3, 4, 4), "float32", "NCHW")
    op = be.batchnorm_op("spatial").stage(x_desc)
    scale, bias, dscale, dbias = (be.tensor(op.scale_bias_desc()) for _ in range(4))
    assert scale.shape == (1, 3, 1, 1)
    scale.fill(1)
    x, y, dx, dy = (be.tensor(x_desc) for _ in range(4))
    seen = []
    for step in range(1, 5):
        seen.append(rng.normal(size=x_desc.shape) * 3 + 5)
        x[:] = seen[-1]
        op.forward_training(1, 0, 1 / step, 1e-5, x, scale, bias, y)
        dy[:] = y * (1 / y.size)
        op.backward(1, 0, 1, 0, 1e-5, x, scale, dscale, dbias, dx, dy)
        scale -= 0.1 * dscale
    means = np.mean([batch.mean((0, 2, 3)) for batch in seen], axis=0)
    np.testing.assert_allclose(op.running_mean.get().ravel(), means, rtol=1e-5)
    again = BatchNormOp.from_info(json.loads(json.dumps(op.info())))
    results = []
    for one in (op, again):
        one.forward_inference(1, 0, 1e-5, x, scale, bias, y)
        results.append(y.get())
    assert np.array_equal(*results)
    assert abs(results[0].mean()) < 0.2 and results[0].std() == pytest.approx(scale.get().mean(), rel=0.2)
    assert 0.5 < scale.get().max() < 1, "the gradient of the mean square of y makes it smaller"


# Against the formulas -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(be: Any, layout: str, mode: str) -> None:
    rows = Rows(TensorDesc(LAYOUTS[layout], "f4", layout), mode)
    op, found = train(be, rows)
    assert op.scale_bias_desc() == TensorDesc(rows.stats, "f4", layout)
    rows.check(found, rows.forward(1, 0, 0.25, EPS, True))
    t = rows.tensors(be, "x", "scale", "dscale", "dbias", "dx", "dy")
    op.backward(1, 0, 1, 0, EPS, **t)
    rows.check({name: t[name] for name in ("dx", "dscale", "dbias")}, rows.backward((1, 1), (0, 0), EPS))


@pytest.mark.compiles(1)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_blends_and_dtypes(be: Any, dtype: str) -> None:
    """y = alpha * result + beta * y, and the gradients of data and parameters with factors of their own."""
    cases = itertools.product(("NCHW", "CHWN"), BLENDS, (0, 1))
    for layout, (blend, factor), ignore in sampled(be, cases, 2, len(dtype)):
        rows = Rows(TensorDesc(LAYOUTS[layout], dtype, layout), "spatial", bool(ignore))
        op, found = train(be, rows, blend, factor)
        rows.check(found, rows.forward(*blend, factor, EPS, True), (layout, blend, ignore))
        t = rows.tensors(be, "x", "scale", "dscale", "dbias", "dx", "dy")
        op.backward(blend[0], blend[1], 3, 0.5 * blend[1], EPS, **t)
        wanted = rows.backward((blend[0], 3), (blend[1], 0.5 * blend[1]), EPS)
        rows.check({name: t[name] for name in ("dx", "dscale", "dbias")}, wanted, (layout, blend, ignore))
        op, t = rows.staged(be), rows.tensors(be, "x", "scale", "bias", "y")
        op.forward_inference(*blend, EPS, **t)
        rows.check({"y": t["y"]}, rows.forward(*blend, 0, EPS, False), (layout, blend, ignore))


def test_old_values_do_not_count_with_a_beta_of_0(be: Any) -> None:
    for ignore in policies(be):
        rows = Rows(TensorDesc(LAYOUTS["NCHW"], "f4", "NCHW"), "spatial", ignore)
        wanted = rows.forward(2, 0, 0.5, EPS, True), rows.backward((1, 1), (0, 0), EPS)
        rows.y, rows.dx = (np.full_like(rows.x, np.nan) for _ in range(2))
        rows.columns.update(dict.fromkeys(("dscale", "dbias"), np.full(rows.stats, np.nan, "f4")))
        op, found = train(be, rows, (2, 0), 0.5)
        rows.check(found, wanted[0])
        t = rows.tensors(be, "x", "scale", "dscale", "dbias", "dx", "dy")
        op.backward(1, 0, 1, 0, EPS, **t)
        rows.check({name: t[name] for name in ("dx", "dscale", "dbias")}, wanted[1])


def test_random_shapes_views_and_merged_axes(be: Any) -> None:
    """Operands in the middle of larger tensors, turned, or with their axes merged."""
    for seed in sampled(be, range(24), 1):
        rng = np.random.default_rng(seed)
        layout = str(rng.choice(["NCHW", "CHWN", "NC", "CDHWN"]))
        desc = TensorDesc(tuple(int(n) for n in rng.integers(1, 6, len(layout))), "f4", layout)
        rows = Rows(desc, str(rng.choice(MODES)), bool(seed % 2), seed)
        op = rows.staged(be)
        data = {name: view_of(be, values, rng) for name, values in
                (("x", rows.x), ("y", rows.y), ("dx", rows.dx), ("dy", rows.dy))}  # fmt: skip
        t = rows.tensors(be, "scale", "bias", "dscale", "dbias")
        t = {name: one.reshape(-1, 1) for name, one in t.items()}
        op.forward_training(1, 0.5, 0.25, EPS, data["x"], t["scale"], t["bias"], data["y"])
        rows.check({"y": data["y"]}, rows.forward(1, 0.5, 0.25, EPS, True), (seed, desc, rows.mode))
        op.backward(1, 0, 1, 0, EPS, data["x"], t["scale"], t["dscale"], t["dbias"], data["dx"], data["dy"])
        wanted = rows.backward((1, 1), (0, 0), EPS)
        found = {"dx": data["dx"], **{name: t[name].reshape(rows.stats) for name in ("dscale", "dbias")}}
        rows.check(found, wanted, (seed, desc, rows.mode))


def view_of(be: Any, values: Any, rng: np.random.Generator) -> Any:
    """A tensor of these values, which lie in some way."""
    how = rng.integers(3)
    if how == 0:
        return be.array(values, dtype=values.dtype)
    if how == 1:
        made = be.zeros((*values.shape[:-1], 2 * values.shape[-1] + 1))[..., 1::2]
    else:
        made = be.zeros(values.shape[::-1]).permuted(tuple(range(values.ndim))[::-1])
    made[:] = values
    return made


@pytest.mark.parametrize("layout", ["NCHW", "CHWN"])
def test_in_place(be: Any, layout: str) -> None:
    """y over x, dx over dy or x, whether or not rows lie in strides; with tensors of merged axes too."""
    for ignore in policies(be):
        rows = Rows(TensorDesc(LAYOUTS[layout], "f4", layout), "spatial", ignore)
        forward, wanted = rows.forward(1, 0, 0.25, EPS, True), rows.backward((1, 1), (0, 0), EPS)
        op, t = rows.staged(be), rows.tensors(be, "x", "scale", "bias")
        op.forward_training(1, 0, 0.25, EPS, t["x"], t["scale"], t["bias"], t["x"].reshape(-1, rows.x.shape[-1]))
        rows.check({"y": t["x"]}, forward)
        for place in ("x", "dy"):
            t = rows.tensors(be, "x", "scale", "dscale", "dbias", "dy")
            op.backward(1, 0, 1, 0, EPS, **t, dx=t[place])
            found = {"dx": t[place], "dscale": t["dscale"], "dbias": t["dbias"]}
            rows.check(found, wanted, place)


# Statistics -----------------------------------------------------------------------------------------------------------


def test_what_is_kept(be: Any) -> None:
    rows = Rows(TensorDesc(LAYOUTS["NHWC"], "f4", "NHWC"), "per_activation")
    op, _ = train(be, rows)
    wanted = rows.forward(1, 0, 0.25, EPS, True)
    np.testing.assert_allclose(op.saved_mean.get(), wanted["saved_mean"], rtol=1e-5)
    np.testing.assert_allclose(op.saved_inv_variance.get(), 1 / np.sqrt(wanted["saved_variance"] + EPS), rtol=1e-5)
    assert (op.epsilon, op.averaging_factor, op.count) == (EPS, 0.25, 5)
    op.stage(rows.desc)
    assert (op.running_mean.get() == 0).all() and (op.running_variance.get() == 1).all() and op.epsilon is None


def test_inference_leaves_the_statistics(be: Any) -> None:
    rows = Rows(TensorDesc(LAYOUTS["NC"], "f4", "NC"), "spatial")
    op, _ = train(be, rows)
    before = op.info()
    op.forward_inference(1, 0, 0.5, **rows.tensors(be, "x", "scale", "bias", "y"))
    assert op.info() == before


def test_the_fast_variant_is_equal_and_finite(be: Any) -> None:
    """Large finite values stay finite, although sums of scaled integers overflow."""
    for factor in (1.0, 1e12, 1e17):
        results = []
        for mode in ("spatial", "spatial_persistent"):
            rows = Rows(TensorDesc((64, 2, 3, 3), "f4", "NCHW"), mode)
            rows.x = (rows.x.astype("f8") * factor).astype("f4")
            op, found = train(be, rows)
            t = rows.tensors(be, "x", "scale", "dscale", "dbias", "dx", "dy")
            op.backward(1, 0, 1, 0, EPS, **t)
            rows.check({"y": found["y"]}, rows.forward(1, 0, 0.25, EPS, True))
            rows.check({"dscale": t["dscale"]}, rows.backward((1, 1), (0, 0), EPS))
            results.append([found["y"].get(), t["dx"].get(), op.running_variance.get()])
        assert all(np.array_equal(*pair) and np.isfinite(pair[0]).all() for pair in zip(*results))


@pytest.mark.parametrize("layout", ["CHWN", "NCHW", "NHWC"])
def test_rows_far_from_0(be: Any, layout: str) -> None:
    for offset in (1e3, -1e5):
        rows = Rows(TensorDesc(LAYOUTS[layout], "f4", layout), "spatial", offset=offset)
        _, found = train(be, rows)
        rows.check(found, rows.forward(1, 0, 0.25, EPS, True))


# nan ------------------------------------------------------------------------------------------------------------------


def test_nan_goes_through_or_counts_as_nothing(be: Any) -> None:
    rows = Rows(TensorDesc((6, 3, 2, 2), "f4", "NCHW"), "spatial")
    rows.x[2, 1, 0, 1] = np.nan
    op, found = train(be, rows)
    y = found["y"].get()
    assert np.isnan(y[:, 1]).all() and np.isfinite(y[:, [0, 2]]).all()
    assert np.isnan(op.running_mean.get()).ravel().tolist() == [False, True, False]
    rows.ignore = True
    rows.x[4, 1, 1, 1], rows.dy[0, 2, 0, 0], rows.x[:, 0] = np.nan, np.nan, np.nan  # a row without numbers
    op, found = train(be, rows)
    rows.check(found, rows.forward(1, 0, 0.25, EPS, True))
    np.testing.assert_allclose(found["y"].get()[2, 1, 0, 1], rows.columns["bias"][0, 1, 0, 0])
    assert op.running_mean.get().ravel()[0] == rows.columns["mean"].ravel()[0]
    t = rows.tensors(be, "x", "scale", "dscale", "dbias", "dx", "dy")
    op.backward(1, 0, 1, 0, EPS, **t)
    wanted = rows.backward((1, 1), (0, 0), EPS)
    rows.check({name: t[name] for name in ("dx", "dscale", "dbias")}, wanted)
    assert t["dx"].get()[2, 1, 0, 1] == 0 and not t["dx"].get()[:, 0].any()


# Records --------------------------------------------------------------------------------------------------------------


@pytest.mark.compiles(1)
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_a_record_restores_the_object_exactly(be: Any, dtype: str) -> None:
    for mode, ignore in sampled(be, zip(MODES, (False, True, False)), 1, 3):
        rows = Rows(TensorDesc(LAYOUTS["NCHW"], dtype, "NCHW"), mode, ignore)
        op, _ = train(be, rows)
        record = json.loads(json.dumps(op.info()))
        assert {"mode": mode, "format": "NCHW", "dtype": dtype, "dims": [5, 3, 2, 7], "strides": [42, 14, 7, 1],
                "epsilon": EPS, "averaging_factor": 0.25}.items() <= record.items()  # fmt: skip
        again = BatchNormOp.from_info(record, be)
        assert again.info() == record and repr(again) == repr(op)
        results = []
        for one in (op, again):
            t = rows.tensors(be, "x", "scale", "bias", "dscale", "dbias", "dx", "dy", "y")
            one.backward(1, 0, 1, 0, EPS, *(t[name] for name in ("x", "scale", "dscale", "dbias", "dx", "dy")))
            one.forward_training(1, 1, 0.5, EPS, *(t[name] for name in ("x", "scale", "bias", "y")))
            results.append([tensor.get() for tensor in t.values()] + [one.running_mean.get()])
        assert all(np.array_equal(*pair) for pair in zip(*results))


def test_a_record_before_training(be: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    op = be.batchnorm_op().stage(TensorDesc((4, 3), "f4", "NC"))
    again = BatchNormOp.from_info(op.info())
    assert again.backend is be and again.epsilon is None and again.info() == op.info()
    monkeypatch.setattr(NervanaObject, "be", None)
    with pytest.raises(BackendUnavailable, match="call gen_backend"):
        BatchNormOp.from_info(op.info())


def test_wrong_records(be: Any) -> None:
    record = be.batchnorm_op().stage(TensorDesc((4, 3), "f4", "NC")).info()
    for changed, error, words in (
        ({"mode": "spatal"}, ArgumentError, r"mode must be one of .* got 'spatal'; did you mean spatial"),
        ({"nan": None}, ArgumentError, "nan must be one of"),
        ({"format": "NCHW"}, ShapeError, "names 4 axes"),
        ({"format": "CK"}, ShapeError, "has no axis 'N'"),
        ({"dtype": "int8"}, DTypeError, "x must hold floats"),
        ({"dims": [4, 4]}, ArgumentError, "strides .* are not"),
        ({"dims": [3, 4], "strides": [4, 1]}, ArgumentError, "running_mean has 12 bytes, 4 values of float32 take 16"),
        ({"dtype": "float64"}, ArgumentError, "running_mean has 12 bytes"),
        ({"saved_sum": "?"}, ArgumentError, "saved_sum must be a base64 text"),
        ({"saved_sum": None}, ArgumentError, "saved_sum must be a base64 text"),
        ({"epsilon": -1.0, "averaging_factor": 0.5}, ArgumentError, "epsilon must be a number from 0 on"),
        ({"epsilon": 0.1}, ArgumentError, "either epsilon or averaging_factor is missing"),
    ):
        with pytest.raises(error, match=words):
            BatchNormOp.from_info({**record, **changed})
    with pytest.raises(ArgumentError, match="the record has no nan, saved_variance"):
        BatchNormOp.from_info({name: value for name, value in record.items() if name not in ("nan", "saved_variance")})
    with pytest.raises(ArgumentError, match=r"needs what info\(\) returned, got None"):
        BatchNormOp.from_info(None)


# What is refused ------------------------------------------------------------------------------------------------------


def test_nothing_can_be_asked_before_stage(be: Any) -> None:
    op, rows = be.batchnorm_op(), Rows(TensorDesc((4, 3), "f4", "NC"), "spatial")
    t = rows.tensors(be, "x", "scale", "bias", "y")
    for call in (op.scale_bias_desc, op.info, lambda: op.running_mean, lambda: op.saved_mean,
                 lambda: op.forward_training(1, 0, 0.1, EPS, **t), lambda: op.forward_inference(1, 0, EPS, **t),
                 lambda: op.backward(1, 0, 1, 0, EPS, *[t["x"]] * 6)):  # fmt: skip
        with pytest.raises(TooEarly, match=r"call stage\(x_desc\) first"):
            call()
    op.stage(rows.desc)
    op.forward_inference(1, 0, EPS, **t)
    for call in (lambda: op.backward(1, 0, 1, 0, EPS, *[t["x"]] * 6), lambda: op.saved_inv_variance):
        with pytest.raises(TooEarly, match="call forward_training first"):
            call()


def test_shapes_that_cannot_be_staged(be: Any) -> None:
    for desc, error, words in (
        (TensorDesc((4, 3), "i4", "NC"), DTypeError, "x must hold floats, got int32"),
        (TensorDesc((4, 3), "f4", "KC"), ShapeError, "'KC' has no axis 'N'"),
        (TensorDesc((4, 3), "f4", "NH"), ShapeError, "'NH' has no axis 'C'"),
        (TensorDesc((0, 3), "f4", "NC"), ShapeError, "no elements"),
        ((4, 3), DTypeError, "expected a descriptor or a tensor"),
    ):
        with pytest.raises(error, match=words):
            be.batchnorm_op().stage(desc)
    for mode in ("spatial_", None, 1):
        with pytest.raises(ArgumentError, match="batchnorm_op: mode must be"):
            be.batchnorm_op(mode)
    with pytest.raises(ArgumentError, match="nan must be one of"):
        be.batchnorm_op("spatial", "not")


def test_wrong_operands_change_nothing(be: Any) -> None:
    rows = Rows(TensorDesc(LAYOUTS["NCHW"], "f4", "NCHW"), "spatial")
    other = be.tensor(TensorDesc((3, 2, 7, 5), "f4", "CHWN"))
    shared = be.zeros((7, 3, 2, 7))
    wrong: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"x": be.zeros((4, 3, 2, 7))}, ShapeError, r"x must have the shape \(5, 3, 2, 7\), got \(4, 3, 2, 7\)"),
        ({"x": be.zeros((5, 3, 2, 7), dtype="f8")}, DTypeError, "x must hold float32, got float64"),
        ({"y": other}, ArgumentError, "y must have the layout 'NCHW', got 'CHWN'"),
        ({"y": be.zeros((3, 5, 2, 7))}, ShapeError, "y must have the shape"),
        ({"scale": be.zeros((1, 4, 1, 1))}, ShapeError, r"scale must have the shape \(1, 3, 1, 1\)"),
        ({"bias": be.zeros((1, 3, 1, 1), dtype="f2")}, DTypeError, "bias must hold float32, got float16"),
        ({"scale": np.ones((1, 3, 1, 1))}, DTypeError, "scale must be a tensor, got ndarray"),
        ({"x": None}, DTypeError, "x must be a tensor, got None"),
        ({"x": new_backend(rng_seed=0).zeros((5, 3, 2, 7))}, OtherBackend, "x belongs to another backend"),
        ({"x": shared[:5], "y": shared[1:6]}, AliasError, "y shares some of its memory with x"),
        ({"y": shared[:5], "bias": shared[4:5, :, :1, :1]}, AliasError, "y shares memory with bias"),
        ({"alpha": None}, ArgumentTypeError, "alpha must be a number"),
        ({"beta": float("nan")}, ArgumentError, "beta must be finite"),
        ({"averaging_factor": 1.5}, ArgumentError, "averaging_factor must be from 0 to 1, got 1.5"),
        ({"epsilon": -1}, ArgumentError, "epsilon must be a number from 0 on, got -1"),
    ]
    op = rows.staged(be)
    before, numbers = op.info(), {"alpha": 1, "beta": 0, "averaging_factor": 0.1, "epsilon": EPS}
    for changed, error, words in wrong:
        t = rows.tensors(be, "x", "scale", "bias", "y")
        with pytest.raises(error, match=rf"{words}"):
            op.forward_training(**{**numbers, **t, **changed})
        assert np.array_equal(t["y"].get(), rows.y) and op.info() == before
    op, _ = train(be, rows)
    t = rows.tensors(be, "x", "scale", "dscale", "dbias", "dx", "dy")
    for changed, error, words in (
        ({"epsilon": 0.5}, ArgumentError, "epsilon must be 0.001, as in training, got 0.5"),
        ({"dscale": be.zeros((3, 3))}, ShapeError, "dscale must have the shape"),
        ({"dx": other}, ArgumentError, "dx must have the layout 'NCHW'"),
        ({"dbias": t["dscale"]}, AliasError, "dscale shares memory with dbias"),
    ):
        given = {"alpha_data": 1, "beta_data": 0, "alpha_param": 1, "beta_param": 0, "epsilon": EPS, **t, **changed}
        with pytest.raises(error, match=words):
            op.backward(**given)
    assert np.array_equal(t["dx"].get(), rows.dx) and np.array_equal(t["dscale"].get(), rows.columns["dscale"])
