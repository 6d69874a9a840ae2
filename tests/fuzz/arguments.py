"""Random wrong arguments for everything public: a call succeeds, or raises an error of ours and changes nothing.

The number of its seed is all that a call depends on. Most calls are right ones of which an argument or two are
replaced; what they return is used, so that a value that was only kept is looked at too. Right as well are Python's own
TypeError for arguments of a wrong name or number, and the system's words about files.
"""

from __future__ import annotations

import inspect
import json
import os
import resource
import signal
import tempfile
import traceback
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

import neonlike.backends
import neonlike.callbacks
import neonlike.data
import neonlike.initializers
import neonlike.layers
import neonlike.models
import neonlike.optimizers
import neonlike.transforms
from neonlike.backends import Backend, cleanup_backend
from neonlike.errors import NeonlikeError
from neonlike.kernels.run.prepared import Prepared
from neonlike.layers.core.base import Layer
from neonlike.logger import logger
from neonlike.nervanaobject import NervanaObject
from neonlike.optree.node import Expression
from tests.fuzz.junk import World, described, junk, junk_function
from tests.fuzz.recipes import BY_NAME, data, model, ready_model, sgd
from tests.fuzz.subjects import Subject, subjects
from tests.fuzz.workers import spread
from tests.support.engines import BACKEND, new_backend

SECONDS = 30
MEMORY = 3 << 30
MOST_FAILURES = 20
RIGHT = ("ok", "refused")
"""What calls do that are no fault."""
WRAPPERS = ("checking", "accumulating", "unroll")
"""Decorators' functions, which call what they decorate with the arguments they got."""


class Hang(BaseException):
    """A call took too long."""


# One call -----------------------------------------------------------------------------------------------------------


class Call:
    """Call of a seed: the function and its arguments."""

    def __init__(self, world: World, found: list[Subject], seed: int) -> None:
        world.refresh(seed)
        self.world = world
        self.subject = found[int(world.rng.integers(len(found)))]
        self.function = self.subject.make(world)
        self.args: list[Any] = []
        self.trace = ""
        self.kwargs = self._right()
        self._spoil()

    def _right(self) -> dict[str, Any]:
        if self.subject.right is not None:
            right = dict(self.subject.right(self.world))
            self.args = right.pop("", [])
            return right
        try:
            parameters = inspect.signature(self.function).parameters.values()
        except (ValueError, TypeError):
            return {}
        chosen = {}
        for parameter in parameters:
            if parameter.kind is parameter.VAR_POSITIONAL:
                self.args = [junk(self.world) for _ in range(self.world.pick(0, 1, 1, 2, 3))]
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                continue
            if parameter.default is parameter.empty or self.world.rng.random() < 0.3:
                make = BY_NAME.get(parameter.name, lambda w: w.pick(w.t, w.u, w.t, w.square, w.t + 1))
                value = make(self.world)
                if parameter.kind is parameter.POSITIONAL_ONLY:
                    self.args.append(value)
                else:
                    chosen[parameter.name] = value
        return chosen

    def _spoil(self) -> None:
        rng = self.world.rng
        for _ in range(self.world.pick(1, 1, 1, 2, 2, 3)):
            names = [*self.kwargs, *range(len(self.args))]
            if names:
                place = names[int(rng.integers(len(names)))]
                (self.kwargs if isinstance(place, str) else self.args)[place] = junk(self.world)  # type: ignore[index]
        choice = rng.random()
        if choice < 0.03 and self.kwargs:
            self.kwargs.pop(next(iter(self.kwargs)))
        elif choice < 0.06:
            self.kwargs["no_such_argument"] = junk(self.world)
        elif choice < 0.08:
            self.args.append(junk(self.world))

    def __str__(self) -> str:
        given = [described(value) for value in self.args]
        given += [f"{name}={described(value)}" for name, value in self.kwargs.items()]
        return f"{self.subject.name}({', '.join(given)})"

    def run(self) -> str:
        """Run the call; return "ok", "refused" or the fault."""
        world = self.world
        before, state = world.snapshot(), _state(world.be)
        try:
            with np.errstate(all="ignore"):
                use(self.function(*self.args, **self.kwargs), world)
            return "ok"
        except NeonlikeError as error:
            self.trace, said = traceback.format_exc(), str(error)
            if len(said) < 10:
                return f"says only {said!r}"
        except OSError:
            return "refused"  # a file that is not there, or a folder in its place: the system's own words
        except Exception as error:
            self.trace = traceback.format_exc()
            if not is_binding(error):
                place = traceback.extract_tb(error.__traceback__)[-1]
                where = f"{Path(place.filename).name}:{place.lineno}"
                return f"{type(error).__name__}: {str(error)[:200]} ({where})"
        except Hang:
            return f"took more than {SECONDS} seconds"
        if _state(world.be) != state:
            return f"failed and changed the backend: {state} -> {_state(world.be)}"
        for tensor, old in zip(world.watched, before):
            if tensor.get().tobytes() != old:
                return f"failed and changed {described(tensor)}"
        return "refused"

    def aftermath(self) -> str:
        """Fault of the backend after the call, or nothing."""
        self.world.refresh(0)
        be = self.world.be
        found = be.empty((2, 2))
        found[:] = be.array([[1, 2], [3, 4]]) * 2 + 1
        return "" if found.get().tolist() == [[3, 5], [7, 9]] else f"then 2 a + 1 is {found.get().tolist()}"


