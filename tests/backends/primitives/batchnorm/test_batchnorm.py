"""Batch normalisation against float64 loops over rows: every flag, both directions, both engines; views and errors."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from neonlike.errors import AliasError, DTypeError, ShapeError
from tests.backends.primitives.batchnorm.cases import (
    BACK_FLAGS,
    EPS,
    FLAGS,
    SHAPES,
    STATISTICS,
    Array,
    Backward,
    Case,
    Forward,
    agree,
    replaced,
)
from tests.support.engines import backend, refused_after_cleanup

pytestmark = [pytest.mark.engines("numpy", "c"), pytest.mark.checked]


# Results --------------------------------------------------------------------------------------------------------------


@pytest.mark.optimized
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_forward(be: Any, dtype: str) -> None:
    for shape, how in itertools.product(SHAPES, FLAGS):
        case = Case(*shape, dtype)
        agree(case.forward(be, how), how.of(case), dtype, (shape, how))


@pytest.mark.optimized
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_backward(be: Any, dtype: str) -> None:
    for shape, how in itertools.product(SHAPES, BACK_FLAGS):
        case = Case(*shape, dtype)
        agree(case.backward(be, how), how.of(case), dtype, (shape, how))


def test_worked_numbers(be: Any) -> None:
    """Numbers that neon gave: a layer of two features, forward, backward, inference."""
    x = be.array([[1, 2, 3, 4], [2, 2, 6, 6]])
    xsum, xvar, gmean, gvar, beta, grad_gamma, grad_beta = (be.zeros((2, 1)) for _ in range(7))
    gamma, y = be.ones((2, 1)), be.empty((2, 4))
    rest = (xsum, xvar, gmean, gvar, gamma, beta, y, 1e-3, 0.9)
    be.compound_fprop_bn(x, *rest, True)
    first, second = [-1.341104, -0.447035, 0.447035, 1.341104], [-0.999875, -0.999875, 0.999875, 0.999875]
    np.testing.assert_allclose(y.get(), [first, second], atol=1e-6)
    np.testing.assert_allclose(gmean.get()[:, 0], [0.25, 0.40], rtol=1e-6)
    np.testing.assert_allclose(gvar.get()[:, 0], [0.125, 0.40], rtol=1e-6)
    error = be.array([[1, 0, 0, 0], [0, 1, 0, 2]])
    be.compound_bprop_bn(error, grad_gamma, grad_beta, error, x, xsum, xvar, gamma, 1e-3)
    expected = [[0.268542, -0.357521, -0.089514, 0.178492], [-0.25, 0.249938, -0.499906, 0.499969]]
    np.testing.assert_allclose(error.get(), expected, atol=1e-6)
    np.testing.assert_allclose(grad_gamma.get()[:, 0], [-1.341104, 0.999875], atol=1e-6)
    np.testing.assert_allclose(grad_beta.get()[:, 0], [1, 3], atol=1e-6)
    be.compound_fprop_bn(x, *rest, True, inference=True)
    np.testing.assert_allclose(y.get()[0], [2.112886, 4.930067, 7.747247, 10.564428], rtol=1e-6)


def test_worked_numbers_of_shift_based(be: Any) -> None:
    x, y = be.array([[1, 2, 3, 6]]), be.empty((1, 4))
    xsum, xvar, gmean, gvar, beta = (be.zeros((1, 1)) for _ in range(5))
    be.compound_fprop_bn(x, xsum, xvar, gmean, gvar, be.ones((1, 1)), beta, y, 1e-6, 0.9, True, binary=True)
    assert y.get().tolist() == [[-1, -0.5, 0, 1.5]]
    assert xvar.get().item() == 4.25


def test_positional_order(be: Any) -> None:
    """neon's scripts pass arguments by position: accumbeta, relu; the GPU's threads, repeat, binary, inference."""
    case, how = Case(3, 20), Forward(accumbeta=0.5, relu=True, binary=True, inference=True)
    tensors = [be.array(case.rows[name]) for name in (*STATISTICS, "gamma", "beta")]
    x, y = be.array(case.x), be.array(case.y)
    be.compound_fprop_bn(x, *tensors, y, EPS, 0.9, True, 0.5, True, 32, 1, True, True)
    agree({"y": y.get()}, {"y": how.of(case)["y"]}, "float32")
    outputs = [be.array(values) for values in (case.out, case.rows["grad_gamma"], case.rows["grad_beta"], case.delta)]
    rows = [tensors[index] for index in (0, 1, 4)]
    be.compound_bprop_bn(*outputs, x, *rows, EPS, 32, 1, True)
    wanted = Backward(binary=True).of(case)
    agree(dict(zip(("delta_out", "grad_gamma", "grad_beta"), (t.get() for t in outputs))), wanted, "float32")


def test_long_rows(be: Any) -> None:
    """Rows of several units, the last one short, few of them and with few of a group left over."""
    for shape in ((2, 200_001), (1, 65_536 + 5)):
        case = Case(*shape)
        hows = Forward(relu=True), Forward(given=True), Forward(binary=True), Forward(inference=True, accumbeta=1)
        for how in hows:
            agree(case.forward(be, how), how.of(case), "float32", (shape, how))
        for back in (Backward(), Backward(masked=True, beta_data=1, beta_param=1)):
            got, wanted = case.backward(be, back), back.of(case)
            agree(got, wanted, "float32", (shape, back))


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("given", [False, True], ids=["computed", "given sums"])
def test_gradients_are_the_slopes_of_the_forward_call(be: Any, relu: bool, given: bool) -> None:
    """Numeric differences in float64 through both calls; xsum goes on as the forward call left it."""
    case = Case(3, 7, "float64", seed=5)
    case.rows["beta"] -= 1.2
    how = Forward(given=given, relu=relu)

    def forward(change: dict[str, Array]) -> dict[str, Any]:
        moved = {"x": case.x, **case.rows, **change}
        moved["xsum"] = moved["x"].sum(axis=1, keepdims=True) if given else np.full((3, 1), np.nan)
        names = ("x", "y", *STATISTICS, "gamma", "beta")
        tensors = {name: be.array(case.y if name == "y" else moved[name], dtype="f8") for name in names}
        be.compound_fprop_bn(**tensors, **how.arguments())
        return tensors

    left = forward({})
    grads = {name: be.empty(shape, dtype="f8") for name, shape in (("x", (3, 7)), ("gamma", (3, 1)), ("beta", (3, 1)))}
    be.compound_bprop_bn(
        grads["x"], grads["gamma"], grads["beta"], be.array(case.delta, dtype="f8"), left["x"], left["xsum"],
        left["xvar"], left["gamma"], EPS, y=left["y"] if relu else None,
    )  # fmt: skip
    if relu:
        assert 3 < np.count_nonzero(left["y"].get()) < 18
    step = 1e-6
    for name, values in (("x", case.x), ("gamma", case.rows["gamma"]), ("beta", case.rows["beta"])):
        slopes = np.empty(values.shape)
        for at in np.ndindex(values.shape):
            ends = []
            for sign in (1, -1):
                moved = values.copy()
                moved[at] += sign * step
                ends.append(np.sum(forward({name: moved})["y"].get() * case.delta))
            slopes[at] = (ends[0] - ends[1]) / (2 * step)
        np.testing.assert_allclose(grads[name].get(), slopes, rtol=1e-6, atol=1e-7)


def test_given_sums_stay(be: Any) -> None:
    """Sums from a convolution's bsum are still there for the backward call, or for another forward call."""
    case = Case(4, 50)
    got = case.forward(be, Forward(given=True))
    assert (got["xsum"] == case.rows["xsum"]).all()
    assert np.abs(got["gmean"] - case.forward(be, Forward())["gmean"]).min() > 5e-4, "the given sums were not used"


