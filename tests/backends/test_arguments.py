"""Arguments of a wrong kind: annotations are checked, also in calls of the backend's own methods."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.callbacks import Callbacks
from neonlike.callbacks.callbacks import RunTimerCallback
from neonlike.checks import checked, number
from neonlike.data import ArrayIterator
from neonlike.errors import (
    ArgumentError,
    ArgumentTypeError,
    DTypeError,
    NeonlikeError,
    NotDefined,
    OutOfMemory,
    ShapeError,
    UnknownArgument,
)
from neonlike.initializers import Gaussian, Initializer
from neonlike.layers import Affine, GeneralizedCost, Linear, Reshape
from neonlike.layers.core.base import Layer
from neonlike.models import Model
from neonlike.nervanaobject import NervanaObject
from neonlike.optimizers import (
    Adadelta,
    Adagrad,
    Adam,
    AdamW,
    GradientDescentMomentum,
    Optimizer,
    RMSProp,
    Schedule,
    ShiftAdaMax,
)
from neonlike.transforms import Cost, CrossEntropyMulti, Metric, PrecisionRecall, Softmax, Transform
from tests.support.engines import new_backend

pytestmark = pytest.mark.optree

# What annotations say ---------------------------------------------------------------------------------------------


@checked
def annotated(
    rate: float, count: int = 1, flag: bool = False, name: str | None = None, *, pairs: Sequence[Any] = (), x: Any = 0
) -> tuple[Any, ...]:
    """For the tests."""
    return rate, count, flag, name, pairs, x


def test_what_annotations_admit() -> None:
    assert annotated(1) == (1, 1, False, None, (), 0)
    assert annotated(np.float32(0.5), np.int8(3), 1, "a", pairs=[1], x=object)[:4] == (0.5, 3, 1, "a")
    assert annotated(np.array(2.0), True, np.True_, pairs=np.ones(3))[0] == 2
    assert annotated(math.nan)[4] == ()
    assert inspect.signature(annotated).parameters["count"].default == 1 and annotated.__doc__ == "For the tests."


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"rate": "x"}, "rate must be a number, got 'x'"), ({"rate": None}, "a number"), ({"rate": 1j}, "a number"),
        ({"rate": [1.0]}, "a number"), ({"rate": np.ones(1)}, "a number"), ({"rate": 10**400}, "larger than any float"),
        ({"rate": 1, "count": 1.5}, "count must be an integer, got 1.5"), ({"rate": 1, "count": None}, "an integer"),
        ({"rate": 1, "flag": "no"}, "flag must be True or False"), ({"rate": 1, "flag": np.ones(2)}, "True or False"),
        ({"rate": 1, "name": 3}, "name must be a string or None, got 3"),
        ({"rate": 1, "name": b"a"}, "a string or None, got b'a'"),
        ({"rate": 1, "pairs": 5}, "pairs must be a sequence"), ({"rate": 1, "pairs": "ab"}, "a sequence"),
    ],
)  # fmt: skip
def test_what_annotations_refuse(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ArgumentError, match=f"^annotated: .*{words}"):
        annotated(**arguments)


def test_a_wrong_kind_is_a_type_error_and_a_value_error() -> None:
    for expected in (TypeError, ValueError, AssertionError, DTypeError, ArgumentTypeError):
        with pytest.raises(expected):
            annotated("x")
    with pytest.raises(TypeError, match="unexpected keyword argument 'rates'"):
        annotated(rates=1)  # type: ignore[call-arg]


def test_elements_of_halves_are_numbers(be: Backend) -> None:
    """NumPy does not count bfloat16 among its numbers; where float16 is one, it is one as well."""
    for dtype in ("float16", "bfloat16"):
        half = be.array([[0.5]], dtype=dtype).get()
        for value in (half[0, 0], half.reshape(())):
            assert annotated(value)[0] == 0.5 and number("f", "rate", value) == 0.5
            a, product = be.ones((2, 2)), be.empty((2, 2))
            assert be.compound_dot(a, a, product, alpha=value).tolist() == [[1, 1], [1, 1]]
            if value.shape == () and isinstance(value, np.generic):
                assert be.pad(a, 1, constant_values=value).tolist()[0] == [0.5] * 4
    assert type(annotated(be.array([[0.5]], dtype="bfloat16").get()[0, 0])[0]) is float


def test_long_values_are_cut_in_messages() -> None:
    with pytest.raises(ArgumentError) as caught:
        number("op", "rate", "x" * 1000)
    assert len(str(caught.value)) < 120


def test_annotations_of_ones_own_classes_are_not_looked_at() -> None:
    class Mine(NervanaObject):
        def __init__(self, size: int) -> None:
            super().__init__("mine")
            self.size = size

    assert Mine("large").size == "large"  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "call",
    [
        lambda: Adam(learning_rate="x"), lambda: GradientDescentMomentum("x", 0.9), lambda: Gaussian(scale=None),
        lambda: Linear("x", Gaussian()), lambda: Softmax(epsilon="x"), lambda: CrossEntropyMulti(scale=[1]),
    ],
)  # fmt: skip
def test_constructors(be: Backend, call: Callable[[], Any]) -> None:
    with pytest.raises(ArgumentTypeError, match=r"must be an? "):
        call()


def test_methods_that_only_subclasses_define(be: Backend) -> None:
    t = be.ones((2, 2))
    calls: list[Callable[[], Any]] = [
        lambda: Transform()(t), lambda: Transform().bprop(t), lambda: Cost()(t, t), lambda: Cost().bprop(t, t),
        lambda: Metric()(t, t), lambda: Initializer().fill(t), lambda: Layer().fprop(t), lambda: Layer().bprop(t),
        lambda: Optimizer()._numbers(1.0, 0),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(NotDefined, match="define"):
            call()


# The backend's own methods ----------------------------------------------------------------------------------------


@pytest.fixture
def a(be: Backend) -> Any:
    """A tensor that no failing call may change."""
    return be.array([[1, 2], [3, 4]])


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda be, a: be.explain(1), ShapeError, "explain: 1 has no shape"),
        (lambda be, a: be.explain("x"), DTypeError, "'x'"),
        (lambda be, a: be.explain(be.rand()), ShapeError, "explain: .* out=tensor"),
        (lambda be, a: be.explain(a, a + 1), DTypeError, "the target must be a tensor"),
        (lambda be, a: be.explain(a + 1, be.ones((3, 5))), ShapeError, r"\(3, 5\)"),
        (lambda be, a: be.wrap([1, 2]), DTypeError, "wrap: needs a NumPy array"),
        (lambda be, a: be.prepare([(a, a + 1, 3)]), DTypeError, "prepare: expected pairs .* tuple of 3 at position 0"),
        (lambda be, a: be.prepare([a]), DTypeError, "prepare: expected pairs .*Tensor at position 0"),
        (lambda be, a: be.assign_many(a), DTypeError, "assign_many: expected a list of pairs .*, got .*Tensor"),
        (lambda be, a: be.assign_many(5), DTypeError, "assign_many: expected a list of pairs .*, got int"),
        (lambda be, a: be.assign_many([(a, 1), (a,)]), DTypeError, "tuple of 1 at position 1"),
        (lambda be, a: type(be)(batchsize=1), UnknownArgument, "there is no argument 'batchsize'.*hist_bins"),
        (lambda be, a: type(be)(defaultdtype="f4"), UnknownArgument, "did you mean default_dtype"),
    ],
)  # fmt: skip
def test_calls_of_the_backend(
    be: Backend, a: Any, call: Callable[[Backend, Any], Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        call(be, a)
    assert a.get().tolist() == [[1, 2], [3, 4]]
    assert "add" in be.explain(a + 1) and "add" in be.explain(a + 1, a) and a.get()[0, 0] == 1


@pytest.mark.parametrize("shape", [10**12, (10**12,), (10**7, 10**7), (2**40, 2**40)])
@pytest.mark.parametrize("make", ["zeros", "ones", "empty"])
def test_more_memory_than_there_is(be: Backend, a: Any, make: str, shape: Any) -> None:
    with pytest.raises(OutOfMemory, match=r"bytes|GiB asked for"):
        getattr(be, make)(shape)
    assert (a + 1).get().tolist() == [[2, 3], [4, 5]]


def test_results_that_do_not_fit_into_memory(be: Backend, a: Any) -> None:
    with pytest.raises(MemoryError):
        (be.ones((10**6, 1)) + be.ones((1, 10**6))).get()
    assert (a + 1).get().tolist() == [[2, 3], [4, 5]]


@pytest.mark.backend
def test_two_backends_still_take_what_they_took() -> None:
    made = new_backend(rng_seed=1, default_dtype=np.float64, hist_bins=32)
    assert made.default_dtype is np.float64 and made.hist_bins == 32
    made.cleanup_backend()


# Axes in another order ------------------------------------------------------------------------------------------


def shapes_of(dims: Sequence[int]) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
    """Shapes that stand for ``dims``, and some with as many elements that do not."""
    size = math.prod(dims)
    right = [tuple(dims), (math.prod(dims[:-1]), dims[-1]), (dims[0], math.prod(dims[1:])), (1, size), (size, 1)]
    return right, [(dims[-1], *dims[:-1]), (dims[-1], math.prod(dims[:-1])), (*dims[1:], dims[0])]


def test_convolutions_refuse_axes_in_another_order(be: Backend) -> None:
    layer = be.conv_layer(np.float32, 4, 3, 5, 1, 5, 5, 1, 3, 3)
    dims = {"I": layer.dimI, "F": layer.dimF, "O": layer.dimO}
    calls: dict[str, Callable[[Any, Any, Any], Any]] = {
        "fprop_conv": lambda i, f, o: be.fprop_conv(layer, i, f, o),
        "update_conv": lambda i, f, o: be.update_conv(layer, i, o, f),
        "bprop_conv": lambda i, f, o: be.bprop_conv(layer, f, o, i),
    }  # fmt: skip
    for name, call in calls.items():
        for operand, shape in dims.items():
            right, wrong = shapes_of(shape)
            for other in right:
                call(*(be.ones(other if n == operand else d) for n, d in dims.items()))
            for other in wrong:
                tensors = [be.ones(other if n == operand else d) for n, d in dims.items()]
                with pytest.raises(ShapeError, match=f"{name}: .*must have the shape"):
                    call(*tensors)
                assert all((t.get() == 1).all() for t in tensors)


def test_other_primitives_refuse_axes_in_another_order(be: Backend) -> None:
    pool = be.pool_layer(np.float32, "avg", 4, 3, 1, 6, 6, 1, 1, 2, 2)
    lrn = be.lrn_layer(np.float32, 4, 3, 1, 5, 5, 3)
    conv = be.conv_layer(np.float32, 4, 3, 5, 1, 5, 5, 1, 3, 3)
    columns = [be.ones((3, 1)) for _ in range(6)]
    calls: list[tuple[Sequence[int], Callable[[Any], Any]]] = [
        (pool.dimI, lambda x: be.fprop_pool(pool, x, be.ones(pool.dimO))),
        (pool.dimO, lambda x: be.fprop_pool(pool, be.ones(pool.dimI), x)),
        (pool.dimO, lambda x: be.bprop_pool(pool, x, be.ones(pool.dimI))),
        (lrn.dimI, lambda x: be.fprop_lrn(lrn, x, be.ones(lrn.dimI), be.ones(lrn.dimI))),
        (lrn.dimI, lambda x: be.fprop_lrn(lrn, be.ones(lrn.dimI), x, be.ones(lrn.dimI))),
        (conv.dimO, lambda x: be.fprop_conv(conv, be.ones(conv.dimI), be.ones(conv.dimF), be.ones(conv.dimO), X=x)),
        ((3, 5, 4), lambda x: be.compound_fprop_bn(x, *columns, be.ones((3, 20)), 0.1, 0.9, False)),
    ]
    for dims, call in calls:
        call(be.ones(dims))
        with pytest.raises(ShapeError):
            call(be.ones((dims[-1], *dims[:-1])))


# Training ---------------------------------------------------------------------------------------------------------


def test_epochs_and_frequencies_that_are_none(be: Backend) -> None:
    be.bsz = 4
    data = ArrayIterator(np.ones((8, 3), np.float32), np.zeros(8, int), nclass=2)
    model = Model([Affine(nout=2, init=Gaussian(), activation=Softmax())])
    cost, optimizer = GeneralizedCost(CrossEntropyMulti()), GradientDescentMomentum(0.1, 0.9)
    with pytest.raises(ArgumentError, match="fit: num_epochs"):
        model.fit(data, cost, optimizer, "x")  # type: ignore[arg-type]
    for options in ({"eval_freq": "x"}, {"eval_freq": "x", "eval_set": data}, {"serialize": "z"}, {"history": "y"}):
        with pytest.raises(ArgumentError, match=rf"Callbacks: {next(iter(options))}"):
            Callbacks(model, **options)


# What the fuzzer found --------------------------------------------------------------------------------------------


def test_wrong_arguments_that_random_calls_found(be: Backend) -> None:
    x = np.zeros((128, 5), np.float32)
    a, out = be.ones((3, 4)), be.ones((3, 4))
    unroll = {
        "W_recur": be.ones((9, 3)), "h_prev_s": [a], "reset_h_s": [be.zeros((3, 4))], "h_s": [out],
        "rzn_ff_s": [be.ones((9, 4))], "rzn_s": [be.zeros((9, 4))], "bias": be.ones((9, 1)), "nout": 3, "num_steps": 1,
        "num_used_steps": 1,
    }  # fmt: skip
    wrong: list[Callable[[], Any]] = [
        lambda: ArrayIterator(x, lshape=np.dtype("O")),
        lambda: ArrayIterator(x, lshape=(a, None)),
        lambda: ArrayIterator(x, lshape=len),
        lambda: be.consume(0, [x, x], [[]]),
        lambda: be.consume(0, [x, x], []),
        lambda: be.compound_gru_unroll_fprop(**unroll, activation=Exception, gate_activation=Softmax()),
        lambda: Callbacks.load_callbacks({"a": 1}, model=Model([Linear(2, init=Gaussian())])),
        lambda: Callbacks(Model([Linear(2, init=Gaussian())]), eval_set=a + 1, eval_freq=1),
        lambda: Affine(2, init=Gaussian(), batch_norm=np.ones((0, 4))),
        lambda: Reshape(("a", "b")),
        lambda: Reshape(()),
        lambda: Schedule(1, np.ones(3)),
        lambda: be.check_grad(lambda v: v * v, [a, out]),
        lambda: be.repeat(a, 10**12, axis=1),
        lambda: be.arange(-(10**400)),
        lambda: GradientDescentMomentum(0.1, 0.9).clip_gradient_norm(np.ones(3), 1),
    ]
    for call in wrong:
        with pytest.raises(NeonlikeError):
            call()
    assert (out.get() == 1).all()


def test_callbacks_of_another_model(be: Backend) -> None:
    mine, other = (Model([Linear(2, init=Gaussian())]) for _ in range(2))
    data = ArrayIterator(np.zeros((128, 5), np.float32), np.zeros(128, np.int32), nclass=2)
    cost, optimizer = GeneralizedCost(CrossEntropyMulti()), GradientDescentMomentum(0.1, 0.9)
    with pytest.raises(ArgumentError, match="callbacks were made with another model"):
        mine.fit(data, cost, optimizer, 1, Callbacks(other, progress_bar=False))


@pytest.mark.parametrize("given", [0.01, 1.0, -1, 60, math.nan])
@pytest.mark.parametrize("kind", [Adam, AdamW, RMSProp, Adagrad, Adadelta, ShiftAdaMax])
def test_a_learning_rate_in_place_of_stochastic_rounding(kind: type[Optimizer], given: Any) -> None:
    """neon's order of arguments invites this mistake; the rate stays unchanged."""
    with pytest.raises(ArgumentError, match=f"{kind.__name__}: stochastic_round must be .* learning_rate="):
        kind(given)  # type: ignore[arg-type]