def _state(be: Any) -> tuple[Any, ...]:
    return (be.bsz, be.compat_mode, be.closed, be.default_dtype, be.hist_bins, be.hist_offset, be.scratch_size,
            be.num_threads, NervanaObject.be is be)  # fmt: skip


def is_binding(error: BaseException) -> bool:
    """Whether this is Python's error about names or numbers of arguments, or one raised by a user's own function."""
    calls = [error.__traceback__]
    while calls[-1] is not None and calls[-1].tb_next is not None:
        calls.append(calls[-1].tb_next)
    last = calls[-1]
    if last is None:
        return False
    if len(calls) > 1 and last.tb_frame.f_code.co_filename == junk_function.__code__.co_filename:
        return True
    words = ("argument", "positional", "keyword")
    outermost = all(call.tb_frame.f_code.co_name in WRAPPERS for call in calls[1:] if call is not None)
    return isinstance(error, TypeError) and outermost and any(word in str(error) for word in words)


def use(result: Any, world: World, depth: int = 0) -> None:
    """Use a result in the usual ways of its type."""
    if isinstance(result, Expression):
        if result.size is not None and result.size <= 10**7:
            result.get()
    elif isinstance(result, Prepared):
        result()
    elif isinstance(result, Layer):
        _use_layer(result, world)
    elif isinstance(result, (list, tuple)) and depth < 2:
        for item in result[:8]:
            use(item, world, depth + 1)
    elif isinstance(result, NervanaObject):
        _use_object(result, world)
    elif isinstance(result, Backend):
        result.ones((2, 2)).get()
    elif inspect.isfunction(result) and depth == 0:
        use(result(world.t), world, 1)


def _use_layer(layer: Any, world: World) -> None:
    layer.configure(5)
    layer.allocate()
    found = layer.fprop(world.be.ones((5, world.be.bsz)))
    if found is not None:
        layer.bprop(world.be.ones(found.shape))


def _use_object(thing: Any, world: World) -> None:
    kinds = neonlike
    if isinstance(thing, kinds.models.Model):
        thing.fit(data(), _cost(), sgd(), 1)
    elif isinstance(thing, kinds.layers.GeneralizedCost):
        ready = model()
        ready.initialize(data(), thing)
        thing.get_cost(world.be.ones((2, 4)), world.be.ones((2, 4)))
        thing.get_errors(world.be.ones((2, 4)), world.be.ones((2, 4)))
    elif isinstance(thing, kinds.optimizers.Optimizer):
        ready_model().fit(data(), _cost(), thing, 1)
    elif isinstance(thing, kinds.initializers.Initializer):
        if type(thing) is not kinds.initializers.Initializer:
            thing.fill(world.be.empty((4, 4)))
    elif isinstance(thing, kinds.callbacks.Callbacks):
        ready_model().fit(data(), _cost(), sgd(), 1, thing)
    elif isinstance(thing, kinds.data.ArrayIterator):
        list(thing)
    elif isinstance(thing, kinds.optimizers.Schedule):
        thing.get_learning_rate(0.1, 3)
    elif isinstance(thing, kinds.transforms.Metric):
        thing(world.be.ones((2, 4)), world.be.ones((2, 4)))
    elif callable(thing):
        two = isinstance(thing, kinds.transforms.Cost)
        use(thing(*[world.t, world.u][: 1 + two]), world)