def test_inference_touches_no_statistics(be: Any) -> None:
    case = Case(4, 50)
    got = case.forward(be, Forward(inference=True))
    for name in STATISTICS:
        assert (got[name] == case.rows[name]).all(), name
    rows = [be.array(case.rows[name]) for name in ("gmean", "gvar", "gamma", "beta")]
    y = be.empty((4, 50))
    be.compound_fprop_bn(be.array(case.x), None, None, *rows, y, EPS, 0.9, True, inference=True)
    assert (y.get() == got["y"]).all()


def test_running_statistics_of_several_batches(be: Any) -> None:
    """Means over batches when rho = i / (i + 1), as tuning does; old values do not count at i = 0."""
    batches = [Case(3, 40, seed=seed) for seed in range(4)]
    gmean, gvar = (be.array(np.full((3, 1), np.nan)) for _ in range(2))
    for index, case in enumerate(batches):
        case.forward(be, Forward(rho=index / (index + 1)), gmean=gmean, gvar=gvar)
    means = np.mean([c.x.mean(axis=1, keepdims=True, dtype="f8") for c in batches], axis=0)
    variances = np.mean([c.x.var(axis=1, keepdims=True, dtype="f8") for c in batches], axis=0)
    np.testing.assert_allclose(gmean.get(), means, rtol=1e-6)
    np.testing.assert_allclose(gvar.get(), variances, rtol=1e-6)


