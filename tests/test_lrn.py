"""Local response normalisation against loops in float64, written here from the formulas of Krizhevsky et al. 2012."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from engines import ENGINES, backend

from neonlike.backends import Backend, gen_backend
from neonlike.backends.cpu import lrn as kernels
from neonlike.backends.families.lrn import LrnFamily, LrnNumbers
from neonlike.errors import AliasError, ArgumentError, BackendUnavailable, DTypeError, ShapeError

Array = np.ndarray[Any, Any]
CLOSE = {np.float16: 2e-3, np.float32: 2e-6, np.float64: 1e-13}
"""dtype -> tolerance, relative to the size of the terms that make a value."""


@pytest.fixture(params=ENGINES)
def be(request: pytest.FixtureRequest) -> Iterator[Backend]:
    """A backend on each engine."""
    yield from backend(request.param)


@pytest.fixture
def compiled() -> Iterator[Backend]:
    """A backend on compiled kernels."""
    yield from backend("c")


# Loops --------------------------------------------------------------------------------------------------------------


def window(c: int, j: int, channels: int) -> range:
    """Channels of the window around channel ``c``."""
    return range(max(c - j // 2, 0), min(c + j // 2 + 1, channels))


def forward(x: Array, j: int, ascale: float, bpower: float) -> tuple[Array, Array]:
    """Denominators and results for ``x`` (C, anything)."""
    denom = np.ones(x.shape)
    for c in range(len(x)):
        for other in window(c, j, len(x)):
            denom[c] += ascale / j * x[other] ** 2
    return denom, x / denom**bpower


def backward(x: Array, y: Array, e: Array, denom: Array, j: int, ascale: float, bpower: float) -> tuple[Array, Array]:
    """Error of the input, and the size of the terms that it is the difference of."""
    delta, size = np.zeros(x.shape), np.zeros(x.shape)
    for c in range(len(x)):
        parts = [y[other] * e[other] / denom[other] for other in window(c, j, len(x))]
        factor = 2 * bpower * ascale / j * x[c]
        delta[c] = e[c] / denom[c] ** bpower - factor * sum(parts)
        size[c] = abs(e[c]) / denom[c] ** bpower + abs(factor) * sum(map(abs, parts))
    return delta, size


def close(actual: Array, wanted: Array, size: Any = None) -> None:
    """``actual`` is ``wanted`` within its dtype's tolerance of ``size``, which defaults to ``wanted``."""
    bound = CLOSE[actual.dtype.type] * np.abs(wanted if size is None else size) + 1e-7 * (actual.dtype == np.float16)
    assert (np.abs(actual.astype(np.float64) - wanted) <= bound).all()


