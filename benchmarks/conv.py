"""Convolution forward, data gradient and weight gradient against PyTorch, on the layers of five networks.

``--quick``: ten layers at N = 32, under two minutes on two cores. ``python benchmarks/conv.py --help`` lists the
options.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
from _cases import met
from _layers import CONVOLUTIONS, Conv
from _libraries import Array, Made, from_images, returns, writes
from _precision import FLOAT32, PRECISIONS
from _primitives import Primitives, Problem, Rates, Row, some, values

DIRECTIONS: dict[str, float | None] = {"fprop": 1.0, "bprop": 1.0, "update": 1.0}
SGEMM_TARGET = 0.7
"""Least share of SGEMM's rate for 3x3 filters with at least 64 input and 64 output maps."""

MANY_MAPS = 64
QUICK = (
    "alexnet conv1", "alexnet conv2", "alexnet conv3", "overfeat conv2", "vgg_a conv7", "googlenet 3a 1x1",
    "googlenet 3b 5x5", "resnet50 res2a 3x3", "resnet50 res4a 3x3", "resnet50 res4b narrow",
)  # fmt: skip


class Convolution(Problem):
    """Convolution of one to three dimensions, with groups and dilation, or transposed.

    Attributes
    ----------
    I, F, E : float32 arrays (C, D, H, W, N), (C / groups, T, R, S, K), (K, M, P, Q, N)
    direction : str
        Of the convolution that the layer is the transpose of, where it is one: that one's data gradient is forward.
    """

    tolerance = 1e-4  # of sums of up to millions of products in float32
    rounds_within = True  # Winograd's method transforms inputs and filters first

    def __init__(self, layer: Conv, N: int, direction: str) -> None:
        super().__init__(layer, N, direction)
        self.flops, self.forward = layer.flops(N), direction == "fprop"
        if layer.transposed:
            self.direction = {"fprop": "bprop", "bprop": "fprop"}.get(direction, direction)
        self.needs = ("conv_layer", f"{self.direction}_conv")
        self.I = values((layer.C, *layer.size, N), 1)
        self.F = values(layer.filters, 2, float(np.prod(layer.filters[:-1])) ** -0.5)
        self.E = values((layer.K, *layer.out, N), 3)

    def sample(self, *made: Array) -> list[Array]:
        """Some images of maps (.., N), or filter gradients (C, T, R, S, K) between some of the maps."""
        if self.direction == "update":
            return [maps[some(len(maps))][..., some(self.layer.K)] for maps in made]
        return super().sample(*made)

    def reference(self) -> list[Array]:
        """By the definition, one place of the window after the other."""
        layer, images = self.layer, some(self.N)
        if self.direction == "update":
            return [self._update()]
        read = self._padded(self.I[..., images])
        F, E = self.F.astype(float), self.E[..., images].astype(float)
        dI, O = np.zeros_like(read), np.zeros_like(E)  # noqa: E741
        channels, maps = layer.C // layer.groups, layer.K // layer.groups
        for place, at in self._places():
            for group in range(layer.groups):
                cs, ks = (slice(group * count, (group + 1) * count) for count in (channels, maps))
                w = F[(slice(None), *place, ks)]
                if self.direction == "fprop":
                    O[ks] += np.tensordot(w, read[(cs, *at)], (0, 0))
                else:
                    dI[(cs, *at)] += np.tensordot(w, E[ks], (1, 0))
        inner = (slice(None), *(slice(p, p + x) for p, x in zip(layer.pad, layer.size)))
        return [O if self.direction == "fprop" else dI[inner]]

    def _update(self) -> Array:
        """Between some of the maps, over all images."""
        layer = self.layer
        channels, maps, of_group = layer.C // layer.groups, layer.K // layer.groups, some(layer.C // layer.groups)
        found = np.zeros((len(of_group), *layer.window, len(some(layer.K))))
        for index, k in enumerate(some(layer.K)):
            read = self._padded(self.I[[k // maps * channels + c for c in of_group]])
            error = self.E[k].astype(float)
            for place, at in self._places():
                found[(slice(None), *place, index)] = np.tensordot(read[(slice(None), *at)], error, 4)
        return found

    def _padded(self, maps: Array) -> Array:
        return np.pad(maps.astype(float), ((0, 0), *((p, p) for p in self.layer.pad), (0, 0)))

    def _places(self) -> Iterator[tuple[tuple[int, ...], Any]]:
        """Each place in the window, and the slices of padded (D, H, W) that all outputs read there."""
        layer = self.layer
        for place in np.ndindex(*layer.window):
            axes = zip(place, layer.dilation, layer.out, layer.stride)
            yield place, tuple(slice(i * d, i * d + (n - 1) * by + 1, by) for i, d, n, by in axes)

    def ours(self, library: Any) -> Made:
        """One call of the primitive."""
        be, s = library.be, self.layer
        more = (*s.window, *s.pad, *s.stride, *s.dilation, s.groups)
        if s.transposed:
            geometry = be.deconv_layer(self.I.dtype, self.N, s.C, s.K, *s.out, *more)
        else:
            geometry = be.conv_layer(self.I.dtype, self.N, s.C, s.K, *s.size, *more)
        I, F, E = (library.put(x.reshape(-1, x.shape[-1])) for x in (self.I, self.F, self.E))  # noqa: E741
        if self.direction == "fprop":
            return writes(lambda: be.fprop_conv(geometry, I, F, E), E, shapes=[self.E.shape])
        if self.direction == "bprop":
            return writes(lambda: be.bprop_conv(geometry, F, E, I), I, shapes=[self.I.shape])
        return writes(lambda: be.update_conv(geometry, I, E, F), F, shapes=[self.F.shape])

    def peer(self, library: Any, who: str) -> Made:
        """With as many axes as the layer has, at least two."""
        torch, layer = library.torch, self.layer
        flat = layer.size[0] == layer.window[0] == 1
        form = library.layout(who, 4 if flat else 5)
        x, W, g = (library.images(maps[:, 0] if flat else maps, form) for maps in (self.I, self.F, self.E))
        stride, pad, dilation = (list(t[1 if flat else 0 :]) for t in (layer.stride, layer.pad, layer.dilation))

        def back(made: Array) -> list[Array]:
            (maps,) = from_images(made)
            return [maps[:, None] if flat else maps]

        if self.forward:
            names = torch.nn.functional
            if layer.transposed:
                transpose = library.autocast(names.conv_transpose2d if flat else names.conv_transpose3d)
                return returns(lambda: transpose(g, W, None, stride, pad, 0, layer.groups, dilation), back)
            conv = library.autocast(names.conv2d if flat else names.conv3d)
            return returns(lambda: conv(x, W, None, stride, pad, dilation, layer.groups), back)
        x, W, g = library.kept(x, W, g)
        update, none = self.direction == "update", [0] * len(stride)
        source, errors = (g, x) if layer.transposed else (x, g)

        def backward() -> Any:
            return torch.ops.aten.convolution_backward(
                errors, source, W, None, stride, pad, dilation, layer.transposed, none, layer.groups,
                [not update, update, False],
            )[update]  # fmt: skip

        return returns(library.to_leaves(backward), back)


def of_sgemm(rates: Rates) -> list[str]:
    """Whether 3x3 filters on many maps reach their share of SGEMM's rate, which has the precision of float32."""
    rows = [row for row in rates.rows if _counts(row) and rates.precision == FLOAT32]
    shares = sorted((share, row.layer.title, row.N, row.direction) for row in rows if (share := rates.share(row)))
    if not shares:
        return []
    under = [f"{title} {direction} at {N} {share:.0%}" for share, title, N, direction in shares if share < SGEMM_TARGET]
    shown = ", ".join(under) or f"lowest {shares[0][1]} {shares[0][3]} {shares[0][0]:.0%}"
    return [
        f"3x3 on {MANY_MAPS} maps and more, share of SGEMM's rate: {len(shares) - len(under)} of {len(shares)} reach "
        f"{SGEMM_TARGET:.0%}; {shown}: {met(not under)}"
    ]


def _counts(row: Row) -> bool:
    return row.layer.window[1] == 3 and min(row.layer.C, row.layer.K) >= MANY_MAPS


def remarks(rates: Rates) -> list[str]:
    """Means by the size of the filters, the next thing to work on; the target beside SGEMM."""
    windows = sorted({row.layer.window[1] for row in rates.rows})
    return [*rates.means_by(lambda row: row.layer.window[1], "{0}x{0} filters", windows), *of_sgemm(rates)]


SUITE = Primitives(
    "conv", __doc__, Convolution, CONVOLUTIONS, DIRECTIONS, QUICK, remarks=remarks, precisions=PRECISIONS
)

if __name__ == "__main__":
    sys.exit(SUITE.main())
