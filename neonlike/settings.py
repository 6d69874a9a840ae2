"""All environment variables of the library: name, allowed values, default, effect. No other module reads them.

An invalid value of one of our variables is an error, raised when a backend is created (:func:`check`); an invalid value
of a foreign variable (``OMP_NUM_THREADS``) is ignored with a warning. An empty value counts as unset. A read takes a
microsecond, so frequent readers keep the value, see ``kernels/run/threads.py``.

``python -m neonlike doctor`` prints the table with its values, ``make docs`` writes docs/environment.md from it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from neonlike.errors import ArgumentError, did_you_mean
from neonlike.logger import logger

T = TypeVar("T")

PREFIX = "NEONLIKE_"
MOST_THREADS = 4096
REPORT_SUFFIXES = (".txt", ".json", ".csv", ".html")
"""Suffixes of report files of bench mode."""


@dataclass(frozen=True)
class Setting(Generic[T]):
    """One environment variable.

    Attributes
    ----------
    name : str
    allowed : str
        Description of the valid values.
    default : str
        Description of the behaviour without a value.
    effect : str
        Effect of the variable.
    parse : callable
        Converts a text to a value; raises ValueError for an invalid text.
    unset : object
        The value if the variable is not set.
    """

    name: str
    allowed: str
    default: str
    effect: str
    parse: Callable[[str], T]
    unset: T

    @property
    def ours(self) -> bool:
        """Whether the variable is read by this library alone."""
        return self.name.startswith(PREFIX)

    @property
    def text(self) -> str:
        """The text of the variable; empty if it is not set."""
        return os.environ.get(self.name, "").strip()

    def get(self) -> T:
        """Return the value.

        Raises
        ------
        ArgumentError
            If it is invalid; an invalid foreign variable is ignored instead.
        """
        text = self.text
        if not text:
            return self.unset
        if fault := self.fault():
            if self.ours:
                raise ArgumentError(fault)
            return self.unset
        return self.parse(text)

    def fault(self) -> str:
        """Describe the fault of the value; empty if it is valid."""
        text = self.text
        try:
            if text:
                self.parse(text)
        except ValueError:
            return f"{self.name}={text}: expected {self.allowed}; correct it or unset it"
        return ""

    def put(self, value: str) -> None:
        """Set the variable for libraries loaded later and for child processes."""
        os.environ[self.name] = value


def _flag(text: str) -> bool:
    return {"0": False, "1": True}[text] if text in ("0", "1") else _refuse()


def _threads(text: str) -> int:
    count = int(text)
    return count if 1 <= count <= MOST_THREADS else _refuse()


def _first_threads(text: str) -> int:
    """Parse the first number: OpenMP allows one per level of nesting."""
    count = int(text.partition(",")[0])
    return min(count, MOST_THREADS) if count > 0 else _refuse()


def _megabytes(text: str) -> float:
    size = float(text)
    return size if 0 <= size < float("inf") else _refuse()


def _report(text: str) -> str:
    return text if text in ("0", "1") or Path(text).suffix.lower() in REPORT_SUFFIXES else _refuse()


def _one_of(*choices: str) -> Callable[[str], str]:
    return lambda text: text if text in choices else _refuse()


def _refuse() -> T:  # type: ignore[type-var]
    raise ValueError


_FLAG = "0 or 1"
PRECISIONS = ("float32", "tf32", "bfloat16")
CONV_METHODS = ("auto", "columns", "implicit", "winograd")
RECURRENT_METHODS = ("steps", "persistent")

CC: Setting[str] = Setting(
    "CC", "a path, or a command with arguments", "cc, gcc, clang, then `python -m ziglang cc`",
    "the C compiler to use", str, "",
)  # fmt: skip
CPU_JIT = Setting(
    "NEONLIKE_CPU_JIT", _FLAG, "1", "0: no C compiler; the CPU's expressions run in NumPy, block by block", _flag, True
)
OPTIMIZE = Setting(
    "NEONLIKE_OPTIMIZE", "1, 2 or 3", "3",
    "optimization level of kernels, as the C compiler's `-O`: with 1 they compile in half the time and may be slower",
    _one_of("1", "2", "3"), "3",
)  # fmt: skip
CONTRACT = Setting(
    "NEONLIKE_CONTRACT", _FLAG, "0",
    "1: kernels of expressions may round `a*b + c` once, by a fused multiply-add; 0: each operation, as NumPy does",
    _flag, False,
)  # fmt: skip
AMX = Setting(
    "NEONLIKE_AMX", _FLAG, "1, if a small product by them is right",
    "0: no products by Intel's tiles (`tdpbf16ps`, `tdpbsud`) but by `vdpbf16ps`, `vpdpbusd`; see docs/precision.md",
    _flag, True,
)  # fmt: skip
FASTPATH = Setting(
    "NEONLIKE_FASTPATH", _FLAG, "1",
    "0: assignments and calls of primitives always run through Python, not through the faster extension", _flag, True,
)  # fmt: skip
NUM_THREADS: Setting[int | None] = Setting(
    "NEONLIKE_NUM_THREADS", f"a whole number from 1 to {MOST_THREADS}", "`OMP_NUM_THREADS`, else all cores",
    "threads of a kernel; `be.num_threads` takes precedence", _threads, None,
)  # fmt: skip
OMP_NUM_THREADS: Setting[int | None] = Setting(
    "OMP_NUM_THREADS", "a whole number from 1", "`NEONLIKE_NUM_THREADS`, else all cores",
    "threads of a kernel, and of other programs", _first_threads, None,
)  # fmt: skip
CACHE_DIR: Setting[str] = Setting(
    "NEONLIKE_CACHE_DIR", "a folder", "`neonlike` in the user's cache folder",
    "folder of the compiled kernels", str, "",
)  # fmt: skip
CACHE_MB = Setting(
    "NEONLIKE_CACHE_MB", "a number of megabytes from 0", "512", "maximum size of that folder", _megabytes, 512.0
)
KEEP_SOURCE = Setting("NEONLIKE_KEEP_SOURCE", _FLAG, "0", "1: each kernel's source is kept beside it", _flag, False)
BENCH: Setting[str] = Setting(
    "NEONLIKE_BENCH", f"0, 1 or a file ending in {', '.join(REPORT_SUFFIXES)}", "0",
    "times every kernel and reports at the end, on the screen or to the file; see docs/bench.md", _report, "0",
)  # fmt: skip
NVCC: Setting[str] = Setting(
    "NEONLIKE_NVCC", "the path of an nvcc", "NVRTC, else nvcc of `CUDA_HOME`, `CUDA_PATH`, PATH or /usr/local/cuda",
    "the CUDA compiler to use", str, "",
)  # fmt: skip
CUBLAS: Setting[str] = Setting(
    "NEONLIKE_CUBLAS", "none, direct, or the path of a library", "scikit-cuda, else the library itself",
    "none: GPU products on neonlike's own kernels; direct: cuBLAS without scikit-cuda", str, "",
)  # fmt: skip
NCCL: Setting[str] = Setting(
    "NEONLIKE_NCCL", "none, or the path of a library", "the library that PyTorch, the system or a package has",
    "none: ranks exchange tensors of GPUs through the host; see docs/distributed.md", str, "",
)  # fmt: skip
PRODUCT_PRECISION = Setting(
    "NEONLIKE_PRODUCT_PRECISION", "float32, tf32 or bfloat16", "float32",
    "type to which factors of float32 products may be rounded; tf32 on a GPU alone; see docs/precision.md",
    _one_of(*PRECISIONS), "float32",
)  # fmt: skip
GPU_CONV = Setting(
    "NEONLIKE_GPU_CONV", "auto, columns, implicit or winograd", "auto",
    "method of convolution on the GPU: columns, one kernel, Winograd's tiles, or the expected fastest; see docs/gpu.md",
    _one_of(*CONV_METHODS), "auto",
)  # fmt: skip
GPU_RECURRENT = Setting(
    "NEONLIKE_GPU_RECURRENT", "steps or persistent", "steps",
    "forward method of recurrent layers on the GPU: step by step, or one kernel (not measured); see docs/gpu.md",
    _one_of(*RECURRENT_METHODS), "steps",
)  # fmt: skip
GPU_POOL = Setting(
    "NEONLIKE_GPU_POOL", _FLAG, "1", "0: each GPU tensor is an allocation of its own, for memory checkers", _flag, True
)
GPU_GRAPHS = Setting(
    "NEONLIKE_GPU_GRAPHS", _FLAG, "1",
    "0: recurrent unrolls queue their kernels one by one, not as one CUDA graph", _flag, True,
)  # fmt: skip
GPU_ATTENTION = Setting(
    "NEONLIKE_GPU_ATTENTION", _FLAG, "1",
    "0: the GPU computes attention by products and expressions, not by kernels of its own",
    _flag, True,
)  # fmt: skip
GPU_TICKETS = Setting(
    "NEONLIKE_GPU_TICKETS", _FLAG, "1",
    "0: another kernel merges the parts of long rows, not the last block", _flag, True,
)  # fmt: skip
GPU_PTX = Setting(
    "NEONLIKE_GPU_PTX", _FLAG, "0",
    "1: kernels are compiled to PTX, and by the driver to machine code; for a driver that loads no cubins", _flag,
    False,
)  # fmt: skip
GPU_PLAIN = Setting(
    "NEONLIKE_GPU_PLAIN", _FLAG, "0",
    "1: matrix kernels use plain loads, not `ldmatrix` and `cp.async`: slower, to narrow down a failure", _flag,
    False,
)  # fmt: skip
GPU_SELFTEST: Setting[bool | None] = Setting(
    "NEONLIKE_GPU_SELFTEST", _FLAG, "once for a GPU, driver and version",
    "1: a GPU is tested in every process before its first use; 0: never", _flag, None,
)  # fmt: skip
CUDA_HOME: Setting[str] = Setting("CUDA_HOME", "a folder", "none", "a CUDA toolkit", str, "")
CUDA_PATH: Setting[str] = Setting("CUDA_PATH", "a folder", "none", "a CUDA toolkit", str, "")
CUDA_VISIBLE_DEVICES: Setting[str] = Setting(
    "CUDA_VISIBLE_DEVICES", "see CUDA", "all", "the GPUs visible to CUDA's driver", str, ""
)
BACKEND = Setting(
    "NEONLIKE_BACKEND", "cpu or gpu", "gpu",
    "cpu: nervanagpu programs under `neonlike.compat` run on the CPU, with a stand-in for PyCUDA's events",
    _one_of("cpu", "gpu"), "gpu",
)  # fmt: skip
COMPAT_FORCE = Setting(
    "NEONLIKE_COMPAT_FORCE", _FLAG, "0", "1: `import neon` means neonlike, even if the real neon is installed",
    _flag, False,
)  # fmt: skip
MPI_OUTPUT = Setting(
    "NEONLIKE_MPI_OUTPUT", "first or all", "first",
    "all: every rank of a program started by mpiexec prints; first: rank 0 alone", _one_of("first", "all"), "first",
)  # fmt: skip
MPI_CHECK = Setting(
    "NEONLIKE_MPI_CHECK", _FLAG, "0",
    "1: ranks compare each call that they make together, and name a difference; to find a training that hangs",
    _flag, False,
)  # fmt: skip
NEON_CACHE_DIR: Setting[str] = Setting(
    "NEON_CACHE_DIR", "a folder", "`neonlike` in the user's cache folder", "result of `get_cache_dir`", str, ""
)
NEON_DATA_CACHE_DIR: Setting[str] = Setting(
    "NEON_DATA_CACHE_DIR", "a folder", "the script's `data_dir`", "folder of the data sets", str, ""
)
XDG_CACHE_HOME: Setting[str] = Setting("XDG_CACHE_HOME", "a folder", "~/.cache", "the user's cache folder", str, "")

SETTINGS: tuple[Setting[object], ...] = tuple(value for value in list(globals().values()) if isinstance(value, Setting))
"""The table, in the order of this file."""

OF_THE_SYSTEM = ("HOME", "PATH", "LOCALAPPDATA", "PROCESSOR_ARCHITECTURE", "PROCESSOR_IDENTIFIER")
"""Variables set by operating systems for every program; their values are not checked."""


def of_the_system(name: str) -> str:
    """The text of one of :data:`OF_THE_SYSTEM`; empty if it is not set."""
    assert name in OF_THE_SYSTEM, name
    return os.environ.get(name, "")


LAUNCHERS = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS")
"""Variables in which MPI launchers (MPICH, Open MPI, MVAPICH, srun) say how many processes they have started.