class Case:
    """Tensors of one layer, and its passes on the backend and in loops."""

    def __init__(
        self, be: Backend, dims: tuple[int, int, int, int, int], j: int, ascale: float = 1.5, bpower: float = 0.75,
        dtype: Any = np.float32, seed: int = 0,
    ) -> None:  # fmt: skip
        c, d, h, w, n = dims
        rng = np.random.default_rng(seed)
        self.be, self.j, self.ascale, self.bpower, self.dtype = be, j, ascale, bpower, dtype
        self.layer = be.lrn_layer(dtype, n, c, d, h, w, J=j)
        self.shape = self.layer.dimI2
        self.x, self.e, self.old = (rng.standard_normal(self.shape).astype(dtype) for _ in range(3))
        self.I, self.E = be.array(self.x, dtype=dtype), be.array(self.e, dtype=dtype)
        self.O, self.denom, self.delta = (be.array(np.full(self.shape, np.nan), dtype=dtype) for _ in range(3))

    def fprop(self, **options: Any) -> Any:
        numbers = {"ascale": self.ascale, "bpower": self.bpower}
        return self.be.fprop_lrn(self.layer, self.I, self.O, self.denom, **numbers, **options)

    def bprop(self, **options: Any) -> Any:
        numbers = {"ascale": self.ascale, "bpower": self.bpower}
        return self.be.bprop_lrn(self.layer, self.I, self.O, self.E, self.delta, self.denom, **numbers, **options)

    def wide(self, values: Array) -> Array:
        return values.astype(np.float64).reshape(self.layer.C, -1)

    def check_fprop(self, alpha: float = 1, beta: float = 0) -> None:
        denom, y = forward(self.wide(self.x), self.j, self.ascale, self.bpower)
        close(self.wide_of(self.denom), denom)
        close(self.wide_of(self.O), *self.blended(y, y, alpha, beta))

    def check_bprop(self, alpha: float = 1, beta: float = 0) -> None:
        """Against loops over the I, O, E and denom that the pass was given."""
        given = [self.wide(t.get()) for t in (self.I, self.O, self.E, self.denom)]
        assert (given[0] == self.wide(self.x)).all()
        assert (given[2] == self.wide(self.e)).all()
        delta, size = backward(*given, self.j, self.ascale, self.bpower)
        close(self.wide_of(self.delta), *self.blended(delta, size, alpha, beta))

    def blended(self, result: Array, size: Array, alpha: float, beta: float) -> tuple[Array, Array]:
        if beta == 0:
            return alpha * result, alpha * size
        old = self.wide(self.old)
        return alpha * result + beta * old, np.abs(alpha * size) + np.abs(beta * old)

    def wide_of(self, tensor: Any) -> Array:
        return tensor.get().reshape(self.layer.C, -1)  # type: ignore[no-any-return]


# Values -------------------------------------------------------------------------------------------------------------


def test_worked_numbers(be: Backend) -> None:
    layer = be.lrn_layer(np.float32, 2, 3, J=3)
    x = be.array(np.arange(1.0, 7).reshape(3, 2))
    y, denom, delta = be.empty((3, 2)), be.empty((3, 2)), be.empty((3, 2))
    be.fprop_lrn(layer, x, y, denom, None, None, 0.3, 0.75)
    be.bprop_lrn(layer, x, y, be.ones((3, 2)), delta, denom, None, None, 0.3, 0.75)
    wanted = {
        "denom": [2, 3, 4.5, 6.6, 4.4, 6.2],
        "y": [0.594604, 0.877383, 0.970984, 0.971409, 1.645813, 1.527065],
        "delta": [0.517642, 0.306798, -0.075545, -0.168715, -0.113204, -0.099625],
    }
    for tensor, numbers in zip((denom, y, delta), wanted.values()):
        np.testing.assert_allclose(tensor.get().ravel(), numbers, atol=1e-6)


@pytest.mark.parametrize("j", [1, 3, 5, 9])
@pytest.mark.parametrize("channels", [1, 2, 3, 5, 16, 33])
def test_windows_and_channels(be: Backend, channels: int, j: int) -> None:
    for sizes in ((1, 1, 1, 1), (1, 1, 2, 3), (1, 3, 5, 1), (2, 3, 2, 16), (1, 1, 1, 33), (1, 2, 1, 64), (1, 6, 7, 33)):
        case = Case(be, (channels, *sizes), j)
        case.fprop()
        case.check_fprop()
        case.bprop()
        case.check_bprop()


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("bpower", [0.5, 0.75, 1.0, 0.6, 0.0, -1.5])
def test_powers_and_dtypes(be: Backend, bpower: float, dtype: Any) -> None:
    case = Case(be, (7, 1, 3, 5, 11), 3, bpower=bpower, dtype=dtype)
    case.fprop()
    case.check_fprop()
    case.bprop()
    case.check_bprop()


@pytest.mark.parametrize("ascale", [0.0, 1e-4, 7, np.float32(2.5), -0.01])
def test_ascale_over_window_scales_the_squares(be: Backend, ascale: Any) -> None:
    case = Case(be, (6, 1, 2, 2, 4), 5, ascale=ascale)
    case.fprop()
    case.bprop()
    case.ascale = float(ascale)
    case.check_fprop()
    case.check_bprop()


