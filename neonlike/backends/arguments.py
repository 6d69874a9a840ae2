"""Checks of a backend's arguments before any allocation or cleanup."""

from __future__ import annotations

import inspect
import numbers
from collections.abc import Iterable, Sequence
from typing import Any

from neonlike.checks import brief
from neonlike.errors import ArgumentError, DTypeError, UnknownArgument, did_you_mean

SEEDS = 2**32
FILLED = ("default_dtype", "num_devices")
"""Constructor parameters that ``gen_backend`` fills under other names."""


def check_values(
    operation: str,
    rng_seed: Any,
    stochastic_round: Any,
    device_id: Any,
    max_devices: Any,
    compat_mode: Any,
    batch_size: Any = 0,
) -> None:
    """Raise ArgumentError unless each number is None or an integer in its range, and the mode exists.

    Parameters
    ----------
    operation : str
        Method, for messages.
    rng_seed, stochastic_round, device_id, max_devices, compat_mode, batch_size
        As of ``gen_backend``.
    """
    if compat_mode is not None and not (isinstance(compat_mode, str) and compat_mode == "caffe"):
        raise ArgumentError(f"{operation}: compat_mode must be None or 'caffe', got {brief(compat_mode)}")
    flag = isinstance(stochastic_round, bool)
    wanted: tuple[tuple[str, Any, int, Any, str], ...] = (
        ("rng_seed", rng_seed, 0, SEEDS - 1, "a whole number in [0, 2**32), or None for one of the system's"),
        ("stochastic_round", None if flag else stochastic_round, 0, 52, "True, False or a number of mantissa bits"),
        ("device_id", device_id, 0, None, "the number of a GPU, counted from 0"),
        ("batch_size", batch_size, 0, None, "a whole number of samples"),
        ("max_devices", max_devices, 0, None, "a number of GPUs, or None for all"),
    )
    for name, value, least, most, meant in wanted:
        if value is None and name != "batch_size":
            continue
        whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
        if not whole or value < least or (most is not None and value > most):
            raise ArgumentError(f"{operation}: {name} must be {meant}, got {brief(value)}")


def check_pairs(operation: str, pairs: Any) -> None:
    """Raise DTypeError unless ``pairs`` is a list or tuple of pairs."""
    if not isinstance(pairs, (list, tuple)):
        raise DTypeError(f"{operation}: expected a list of pairs (target, value), got {type(pairs).__name__}")
    for position, pair in enumerate(pairs):
        if not isinstance(pair, (list, tuple)) or len(pair) != 2:
            count = f" of {len(pair)}" if isinstance(pair, (list, tuple)) else ""
            raise DTypeError(
                f"{operation}: expected pairs (target, value), got {type(pair).__name__}{count} at position {position}"
            )


def check_names(operation: str, options: Iterable[str], *functions: Any, without: Sequence[str] = ()) -> None:
    """Raise UnknownArgument for the first of ``options`` that is not an argument of any of ``functions``.

    Arguments in ``without`` do not count.

    Parameters
    ----------
    operation : str
        Method, for messages.
    options : iterable of str
        Names that were given.
    *functions : callables
    without : sequence of str
    """
    options = list(options)
    if not options:
        return
    known: dict[str, None] = {}  # in the order of the signatures
    for function in functions:
        for parameter in inspect.signature(function).parameters.values():
            if parameter.name not in ("self", *without) and parameter.kind is not parameter.VAR_KEYWORD:
                known.setdefault(parameter.name)
    for name in options:
        if name not in known:
            meant = did_you_mean(name, known)
            raise UnknownArgument(
                f"{operation}: there is no argument {name!r}{meant or '.'} The arguments are {', '.join(known)}"
            )
