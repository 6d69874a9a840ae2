"""Arguments that the extension looks at, and prepared assignments that it runs in a chain."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from neonlike import checks
from neonlike.backends import Backend
from neonlike.backends.cpu.tensor import CPUTensor
from neonlike.initializers import Constant, Uniform
from neonlike.kernels.c import fastbuild, fastpath
from neonlike.kernels.run.prepared import PreparedSequence
from neonlike.layers import Activation, Affine, Bias, Conv, GeneralizedCost, Linear, Pooling
from neonlike.layers.core.base import Layer
from neonlike.models import Model
from neonlike.optimizers import Adam, GradientDescentMomentum
from neonlike.optree.functions import F
from neonlike.transforms import CrossEntropyMulti, Rectlin, Softmax
from tests.support.replaying import extension, fast, outcome, put_back  # noqa: F401

pytestmark = [
    pytest.mark.skipif(bool(fastpath.obstacle()), reason=fastpath.obstacle()),
    pytest.mark.cpu_only("the extension on the CPU"),
    pytest.mark.usefixtures("put_back"),
]


# Checked arguments -----------------------------------------------------------------------------------------------


def made_up(number: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A class's method with checks, by ``number``."""

    class Thing:
        def method(
            self,
            rate: float,
            name: str | None = None,
            count: int = 3,
            tensor: Tensor = None,
            *rest: Any,
            flag: bool = False,
        ) -> Any:
            """Its words."""
            return rate, name, count, tensor, rest, flag

    checking = checks.checked(Thing.method)
    Thing.method = number(checking)  # type: ignore[method-assign]
    return Thing().method


Tensor = CPUTensor


def by_extension(extension: Any) -> Callable[[Any], Any]:
    return lambda checking: extension.Checked(checking, checking.__wrapped__, checking.looked_at)


def test_arguments_are_admitted_and_refused_as_by_python(fast: Backend, extension: Any) -> None:
    ours, theirs = made_up(by_extension(extension)), made_up(lambda checking: checking)
    values = [
        1.5, 2, True, None, "a", np.float32(2), np.int64(3), np.array(4.0), np.ones(2), 1 << 5000, 1j, [1],
        fast.ones((1, 2)), fast.ones((1, 2)) * 2, object, b"x", float("nan"),
    ]  # fmt: skip
    name = "".join(["fl", "ag"])  # not interned
    for value in values:
        for given, named in (
            ((value,), {}), ((1.0, value), {}), ((1.0, None, value), {}), ((1.0, None, 3, value), {}),
            ((1.0,), {"flag": value}), ((1.0,), {name: value}), ((), {"rate": value}), ((value,), {"rate": 1.0}),
            ((1.0, "n", 3, None, value, value), {}), ((1.0,), {"count": value, "name": "x"}),
            ((1.0,), {"wrong": value}), ((), {}),
        ):  # fmt: skip
            found, right = (outcome(partial(call, *given, **named)) for call in (ours, theirs))
            assert found == right, (given, named)


def test_a_replaced_method_tells_what_the_original_tells(extension: Any) -> None:
    for method in (Linear.fprop, Linear.bprop, Pooling.bprop):
        assert type(method).__name__ == "Checked"
        assert method.__name__ in ("fprop", "bprop") and method.__doc__ and "Checked" not in repr(method)
        assert "self" in inspect.signature(method).parameters
    assert list(inspect.signature(Linear(3, Constant(0)).fprop).parameters) == ["inputs", "inference", "beta"]
    assert inspect.isfunction(Linear.__init__), "special methods stay"
    with pytest.raises(AttributeError):
        Linear.fprop.no_such_attribute  # noqa: B018


def test_later_classes_are_replaced_too_and_all_is_put_back(extension: Any) -> None:
    class Later:
        def method(self, count: int) -> int:
            return count

    checks.check_methods(Later)
    assert type(Later.method).__name__ == "Checked" and Later().method(3) == 3
    fastbuild.remove(extension)
    assert inspect.isfunction(Later.method) and inspect.isfunction(Linear.fprop)
    with pytest.raises(TypeError):
        Later().method("a")  # type: ignore[arg-type]
    fastbuild.install(extension)
    assert type(Later.method).__name__ == "Checked"
    with pytest.raises(TypeError):
        Later().method("a")  # type: ignore[arg-type]


