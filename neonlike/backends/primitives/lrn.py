"""Local response normalisation across channels: ``lrn_layer``, ``fprop_lrn``, ``bprop_lrn``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from neonlike.backends.family import Family
from neonlike.backends.geometry.lrn import LrnGeometry
from neonlike.backends.tensors.operands import (
    Array,
    as_numbers,
    check_apart,
    check_floats,
    check_size,
    host,
    require_tensors,
    written,
)
from neonlike.errors import DTypeError, ShapeError
from neonlike.kernels.run.calls import KernelCall, repeatable
from neonlike.kernels.run.trace import Operands
from neonlike.optree.forms import owner

POWERS = {0.5: "half", 0.75: "three_quarters", 1.0: "one"}
"""bpower -> name in the kernels, for exponents faster than the general power."""


@dataclass(frozen=True, slots=True)
class LrnPass:
    """Request of a normalisation, or of its gradient.

    Attributes
    ----------
    dims : (int, int)
        Channels, and elements per channel: the only sizes relevant to normalisation across channels.
    window : int
        Channels per window, odd.
    alpha, beta : float
        The result is stored as ``alpha * result + beta * old``.
    scale : float
        Factor ``ascale / window`` of the sum of squares in ``denom``.
    bpower : float
    """

    dims: tuple[int, int]
    window: int
    alpha: float
    beta: float
    scale: float
    bpower: float

    @property
    def slope(self) -> float:
        """Factor of the sum of shares in the backward pass."""
        return 2 * self.bpower * self.scale

    @property
    def rest(self) -> tuple[float, float, float]:
        """bpower, alpha and beta in the kernels' order."""
        return self.bpower, self.alpha, self.beta


