"""Right arguments for functions on descriptors, and objects whose methods are called with wrong ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from neonlike.backends.descriptors import TensorDesc
from tests.fuzz.junk import World
from tests.fuzz.recipes import recipe

FILE = "mapped.bin"
"""In the folder that a fuzzing process works in."""


@recipe("tensor")
def _(w: World) -> dict[str, Any]:
    return {"desc": TensorDesc((2, 3), "f4", "NC"), "init": True, "name": None}


@recipe("transformer", "shuffler")
def _(w: World) -> dict[str, Any]:
    return {"src": w.t, "dst": w.pick(w.u, TensorDesc((4, 3), "f8", "NC"))}


@recipe("batcher")
def _(w: World) -> dict[str, Any]:
    return {"src": w.t, "dst": w.pick(w.u, TensorDesc((2, 3), "f8", "NC")), "mb_size": 2}


@recipe("mapped")
def _(w: World) -> dict[str, Any]:
    return {"path": FILE, "desc": TensorDesc((2, 3), "f4"), "mode": "w+", "offset": 4}


@recipe("workspace")
def _(w: World) -> dict[str, Any]:
    return {"nbytes": 64}


@recipe("blas")
def _(w: World) -> dict[str, Any]:
    return {"dtype": "f4"}


@recipe("batchnorm_op")
def _(w: World) -> dict[str, Any]:
    return {"mode": "spatial", "nan": "ignore"}


def _mapped(w: World) -> Any:
    return w.be.mapped(FILE, TensorDesc((3, 4)), "w+")


DESCRIBED: dict[str, Callable[[World], Any]] = {
    "descriptor": lambda w: TensorDesc((3, 4), "f4", "CN"),
    "transformer": lambda w: w.be.transformer(TensorDesc((3, 4)), w.u),
    "workspace": lambda w: w.be.workspace(64),
    "blas": lambda w: w.be.blas(),
    "mapped tensor": _mapped,
    "batchnorm op": lambda w: w.be.batchnorm_op("spatial").stage(w.t),
    "new batchnorm op": lambda w: w.be.batchnorm_op("per_activation", "ignore"),
}
"""Objects by what they are called in messages."""
CALLED: dict[str, Callable[[World], Any]] = {
    "a transformer": lambda w: w.be.transformer(w.t, w.u).__call__,
    "a batcher": lambda w: w.be.batcher(w.t, w.u, 3).__call__,
    "a shuffler": lambda w: w.be.shuffler(w.t, w.u).__call__,
    "TensorDesc": lambda w: TensorDesc,
}
"""Objects that are called themselves."""