def test_what_someone_else_put_in_place_of_a_method_stays(extension: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    fastbuild.remove(extension)
    plain, seen = Bias.fprop, []

    @functools.wraps(plain)
    def watched(self: Any, *given: Any) -> Any:
        seen.append(given)
        return plain(self, *given)

    monkeypatch.setattr(Bias, "fprop", watched)
    fastbuild.install(extension)
    assert Bias.fprop is watched and type(Bias.bprop).__name__ == "Checked"
    monkeypatch.undo()
    assert Bias.fprop is plain


def test_methods_of_users_classes_run_beside_those_of_the_library(fast: Backend) -> None:
    class Twice(Linear):
        def fprop(self, inputs: Any, inference: bool = False, beta: float = 0.0) -> Any:
            out = super().fprop(inputs, inference, beta)
            out[:] = out * 2
            return out

    fast.bsz = 4
    layer = Twice(3, Uniform())
    layer.configure(5)
    layer.allocate()
    x = fast.ones((5, 4))
    assert np.allclose(layer.fprop(x).get(), 2 * layer.W.get() @ x.get(), atol=1e-6)
    with pytest.raises(TypeError):
        layer.fprop(x, beta="a")
    assert isinstance(layer, Layer)


# Chains ----------------------------------------------------------------------------------------------------------


def test_a_chain_runs_what_its_steps_run(fast: Any, extension: Any) -> None:
    a, b, c, total = fast.ones((3, 4)), fast.zeros((3, 4)), fast.zeros((3, 4)), fast.zeros((3, 1))
    steps = [fast.prepare(b, b + a), fast.prepare([(c, b * 2), (a, a + 1)]), fast.prepare(total, fast.sum(c, axis=1))]
    chain = PreparedSequence(fast, steps)
    for turn in range(1, 5):
        chain()
        assert (chain._fast is not None) and a.get()[0, 0] == turn + 1
        assert b.get()[0, 0] == turn * (turn + 1) / 2 and total.get()[0, 0] == 8 * b.get()[0, 0]
    with pytest.raises(TypeError):
        chain._fast(1)  # type: ignore[misc]
    fast.closed = True
    chain()
    fast.closed = False
    assert a.get()[0, 0] == 6


@pytest.mark.parametrize("kind", ["random", "integers", "numpy engine", "no extension", "bench"])
def test_what_is_no_kernel_of_c_runs_step_by_step(
    fast: Any, extension: Any, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = fast.ones((3, 3)), fast.zeros((3, 3))
    if kind == "no extension":
        monkeypatch.setattr(fastpath, "asked_for", lambda: None)
    if kind == "bench":
        fast.bench = True
    whole = fast.ones((3, 3), dtype=np.int32)
    products = F.dot(whole, whole) * a
    expressions = {"random": a * (fast.rand() + 1), "integers": products, "numpy engine": fast.sum(a) * 0.0}
    steps = [fast.prepare(b, expressions.get(kind, a + a)), fast.prepare(a, a + 1)]
    if kind == "numpy engine":
        monkeypatch.setattr(type(fast.engine), "in_one", lambda self, bound: None)
    chain, seen = PreparedSequence(fast, steps), []
    for _ in range(3):
        chain()
        seen.append(b.get())
    assert chain._fast is None and a.get()[0, 0] == 4
    assert kind == "numpy engine" or not np.array_equal(seen[0], seen[1])
    if kind == "bench":
        assert "calls" in fast.bench_report()


def test_a_prepared_assignment_is_started_by_the_extension(fast: Any, extension: Any) -> None:
    a, b, c = fast.ones((3, 4)), fast.zeros((3, 4)), fast.zeros((3, 4))
    one, two = fast.prepare(b, b + a), fast.prepare([(c, b * 2), (a, a + 1)])
    for turn in range(1, 5):
        assert one() is b and b.get()[0, 0] == turn * (turn + 1) / 2
        assert [target is t for target, t in zip(two(), (c, a))] == [True, True]
        assert c.get()[0, 0] == 2 * b.get()[0, 0] and a.get()[0, 0] == turn + 1
        assert isinstance(one._run, extension.Program) and isinstance(two._run, extension.Program)


def test_it_asks_for_the_extension_again_while_there_is_none(fast: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(fastpath, "asked_for", lambda: asked.append(len(ran)))
    a, ran = fast.zeros((3, 4)), []
    step = fast.prepare(a, a + 1)
    for turn in range(20):
        ran.append(turn)
        step()
    assert asked == [1, 3, 7, 15] and a.get()[0, 0] == 20
    monkeypatch.undo()
    for _ in range(20):
        step()
    assert step._run is not step.bound and a.get()[0, 0] == 40


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Python 3.12 on fork beside threads
def test_a_forked_process_runs_the_calls(fast: Any, extension: Any) -> None:
    a = fast.zeros((600, 700))
    chain = PreparedSequence(fast, [fast.prepare(a, a + 1)])
    chain()
    chain()
    child = os.fork()
    if child == 0:
        chain()
        os._exit(7 if (a.get() == 3).all() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


# Whole steps -----------------------------------------------------------------------------------------------------


def network() -> Model:
    return Model(
        [
            Conv((3, 3, 4), init=Uniform(-0.5, 0.5), padding=1, batch_norm=True, activation=Rectlin()),
            Pooling(2),
            Conv((3, 3, 4), init=Uniform(-0.5, 0.5), bias=Constant(0.1), activation=Rectlin()),
            Affine(6, Uniform(-0.5, 0.5), bias=Constant(0.1), activation=Rectlin()),
            Affine(3, Uniform(-0.5, 0.5), bias=Constant(0), activation=Softmax()),
        ]
    )


def trained(be: Any, prepare: Callable[[], None], optimizer: Any) -> list[bytes]:
    """Parameters after eight steps, with changes of hyperparameters, threads and tensors between."""
    be.bsz, rng = 6, np.random.default_rng(0)
    be.rng.seed(3)
    model, cost = network(), GeneralizedCost(CrossEntropyMulti())
    model.initialize((2, 8, 8), cost)
    model.optimizer = optimizer
    prepare()
    x, t = be.array(rng.standard_normal((128, 6))), be.array(np.eye(3)[rng.integers(3, size=6)].T)
    layers, costs = model.layers_to_optimize, []
    for turn in range(8):
        costs.append(float(model._train_batch(x, t, layers)))
        if turn == 3:
            optimizer.learning_rate = 0.05
            x = be.array(x.get() * 2)
        if turn == 5:
            layers[0].W = be.array(layers[0].W.get())
            optimizer.gradient_clip_value = 0.5
    found = [np.array(costs).tobytes()]
    for layer in layers:
        params = layer.get_params()
        found += [p.get().tobytes() for (p, _), _ in (params if isinstance(params, list) else [params])]
    return found


@pytest.mark.parametrize("make", [lambda: GradientDescentMomentum(0.1, 0.9, wdecay=1e-3), lambda: Adam()])
def test_training_is_bit_for_bit_the_same_with_and_without(
    fast: Any, extension: Any, make: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = trained(fast, lambda: None, make())
    assert fast.executor.replay.table.calls > 10  # of eight steps, some are repeated records
    fast.executor.replay.stop()
    fastbuild.remove(extension)
    monkeypatch.setattr(fastpath, "asked_for", lambda: None)
    assert trained(fast, lambda: None, make()) == ours


def test_the_activation_of_a_user_is_called_each_time(fast: Any) -> None:
    seen: list[int] = []

    class Watched(Rectlin):
        def __call__(self, x: Any) -> Any:
            seen.append(1)
            return super().__call__(x)

    fast.bsz = 4
    model = Model([Affine(3, Uniform(), activation=Watched()), Activation(Softmax())])
    model.initialize(5, GeneralizedCost(CrossEntropyMulti()))
    for _ in range(5):
        model.fprop(fast.ones((5, 4)))
    assert len(seen) == 5
