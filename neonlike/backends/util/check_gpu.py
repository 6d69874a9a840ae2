"""GPU queries for scripts before they choose a backend, without requiring a GPU or PyCUDA."""

from __future__ import annotations

from neonlike.backends.gpu import load
from neonlike.errors import ArgumentError, BackendUnavailable
from neonlike.logger import logger


def get_device_count(verbose: bool = False) -> int:
    """Number of usable GPUs; 0 without PyCUDA or a driver, with the reason logged if ``verbose``."""
    try:
        load()
        from neonlike.backends.gpu.device.device import device_count

        count = device_count()
    except BackendUnavailable as error:
        if verbose:
            logger.warning("%s", error)
        return 0
    if verbose:
        logger.display("%d GPU%s", count, "" if count == 1 else "s")  # type: ignore[attr-defined]
    return count


def get_compute_capability(device_id: int | None = None, verbose: bool = False) -> float:
    """Compute capability of a GPU as a number, such as 9.0; for None of the best one; 0.0 without any.

    Raises
    ------
    ArgumentError
        If there are GPUs, but none with that number.
    """
    count = get_device_count(verbose)
    if not count:
        return 0.0
    if device_id is not None and device_id not in range(count):
        raise ArgumentError(f"get_compute_capability: there is no GPU {device_id!r}; there are {count}, from 0 on")
    from neonlike.backends.gpu.device.device import compute_capability

    found = max(compute_capability(number) for number in (range(count) if device_id is None else (device_id,)))
    return float(f"{found[0]}.{found[1]}")


def ensure_gpu_capability(device_id: int) -> None:
    """Check that ``gen_backend("gpu", device_id=device_id)`` finds the GPU.

    Raises
    ------
    BackendUnavailable
        If there is no GPU, no driver or no PyCUDA.
    ArgumentError
        If there are GPUs, but none with that number.
    """
    if not get_compute_capability(device_id):
        load()
        from neonlike.backends.gpu.device.device import device_count

        device_count()  # raises an error with the reason