def test_neons_defaults(be: Backend) -> None:
    """ascale and bpower are 1, alpha 1 and beta 0, whether given as None or left out."""
    case = Case(be, (4, 1, 1, 3, 2), 3, ascale=1, bpower=1)
    for blend in ((), (None, None), (1.0, 0.0)):
        case.be.fprop_lrn(case.layer, case.I, case.O, case.denom, *blend)
        case.be.bprop_lrn(case.layer, case.I, case.O, case.E, case.delta, case.denom, *blend)
        case.check_fprop()
        case.check_bprop()
        case.O[:] = case.delta[:] = math.nan
    for method in (be.fprop_lrn, be.bprop_lrn):
        names = [*inspect.signature(method).parameters]
        assert names[-5:] == ["alpha", "beta", "ascale", "bpower", "repeat"]


@pytest.mark.parametrize(("alpha", "beta"), [(1, 1), (0.5, 0), (0.5, -2), (1, 0.25), (0, 3), (-1, 0)])
def test_alpha_and_beta_blend_the_result(be: Backend, alpha: float, beta: float) -> None:
    for n in (3, 1100):  # more than a block holds
        case = Case(be, (5, 1, 1, 2, n), 3)
        if beta != 0:
            case.O[:] = be.array(case.old)
            case.delta[:] = be.array(case.old)
        case.fprop(alpha=alpha, beta=beta)
        case.check_fprop(alpha, beta)
        case.bprop(alpha=alpha, beta=beta)
        case.check_bprop(alpha, beta)


def test_longer_windows_than_kernels_keep(be: Backend) -> None:
    for j in (kernels.LONGEST_WINDOW, kernels.LONGEST_WINDOW + 2, 99):
        case = Case(be, (40, 1, 1, 2, 3), j)
        case.fprop()
        case.check_fprop()
        case.bprop()
        case.check_bprop()


@pytest.mark.parametrize("bpower", [0.75, 0.5, 0.6])
def test_backward_is_the_gradient_of_forward(be: Backend, bpower: float) -> None:
    case = Case(be, (6, 1, 2, 2, 3), 3, bpower=bpower, dtype=np.float64)
    case.fprop()
    case.bprop()
    step = 1e-5
    for seed in range(3):
        towards = np.random.default_rng(seed).standard_normal(case.shape)
        loss = []
        for sign in (1, -1):
            x = be.array(case.x + sign * step * towards, dtype=np.float64)
            y, denom = (be.empty(case.shape, dtype=np.float64) for _ in range(2))
            be.fprop_lrn(case.layer, x, y, denom, ascale=case.ascale, bpower=bpower)
            loss.append((y.get() * case.e).sum())
        assert (case.delta.get() * towards).sum() == pytest.approx((loss[0] - loss[1]) / (2 * step), rel=1e-7)


def test_backward_takes_the_given_denominators_and_outputs(be: Backend) -> None:
    """Not such as the forward pass would make of I."""
    case = Case(be, (5, 1, 1, 2, 3), 3)
    rng = np.random.default_rng(5)
    case.O[:] = be.array(rng.standard_normal(case.shape))
    case.denom[:] = be.array(1 + rng.random(case.shape))
    case.bprop()
    case.check_bprop()


def test_images_are_counted_from_the_tensors(be: Backend) -> None:
    case = Case(be, (4, 1, 2, 3, 5), 3)
    case.layer = be.lrn_layer(np.float32, 64, 4, 1, 2, 3, J=3)
    case.fprop()
    case.check_fprop()
    case.bprop()
    case.check_bprop()