# Shapes, views, places ------------------------------------------------------------------------------------------------


def test_modes_are_shapes(be: Any) -> None:
    """The same memory with statistics a feature map (spatial) or a position of it (per activation)."""
    C, HW, N = 3, 4, 6
    case = Case(C * HW, N)
    spatial = Case(C, HW * N)
    spatial.x, spatial.y = case.x.reshape(C, HW * N), case.y.reshape(C, HW * N)
    for how in (Forward(relu=True), Forward(given=True, accumbeta=1)):
        for shape in ((C * HW, N), (C, 1, 2, 2, N), (C, HW * N)):
            tensors = {name: be.array(getattr(case, name).reshape(shape)) for name in ("x", "y")}
            for one in (spatial, case):
                if one is case and shape[0] == C and len(shape) == 2:
                    continue  # no axis ends between positions
                tensors["y"][:] = be.array(case.y.reshape(shape))
                got = one.forward(be, how, **tensors)
                wanted = how.of(one)
                agree({**got, "y": got["y"].reshape(wanted["y"].shape)}, wanted, "float32", shape)


def test_results_in_another_shape(be: Any) -> None:
    case = Case(6, 8)
    y = be.empty((48, 1))
    case.forward(be, Forward(), y=y)
    agree({"y": y.get().reshape(6, 8)}, {"y": Forward().of(case)["y"]}, "float32")
    out = be.empty((3, 2, 8))
    got = case.backward(be, Backward(), delta_out=out)
    wanted = Backward().of(case)
    agree({**got, "delta_out": out.get().reshape(6, 8)}, wanted, "float32")


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_in_place(be: Any, dtype: str) -> None:
    """y on x, delta_out on delta_in, x or y: also in another shape, and with the old values blended in."""
    for shape in ((5, 33), (3, 5000)):
        case = Case(*shape, dtype)
        for how in (Forward(relu=True), Forward(accumbeta=0.5, alpha=2)):
            for other in (shape, (shape[0] * shape[1], 1)):
                x = be.array(case.x, dtype=dtype)
                got = case.forward(be, how, x=x, y=x.reshape(other))
                wanted = how.of(replaced(case, y=case.x))
                agree({**got, "y": x.get()}, wanted, dtype, (shape, how, other))
        backs = Backward(), Backward(masked=True, beta_data=0.5)
        for back, place in itertools.product(backs, ("delta_in", "x", "y")):
            if place == "y" and not back.masked:
                continue
            old = {"delta_in": case.delta, "x": case.x, "y": case.y}[place]
            tensor = be.array(old, dtype=dtype)
            got = case.backward(be, back, **{place: tensor, "delta_out": tensor})
            agree(got, back.of(replaced(case, out=old)), dtype, (shape, back, place))


def test_views(be: Any) -> None:
    """Every other row, columns out of the middle, turned: as operands and as results, neighbours untouched."""
    case = Case(5, 12)
    plain, blended = (Forward(), Backward()), (Forward(accumbeta=0.5, given=True), Backward(beta_data=0.5, masked=True))
    for how, back in (plain, blended):
        for name in ("x", "y"):
            for view, outside in views(be, getattr(case, name)):
                agree(case.forward(be, how, **{name: view}), how.of(case), "float32", name)
                outside()
        for name, values in (("x", case.x), ("delta_in", case.delta), ("delta_out", case.out)):
            for view, outside in views(be, values):
                agree(case.backward(be, back, **{name: view}), back.of(case), "float32", name)
                outside()


