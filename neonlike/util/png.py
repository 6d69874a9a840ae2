"""PNG encoding without an image library.

Source: the PNG specification, third edition (W3C, 2025).
"""

from __future__ import annotations

import struct
import zlib

import numpy as np

from neonlike.errors import ShapeError

SIGNATURE = b"\x89PNG\r\n\x1a\n"
GREY, RGB = 0, 2
"""Colour types of the header."""
METRES_PER_INCH = 0.0254


def encode_png(image: np.ndarray, dpi: float | None = None) -> bytes:
    """Encode an image as a PNG file.

    Parameters
    ----------
    image : ndarray
        uint8, grey ``(height, width)`` or RGB ``(height, width, 3)``.
    dpi : float, optional
        Dots per inch, for printing.

    Raises
    ------
    ShapeError
        If the array is not such an image.
    """
    if image.dtype != np.uint8 or image.ndim not in (2, 3) or image.shape[2:] not in ((), (3,)) or not image.size:
        raise ShapeError(
            f"encode_png: expected uint8 of shape (height, width) or (height, width, 3), got {image.dtype} of "
            f"{image.shape}"
        )
    height, width = image.shape[:2]
    rows = image.reshape(height, -1)
    # Each row starts with a filter number; 0 means unfiltered.
    filtered = np.concatenate([np.zeros((height, 1), np.uint8), rows], axis=1)
    header = struct.pack(">IIBBBBB", width, height, 8, GREY if image.ndim == 2 else RGB, 0, 0, 0)
    chunks = [_chunk(b"IHDR", header)]
    if dpi is not None:
        per_metre = round(dpi / METRES_PER_INCH)
        chunks.append(_chunk(b"pHYs", struct.pack(">IIB", per_metre, per_metre, 1)))
    chunks += [_chunk(b"IDAT", zlib.compress(filtered.tobytes())), _chunk(b"IEND", b"")]
    return SIGNATURE + b"".join(chunks)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def grid(images: np.ndarray, padding: int, width: int, height: int) -> np.ndarray:
    """Arrange images on black in a near-square grid, enlarged by the largest factor that fits ``width`` and ``height``.

    Parameters
    ----------
    images : ndarray
        uint8 ``(count, h, w)`` or ``(count, h, w, 3)``.
    padding : int
        Pixels between and around images.
    width, height : int
        Maximum size of the result, unless the unscaled images need more.

    Returns
    -------
    ndarray
        uint8, ``(H, W)`` or ``(H, W, 3)``.
    """
    count, h, w = images.shape[:3]
    columns = int(np.ceil(np.sqrt(count)))
    rows = -(-count // columns)
    shape = (rows * (h + padding) + padding, columns * (w + padding) + padding)
    canvas = np.zeros((*shape, *images.shape[3:]), np.uint8)
    for i, image in enumerate(images):
        top, left = (padding + at * (size + padding) for at, size in zip(divmod(i, columns), (h, w), strict=True))
        canvas[top : top + h, left : left + w] = image
    times = max(1, min(height // shape[0], width // shape[1]))
    return canvas.repeat(times, axis=0).repeat(times, axis=1)