def test_weight_decay_in_place_of_stochastic_rounding() -> None:
    with pytest.raises(ArgumentError, match=r"GradientDescentMomentum: stochastic_round must be .*, got 0\.0005"):
        GradientDescentMomentum(0.1, 0.9, 0.0005)  # type: ignore[arg-type]
    for allowed in (False, True, None, 10, np.int64(5), np.bool_(True)):
        GradientDescentMomentum(0.1, 0.9, stochastic_round=allowed)  # type: ignore[arg-type]


def test_one_callback_in_place_of_callbacks(be: Backend) -> None:
    model = Model([Affine(2, init=Gaussian(), activation=Softmax())])
    data = ArrayIterator(np.zeros((128, 5), np.float32), np.zeros(128, np.int32), nclass=2)
    cost, optimizer = GeneralizedCost(CrossEntropyMulti()), GradientDescentMomentum(0.1, 0.9)
    with pytest.raises(DTypeError, match=r"a RunTimerCallback; expected .* Callbacks\(model"):
        model.fit(data, cost, optimizer, 1, RunTimerCallback())


@pytest.mark.parametrize("binarize", [False, True])
def test_precision_and_recall_of_another_number_of_classes(be: Backend, binarize: bool) -> None:
    y, t = be.array(np.eye(3)), be.array(np.eye(3))
    with pytest.raises(ShapeError, match=r"PrecisionRecall: .*num_classes=5.*\(3, 3\)"):
        PrecisionRecall(5, binarize=binarize)(y, t)
