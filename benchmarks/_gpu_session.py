"""A run of ``gpu.py``: the facts of the GPU, copies within its memory as the roofline, tables, targets."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import _machine
import _report
import _verdicts
from _cases import Case, Contender, Effort, Result
from _gpu_contenders import Set, contender
from _gpu_libraries import Library, Neonlike
from _gpu_targets import primitive_verdicts
from _report import COLUMNS, Form
from _terms import COPY, MEMORY_COPY, met, size_text, time_text
from harness import Session, measure, run_case

RESULTS = Path(__file__).resolve().parent / "RESULTS-gpu.md"
HEAD = """# Results on a GPU

Written by `python benchmarks/gpu.py --results` on the machine it names, never by hand and never on an emulated GPU.
How it is measured is told in [README.md](README.md).
"""
MEMORY_BYTES = 1 << 30
"""Read and written by the copy that is called the roofline, half each."""
EMULATED_BYTES = 1 << 22
COPY_SHARE = 8
"""Each of its two arrays takes at most the free memory divided by this."""
QUICK = Effort(sample=1e-3, pause=0.0, min_rounds=5, max_rounds=9, budget=0.25)
FULL = Effort(sample=2e-3, pause=0.0, min_rounds=7, max_rounds=31, budget=1.5)
FACTS = ("date", "processor", "cores", "system", "python", "neonlike", "numpy")
"""Facts of the host that are shown."""

BANDWIDTH_TARGET, BANDWIDTH_FROM = 0.9, 1 << 24
ASSIGN_TARGET, PREPARED_TARGET = 6e-6, 2e-6
"""Seconds of Python for one call."""
PRODUCT_TARGET = 0.97
"""Least share of the best rate that other callers of the same library reach."""
PEER, PEER_TARGET = "torch.compile", 1.0


def is_emulated(be: Any) -> bool:
    """Whether the GPU is emulated on the host's processor, so that its times say nothing."""
    return "cuemu" in be.device.name


class GpuForm(Form):
    """Results beside PyTorch's; shares are those of copies within the GPU's memory."""

    baseline = "torch"

    def heading(self, size: int) -> str:
        """Heading of the cases of one size."""
        return f"{size_text(size)} float32 elements ({size:,})\n{COLUMNS.replace('vs numpy', 'vs torch')}"