def views(be: Any, values: Array) -> Iterator[tuple[Any, Any]]:
    """Strided tensors that hold ``values``, each with a check that nothing around it changed."""
    rows, columns = values.shape
    for shape, select in (
        ((2 * rows, columns), lambda t: t[::2]),
        ((rows, columns + 7), lambda t: t[:, 3 : 3 + columns]),
        ((columns, rows), lambda t: t.T),
    ):
        base = be.array(np.full(shape, 77.0))
        view = select(base)
        view[:] = be.array(values)

        def outside(base: Any = base, select: Any = select) -> None:
            after = base.get()
            select(after)[:] = 77
            assert (after == 77).all()

        yield view, outside


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_statistics_of_another_dtype(be: Any, dtype: str) -> None:
    """They are converted on the way in and out."""
    case = Case(4, 30)
    names = (*STATISTICS, "gamma", "beta", "grad_gamma", "grad_beta")
    tensors = {name: be.array(case.rows[name], dtype=dtype) for name in names}
    case.rows = {name: tensors[name].get().astype(np.float64) for name in names}
    back = Backward(beta_param=1)
    grads = {name: tensors[name] for name in ("xsum", "xvar", "gamma", "grad_gamma", "grad_beta")}
    wanted = back.of(case)
    for name, values in case.backward(be, back, **grads).items():
        np.testing.assert_allclose(values, wanted[name], rtol=1e-3 if dtype == "float16" else 2e-6, atol=1e-6)
        assert name == "delta_out" or values.dtype == dtype
    rows = {name: tensors[name] for name in (*STATISTICS, "gamma", "beta")}
    for how in (Forward(), Forward(given=True)):
        wanted = how.of(case)
        for name, values in case.forward(be, how, **rows).items():
            np.testing.assert_allclose(values, wanted[name], rtol=1e-3 if dtype == "float16" else 2e-6, atol=1e-3)
            assert name == "y" or values.dtype == dtype
        for name in STATISTICS:
            rows[name].set(case.rows[name])


def test_nothing_to_do(be: Any) -> None:
    empty = Case(0, 0)
    empty.x = empty.y = empty.delta = empty.out = np.zeros((0, 4), "f4")
    empty.forward(be, Forward())
    empty.backward(be, Backward())
    case = Case(3, 4)
    nothing = be.empty((3, 0))
    got = case.forward(be, Forward(inference=True), x=nothing, y=be.empty((3, 0)))
    assert got["y"].shape == (3, 0)
    with pytest.raises(ShapeError, match="no elements to take statistics of"):
        case.forward(be, Forward(), x=nothing, y=be.empty((3, 0)))


# Timing and errors ----------------------------------------------------------------------------------------------------


def test_repeated_runs_leave_what_one_leaves(be: Any) -> None:
    case = Case(3, 40)
    for how in (Forward(accumbeta=0.5), Forward(given=True), Forward(eps=np.array(0.25), rho=np.float32(0.5))):
        tensors = {n: be.array(case.rows[n]) for n in (*STATISTICS, "gamma", "beta")}
        tensors.update(x=be.array(case.x), y=be.array(case.y))
        milliseconds, rate = be.compound_fprop_bn(**tensors, **how.arguments(), repeat=3)
        assert milliseconds > 0 and rate > 0
        agree({n: tensors[n].get() for n in (*STATISTICS, "y")}, how.of(case), "float32")
    back = Backward(beta_data=0.5, beta_param=2)
    tensors = {n: be.array(case.rows[n]) for n in ("xsum", "xvar", "gamma", "grad_gamma", "grad_beta")}
    tensors.update(x=be.array(case.x), delta_in=be.array(case.delta), delta_out=be.array(case.out))
    be.compound_bprop_bn(**tensors, **back.arguments(), repeat=2)
    agree({n: tensors[n].get() for n in ("delta_out", "grad_gamma", "grad_beta")}, back.of(case), "float32")


