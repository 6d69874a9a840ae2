"""Matrix products of many shapes, beside the layers of published networks: two lists for ``gemm_shapes.py``.

``SHAPES`` is what kernels are chosen and tuned with; ``HELD_OUT`` is only measured when that is done.
"""

from __future__ import annotations

from _layers import Product


def _product(kind: str, m: int, k: int, n: int) -> Product:
    return Product(kind, f"{m}x{k}x{n}", 1, m, k, n)


SHAPES = [
    _product("square", 512, 512, 512),
    _product("square", 1024, 1024, 1024),
    _product("square", 2048, 2048, 2048),
    _product("layer", 1024, 784, 128),
    _product("layer", 4096, 1024, 512),
    _product("layer", 768, 3072, 256),
    _product("layer", 4096, 4096, 32),
    _product("wide", 64, 576, 3136),
    _product("deep", 64, 20000, 64),
    _product("deep", 256, 8192, 192),
    _product("shallow", 1500, 64, 1500),
    _product("odd", 333, 777, 555),
]
HELD_OUT = [
    _product("square", 384, 384, 384),
    _product("square", 1536, 1536, 1536),
    _product("layer", 1000, 2048, 64),
    _product("layer", 2048, 512, 96),
    _product("wide", 128, 1152, 784),
    _product("deep", 96, 12544, 96),
    _product("shallow", 2000, 48, 800),
    _product("odd", 77, 391, 1003),
]
