"""Facts about the machine of a measurement: processor, cores, load, and versions of everything that took part."""

from __future__ import annotations

import datetime
import importlib.metadata
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import time
from pathlib import Path

from _cases import NOT_INSTALLED

if importlib.util.find_spec("neonlike") is None:  # a checkout needs no installation
    sys.path.append(str(Path(__file__).resolve().parent.parent))

PEERS = ("numpy", "numexpr", "torch", "numba", "jax", "scipy")
"""Libraries measured beside ours where they are installed; scipy lends NumPy its error function."""


def cores() -> int:
    """Processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def free_memory() -> int | None:
    """Bytes that can be used without swapping; None where the system does not say."""
    table = Path("/proc/meminfo")
    if not table.exists():
        return None
    lines = dict(line.split(":", 1) for line in table.read_text().splitlines())
    return 1024 * int(lines["MemAvailable"].split()[0]) if "MemAvailable" in lines else None


def peer_versions() -> dict[str, str]:
    """Version of each peer, or ``NOT_INSTALLED``; nothing is imported."""
    return {
        name: importlib.metadata.version(name) if importlib.util.find_spec(name) else NOT_INSTALLED
        for name in PEERS
    }


def describe() -> dict[str, str]:
    """Facts of the machine and the software, in the order they are shown."""
    from neonlike.version import __version__

    facts = {
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "processor": _processor(),
        "bfloat16": _for_bfloat16(Path("/proc/cpuinfo")),
        "cores": str(cores()),
        "memory": _memory(),
        "system": f"{platform.system()} {platform.release()}",
        "load": _load(),
        "python": platform.python_version(),
        "compiler": _first_line(os.environ.get("CC") or "cc", "--version"),
        "neonlike": __version__ + _commit(),
    }
    return facts | peer_versions()


class Others:
    """Measures how much of the processors other programs take while a benchmark runs."""

    def __init__(self) -> None:
        self._start = time.perf_counter()
        self._before = self._busy()

    @staticmethod
    def _busy() -> float | None:
        """Seconds all processors have spent on anything but this process; None where the system does not say."""
        table = Path("/proc/stat")
        if not table.exists():
            return None
        user, nice, system, _idle, _wait, irq, softirq, steal = map(int, table.read_text().split()[1:9])
        ours = os.times()
        used = ours.user + ours.system + ours.children_user + ours.children_system
        return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK") - used

    def share(self) -> float | None:
        """Share of all processors since this was made, 0 to 1."""
        now, elapsed = self._busy(), time.perf_counter() - self._start
        if now is None or self._before is None or elapsed <= 0:
            return None
        return max(0.0, (now - self._before) / (elapsed * (os.cpu_count() or 1)))


def _load() -> str:
    return f"{os.getloadavg()[0]:.2f}" if hasattr(os, "getloadavg") else "unknown"


def _processor() -> str:
    """Model name; the kernel's table says more than ``platform`` where there is one."""
    table = Path("/proc/cpuinfo")
    if table.exists():
        for line in table.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.lower().startswith("model name"):
                return f"{line.split(':', 1)[1].strip()}, {_vectors(table)}".rstrip(", ")
    return platform.processor() or platform.machine()


def _flags(table: Path) -> list[str]:
    """Names that the kernel gives to abilities of the processor."""
    return table.read_text(encoding="utf-8", errors="replace").split("flags", 1)[-1].split("\n", 1)[0].split()


def _vectors(table: Path) -> str:
    """The widest vector instructions, which decide what a fused loop can reach."""
    flags = _flags(table)
    return next((shown for flag, shown in (("avx512f", "AVX-512"), ("avx2", "AVX2")) if flag in flags), "")


def _for_bfloat16(table: Path) -> str:
    """The instructions that multiply bfloat16, which decide what a product of them can reach."""
    flags = _flags(table) if table.exists() else []
    return ", ".join(flag for flag in ("avx512_bf16", "amx_bf16") if flag in flags) or "no instructions"


def _memory() -> str:
    if not hasattr(os, "sysconf") or "SC_PHYS_PAGES" not in os.sysconf_names:
        return "unknown"
    return f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / 2**30:.0f} GiB"


def _first_line(program: str, *arguments: str) -> str:
    """First line that a program prints, "none" if it is not there."""
    found = shutil.which(program)
    if found is None:
        return "none"
    said = subprocess.run([found, *arguments], capture_output=True, text=True, check=False).stdout
    return said.splitlines()[0] if said else "unknown"


def _commit() -> str:
    """`` (commit, changed)`` inside a checkout; elsewhere what NEONLIKE_COMMIT says, else nothing."""
    found = os.environ.get("NEONLIKE_COMMIT") or commit_of(Path(__file__).resolve().parent.parent)
    return f" ({found})" if found else ""


def commit_of(folder: Path) -> str:
    """``commit, changed`` of the checkout in ``folder``; nothing where that is not known."""
    git = ("git", "-C", str(folder))
    if shutil.which("git") is None:
        return ""
    said = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    if said.returncode:
        return ""
    changed = subprocess.run(
        [*git, "status", "--porcelain", "--", "neonlike"], capture_output=True, text=True, check=False
    ).stdout
    return f"{said.stdout.strip()}{', changed' if changed else ''}"
