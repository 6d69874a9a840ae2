"""Windows of ONNX's convolutions and poolings, as layers have them: with the same padding at both ends."""

from __future__ import annotations

from typing import Any

from neonlike.exchange.onnx.graph import Flow, Node
from neonlike.exchange.onnx.reader import Layers
from neonlike.layers.core.structure import Reshape
from neonlike.layers.images.pad import Pad

WINDOW: dict[str, Any] = {"auto_pad": "NOTSET", "dilations": None, "kernel_shape": None, "pads": None, "strides": None}
"""Attributes of a window, with their defaults."""


class Window:
    """The window of a convolution or pooling of images, of volumes, or of sequences as images of height 1.

    Attributes
    ----------
    kernel, strides, dilations : list of int
        By axis.
    pads : list of int
        Padding on either side, as far as both are alike.
    more : pair of list of int
        What is padded before and after in addition, or cut off if it is negative.
    maps : int
        Input channels.
    """

    def __init__(self, node: Node, own: Any, kernel: list[int], flow: Flow, transposed: bool = False) -> None:
        axes = len(kernel)
        if flow.form != "plain" or axes != len(flow.shape) - 1 or axes not in (1, 2, 3):
            node.refuse(
                f"a window of {axes} axes on {flow.form} samples of shape {flow.shape} cannot be read; it must be "
                "(N, C, L), (N, C, H, W) or (N, C, D, H, W)"
            )
        self.line = axes == 1
        self.maps, sizes = flow.shape[0], list(flow.shape[1:])
        self.strides = list(own.strides or [1] * axes)
        self.dilations = list(own.dilations or [1] * axes)
        both = list(own.pads or [0] * (2 * axes))
        if self.line:
            self.strides, self.dilations = [1, *self.strides], [1, *self.dilations]
            kernel, sizes, both = [1, *kernel], [1, *sizes], [0, both[0], 0, both[1]]
        self.kernel, self.sizes = list(kernel), sizes
        axes = len(self.kernel)
        if own.auto_pad.startswith("SAME") and not transposed:
            total = self._missing()
            first = [size // 2 if own.auto_pad == "SAME_UPPER" else size - size // 2 for size in total]
            both = [*first, *(size - one for size, one in zip(total, first))]
        before, after = both[:axes], both[axes:]
        self.pads = [min(ends) for ends in zip(before, after)]
        self.more = self._beyond(before), self._beyond(after)

    def _beyond(self, ends: list[int]) -> list[int]:
        return [size - pad for size, pad in zip(ends, self.pads)]

    def _missing(self) -> list[int]:
        """Elements of padding along each axis for as many windows as strides fit the input."""
        axes = zip(self.sizes, self.strides, self.extents)
        return [max(0, (-(-size // stride) - 1) * stride + extent - size) for size, stride, extent in axes]

    @property
    def extents(self) -> list[int]:
        """Elements from the first to the last of a window."""
        return [dilation * (size - 1) + 1 for size, dilation in zip(self.kernel, self.dilations)]

    def padded_before(self, value: float, all_of_it: bool = False) -> Layers:
        """The layer before the window that pads one end more than the other, or pads ``all_of_it``."""
        if all_of_it:
            before, after = ([pad + size for pad, size in zip(self.pads, ends)] for ends in self.more)
            self.more = before, after
            self.pads = [0] * len(self.pads)
        before, after = self.more
        self.sizes = [b + size + a for size, b, a in zip(self.sizes, before, after)]
        return [Pad(tuple(before), tuple(after), value)] if any(before) or any(after) else []

    def overhang(self, node: Node) -> None:
        """Pad the end for windows that begin in the input and end behind it, as with ceil_mode=1."""
        before, after = self.more
        found = self.results(ceil=True)
        starts = [(n - 1) * stride for n, stride in zip(found, self.strides)]
        if any(start >= size + pad for start, size, pad in zip(starts, self.sizes, self.pads)):
            node.refuse("its attribute ceil_mode=1 makes windows of padding alone, which programs read differently")
        rests = [max(0, start + e - size - 2 * p) for start, e, size, p in
                 zip(starts, self.extents, self.sizes, self.pads)]  # fmt: skip
        self.more = list(before), [size + rest for size, rest in zip(after, rests)]

    def arguments(self, prefix: str, sizes: list[int]) -> dict[str, int]:
        """Sizes by name, as ``{"str_h": 2, "str_w": 2}``."""
        return {f"{prefix}_{axis}": size for axis, size in zip("dhw"[-len(sizes) :], sizes)}

    def results(self, ceil: bool = False) -> list[int]:
        """Sizes of the output."""
        return [
            -(-room // stride) + 1 if ceil else room // stride + 1
            for room, stride in zip(self._rooms(), self.strides)
        ]

    def _rooms(self) -> list[int]:
        return [size + 2 * pad - extent for size, pad, extent in zip(self.sizes, self.pads, self.extents)]

    def widened(self) -> list[int]:
        """Sizes of the output of a transposed convolution."""
        return [s * (n - 1) + e - 2 * p for n, s, e, p in zip(self.sizes, self.strides, self.extents, self.pads)]

    def layer_arguments(self) -> dict[str, Any]:
        """Arguments of a convolution layer."""
        return {
            "strides": self.arguments("str", self.strides),
            "padding": self.arguments("pad", self.pads),
            "dilation": self.arguments("dil", self.dilations),
        }

    def around(self, layers: Layers, maps: int, sizes: list[int]) -> tuple[Layers, Flow]:
        """The layers and the form of their output; those of a sequence between two reshapes."""
        if not self.line:
            return layers, Flow((maps, *sizes))
        return [Reshape((self.maps, 1, -1)), *layers, Reshape((maps, sizes[1]))], Flow((maps, sizes[1]))