def test_views_and_five_axes(be: Backend) -> None:
    """Transposed inputs, outputs with gaps, and images as (C, D, H, W, N)."""
    case = Case(be, (4, 1, 2, 3, 5), 3)
    case.I, case.E = (be.array(np.ascontiguousarray(v.T)).T for v in (case.x, case.e))
    case.O, case.denom, case.delta = (be.array(np.full((24, 10), 9.0))[:, ::2] for _ in range(3))
    assert not case.O.is_contiguous
    case.fprop()
    case.check_fprop()
    case.bprop()
    case.check_bprop()
    case.old = case.delta.get()
    case.bprop(alpha=2, beta=1)
    case.check_bprop(2, 1)
    case.old = case.O.get()
    case.fprop(alpha=2, beta=1)
    case.check_fprop(2, 1)
    case = Case(be, (4, 1, 2, 3, 5), 3)
    for name in ("I", "E", "O", "denom", "delta"):
        setattr(case, name, getattr(case, name).reshape(case.layer.dimI))
    case.fprop()
    case.check_fprop()
    case.bprop()
    case.check_bprop()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("bpower", [0.75, 0.6])
def test_nan_and_infinity_stay_in_their_windows(be: Backend, bad: float, bpower: float) -> None:
    """Denominators of windows around the bad channel are nan or infinite; nothing else changes."""
    case = Case(be, (9, 1, 1, 2, 3), 3, bpower=bpower)
    case.fprop()
    case.bprop()
    denom, y, delta = (t.get().reshape(9, 2, 3) for t in (case.denom, case.O, case.delta))
    x = case.x.copy().reshape(9, 2, 3)
    x[4, 1, 2] = bad
    case.I[:] = be.array(x.reshape(case.shape))
    case.fprop()
    case.bprop()
    denom_now, y_now, delta_now = (t.get().reshape(9, 2, 3) for t in (case.denom, case.O, case.delta))
    near, wider = (np.zeros((9, 2, 3), bool) for _ in range(2))
    near[3:6, 1, 2] = wider[2:7, 1, 2] = True
    np.testing.assert_array_equal(denom_now[near], np.full(3, abs(bad)))
    assert np.isnan(y_now[4, 1, 2])
    np.testing.assert_array_equal(y_now[[3, 5], 1, 2], [np.nan] * 2 if np.isnan(bad) else x[[3, 5], 1, 2] * 0)
    for now, before, apart in ((denom_now, denom, ~near), (y_now, y, ~near), (delta_now, delta, ~wider)):
        np.testing.assert_array_equal(now[apart], before[apart])
    assert np.isnan(delta_now[4, 1, 2])


def test_large_values_do_not_spoil_later_channels(be: Backend) -> None:
    """A running sum of squares would keep the rounding error of the large one."""
    case = Case(be, (12, 1, 1, 1, 40), 3)
    case.x[2] = 3e4
    case.I[:] = be.array(case.x)
    case.fprop()
    case.check_fprop()
    case.bprop()
    case.check_bprop()


# Kernels ------------------------------------------------------------------------------------------------------------


