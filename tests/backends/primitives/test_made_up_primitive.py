"""Adding a compound primitive is adding a file a side: a made-up one works on each backend, on its kernel or without.

``made_up/`` holds it: the family with its definition, C, CUDA. Nothing else knows of it.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Iterator
from dataclasses import FrozenInstanceError, is_dataclass
from typing import Any, get_args, get_type_hints

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.backends.family import Family
from neonlike.backends.tensor import Tensor
from neonlike.errors import AliasError, DTypeError, ShapeError
from tests import ROOT
from tests.made_up.leaky import LeakyFamily, LeakySum
from tests.made_up.leaky_c import LeakyKernels
from tests.made_up.leaky_cuda import LeakyCuda
from tests.support.engines import BACKEND, ON_GPU, backend, have_programs

pytestmark = pytest.mark.engines("numpy", "c")

CLOSE = {"float16": 2e-3, "float32": 1e-6, "float64": 1e-14}


@pytest.fixture
def be(engine: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A backend whose class lists the kernels before all that it has."""
    known = Backend.backend_class(BACKEND)
    sides: tuple[type, ...] = (LeakyCuda if ON_GPU else LeakyKernels, known)
    made = type(f"Leaky{known.__name__}", sides, {"backend_name": ""})
    monkeypatch.setitem(Backend.backends, BACKEND, made)
    yield from backend(engine)


def by_loops(x: Any, decay: float) -> Any:
    """In float64."""
    sums = np.zeros(x.shape)
    for j in range(x.shape[1]):
        sums[:, j] = x[:, j].astype(np.float64) + (decay * sums[:, j - 1] if j else 0)
    return sums


def counted(monkeypatch: pytest.MonkeyPatch) -> list[LeakySum]:
    """Record the requests to the definition from now on."""
    asked, definition = list[LeakySum](), LeakyFamily._leaky_sum

    def spy(self: Any, request: LeakySum, *tensors: Any) -> Any:
        asked.append(request)
        return definition(self, request, *tensors)

    monkeypatch.setattr(LeakyFamily, "_leaky_sum", spy)
    return asked


@pytest.mark.parametrize("dtype", CLOSE)
def test_it_agrees_with_loops_on_every_backend(be: Any, rng: np.random.Generator, dtype: str) -> None:
    for shape in ((3, 5), (1, 300), (700, 2), (130, 33)):
        x = rng.normal(size=shape).astype(dtype)
        wide = be.zeros((shape[0], 2 * shape[1]), dtype=dtype)
        for out in (be.empty(shape, dtype=dtype), wide[:, ::2]):
            assert be.leaky_sum(be.array(x, dtype=dtype), out, 0.75) is None
            np.testing.assert_allclose(out.get(), by_loops(x, 0.75), CLOSE[dtype], 10 * CLOSE[dtype])
        assert (wide.get()[:, 1::2] == 0).all()


