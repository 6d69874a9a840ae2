"""Facts of a run for its report: machine, versions, command, seeds, optimizer."""

from __future__ import annotations

import os
import platform
import sys
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from neonlike import settings
from neonlike.optimizers.accumulation import GradientAccumulation
from neonlike.optimizers.loss_scaling import LossScaling
from neonlike.optimizers.multi import MultiOptimizer
from neonlike.util.display_information import processor, versions

if TYPE_CHECKING:
    from neonlike.models.model import Model

PACKAGES = ("h5py", "matplotlib", "mpi4py", "pycuda")
"""Optional packages whose versions are told."""


def facts_of(model: Model, epochs: int) -> dict[str, dict[str, str]]:
    """Facts of a training that begins, by topic: names and values as texts."""
    be = model.be
    command = " ".join([os.path.basename(sys.executable), *sys.argv])
    rows: dict[str, list[tuple[str, Any]]] = {
        "training": [
            ("command", command),
            ("folder", _folder()),
            ("started", time.strftime("%Y-%m-%d %H:%M:%S %z")),
            ("epochs", epochs),
            ("samples", model.ndata),
            ("batch size", be.global_bsz),
            ("cost", _described(model.cost)),
            ("optimizer", _described(model.optimizer)),
        ],
        "seeds": [("rng_seed of the backend", be.rng_seed), ("NumPy's global state", _numpy_state())],
        "backend": [
            ("backend", be.backend_name),
            ("engine", be.executor.own_engine.name),
            ("default dtype", np.dtype(be.default_dtype).name),
            ("factors of products", getattr(be, "product_precision", "")),
            ("ranks", be.ranks.size),
        ],
        "machine": [("host", platform.node()), *processor()],
        "versions": [*versions(), *_packages()],
        "environment": [(one.name, one.text) for one in settings.SETTINGS if one.text],
    }
    return {topic: {name: str(value) for name, value in pairs} for topic, pairs in rows.items() if pairs}


def _folder() -> str:
    """The working folder; empty if it was deleted."""
    try:
        return os.getcwd()
    except OSError:
        return ""


def _described(thing: Any) -> str:
    """Class and plain arguments of a cost or an optimizer."""
    inner = getattr(thing, "optimizer", None) or getattr(thing, "costfunc", None)
    plain = (bool, int, float, str, tuple)
    values = {
        name: value
        for name, value in getattr(thing, "__dict__", {}).items()
        if not name.startswith("_") and isinstance(value, plain) and name not in ("name", "classnm")
    }
    arguments = ", ".join(f"{name}={value!r}" for name, value in sorted(values.items()))
    if getattr(thing, "schedule", None) is not None:
        arguments += f", schedule={_described(thing.schedule)}"
    own = f"{type(thing).__name__}({arguments})"
    return own if inner is None else f"{own} of {_described(inner)}"


def _numpy_state() -> str:
    """First numbers of NumPy's global random state, which scripts set by np.random.seed."""
    state: Any = np.random.get_state(legacy=False)
    inner = state["state"]
    if state["bit_generator"] != "MT19937":  # one that np.random.set_bit_generator was given
        return f"{state['bit_generator']} {inner}"
    return " ".join(str(word) for word in inner["key"][:3]) + f" ... at {inner['pos']}"


def _packages() -> list[tuple[str, str]]:
    import importlib.metadata

    found = []
    for package in PACKAGES:
        try:
            found.append((package, importlib.metadata.version(package)))
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def rates_of(optimizer: Any, epoch: int) -> dict[str, float]:
    """Learning rates of an optimizer in an epoch, by the names of its groups of parameters; empty if unknown."""
    if isinstance(optimizer, LossScaling | GradientAccumulation):
        return rates_of(optimizer.optimizer, epoch)
    if isinstance(optimizer, MultiOptimizer):
        every = {name: rates_of(one, epoch) for name, one in optimizer.optimizer_mapping.items()}
        return {name: rates["rate"] for name, rates in every.items() if "rate" in rates}
    rate, schedule = getattr(optimizer, "learning_rate", None), getattr(optimizer, "schedule", None)
    if rate is None:
        return {}
    try:
        return {"rate": float(rate if schedule is None else schedule.get_learning_rate(rate, epoch))}
    except (TypeError, ValueError, AttributeError):  # an optimizer of the user's own, with rates of another kind
        return {}
