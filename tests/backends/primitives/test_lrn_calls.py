"""Calls of local response normalisation beyond their numbers: the layer, bench mode, errors."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend, gen_backend
from neonlike.errors import AliasError, ArgumentError, DTypeError, ShapeError
from tests.support.engines import check_other_backends
from tests.support.float64.lrn_loops import Case

pytestmark = pytest.mark.engines("numpy", "c")


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
    assert be.lrn_layer(None, 8, 6).dtype == be.pool_layer(None, "max", 8, 6).dtype == be.default_dtype
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
    check_other_backends(case)
