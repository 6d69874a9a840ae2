"""Philox4x32-10, the counter-based generator behind ``rand``: the same numbers on every backend and thread count.

J. K. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011. Element ``e`` of call ``c`` under
seed ``s`` uses key ``s`` and counter ``(e // 4, c)`` and takes word ``e % 4``; float64 draws take two words.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

_M0, _M1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_W0, _W1 = 0x9E3779B9, 0xBB67AE85
_LOW, _SHIFT = np.uint64(0xFFFFFFFF), np.uint64(32)


def philox4x32(counter: npt.NDArray[np.int64], call: int, seed: int) -> npt.NDArray[np.uint64]:
    """Four 32-bit words for each counter value.

    Parameters
    ----------
    counter : int64 array (n,)
    call, seed : int
        Upper half of the counter and the key, 64 bits each.

    Returns
    -------
    uint64 array (n, 4), each entry below 2**32
    """
    c = counter.astype(np.uint64)
    x0, x1 = c & _LOW, c >> _SHIFT
    x2 = np.full_like(x0, call & 0xFFFFFFFF)
    x3 = np.full_like(x0, (call >> 32) & 0xFFFFFFFF)
    k0, k1 = seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF
    for _ in range(10):
        p0, p1 = x0 * _M0, x2 * _M1
        x0, x1, x2, x3 = (
            (p1 >> _SHIFT) ^ x1 ^ np.uint64(k0),
            p1 & _LOW,
            (p0 >> _SHIFT) ^ x3 ^ np.uint64(k1),
            p0 & _LOW,
        )
        k0, k1 = (k0 + _W0) & 0xFFFFFFFF, (k1 + _W1) & 0xFFFFFFFF
    return np.stack((x0, x1, x2, x3), axis=-1)


def uniform(
    index: npt.NDArray[np.int64], call: int, seed: int, out: npt.NDArray[Any], consecutive: bool = False
) -> None:
    """Fill ``out`` with U[0, 1) for the elements numbered ``index`` (an array of the same shape).

    float32 uses 24 bits of one word, float64 53 bits of two. ``consecutive`` promises that ``index`` counts up
    by one in C order; each Philox block is then computed only once.

    Parameters
    ----------
    index : int64 array
    call, seed : int
        Counter and key of the stream.
    out : float32 or float64 array
    consecutive : bool
    """
    per_block = 2 if out.dtype == np.float64 else 4
    flat = index.reshape(-1)
    if flat.size == 0:
        return
    if consecutive:
        first, last = int(flat[0]), int(flat[-1])
        start = first // per_block
        words = philox4x32(np.arange(start, last // per_block + 1), call, seed).reshape(-1, 4 // per_block)
        words = words[first - start * per_block :][: flat.size]
    else:
        blocks = philox4x32(flat // per_block, call, seed).reshape(flat.size, per_block, -1)
        words = blocks[np.arange(flat.size), flat % per_block]
    if per_block == 2:
        mantissa = ((words[:, 0] >> np.uint64(5)) << np.uint64(26)) | (words[:, 1] >> np.uint64(6))
        values: npt.NDArray[Any] = mantissa.astype(np.float64) * 2.0**-53
    else:
        values = ((words[:, 0] >> np.uint64(8)).astype(np.float32)) * np.float32(2.0**-24)
    out[...] = values.reshape(out.shape)
