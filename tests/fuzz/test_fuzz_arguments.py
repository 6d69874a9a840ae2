"""Calls with wrong arguments: a short run, that right ones succeed, and that each kind of fault is seen."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from neonlike.backends import cleanup_backend
from neonlike.errors import ArgumentError, DTypeError
from neonlike.nervanaobject import NervanaObject
from tests.fuzz import arguments
from tests.fuzz.arguments import Call, Caller, is_binding
from tests.fuzz.junk import World, described, every_kind
from tests.fuzz.recipes import RECIPES
from tests.fuzz.subjects import Subject
from tests.fuzz.workers import MAIN
from tests.support.engines import BACKEND, new_backend, ready

pytestmark = pytest.mark.backend


@pytest.fixture(scope="module")
def caller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Caller]:
    ready()
    before = os.getcwd()
    os.chdir(tmp_path_factory.mktemp("calls"))  # for what is saved
    made = Caller()
    yield made
    cleanup_backend()
    os.chdir(before)


def call_of(caller: Caller, function: Any, right: Any = None) -> Call:
    """A call of ``function``, with nothing spoiled."""
    made = Call(caller.world, [Subject("test", lambda w: function, right)], 0)
    made.kwargs = dict(right(caller.world)) if right else {}
    made.args = made.kwargs.pop("", [])
    return made


@pytest.mark.cpu_only("a command on the CPU")
def test_random_wrong_arguments() -> None:
    """In processes of their own, with little memory."""
    ready()
    command = [sys.executable, str(MAIN), "0", "--calls", "0", "--arguments", "300", "--workers", "1"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "; 0 failures" in done.stdout and ": 0 refused" not in done.stdout


def test_a_seed_is_always_the_same_call(caller: Caller) -> None:
    for seed in (3, 4, 5):
        first, second = (str(Call(caller.world, caller.subjects, seed)) for _ in range(2))
        assert first == second


@pytest.mark.parametrize("name", [name for name in RECIPES if name != "gen_backend"])
def test_recipes_are_right(caller: Caller, name: str) -> None:
    caller.world.refresh(1)
    call = call_of(caller, getattr(caller.world.be, name), RECIPES[name])
    assert caller.made(call)[1] == "ok", call.trace


def test_everything_public_is_called(caller: Caller) -> None:
    names = {subject.name for subject in caller.subjects}
    assert len(names) > 500
    assert {"be.fprop_conv", "be.zeros", "be.grad", "be.eval", "be.check_grad", "tensor.set", "Autodiff"} <= names
    assert {"expression.get", "model.fit", "neonlike.layers.Affine", "neonlike.optimizers.Adam"} <= names


def test_everything_wrong_can_be_shown(caller: Caller) -> None:
    shown = [described(value) for value in every_kind(caller.world)]
    assert len(shown) > 100 and all(shown)


def test_faults_are_seen(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    world: World = caller.world

    def raw() -> None:
        raise ValueError("of another library")

    def half_written() -> None:
        world.t[:1] = 77
        raise ArgumentError("refused after a part was written")

    def changed_backend() -> None:
        world.be.bsz = 5
        raise DTypeError("refused after an attribute was set")

    def mute() -> None:
        raise ArgumentError("no")

    def inner() -> None:
        len(1, 2)  # type: ignore[call-arg, arg-type]

    def endless() -> None:
        time.sleep(30)

    monkeypatch.setattr(arguments, "SECONDS", 1)
    for function, words in (
        (raw, "ValueError: of another library (test_fuzz_arguments"), (half_written, "failed and changed <"),
        (changed_backend, "failed and changed the backend"), (mute, "says only 'no'"),
        (inner, "TypeError: len() takes"), (endless, "took more than 1 seconds"),
    ):  # fmt: skip
        assert caller.made(call_of(caller, function))[1].startswith(words)


def test_python_itself_says_what_is_wrong_with_names_and_numbers_of_arguments(caller: Caller) -> None:
    def named(a: int) -> None:
        """Names one argument."""

    for function in (named, caller.world.be.zeros, NervanaObject.recursive_gen):
        call = call_of(caller, function, lambda w: {"no_such_argument": 1})
        assert caller.made(call)[1] == "refused", call.trace
    assert not is_binding(TypeError("unexpected keyword argument"))


def test_calls_that_end_a_backend(caller: Caller) -> None:
    """The next call has another one."""
    before = caller.world.be
    call = call_of(caller, before.cleanup_backend)
    assert caller.made(call)[1] == "ok"
    assert caller.world.be is not before and np.all(caller.world.be.ones((2, 2)).get() == 1)
    assert caller.world.backend == BACKEND and isinstance(new_backend(), type(before))