def test_the_kernel_runs_where_there_is_one_and_the_definition_elsewhere(
    be: Any, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = counted(monkeypatch)
    be.leaky_sum(be.ones((2, 3)), be.empty((2, 3)))
    assert asked == ([LeakySum((2, 3), 0.5)] if engine == "numpy" else [])
    half = be.ones((2, 3), dtype=np.float16)
    be.leaky_sum(half, half.copy())
    assert len(asked) == {"numpy": 2, "c": 0, "gpu": 1}[engine]  # the kernel in CUDA knows no float16


def test_a_call_that_was_made_before_starts_the_kernel_at_once(
    be: Any, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, out = be.array([[1.0, 2.0, 3.0]]), be.empty((1, 3))
    have_programs(be)
    be.leaky_sum(x, out)
    hooked: list[Any] = []
    kernels = LeakyCuda if ON_GPU else LeakyKernels
    monkeypatch.setattr(kernels, "_leaky_sum", lambda *given: hooked.append(given))
    x[:] = x * 2
    be.leaky_sum(x, out)
    assert len(hooked) == (engine != "c")  # which keeps what the hook returned
    assert engine != "c" or out.get().tolist() == [[2, 5, 8.5]]


def test_what_the_rest_of_the_library_knows_of_it(be: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Timing, the report of bench mode, errors: from the family alone."""
    x, out = be.ones((4, 6)), be.empty((4, 6))
    with caplog.at_level(logging.INFO, "neon"):
        milliseconds, rate = be.leaky_sum(x, out, repeat=3)
    assert milliseconds > 0 and rate > 0
    be.bench = True
    be.leaky_sum(x, out)
    assert "leaky_sum" in be.bench_report()
    be.bench = False
    assert be.leaky_sum(be.empty((0, 3)), be.empty((0, 3))) is None
    before = out.get()
    for error, arguments in (
        (DTypeError, (x, None)),
        (DTypeError, (x, out, "much")),
        (DTypeError, (x, be.empty((4, 6), dtype=np.float64))),
        (ShapeError, (x, be.empty((6, 4)))),
        (AliasError, (out, out)),
    ):
        with pytest.raises(error, match="leaky_sum"):
            be.leaky_sum(*arguments)
    assert (out.get() == before).all()


def test_the_page_shows_its_lines() -> None:
    page = (ROOT / "docs" / "primitives.md").read_text(encoding="utf-8")
    part = page.partition("## Adding one")[2].partition("\n## ")[0]
    shown = [line for line in part.splitlines() if line.startswith("    ")]
    assert len(shown) > 20
    files = (ROOT / "tests" / "made_up").glob("*.py")
    lines = {line for path in files for line in path.read_text("utf-8").splitlines()}
    assert [line for line in shown if line.removeprefix("    ") not in lines] == []


# Of all families ------------------------------------------------------------------------------------------------------


def hooks() -> Iterator[tuple[str, Any]]:
    """The hooks of all families that a backend has: methods whose first argument is a request."""
    for family in {cls for cls in Backend.__mro__ if issubclass(cls, Family)}:
        for name, method in vars(family).items():
            if inspect.isfunction(method) and [*inspect.signature(method).parameters][1:2] == ["request"]:
                yield f"{family.__name__}.{name}", method


def test_every_hook_takes_a_frozen_request() -> None:
    found = dict(hooks())
    wanted = """
        conv update_conv conv_workspace fprop_pool bprop_pool pool_workspace fprop_lrn bprop_lrn fprop_bn bprop_bn
        fprop_attention bprop_attention attention_workspace detect
        fprop_roi bprop_roi misplaced nms bprop_lut compound_dot batched_dot xnor_dot histogram
        rnn_fprop rnn_bprop lstm_fprop lstm_bprop gru_fprop gru_bprop
    """
    assert {name.partition("._")[2] for name in found} == set(wanted.split())
    for name, method in found.items():
        hint = get_type_hints(method)["request"]
        for request in get_args(hint) or (hint,):
            frozen = is_dataclass(request) and request.__dataclass_params__.frozen  # type: ignore[attr-defined]
            assert frozen or issubclass(request, tuple), name
    with pytest.raises(FrozenInstanceError):
        LeakySum((1, 1), 0.5).decay = 1.0  # type: ignore[misc]


def test_hooks_get_tensors(be: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not arrays of the host, which a device would have had to wait for; whether they run on a kernel or not."""
    met: dict[str, list[Any]] = {}
    for label, method in hooks():
        name = label.partition(".")[2]

        def spy(self: Any, request: Any, *given: Any, name: str = name) -> Any:
            assert is_dataclass(request) or isinstance(request, tuple), name
            met.setdefault(name, []).extend(given)
            return getattr(super(type(be), self), name)(request, *given)

        monkeypatch.setattr(type(be), name, spy, raising=False)
        assert method is not None
    one_of_each(be)
    assert {f"_{label.partition('._')[2]}" for label, _ in hooks()} == set(met)
    for name, given in met.items():
        for value in given:
            tensors = [t for role in value.roles.values() for t in role] if hasattr(value, "roles") else [value]
            assert all(t is None or isinstance(t, Tensor) for t in tensors), name


def one_of_each(be: Any) -> None:
    """Call every primitive that has a hook."""
    one, row = be.ones((2, 2)), lambda: be.zeros((2, 1))
    layer = be.conv_layer(None, 2, 2, 2)
    be.fprop_conv(layer, one, one, be.empty((2, 2)), bias=row(), bsum=row())
    be.update_conv(layer, one, one, be.empty((2, 2)))
    assert be.workspace_bytes(be.conv_layer(None, 2, 2, 2, R=3, pad_h=1, H=4), "update") > 0
    pooled, argmax = be.pool_layer(None, "max", 2, 2), be.empty((2, 2), dtype=np.uint8)
    be.workspace_bytes(pooled)  # of which a GPU takes none
    be.fprop_pool(pooled, one, be.empty((2, 2)), argmax)
    be.bprop_pool(pooled, one, be.empty((2, 2)), argmax)
    norm = be.lrn_layer(None, 2, 2)
    out, denom = be.empty((2, 2)), be.empty((2, 2))
    be.fprop_lrn(norm, one, out, denom)
    be.bprop_lrn(norm, one, out, one, be.empty((2, 2)), denom)
    sums = row(), row()
    be.compound_fprop_bn(one, *sums, row(), row(), be.ones((2, 1)), row(), out, 0.1, 0.9, True)
    be.compound_bprop_bn(be.empty((2, 2)), row(), row(), one, one, *sums, be.ones((2, 1)), 0.1)
    rois, sizes = be.array([[0, 0, 0, 1, 1]]), (1, 1, 2, 2, 1, 1, 1.0)
    found, where = be.empty((1, 1)), be.empty((1, 1), dtype=np.int32)
    be.roipooling_fprop(be.ones((4, 1)), rois, found, where, *sizes)
    be.roipooling_bprop(found, rois, be.empty((4, 1)), where, *sizes)
    assert be.nms(np.array([[0, 0, 9, 9, 0.5]]), 0.5) == [0]
    scores, offsets, priors = be.ones((1, 2, 1)), be.zeros((1, 4, 1)), be.array([[0, 0, 9, 9]])
    assert len(be.detectionOutput_fprop(scores, offsets, None, priors, None, 1, 1, 0.5, 0.5)[0]) == 1
    attended, lse = be.attention_layer(None, 1, 1, 2, 2), be.empty((1, 2))
    q, k, v, o, e, dq, dk, dv = (be.ones((1, 2, 2)) for _ in range(8))
    be.fprop_attention(attended, q, k, v, o, lse)
    be.bprop_attention(attended, q, k, v, o, lse, e, dq, dk, dv)
    be.workspace_bytes(attended, "bprop")
    be.compound_bprop_lut(1, be.array([[0, 1]], dtype=np.int32), one, None, be.zeros((2, 2)))
    be.compound_dot(one, one, out)
    be.batched_dot(be.ones((3, 2, 2)), one, be.empty((3, 2, 2)))
    be.xnor_compound_dot(one, one, out)
    one.hist("one")
    unroll(be)


def unroll(be: Any) -> None:
    """One step of every recurrent layer, forward and backward."""
    from neonlike.transforms import Logistic, Tanh

    tensors = lambda rows: [be.zeros((rows, 2))]  # noqa: E731
    square, four, three = be.ones((2, 2)), be.ones((8, 2)), be.ones((6, 2))
    sizes, gates = (2, 1, 1), (Tanh(), Logistic())
    be.compound_rnn_unroll_fprop(square, tensors(2), tensors(2), tensors(2), None, *sizes, Tanh())
    be.compound_rnn_unroll_bprop(square, tensors(2), tensors(2), tensors(2), *sizes, Tanh())
    be.compound_lstm_unroll_fprop(
        four, tensors(2), tensors(2), tensors(8), tensors(8), tensors(2), tensors(2), tensors(2), None, *sizes, *gates
    )
    be.compound_lstm_unroll_bprop(
        four.T, *(tensors(2) for _ in range(4)), tensors(8), tensors(8), tensors(2), tensors(2), *sizes, *gates
    )
    be.compound_gru_unroll_fprop(
        three, tensors(2), tensors(6), tensors(6), tensors(2), tensors(2), None, *sizes, *gates
    )
    be.compound_gru_unroll_bprop(three.T, tensors(2), tensors(2), tensors(6), tensors(6), tensors(2), *sizes, *gates)