@owner
class LrnFamily(Family):
    """Local response normalisation across channels: ``lrn_layer``, ``fprop_lrn``, ``bprop_lrn``.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> be.lrn_layer(None, 16, 8, H=4, W=4, J=5).nOut
    128
    """

    def lrn_layer(self, dtype: Any, N: int, C: int, D: int = 1, H: int = 1, W: int = 1, J: int = 1) -> LrnGeometry:
        """Create the geometry of a normalisation over windows of ``J`` channels, for the calls below.

        Parameters
        ----------
        dtype : dtype
            Dtype of the tensors; None for the backend's.
        N, C, D, H, W : int
            Images, channels, depth, height, width. Calls accept any number of images.
        J : int
            Channels per window, odd: ``J // 2`` on either side of a channel.

        Raises
        ------
        DTypeError, ArgumentError
            If sizes are not positive integers, or J is even.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.lrn_layer(None, 16, 8, H=4, W=4, J=5).dimI
        (8, 1, 4, 4, 16)
        """
        return LrnGeometry(self._layer_dtype("lrn_layer", dtype), N, C, (D, H, W), J)

    @repeatable()
    def fprop_lrn(
        self,
        layer: LrnGeometry,
        I: Any,  # noqa: E741
        O: Any,  # noqa: E741
        denom: Any,
        alpha: float | None = None,
        beta: float | None = None,
        ascale: float = 1,
        bpower: float = 1,
        repeat: int = 1,
    ) -> tuple[float, float] | None:
        """Divide each activation by a power of the mean square over the channels around it.

        ``denom = 1 + (ascale / J) * sum(I^2 over the window)``, ``O = alpha * (I * denom^-bpower) + beta * O``;
        Krizhevsky, Sutskever and Hinton 2012, section 3.3. Windows end where the channels do.

        Parameters
        ----------
        layer : LrnGeometry
        I : tensor (C, D, H, W, N) or of any shape with as many elements
        O, denom : tensors of that size
            Outputs, both needed by ``bprop_lrn``. ``denom`` is not blended.
        alpha, beta : float, optional
            None: 1 and 0. With beta 0 the old O is not read.
        ascale, bpower : float
            Factor of the mean square, and the power; see the formula.
        repeat : int
            Number of timed runs if above 1; see ``_run_primitive``.

        Raises
        ------
        DTypeError, ShapeError, AliasError
            If the tensors do not fit the layer and each other; nothing is written then.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> layer = be.lrn_layer(None, 1, 3, J=1)
        >>> out, denom = be.empty((3, 1)), be.empty((3, 1))
        >>> rate = be.fprop_lrn(layer, be.array([1., 2., 3.]), out, denom)
        >>> denom.T.tolist(), out.T.get().round(2).tolist()[0][0]
        ([[2.0, 5.0, 10.0]], 0.5)
        """
        name = "fprop_lrn"
        numbers = _numbers(name, layer, alpha, beta, ascale, bpower)
        self._check_lrn(name, layer, I=I, O=O, denom=denom)
        check_apart(name, {"O": O, "denom": denom}, {"I": I})
        request = _request(layer, I, *numbers)
        return self._run_primitive(
            name,
            lambda: self._fprop_lrn(request, I, O, denom),
            (O, denom),
            (layer.dimI,),
            (3 + (request.beta != 0)) * I.nbytes,
            (2 * layer.J + 6) * I.size,
            repeat=repeat,
            operands=Operands((I, O, denom)),
        )

    @repeatable()
    def bprop_lrn(
        self,
        layer: LrnGeometry,
        I: Any,  # noqa: E741
        O: Any,  # noqa: E741
        E: Any,
        delta: Any,
        denom: Any,
        alpha: float | None = None,
        beta: float | None = None,
        ascale: float = 1,
        bpower: float = 1,
        repeat: int = 1,
    ) -> tuple[float, float] | None:
        """Compute the error of the input from the error of the output.

        ``delta = alpha * (E * denom^-bpower - 2 bpower (ascale / J) * I * sum(O * E / denom over the window))
        + beta * delta``.

        Parameters
        ----------
        layer : LrnGeometry
        I, O, denom : tensors of (C, D, H, W, N) elements
            As read and, with alpha 1 and beta 0, written by ``fprop_lrn``.
        E : tensor of that size
            Error of O; not modified.
        delta : tensor of that size
            Output.
        alpha, beta : float, optional
            None: 1 and 0. With beta 0 the old delta is not read.
        ascale, bpower : float
            As in the forward pass.
        repeat : int
            Number of timed runs if above 1; see ``_run_primitive``.

        Raises
        ------
        DTypeError, ShapeError, AliasError
            If the tensors do not fit the layer and each other; nothing is written then.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> layer = be.lrn_layer(None, 1, 1, J=1)
        >>> x, out, denom, delta = be.ones((1, 1)), be.empty((1, 1)), be.empty((1, 1)), be.empty((1, 1))
        >>> rate = be.fprop_lrn(layer, x, out, denom)
        >>> rate = be.bprop_lrn(layer, x, out, be.ones((1, 1)), delta, denom)
        >>> delta.item()    # of x / (1 + x**2)
        0.0
        """
        name = "bprop_lrn"
        numbers = _numbers(name, layer, alpha, beta, ascale, bpower)
        self._check_lrn(name, layer, I=I, O=O, E=E, delta=delta, denom=denom)
        check_apart(name, {"delta": delta}, {"I": I, "O": O, "E": E, "denom": denom})
        request = _request(layer, I, *numbers)
        return self._run_primitive(
            name,
            lambda: self._bprop_lrn(request, I, O, E, delta, denom),
            (delta,),
            (layer.dimI,),
            (5 + (request.beta != 0)) * I.nbytes,
            (layer.J + 12) * I.size,
            repeat=repeat,
            operands=Operands((I, O, E, denom, delta)),
        )

    def _check_lrn(self, name: str, layer: LrnGeometry, **tensors: Any) -> None:
        """Raise unless all tensors are of this backend, of one float dtype, and hold whole images."""
        require_tensors(self, name, **tensors)
        check_floats(name, **tensors)
        images, rest = divmod(tensors["I"].size, layer.nOut)
        if rest:
            raise ShapeError(
                f"{name}: I must hold images of {layer.nOut} elements ({layer.describe()}), "
                f"got {tensors['I'].shape} = {tensors['I'].size}"
            )
        for what, tensor in tensors.items():
            check_size(name, what, tensor, (layer.C, *layer.DHW, images), f"I with {layer.describe()}")

    # Hooks, with the definitions

    def _fprop_lrn(self, request: LrnPass, I: Any, O: Any, denom: Any) -> KernelCall | None:  # noqa: E741
        """Forward pass of checked tensors; returns the kernel launch, if that was all; see ``kernels/run/calls.py``."""
        x = host(I, request.dims)
        keep = request.beta != 0
        with np.errstate(all="ignore"), written(denom, x.shape) as d, written(O, x.shape, keep) as y:
            np.multiply(_window_sums(x * x, request.window), request.scale, out=d)
            d += 1
            _store(y, x * d**-request.bpower, request)
        return None

    def _bprop_lrn(
        self,
        request: LrnPass,
        I: Any,  # noqa: E741
        O: Any,  # noqa: E741
        E: Any,
        delta: Any,
        denom: Any,
    ) -> KernelCall | None:
        x, y, e, d = (host(tensor, request.dims) for tensor in (I, O, E, denom))
        with np.errstate(all="ignore"), written(delta, x.shape, request.beta != 0) as result:
            share = _window_sums(y * e / d, request.window)
            share *= request.slope
            _store(result, e * d**-request.bpower - share * x, request)
        return None


def _numbers(name: str, layer: Any, alpha: Any, beta: Any, ascale: Any, bpower: Any) -> list[float]:
    """alpha, beta, ascale and bpower of a call, with None replaced; DTypeError for an invalid layer or number."""
    if not isinstance(layer, LrnGeometry):
        raise DTypeError(f"{name}: layer must come from be.lrn_layer(...), got {type(layer).__name__}")
    alpha, beta = 1.0 if alpha is None else alpha, 0.0 if beta is None else beta
    return as_numbers(name, alpha=alpha, beta=beta, ascale=ascale, bpower=bpower)


def _request(layer: LrnGeometry, tensor: Any, alpha: float, beta: float, ascale: float, bpower: float) -> LrnPass:
    """Request for the images in ``tensor``."""
    return LrnPass((layer.C, tensor.size // layer.C), layer.J, alpha, beta, ascale / layer.J, bpower)


def _window_sums(values: Array, window: int) -> Array:
    """Sums of (C, lanes) over ``window`` channels around each channel, in the same shape."""
    total = values.copy()
    for step in range(1, min(window // 2 + 1, len(values))):
        total[:-step] += values[step:]
        total[step:] += values[:-step]
    return total


def _store(out: Array, result: Array, request: LrnPass) -> None:
    """``out = alpha * result + beta * out``, not reading ``out`` with beta 0."""
    np.multiply(result, request.alpha, out=result)
    np.add(result, out * request.beta if request.beta != 0 else 0, out=out)