def test_wrong_operands(be: Any) -> None:
    """Each error names the wrong operand, and nothing is written."""
    case = Case(6, 4)
    shared, row, whole = be.zeros((12, 4)), be.zeros((6, 1)), be.zeros((6, 4), dtype="i4")
    column = shared.reshape(48, 1)[:6]
    wrong: list[tuple[type[Exception], str, dict[str, Any]]] = [
        (ShapeError, r"no 6 rows", {"x": be.zeros((4, 6))}),
        (ShapeError, r"no 6 rows", {"x": be.zeros((5, 4))}),
        (ShapeError, r"no 6 rows", {"x": be.zeros((1, 6)), "y": be.zeros((1, 6))}),
        (ShapeError, r"no 6 rows", {"x": be.zeros((2, 3)), "y": be.zeros((2, 3))}),
        (ShapeError, r"y must have \(6, 4\) = 24", {"y": be.zeros((6, 5))}),
        (ShapeError, r"gvar must have \(6, 1\) = 6", {"gvar": be.zeros((7, 1))}),
        (ShapeError, r"beta must have \(6, 1\) = 6", {"beta": be.zeros((1, 1))}),
        (DTypeError, r"y float16", {"y": be.zeros((6, 4), dtype="f2")}),
        (DTypeError, r"must have one float dtype", {"x": whole, "y": whole}),
        (DTypeError, r"gmean must hold floats, got int32", {"gmean": be.zeros((6, 1), dtype="i4")}),
        (DTypeError, r"xvar must be a tensor, got None", {"xvar": None}),
        (DTypeError, r"gamma must be a tensor, got ndarray", {"gamma": np.ones((6, 1))}),
        (DTypeError, r"x must be a tensor, got OpTreeNode", {"x": be.zeros((6, 4)) + 1}),
        (AliasError, r"y shares some of its memory with x", {"x": shared[:6], "y": shared[3:9]}),
        (AliasError, r"gmean shares memory with gvar", dict.fromkeys(("gmean", "gvar"), row)),
        (AliasError, r"xsum shares memory with gamma", dict.fromkeys(("xsum", "gamma"), row)),
        (AliasError, r"xvar shares memory with x", {"x": shared[:6], "xvar": column}),
        (AliasError, r"y shares memory with beta", {"y": shared[:6], "beta": column}),
    ]
    given = {"x": case.x, "y": case.y, **{n: case.rows[n] for n in (*STATISTICS, "gamma", "beta")}}
    for error, message, changed in wrong:
        tensors = {name: be.array(values) for name, values in given.items()} | changed
        before = {name: t.get() for name, t in tensors.items() if hasattr(t, "ptr")}
        with pytest.raises(error, match=message):
            be.compound_fprop_bn(**tensors, **Forward().arguments())
        for name, values in before.items():
            assert (tensors[name].get() == values).all(), name
    tensors = {name: be.array(values) for name, values in given.items()}
    for name in ("eps", "rho", "accumbeta"):
        with pytest.raises(DTypeError, match=f"compound_fprop_bn: {name} must be a number, got None"):
            be.compound_fprop_bn(**tensors, **{**Forward().arguments(), name: None})
    for name, values in given.items():
        assert (tensors[name].get() == be.array(values).get()).all(), name


def test_wrong_operands_backward(be: Any) -> None:
    case = Case(6, 4)
    shared, row = be.zeros((12, 4)), be.zeros((6, 1))
    column = shared.reshape(48, 1)[:6]
    wrong: list[tuple[type[Exception], str, dict[str, Any]]] = [
        (ShapeError, r"delta_in must have \(6, 4\) = 24", {"delta_in": be.zeros((6, 5))}),
        (ShapeError, r"delta_out must have \(6, 4\) = 24", {"delta_out": be.zeros((3, 4))}),
        (ShapeError, r"y must have \(6, 4\) = 24", {"y": be.zeros((3, 4))}),
        (ShapeError, r"grad_beta must have \(6, 1\) = 6", {"grad_beta": be.zeros((5, 1))}),
        (DTypeError, r"delta_in float64", {"delta_in": be.zeros((6, 4), dtype="f8")}),
        (DTypeError, r"xsum must be a tensor, got None", {"xsum": None}),
        (AliasError, r"delta_out .* memory with delta_in", {"delta_in": shared[:6], "delta_out": shared[1:7]}),
        (AliasError, r"delta_out .* memory with x", {"x": shared[:6], "delta_out": shared[1:7]}),
        (AliasError, r"grad_gamma shares memory with grad_beta", dict.fromkeys(("grad_gamma", "grad_beta"), row)),
        (AliasError, r"grad_beta shares memory with gamma", dict.fromkeys(("gamma", "grad_beta"), row)),
        (AliasError, r"grad_beta shares memory with delta_in", {"delta_in": shared[:6], "grad_beta": column}),
    ]
    given = {"x": case.x, "delta_in": case.delta, "delta_out": case.out}
    given.update({n: case.rows[n] for n in ("xsum", "xvar", "gamma", "grad_gamma", "grad_beta")})
    for error, message, changed in wrong:
        tensors = {name: be.array(values) for name, values in given.items()} | changed
        before = {name: t.get() for name, t in tensors.items() if t is not None}
        with pytest.raises(error, match=message):
            be.compound_bprop_bn(**tensors, **Backward().arguments())
        for name, values in before.items():
            assert (tensors[name].get() == values).all(), name


@pytest.mark.backend
def test_closed_backend() -> None:
    for be in backend("numpy"):
        case = Case(2, 3)
        tensors = {n: be.array(case.rows[n]) for n in (*STATISTICS, "gamma", "beta")}
        tensors.update(x=be.array(case.x), y=be.array(case.y))
        be.cleanup_backend()
        with refused_after_cleanup():
            be.compound_fprop_bn(**tensors, **Forward().arguments())
