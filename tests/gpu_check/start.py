"""Goes the first steps on a GPU one by one, and prints a line of JSON about each: driver, context, compiler, kernel.

It ends with the first step that fails, with status 1. With ``--copies`` it measures how fast memory is copied instead.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

Stage = tuple[str, Callable[[dict[str, Any]], object]]


def import_pycuda(found: dict[str, Any]) -> object:
    """Load PyCUDA, which loads the driver."""
    import pycuda
    import pycuda.driver as driver

    driver.init()
    found["driver"] = driver
    return f"PyCUDA {pycuda.VERSION_TEXT}, driver for CUDA {driver.get_driver_version() / 1000:.1f}"


def see_device(found: dict[str, Any]) -> object:
    """Ask the first device who it is."""
    device = found["driver"].Device(0)
    capability = ".".join(map(str, device.compute_capability()))
    return f"{device.name()}, compute capability {capability}, {device.total_memory() >> 20} MiB"


def find_compiler(found: dict[str, Any]) -> object:
    """Look for NVRTC or nvcc."""
    from neonlike.kernels.cuda.compile import expect_driver, find_cuda_compiler

    expect_driver(found["driver"].get_driver_version())
    compiler = find_cuda_compiler()
    if compiler is None:
        raise RuntimeError("there is no CUDA compiler that the driver can follow")
    return compiler.identity


def make_backend(found: dict[str, Any]) -> object:
    """Open the context, the streams and the memory."""
    from neonlike.backends import gen_backend

    found["be"] = gen_backend("gpu", rng_seed=0)
    return found["be"].device.name


def run_kernel(found: dict[str, Any]) -> object:
    """Compile, load and launch a kernel, and read its result."""
    import numpy as np

    be, host = found["be"], np.linspace(-3, 3, 129 * 67, dtype=np.float32).reshape(67, 129)
    x, out = be.array(host), be.empty((67, 129))
    out[:] = x * 2 + 1
    off = float(np.abs(out.get() - (host * 2 + 1)).max())
    if off:
        raise RuntimeError(f"x*2 + 1 is off by {off}")
    return "x*2 + 1 is right"


def reduce_rows(found: dict[str, Any]) -> object:
    """The same for a reduction, which has blocks wait for one another."""
    import numpy as np

    be, host = found["be"], np.ones((3, 100003), np.float32)
    out = be.empty((3, 1))
    out[:] = be.sum(be.array(host), axis=1)
    if not (out.get() == 100003).all():
        raise RuntimeError(f"sums of 100003 ones are {out.get().ravel()}")
    return "sums are right"


def multiply(found: dict[str, Any]) -> object:
    """A product of matrices, by cuBLAS if there is one."""
    import numpy as np

    be = found["be"]
    a, out = be.array(np.eye(64, dtype=np.float32) * 3), be.empty((64, 64))
    be.compound_dot(a, a, out)
    if not (out.get() == np.eye(64) * 9).all():
        raise RuntimeError("3 I times 3 I is not 9 I")
    return "a product is right"


STAGES: tuple[Stage, ...] = (
    ("PyCUDA", import_pycuda),
    ("device", see_device),
    ("compiler", find_compiler),
    ("backend", make_backend),
    ("first kernel", run_kernel),
    ("first reduction", reduce_rows),
    ("first product", multiply),
)


def copies(found: dict[str, Any]) -> Iterator[tuple[str, float]]:
    """Gigabytes a second that are read and written: within the GPU, to it and from it, by blocks of 256 MiB."""
    import numpy as np

    driver, be = found["driver"], found["be"]
    nbytes = 4 << 20 if "cuemu" in be.device.name else 256 << 20
    be.device.attend()
    a, b = driver.mem_alloc(nbytes), driver.mem_alloc(nbytes)
    host = np.ones(nbytes, np.uint8)
    pinned = driver.pagelocked_empty(nbytes, np.uint8)
    ways: dict[str, tuple[Callable[[], object], int]] = {
        "within the GPU": (lambda: driver.memcpy_dtod(b, a, nbytes), 2),
        "to the GPU": (lambda: driver.memcpy_htod(a, host), 1),
        "to the GPU, pinned": (lambda: driver.memcpy_htod(a, pinned), 1),
        "from the GPU, pinned": (lambda: driver.memcpy_dtoh(pinned, a), 1),
    }
    for name, (copy, times) in ways.items():
        start, end = driver.Event(), driver.Event()
        rates = []
        for _ in range(6):
            start.record()
            copy()
            end.record()
            end.synchronize()
            rates.append(times * nbytes / max(start.time_till(end), 1e-6) / 1e6)
        yield name, sorted(rates[1:])[2]


def say(**fact: Any) -> None:
    """Print a line."""
    print(json.dumps(fact), flush=True)


def main() -> int:
    """Run the stages."""
    found: dict[str, Any] = {}
    measures = "--copies" in sys.argv[1:]
    for name, stage in STAGES[:4] if measures else STAGES:
        start = time.monotonic()
        try:
            text = stage(found)
        except BaseException as error:
            say(stage=name, state="failed", text=f"{type(error).__name__}: {error}"[:2000])
            return 1
        if not measures:
            say(stage=name, state="right", text=str(text), seconds=round(time.monotonic() - start, 2))
    if measures:
        for name, rate in copies(found):
            say(figure=f"copy {name}", value=round(rate, 1), unit="GB/s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