@pytest.mark.cpu_only("the compiled kernels of the CPU")
@pytest.mark.parametrize("beta", [0.0, 0.5])
@pytest.mark.parametrize("n", [1, 33, 700])
def test_kernels_agree_with_the_definition(compiled: Backend, n: int, beta: float) -> None:
    case = Case(compiled, (11, 1, 2, 3, n), 5)
    numbers = LrnNumbers(0.5, beta, case.ascale / case.j, case.bpower)
    results: list[list[Array]] = []
    for family in (kernels.LrnKernels, LrnFamily):
        case.O[:] = case.delta[:] = compiled.array(case.old)
        family._fprop_lrn(compiled, case.layer, case.I, case.O, case.denom, numbers)  # type: ignore[arg-type]
        blended = case.O.get()
        case.O[:] = case.I / case.denom**case.bpower
        tensors = case.I, case.O, case.E, case.delta, case.denom
        family._bprop_lrn(compiled, case.layer, *tensors, numbers)  # type: ignore[arg-type]
        results.append([case.denom.get(), blended, case.delta.get()])
    for mine, defined in zip(*results):
        np.testing.assert_allclose(mine, defined, rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("streamed", [False, True])
def test_results_depend_neither_on_threads_nor_on_stores(
    compiled: Backend, streamed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "PARALLEL_WORK", 1)
    monkeypatch.setattr(kernels, "STREAMED_BYTES", 0 if streamed else 1 << 60)
    for n, beta in ((1, 0.0), (33, 0.0), (320, 0.5)):
        results = []
        for threads in ("1", "2", "3"):
            monkeypatch.setenv("NEONLIKE_NUM_THREADS", threads)
            case = Case(compiled, (6, 1, 3, 5, n), 3)
            case.O[:] = case.delta[:] = compiled.array(case.old)
            case.fprop(beta=beta)
            case.bprop(beta=beta)
            case.check_fprop(beta=beta)
            case.check_bprop(beta=beta)
            results.append([t.get().tobytes() for t in (case.O, case.denom, case.delta)])
        assert results[0] == results[1] == results[2]


def test_repeat_times_and_computes_once(be: Backend) -> None:
    case = Case(be, (5, 1, 1, 2, 3), 3)
    assert case.fprop() is None
    case.O[:] = case.delta[:] = be.array(case.old)
    milliseconds, rate = case.fprop(beta=1, repeat=3)
    assert milliseconds > 0
    assert rate > 0
    case.check_fprop(beta=1)
    assert len(case.bprop(beta=1, repeat=2)) == 2
    case.check_bprop(beta=1)


def test_bench_mode_reports_them() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NEONLIKE_CPU_JIT", "0")
        be = gen_backend("cpu", batch_size=3, bench=True)
        case = Case(be, (5, 1, 1, 2, 3), 3)
        case.fprop()
        case.bprop()
        names = {row.split(",")[0] for row in be.bench_report("csv").splitlines()}
        be.cleanup_backend()
    assert any("fprop_lrn" in name for name in names)
    assert any("bprop_lrn" in name for name in names)


def test_empty_batches(be: Backend) -> None:
    layer = be.lrn_layer(np.float32, 2, 3, J=3)
    x, y, denom = (be.empty((3, 0)) for _ in range(3))
    be.fprop_lrn(layer, x, y, denom)
    be.bprop_lrn(layer, x, y, be.empty((3, 0)), be.empty((3, 0)), denom)


# The layer ----------------------------------------------------------------------------------------------------------


def test_attributes_are_those_of_a_pooling(be: Backend) -> None:
    layer = be.lrn_layer(np.float32, 8, 6, 2, 3, 4, J=5)
    wanted = {
        "N": 8, "C": 6, "K": 6, "D": 2, "H": 3, "W": 4, "M": 2, "P": 3, "Q": 4, "J": 5, "op": "lrn",
        "dtype": np.float32, "JTRS": (5, 1, 1, 1), "DHW": (2, 3, 4), "MPQ": (2, 3, 4), "padding": (2, 0, 0, 0),
        "strides": (1, 1, 1, 1),
        "dimI": (6, 2, 3, 4, 8), "dimO": (6, 2, 3, 4, 8), "dimI2": (144, 8), "dimO2": (144, 8), "dimF2": None,
        "sizeI": 1152, "sizeO": 1152, "nOut": 144, "flops": 0, "overlap": 5.0, "is_mklop": False,
    }  # fmt: skip
    assert {name: getattr(layer, name) for name in wanted} == wanted
    assert be.lrn_layer(np.float32, 8, 6).overlap == 0.0
    assert "6 channels of 2x3x4" in str(layer)
    layer.set_is_mklop()
    layer.set_not_mklop()
    assert layer.get_is_mklop() is False
    with pytest.raises(AttributeError):
        layer.J = 3
    assert [*inspect.signature(be.lrn_layer).parameters] == ["dtype", "N", "C", "D", "H", "W", "J"]


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"J": 4}, ArgumentError, "odd window, 3 or 5"),
        ({"J": 0}, ArgumentError, "J must be at least 1"),
        ({"H": 0}, ArgumentError, "H must be at least 1"),
        ({"C": 2.0}, DTypeError, "C must be an integer"),
        ({"dtype": "float7"}, DTypeError, "lrn_layer"),
    ],
)
def test_wrong_sizes(be: Backend, options: dict[str, Any], error: type[Exception], words: str) -> None:
    sizes = {"dtype": np.float32, "N": 2, "C": 3, "D": 1, "H": 1, "W": 1, "J": 3, **options}
    with pytest.raises(error, match=words):
        be.lrn_layer(**sizes)
    if error is ArgumentError:
        with pytest.raises(AssertionError):
            be.lrn_layer(**sizes)


