"""Convolutions of many shapes, beside the layers of published networks: two lists for ``conv_shapes.py``.

``SHAPES`` is what kernels are chosen and tuned with; ``HELD_OUT`` is only measured when that is done, so that it tells
how others' shapes fare.
"""

from __future__ import annotations

from _layers import Conv, Triple, conv2d


def _flat(
    network: str, n: int, C: int, size: int | tuple[int, int], K: int, window: int, stride: int = 1, pad: int = -1,
    dilation: int = 1, groups: int = 1, transposed: bool = False,
) -> Conv:  # fmt: skip
    """A convolution of pictures; padded to keep their size if not said otherwise."""
    H, W = (size, size) if isinstance(size, int) else size
    pad = (window - 1) * dilation // 2 if pad < 0 else pad
    name = f"{n} {C}-{K} {H}x{W} {window}/{stride}" + (f" d{dilation}" * (dilation > 1))
    name += (f" g{groups}" * (groups > 1)) + (" t" * transposed)
    return conv2d(network, name, C, (H, W), K, window, stride, pad, dilation, groups, transposed, n)


def _line(network: str, n: int, C: int, W: int, K: int, window: int, stride: int = 1, dilation: int = 1) -> Conv:
    """A 1-D convolution, padded to keep the length."""
    pad = (window - 1) * dilation // 2
    name = f"{n} {C}-{K} {W} {window}/{stride}" + (f" d{dilation}" * (dilation > 1))
    sizes = (1, 1, W), (1, 1, window), (1, 1, stride), (0, 0, pad), (1, 1, dilation)
    return Conv(network, name, 1, C, K, *sizes, n=n)


def _solid(network: str, n: int, C: int, size: Triple, K: int, window: int, stride: int = 1) -> Conv:
    """A 3-D convolution, padded to keep the size."""
    name = f"{n} {C}-{K} {'x'.join(map(str, size))} {window}/{stride}"
    return Conv(network, name, 1, C, K, size, (window,) * 3, (stride,) * 3, (window // 2,) * 3, n=n)


SHAPES = [
    _flat("one", 1, 64, 56, 64, 3),
    _flat("one", 1, 128, 28, 128, 3),
    _flat("one", 1, 256, 14, 256, 3),
    _flat("one", 1, 512, 7, 512, 3),
    _flat("one", 1, 3, 224, 64, 7, 2, 3),
    _flat("one", 1, 128, 56, 128, 3, 2, 1),
    _flat("one", 1, 256, 56, 64, 1),
    _flat("one", 1, 64, 56, 256, 1),
    _flat("one", 1, 1024, 14, 256, 1),
    _flat("one", 1, 96, 56, 96, 3, 2, 1, groups=96),
    _flat("one", 1, 240, 28, 240, 5, groups=240),
    _flat("few", 4, 64, 28, 128, 3, 2, 1),
    _flat("few", 7, 19, (33, 21), 45, 3),
    _flat("few", 7, 64, 13, 96, 3),
    _flat("few", 16, 48, (27, 31), 80, 5),
    _flat("few", 8, 3, 65, 64, 11, 4, 2),
    _flat("few", 4, 1024, 7, 1024, 1),
    _flat("few", 16, 1, 64, 1, 7),
    _flat("many", 32, 192, 14, 192, 3),
    _flat("many", 32, 192, 28, 16, 1),
    _flat("many", 128, 32, 28, 32, 3),
    _flat("many", 128, 3, 32, 32, 5),
    _flat("groups", 32, 64, 56, 64, 3, groups=64),
    _flat("groups", 64, 256, 14, 256, 3, groups=256),
    _flat("groups", 32, 128, 28, 128, 3, groups=32),
    _flat("groups", 16, 96, 27, 256, 5, groups=2),
    _flat("dilated", 1, 256, 28, 256, 3, dilation=2),
    _flat("dilated", 16, 64, 28, 64, 3, dilation=2),
    _line("1d", 16, 64, 1000, 64, 9),
    _line("1d", 1, 128, 4000, 128, 3),
    _line("1d", 32, 1, 8000, 64, 11, 4),
    _solid("3d", 4, 16, (16, 28, 28), 32, 3),
    _solid("3d", 1, 64, (8, 14, 14), 64, 3),
    _solid("3d", 2, 3, (16, 56, 56), 32, 3),
    _flat("transposed", 16, 64, 14, 128, 4, 2, 1, transposed=True),
    _flat("transposed", 1, 32, 56, 64, 4, 2, 1, transposed=True),
    _flat("transposed", 32, 256, 4, 100, 4, 1, 0, transposed=True),
]
HELD_OUT = [
    _flat("one", 1, 32, 112, 64, 3),
    _flat("one", 1, 160, 20, 160, 3),
    _flat("one", 1, 384, 13, 256, 3),
    _flat("one", 1, 3, 299, 32, 3, 2, 0),
    _flat("one", 1, 48, 35, 64, 5),
    _flat("one", 1, 512, 28, 128, 1),
    _flat("one", 1, 144, 28, 144, 3, groups=144),
    _flat("few", 2, 256, 14, 512, 3, 2, 1),
    _flat("few", 5, 31, (45, 17), 70, 3),
    _flat("few", 12, 80, 19, 80, 3),
    _flat("few", 8, 128, 17, 128, 7),
    _flat("few", 3, 512, 9, 1024, 1),
    _flat("many", 48, 96, 17, 96, 3),
    _flat("many", 100, 24, 32, 24, 3),
    _flat("many", 128, 1, 28, 20, 5, 1, 0),
    _flat("groups", 16, 192, 28, 192, 5, groups=192),
    _flat("groups", 64, 32, 48, 32, 3, 2, 1, groups=32),
    _flat("groups", 8, 256, 28, 256, 3, groups=8),
    _flat("dilated", 4, 128, 33, 128, 3, dilation=4),
    _line("1d", 8, 256, 500, 256, 5),
    _line("1d", 64, 16, 2048, 32, 7, 2),
    _line("1d", 4, 64, 3000, 64, 2, 1, 8),
    _solid("3d", 8, 32, (8, 16, 16), 32, 3),
    _solid("3d", 1, 32, (12, 40, 40), 64, 3, 2),
    _flat("transposed", 8, 48, 26, 96, 2, 2, 0, transposed=True),
    _flat("transposed", 64, 128, 8, 256, 4, 2, 1, transposed=True),
]