def _cost() -> Any:
    return neonlike.layers.GeneralizedCost(neonlike.transforms.CrossEntropyMulti())


# Many ---------------------------------------------------------------------------------------------------------------


class Caller:
    """Makes the calls of seeds in this process."""

    def __init__(self) -> None:
        self.world = World(BACKEND, new_backend)
        self.subjects = subjects(self.world)
        self.trace = ""

    def check(self, seed: int) -> tuple[str, str]:
        """Description of the call, and "ok", "refused" or its fault."""
        try:
            call = Call(self.world, self.subjects, seed)
        except Exception as error:
            return f"seed {seed}", f"could not be made: {type(error).__name__}: {error}"
        return self.made(call)

    def made(self, call: Call) -> tuple[str, str]:
        """As :meth:`check`, of a call that is there."""
        signal.signal(signal.SIGALRM, _too_long)
        signal.alarm(SECONDS)
        text = str(call)
        try:
            words = call.run()
        finally:
            signal.alarm(0)
        self.trace = call.trace
        return text, call.aftermath() or words


def _too_long(*_: Any) -> None:
    raise Hang


def limit_memory() -> None:
    """Limit this process to some memory beyond its present size."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    now = pages * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + MEMORY, now + MEMORY))


def work(first: int, step: int, last: int, told: bool = False) -> int:
    """A worker: seeds first, first + step, ... below last; one line of JSON for each, or ``told`` in words."""
    logger.setLevel("CRITICAL")
    warnings.simplefilter("ignore")
    reports = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what is printed in between is no report
    with tempfile.TemporaryDirectory(prefix="neonlike-arguments-") as folder:  # for what is saved
        os.chdir(folder)
        caller = Caller()
        limit_memory()
        for seed in range(first, last, step):
            print("" if told else json.dumps({"begin": seed}), file=reports, flush=True)
            text, words = caller.check(seed)
            report = {"call": text} if words in RIGHT else {"failure": f"{text}\n    {words}"}
            found = f"{text}\n    {words}\n{caller.trace}" if told else json.dumps({**report, "words": words})
            print(found, file=reports, flush=True)
        os.chdir("/")
        cleanup_backend()
    return int(told and words not in RIGHT)


def fuzz(count: int, first: int, workers: int, variables: dict[str, str]) -> int:
    """Make ``count`` calls in processes with these environment ``variables``; the exit status.

    On the NumPy engine, which compiles nothing, but for the last twentieth, or on the GPU with ``--gpu``.
    """
    seen: Counter[str] = Counter()
    failures: list[str] = []

    def hear(seed: int, report: dict[str, Any]) -> bool:
        if "failure" in report:
            failures.append(f"argument {seed}: {report['failure']}\n  again: python tests/fuzz --argument {seed}")
            print(failures[-1], flush=True)
        elif "words" in report:
            seen[report["words"]] += 1
        return len(failures) < MOST_FAILURES

    compiled = count if "NEONLIKE_TEST_BACKEND" in variables else count // 20
    plain = {**variables, "NEONLIKE_CPU_JIT": "0"}
    spread("--work-arguments", range(first, first + count - compiled), workers, plain, hear)
    spread("--work-arguments", range(first + count - compiled, first + count), workers, variables, hear)
    print(f"calls with wrong arguments: {seen['refused']} refused, {seen['ok']} taken; {len(failures)} failures")
    return int(bool(failures))