# Errors -------------------------------------------------------------------------------------------------------------

WRONG: dict[str, tuple[Any, type[Exception], str]] = {
    "a small": (lambda be, case: be.ones((4, 3)), ShapeError, "elements"),
    "a half": (lambda be, case: be.ones(case.shape, dtype=np.float64), DTypeError, "one float dtype"),
    "an integer": (lambda be, case: be.ones(case.shape, dtype=np.int32), DTypeError, "one float dtype"),
    "an array": (lambda be, case: np.ones(case.shape, np.float32), DTypeError, "must be a tensor"),
    "no": (lambda be, case: None, DTypeError, "must be a tensor"),
}


@pytest.mark.parametrize("kind", WRONG)
@pytest.mark.parametrize("name", ["I", "O", "E", "delta", "denom"])
def test_wrong_tensors_write_nothing(be: Backend, name: str, kind: str) -> None:
    make, error, words = WRONG[kind]
    case = Case(be, (4, 1, 1, 2, 3), 3)
    case.O[:] = case.denom[:] = case.delta[:] = 7
    outputs = {key: getattr(case, key) for key in ("O", "denom", "delta")}
    setattr(case, name, make(be, case))
    passes = [case.bprop] if name in ("E", "delta") else [case.fprop, case.bprop]
    for run in passes:
        with pytest.raises(error, match=words) as raised:
            run()
        assert f"{run.__name__}_lrn" in str(raised.value)
    assert all((tensor.get() == 7).all() for tensor in outputs.values())


def test_wrong_numbers_and_layers(be: Backend) -> None:
    case = Case(be, (4, 1, 1, 2, 3), 3)
    case.O[:] = 7
    for options in ({"alpha": "1"}, {"beta": [0]}, {"alpha": 1j}):
        with pytest.raises(DTypeError, match=f"{next(iter(options))} must be a number"):
            case.fprop(**options)
        with pytest.raises(DTypeError, match="must be a number"):
            case.bprop(**options)
    for number in ("ascale", "bpower"):
        with pytest.raises(DTypeError, match=f"{number} must be a number"):
            be.fprop_lrn(case.layer, case.I, case.O, case.denom, **{number: None})
    case.layer = be
    with pytest.raises(DTypeError, match="lrn_layer"):
        case.fprop()
    assert (case.O.get() == 7).all()


def test_outputs_need_memory_of_their_own(be: Backend) -> None:
    case = Case(be, (4, 1, 1, 2, 3), 3)
    i, o, denom, e = case.I, case.O, case.denom, case.E
    for arguments in ((i, i, denom), (i, o, i), (i, o, o)):
        with pytest.raises(AliasError, match="shares memory"):
            be.fprop_lrn(case.layer, *arguments)
    for delta in (i, o, e, denom):
        with pytest.raises(AliasError, match="delta shares memory"):
            be.bprop_lrn(case.layer, i, o, e, delta, denom)
    assert (i.get() == case.x).all()


def test_closed_and_foreign_backends(be: Backend) -> None:
    case = Case(be, (4, 1, 1, 2, 3), 3)
    case.be = type(be)(rng_seed=0)
    with pytest.raises(DTypeError, match="another backend"):
        case.fprop()
    case.be = be
    be.cleanup_backend()
    with pytest.raises(BackendUnavailable):
        case.fprop()