The first that is set counts: an mpiexec inside of an allocation of Slurm starts others than srun did.
"""
OF_A_RANK = ("PMI", "OMPI_", "MV2_COMM", "SLURM_STEP_NUM")
"""Beginnings of the variables by which a process finds the launcher: a child must not take itself for a rank."""


RANK_PROCESS = "_NEONLIKE_RANK_PROCESS"
"""Variable with the number of the process of a rank, set by it: its children inherit it."""
PMI_SOCKET = "PMI_FD"
"""Variable with the number of the socket by which MPICH's ranks talk to their launcher; children have it closed."""


def launched() -> int:
    """Processes that an MPI launcher has started this one with, itself included; 0: it was started otherwise."""
    found = [int(count) for name in LAUNCHERS if (count := os.environ.get(name, "")).isdigit()]
    return 0 if child_of_rank() or not found else found[0]


def child_of_rank() -> bool:
    """Whether this process was started by a rank, and not by the launcher whose variables it has."""
    socket = os.environ.get(PMI_SOCKET, "")
    closed = socket.isdigit() and not _is_socket(int(socket))
    return closed or os.environ.get(RANK_PROCESS, str(os.getpid())) != str(os.getpid())


def note_rank() -> None:
    """Tell the processes that this one starts that it is a rank, and they are none."""
    os.environ[RANK_PROCESS] = str(os.getpid())


