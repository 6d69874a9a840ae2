"""Depthwise convolution, alone and followed by a 1 x 1 convolution across channels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from neonlike.layers.dense.compound import CompoundLayer
from neonlike.layers.images.convolution import Conv, Convolution
from neonlike.layers.images.windows import window_sizes

if TYPE_CHECKING:
    from neonlike.initializers.initializer import Init
    from neonlike.transforms.transform import Transform

__public_module__ = "neonlike.layers.layer"


class DepthwiseConvolution(Convolution):
    """Convolution of each channel with its own filters.

    Parameters
    ----------
    fshape : tuple or dict
        Filter height, width and number of maps of *each channel* (R, S, K), or with a depth (T, R, S, K).
    init, strides, padding, dilation, bsum
        As of :class:`Convolution`; the weight is ``(T*R*S, C*K)``.
    name : str, optional
        Name in listings and model files; by default the class's with a number.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.initializers import Constant
    >>> from neonlike.layers import DepthwiseConvolution
    >>> be = gen_backend("cpu", batch_size=2)
    >>> layer = DepthwiseConvolution((3, 3, 1), init=Constant(1.0))
    >>> layer(be.ones((2, 3, 3, 2))).tolist()
    [[[[9.0, 9.0]]], [[[9.0, 9.0]]]]
    """

    repeatable = True

    def __init__(
        self,
        fshape: Any,
        strides: Any = {},  # noqa: B006  never modified; described only if replaced
        padding: Any = {},  # noqa: B006
        dilation: Any = {},  # noqa: B006
        init: Init | None = None,
        bsum: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__(fshape, strides, padding, dilation, init, bsum, name)
        self.multiplier = self.convparams["K"]

    def sizes(self) -> dict[str, Any]:
        """The input's sizes, with one group per channel."""
        given = super().sizes()
        return {**given, "K": given["C"] * self.multiplier, "groups": given["C"]}


class DepthwiseConv(CompoundLayer):
    """DepthwiseConvolution, then bias or batch normalization, then activation.

    Parameters
    ----------
    fshape, init, strides, padding, dilation
        As of :class:`DepthwiseConvolution`.
    bias : Initializer, optional
        For the bias; none without it.
    batch_norm : bool
        Normalize each map over the batch (has its own bias).
    activation : Transform, optional
        Applied last.
    name : str, optional
        Name in listings and model files; by default the class's with a number.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.initializers import Constant
    >>> from neonlike.layers import DepthwiseConv
    >>> be = gen_backend("cpu", batch_size=2)
    >>> layers = DepthwiseConv((3, 3, 1), init=Constant(1.0), bias=Constant(0.5))
    >>> layers(be.ones((2, 3, 3, 2))).tolist()
    [[[[9.5, 9.5]]], [[[9.5, 9.5]]]]
    """

    def __init__(
        self,
        fshape: Any,
        init: Init,
        strides: Any = {},  # noqa: B006
        padding: Any = {},  # noqa: B006
        dilation: Any = {},  # noqa: B006
        bias: Init | None = None,
        batch_norm: bool = False,
        activation: Transform | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(bias=bias, batch_norm=batch_norm, activation=activation, name=name)
        self.append(DepthwiseConvolution(fshape, strides, padding, dilation, init, bsum=batch_norm, name=name))
        self.add_postfilter_layers()


class DepthwiseSeparableConv(CompoundLayer):
    """A depthwise convolution, followed by a 1 x 1 convolution across channels.

    Parameters
    ----------
    fshape : tuple or dict
        Filter height and width and number of output maps (R, S, K), or with a depth (T, R, S, K).
    init, strides, padding, dilation
        As of :class:`Convolution`; strides, padding and dilation apply to the depthwise convolution.
    bias : Initializer, optional
        Initializer of both biases; no bias without it.
    batch_norm : bool
        Normalize after both convolutions (and no bias).
    activation : Transform, optional
        Applied after both convolutions.
    name : str, optional
        Name in listings and model files; by default the class's with a number.

    References
    ----------
    Howard et al., "MobileNets" (2017).

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.initializers import Constant
    >>> from neonlike.layers import DepthwiseSeparableConv
    >>> be = gen_backend("cpu", batch_size=2)
    >>> layers = DepthwiseSeparableConv((3, 3, 4), init=Constant(1.0), padding=1)
    >>> layers(be.ones((2, 3, 3, 2))).shape
    (4, 3, 3, 2)
    """

    def __init__(
        self,
        fshape: Any,
        init: Init,
        strides: Any = {},  # noqa: B006
        padding: Any = {},  # noqa: B006
        dilation: Any = {},  # noqa: B006
        bias: Init | None = None,
        batch_norm: bool = False,
        activation: Transform | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(bias=bias, batch_norm=batch_norm, activation=activation, name=name)
        sizes = window_sizes("DepthwiseSeparableConv: fshape", fshape, "RSK", "T")
        maps, sizes["K"] = sizes["K"], 1
        after: dict[str, Any] = {"bias": bias, "batch_norm": batch_norm, "activation": activation}
        depthwise = None if name is None else f"{name}_depthwise"
        self.extend(DepthwiseConv(sizes, init, strides, padding, dilation, name=depthwise, **after))
        self.extend(Conv((1, 1, maps), init, name=name, **after))
