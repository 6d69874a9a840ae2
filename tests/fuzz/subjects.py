"""Public callables, called with wrong arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import neonlike.backends
import neonlike.callbacks
import neonlike.data
import neonlike.initializers
import neonlike.layers
import neonlike.models
import neonlike.optimizers
import neonlike.transforms
from neonlike.backends import Autodiff, gen_backend
from neonlike.callbacks import Callbacks
from neonlike.optree.node import Expression
from tests.fuzz.junk import World
from tests.fuzz.recipes import RECIPES, data, layers, linear, model, ready_model, sgd
from tests.fuzz.recipes_described import CALLED, DESCRIBED

PACKAGES = (
    neonlike.layers, neonlike.optimizers, neonlike.transforms, neonlike.initializers, neonlike.callbacks,
    neonlike.models, neonlike.data,
)  # fmt: skip
NOT_CALLED = frozenset(
    (
        "cleanup_backend",  # the backend has to live
        "tensor_cls",  # made by the backend alone
        "check_open", "gen_class", "recursive_gen", "on_device",  # for the library itself
        "accumulates",  # a decorator
        "default_dtype",  # NumPy's type
        "nested_str",  # indents by what it is told
    )
)  # fmt: skip
OPERATORS = tuple(
    "__add__ __radd__ __sub__ __mul__ __truediv__ __rtruediv__ __floordiv__ __mod__ __pow__ __rpow__ __matmul__ __lt__ "
    "__eq__ __and__ __or__ __xor__ __lshift__ __getitem__ __contains__ __iadd__ __imul__".split()
)


class Subject(NamedTuple):
    """Callable for the fuzzer: its name, and a function that makes it from the world."""

    name: str
    make: Callable[[World], Any]
    right: Callable[[World], dict[str, Any]] | None = None


def methods(thing: Any) -> list[str]:
    """Names of the public methods of an object."""
    names = [name for name in dir(type(thing)) if not name.startswith("_") and name not in NOT_CALLED]
    return [name for name in names if callable(getattr(thing, name, None))]


def subjects(world: World) -> list[Subject]:
    """Everything that is called."""
    found = [Subject(f"be.{name}", _attribute("be", name), RECIPES.get(name)) for name in methods(world.be)]
    for name in (*methods(world.t), *OPERATORS, "__setitem__"):
        found.append(Subject(f"tensor.{name}", _attribute(("t", "view", "cube", "whole"), name)))
    lazy = world.t + 1
    for name in (*methods(lazy), *(name for name in OPERATORS if hasattr(lazy, name))):
        found.append(Subject(f"expression.{name}", lambda w, name=name: getattr(w.t * w.u + 1, name)))
    for package in PACKAGES:
        for name in package.__all__:
            thing = getattr(package, name)
            found.append(Subject(f"{package.__name__}.{name}", lambda w, thing=thing: thing))
    for name, instance in INSTANCES.items():
        for method in methods(instance(world)):
            found.append(Subject(f"{name}.{method}", lambda w, i=instance, m=method: getattr(i(w), m)))
    found += [Subject(name, make) for name, make in CALLED.items()]
    found.append(Subject("gen_backend", lambda w: gen_backend, RECIPES["gen_backend"]))
    found.append(Subject("Autodiff", lambda w: Autodiff))
    found.append(Subject(type(world.be).__name__, lambda w: type(w.be)))
    return found


def _attribute(of: Any, name: str) -> Callable[[World], Any]:
    if isinstance(of, str):
        return lambda w: getattr(getattr(w, of), name)
    return lambda w: getattr(getattr(w, w.pick(*of)), name)


def _watched(world: World, made: Any) -> Any:
    """``made``, with its parameters watched."""
    for layer in getattr(made, "layers_to_optimize", [made]):
        for name in ("W", "dW"):
            if isinstance(getattr(layer, name, None), Expression):
                world.watch(getattr(layer, name))
    return made


INSTANCES: dict[str, Callable[[World], Any]] = {
    "model": lambda w: _watched(w, ready_model()),
    "new model": lambda w: model(),
    "linear": lambda w: _watched(w, linear()),
    "new layer": lambda w: layers()[0][0],
    "sequential": lambda w: ready_model().layers,
    "optimizer": lambda w: sgd(),
    "adam": lambda w: neonlike.optimizers.Adam(),
    "multi optimizer": lambda w: neonlike.optimizers.MultiOptimizer({"default": sgd()}),
    "schedule": lambda w: neonlike.optimizers.Schedule([1, 2], 0.5),
    "callbacks": lambda w: Callbacks(ready_model(), progress_bar=False),
    "iterator": lambda w: data(),
    "cost": lambda w: neonlike.layers.GeneralizedCost(neonlike.transforms.CrossEntropyMulti()),
    "gaussian": lambda w: neonlike.initializers.Gaussian(),
    "constant": lambda w: neonlike.initializers.Constant(1.0),
    "orthonormal": lambda w: neonlike.initializers.Orthonormal(),
    "softmax": lambda w: neonlike.transforms.Softmax(),
    "cross entropy": lambda w: neonlike.transforms.CrossEntropyMulti(),
    "metric": lambda w: neonlike.transforms.Misclassification(),
    "autodiff": lambda w: Autodiff(w.be.sum(w.t * w.u), w.be),
    **DESCRIBED,
}  # fmt: skip