def _is_socket(number: int) -> bool:
    try:
        return stat.S_ISSOCK(os.fstat(number).st_mode)
    except OSError:
        return False


def for_a_child(*without: Setting[str], **values: str) -> dict[str, str]:
    """The environment for a child process: this one's, without some variables and with others."""
    left_out = {setting.name for setting in without}
    kept = {name: value for name, value in os.environ.items() if name not in left_out}
    return {name: value for name, value in kept.items() if not name.startswith(OF_A_RANK)} | values


_told: set[str] = set()


def check() -> None:
    """Check all variables when a backend is created.

    Invalid foreign variables, and names that look like a misspelling of ours, are reported once in a warning.

    Raises
    ------
    ArgumentError
        If one of our variables is invalid; the message has its name, its value and the allowed values.
    """
    faults = [(setting, fault) for setting in SETTINGS if (fault := setting.fault())]
    if ours := [fault for setting, fault in faults if setting.ours]:
        raise ArgumentError("\n".join(ours))
    for _, fault in faults:
        _tell_once(f"{fault}. It is ignored")
    for name, suggestion in misspelt().items():
        _tell_once(f"the environment variable {name} is not known{suggestion}")


def misspelt() -> dict[str, str]:
    """Map set variables with names close to ours to ``"; did you mean ...?"``."""
    known = {setting.name.removeprefix(PREFIX): setting.name for setting in SETTINGS if setting.ours}
    found = {}
    for name in os.environ:
        short = name.removeprefix(PREFIX)
        if short != name and short not in known and (suggestion := did_you_mean(short, known, 0.75)):
            found[name] = suggestion.replace("mean ", f"mean {PREFIX}").replace(" or ", f" or {PREFIX}")
    return found


def _tell_once(text: str) -> None:
    if text not in _told:
        _told.add(text)
        logger.warning("%s", text)


# Documentation

ABOUT = """\
# Environment variables

Written by `make docs` from `neonlike/settings.py`; `python -m neonlike doctor` shows the values on your machine.

They are read when a backend is made; an empty value counts as unset. An invalid value of a variable that begins with
`NEONLIKE_` raises an `ArgumentError` with the variable, its value and the allowed values. An invalid value of another
program's variable is ignored with a warning, and so is a name that looks like a misspelling of one of these.

| variable | values | if unset | effect |
|---|---|---|---|
"""


def page() -> str:
    """The text of docs/environment.md."""
    rows = (f"| `{s.name}` | {s.allowed} | {s.default} | {s.effect} |\n" for s in SETTINGS)
    return ABOUT + "".join(rows)
