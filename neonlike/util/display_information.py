"""Logs the hyperparameters, processor and platform of a run."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from neonlike.kernels.run.threads import thread_count
from neonlike.logger import logger
from neonlike.version import __version__

__all__ = ["display_cpu_information", "display_model_params", "display_platform_information"]

OF_A_RUN = ("epochs", "batch_size", "datatype", "rng_seed", "rounding", "backend")
"""Command-line options that change the computation."""


def display_model_params(neon_args: Any = None, neon_root_yaml: Mapping[str, Any] | None = None) -> None:
    """Show the hyperparameters of a run.

    Parameters
    ----------
    neon_args : Namespace, optional
        Parsed options.
    neon_root_yaml : dict, optional
        The content of a YAML model.

    Examples
    --------
    >>> display_model_params(neon_root_yaml={"cost": "CrossEntropyMulti"})
    """
    lines = [(name, getattr(neon_args, name)) for name in OF_A_RUN if hasattr(neon_args, name)]
    root = neon_root_yaml or {}
    lines += [(name, root[name]) for name in ("cost", "optimizer") if name in root]
    if isinstance(root.get("layers"), list):
        lines.append(("layers", len(root["layers"])))
    _show("Hyperparameters", lines)


def display_cpu_information() -> None:
    """Show the processor, its cores and the threads that kernels use.

    Examples
    --------
    >>> display_cpu_information()
    """
    _show("Processor", processor())


def display_platform_information() -> None:
    """Show the operating system and the versions of Python, NumPy and this library.

    Examples
    --------
    >>> display_platform_information()
    """
    _show("Platform", versions())


def processor() -> list[tuple[str, Any]]:
    """Names and values of the processor, its cores and the threads that kernels use."""
    info = _cpu_info()
    return [
        ("model", info.get("model name") or platform.processor() or platform.machine()),
        ("cores", os.cpu_count()),
        ("threads of kernels", thread_count()),
        ("vector instructions", " ".join(sorted({"avx", "avx2", "fma", "avx512f"} & set(info["flags"].split())))),
    ]


def versions() -> list[tuple[str, str]]:
    """Names and versions of the operating system, Python, NumPy and this library."""
    return [
        ("system", f"{platform.system()} {platform.release()} {platform.machine()}"),
        ("Python", f"{platform.python_implementation()} {platform.python_version()}"),
        ("NumPy", np.__version__),
        ("neonlike", __version__),
    ]


def _show(title: str, lines: Iterable[tuple[str, Any]]) -> None:
    logger.display("%s", title)
    for name, value in lines:
        logger.display("  %-20s %s", name, value)


def _cpu_info() -> dict[str, str]:
    """Information from Linux about the first core; empty texts elsewhere."""
    found = {"model name": "", "flags": ""}
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                name, _, value = line.partition(":")
                if name.strip() in found and not found[name.strip()]:
                    found[name.strip()] = value.strip()
    except OSError:
        pass
    return found