class GpuSession(Session):
    """Runs cases on the GPU of ``be``.

    Parameters
    ----------
    options : namespace of ``harness.arguments``
    be : NervanaGPU
    peers : dict of Library, by name
    """

    form = GpuForm()

    def __init__(self, options: argparse.Namespace, be: Any, peers: dict[str, Library]) -> None:
        self.be, self.peers, self.ours = be, peers, Neonlike(be)
        self.cache = l2_bytes(be)
        self._memory_copy: tuple[Contender, int] | None = None
        super().__init__("gpu", options, effort=QUICK if options.quick else FULL)
        if is_emulated(be):
            self.say("\nThis GPU is emulated: the times say nothing about a real one.")

    def describe(self) -> dict[str, str]:
        """The GPU, its driver, the host, the libraries."""
        import pycuda
        import pycuda.driver as driver

        be, host = self.be, _machine.describe()
        version, (major, minor) = driver.get_driver_version(), be.compute_capability
        built = ".".join(map(str, driver.get_version()))
        facts = {
            "GPU": f"{be.device.name}, {be.sm_count} multiprocessors, capability {major}.{minor}",
            "GPU memory": f"{be.gpu_memory_size / 2**30:.1f} GiB, L2 cache {self.cache / 2**20:.0f} MiB",
            "driver": f"for CUDA up to {version // 1000}.{version % 1000 // 10}{_kernel_module()}",
            "pycuda": f"{pycuda.VERSION_TEXT}, built for CUDA {built}",
        }
        versions = {name: library.version for name, library in self.peers.items()}
        return {"date": host["date"]} | facts | {name: host[name] for name in FACTS[1:]} | versions

    # Copies within the GPU's memory

    def roofline(self) -> dict[str, float]:
        """Bandwidth of a copy that the L2 cache does not hold, in GB/s."""
        large, nbytes = self._large_copy()
        _, samples = measure([large], self.effort)[large.name]
        return {f"copy of {nbytes >> 20} MiB within the GPU": nbytes / statistics.median(samples) / 1e9}

    def _large_copy(self) -> tuple[Contender, int]:
        if self._memory_copy is None:
            import pycuda.driver as driver

            most = EMULATED_BYTES if is_emulated(self.be) else MEMORY_BYTES
            nbytes = min(most, 2 * driver.mem_get_info()[0] // COPY_SHARE) // 512 * 512
            self._memory_copy = self._copy(MEMORY_COPY, nbytes, 1), nbytes
        return self._memory_copy

    def copies(self, nbytes: int) -> dict[str, tuple[Contender, int]]:  # type: ignore[override]
        """What runs beside a case that moves ``nbytes``: a copy of the same bytes, and a large one."""
        from _gpu_contenders import sets_for

        same = self._copy(COPY, nbytes, sets_for(nbytes, self.cache))
        return {COPY: (same, nbytes), MEMORY_COPY: self._large_copy()}

    def _copy(self, name: str, nbytes: int, count: int) -> Contender:
        """The driver's copy of half of ``nbytes``, by turns of ``count`` pairs of arrays with random numbers."""
        import pycuda.driver as driver

        half = max(nbytes // 8, 1)
        sets = []
        for _ in range(count):
            source, target = (self.be.empty((half, 1)) for _ in range(2))
            source[:] = self.be.rand()

            def run(source: Any = source, target: Any = target) -> None:
                driver.memcpy_dtod_async(target.ptr, source.ptr, 4 * half, self.be.stream)

            sets.append(Set(run, lambda target=target: [target], lambda: None))
        return contender(self.ours, name, sets)

    # Cases with tables of their own

    def run_beside(self, case: Case, heading: str, beside_copies: bool = False) -> list[Result]:
        """Check, measure and show a case of a table of its own; ``beside_copies``: with shares of a copy's rate."""
        copies = self.copies if beside_copies and not case.flops else lambda nbytes: {}
        results = run_case(case, self.effort, baseline=self.form.baseline, copies=copies)
        self.beside += results
        if heading not in self.tables:
            self.say(f"\n{heading}")
            self.tables[heading] = []
        self.say("\n".join(beside_lines(results)))
        return results

    def finish(self, verdicts: Sequence[str] = ()) -> int:
        """As for all sessions; ``--results`` is refused on an emulated GPU."""
        for heading in self.tables:
            self.tables[heading] = self.tables[heading] or beside_table([r for r in self.beside if title(r) == heading])
        return super().finish(verdicts)

    def write_results(self) -> None:
        """Replace RESULTS-gpu.md, unless the GPU is emulated."""
        if is_emulated(self.be):
            self.say(f"This GPU is emulated: {RESULTS.name} is not written.")
            return
        RESULTS.write_text(f"{HEAD}\n{_report.section(self, self.form)}".rstrip("\n") + "\n", encoding="utf-8")


def l2_bytes(be: Any) -> int:
    """Bytes of the L2 cache."""
    import pycuda.driver as driver

    return int(be.device.device.get_attribute(driver.device_attribute.L2_CACHE_SIZE))


def _kernel_module() -> str:
    """Version of the driver's module, where the system tells it."""
    path = Path("/sys/module/nvidia/version")
    return f", {path.read_text().strip()}" if path.exists() else ""


PRODUCTS, TRANSFERS, DISPATCH = "Matrix products", "Copies between host and GPU", "Microseconds of Python a call"
CONVOLUTIONS, IMAGES = "Convolutions", "Pooling and local response normalisation"
LAYERS, ATTENTION = "Batch normalization, lookup tables, recurrent layers", "Attention"


def title(result: Result) -> str:
    """The table that a result belongs to."""
    if result.text.startswith("convolution"):
        return CONVOLUTIONS
    if result.text.startswith("images"):
        return IMAGES
    if result.text.startswith("attention"):
        return ATTENTION
    if result.text.startswith("layer"):
        return LAYERS
    return PRODUCTS if result.gflop_per_s is not None or "product" in result.text else TRANSFERS


def _rate(result: Result) -> str:
    if result.median is None:
        return result.note or "-"
    rate = f"{result.gflop_per_s / 1e3:.2f} TFLOP/s" if result.gflop_per_s else f"{result.gb_per_s or 0:.2f} GB/s"
    share = f", {result.of_memory_copy:.0%} of a copy's" if result.of_memory_copy is not None else ""
    return f"{time_text(result.median)}; {rate}{share}"


def beside_lines(results: Sequence[Result]) -> list[str]:
    """A case as lines."""
    shown = [r for r in results if not _report.is_absent(r)]
    name = f"{results[0].text}, {size_text(results[0].size)}"
    return [name, *(f"  {r.contender:<20}{_rate(r)}{f'; error {r.error:.0e}' if r.error else ''}" for r in shown)]


def beside_table(results: Sequence[Result]) -> list[str]:
    """Cases as Markdown, a column for each contender."""
    names = list(dict.fromkeys(r.contender for r in results if r.median is not None))
    lines = ["| | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for text, size in dict.fromkeys((r.text, r.size) for r in results):
        row = {r.contender: _rate(r) for r in results if (r.text, r.size) == (text, size)}
        lines.append(f"| {text}, {size_text(size)} | " + " | ".join(row.get(name, "-") for name in names) + " |")
    return lines


# Targets --------------------------------------------------------------------------------------------------------


def verdicts(session: GpuSession, dispatch: dict[str, dict[str, float]]) -> list[str]:
    """Which of the targets this run met. ``dispatch``: expression -> contender -> seconds of Python for one call."""
    sizes = sorted({r.size for r in session.results if r.size >= BANDWIDTH_FROM})
    lines = [line for size in sizes for line in (*_bandwidth(session, size), *_peer(session, size))]
    primitives = primitive_verdicts(session.beside, session.be.compute_capability[0])
    return [*lines, *_dispatch(dispatch), *_products(session), *primitives]


def _bandwidth(session: GpuSession, size: int) -> list[str]:
    shares = {
        r.case: r.of_memory_copy
        for r in session.results
        if r.size == size and r.contender == _verdicts.ASSIGN and r.of_memory_copy is not None
    }
    if not shares:
        return []
    under = [f"{case} {share:.0%}" for case, share in shares.items() if share < BANDWIDTH_TARGET]
    lowest = min(shares, key=lambda case: shares[case])
    shown = ", ".join(under) or f"lowest {lowest} {shares[lowest]:.0%}"
    return [
        f"{size_text(size)}, share of the bandwidth of a copy within the GPU: {shown} "
        f"(target >= {BANDWIDTH_TARGET:.0%}): {met(not under)}"
    ]


def _peer(session: GpuSession, size: int) -> list[str]:
    lines = []
    for peer, by_case in _verdicts.speedups(session, size, _verdicts.ASSIGN).items():
        mean = statistics.geometric_mean(by_case.values())
        line = f"{size_text(size)}, geometric mean over {len(by_case)}: {peer} takes {mean:.2f} times as long"
        if peer == PEER:
            slower = [f"{case} {1 / value:.2f}" for case, value in by_case.items() if value < 1]
            line += f"; slower than it: {', '.join(slower) or 'none'} (target: mean >= {PEER_TARGET:g}): "
            line += met(mean >= PEER_TARGET)
        lines.append(line)
    return lines


def _dispatch(dispatch: dict[str, dict[str, float]]) -> list[str]:
    lines = []
    for name, target in ((_verdicts.ASSIGN, ASSIGN_TARGET), (_verdicts.PREPARED, PREPARED_TARGET)):
        times = {case: by_name[name] for case, by_name in dispatch.items() if name in by_name}
        if times:
            worst = max(times, key=lambda case: times[case])
            lines.append(
                f"Python for one call, {name.split()[1]}: at most {times[worst] * 1e6:.2f} us ({worst}; target "
                f"< {target * 1e6:g}): {met(times[worst] < target)}"
            )
    return lines


def _products(session: GpuSession) -> list[str]:
    lines = []
    for text, size in dict.fromkeys((r.text, r.size) for r in session.beside if r.gflop_per_s and title(r) == PRODUCTS):
        found = [r for r in session.beside if (r.text, r.size) == (text, size)]
        here = {r.contender: r.gflop_per_s for r in found if r.gflop_per_s}
        ours, others = here.get(_verdicts.PREPARED), [rate for name, rate in here.items() if "neonlike" not in name]
        if ours and others:
            share = ours / max(others)
            lines.append(
                f"{text}: {share:.0%} of the library's best rate (target >= {PRODUCT_TARGET:.0%}): "
                f"{met(share >= PRODUCT_TARGET)}"
            )
    return lines
