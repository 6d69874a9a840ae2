"""A run of ``gpu.py``: the facts of the GPU, copies within its memory as the roofline, tables."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import _machine
import _report
from _cases import COPY, MEMORY_COPY, Case, Contender, Effort, Result, markdown, size_text, time_text
from _gpu_cases import SECTIONS, sets_for
from _libraries import Library, Neonlike, contender, writes
from _report import Form
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


def is_emulated(be: Any) -> bool:
    """Whether the GPU is emulated on the host's processor, so that its times say nothing."""
    return "cuemu" in be.device.name


PRODUCTS, TRANSFERS, DISPATCH = "Matrix products", "Copies between host and GPU", "Microseconds of Python a call"
HEADINGS = {section.word: section.heading for section in SECTIONS.values()}
"""First word of the text of a result -> the table that it belongs to."""


def title(result: Result) -> str:
    """The table that a result belongs to."""
    return HEADINGS.get(result.text.split()[0], PRODUCTS if "product" in result.text else TRANSFERS)


class GpuForm(Form):
    """Results beside PyTorch's; shares are those of copies within the GPU's memory."""

    baseline = "torch"

    def tables(self, results: Sequence[Result]) -> dict[str, list[str]]:
        """A row a case, a column a contender, for each heading."""
        made = {}
        for heading in dict.fromkeys(map(title, results)):
            here = [r for r in results if title(r) == heading]
            names = list(dict.fromkeys(r.contender for r in here if r.median is not None))
            rows = []
            for text, size in dict.fromkeys((r.text, r.size) for r in here):
                row = {r.contender: _rate(r) for r in here if (r.text, r.size) == (text, size)}
                rows.append([f"{text}, {size_text(size)}", *(row.get(name, "-") for name in names)])
            made[heading] = markdown(["", *names], rows)
        return made


class GpuSession(Session):
    """Runs cases on the GPU of ``be``.

    Parameters
    ----------
    options : namespace of ``harness.arguments``
    be : NervanaGPU
    peers : dict of Library, by name
    """

    form = GpuForm()
    heading = ""
    """Of the table whose cases are measured."""

    def __init__(self, options: argparse.Namespace, be: Any, peers: dict[str, Library]) -> None:
        self.be, self.peers, self.ours = be, peers, Neonlike(be, "cuda")
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

    def copies(self, nbytes: int) -> dict[str, tuple[Contender, int]]:
        """Copies that run beside a case that moves ``nbytes``: of the same bytes, and a large one."""
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

            sets.append(writes(run, target))
        return contender(self.ours, name, *sets)

    # Cases with tables of their own

    def run_beside(self, case: Case, heading: str, beside_copies: bool = False) -> list[Result]:
        """Check, measure and show a case of a table of its own; ``beside_copies``: with shares of a copy's rate."""
        copies = self.copies if beside_copies and not case.flops else lambda nbytes: {}
        results = run_case(case, self.effort, baseline=self.form.baseline, copies=copies)
        self.beside += results
        if heading != self.heading:
            self.say(f"\n{heading}")
        self.heading = heading
        self.say("\n".join(beside_lines(results)))
        return results

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


def _rate(result: Result) -> str:
    if result.median is None:
        return result.note or "-"
    rate = f"{result.gflop_per_s / 1e3:.2f} TFLOP/s" if result.gflop_per_s else f"{result.gb_per_s or 0:.2f} GB/s"
    share = f", {result.of_memory_copy:.0%} of a copy's" if result.of_memory_copy is not None else ""
    return f"{time_text(result.median)}; {rate}{share}"


def beside_lines(results: Sequence[Result]) -> list[str]:
    """A case as lines."""
    shown = [r for r in results if not r.absent]
    name = f"{results[0].text}, {size_text(results[0].size)}"
    return [name, *(f"  {r.contender:<20}{_rate(r)}{f'; error {r.error:.0e}' if r.error else ''}" for r in shown)]
