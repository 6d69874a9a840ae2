"""Activation functions.

``f(x)`` builds the expression of the activation, and ``f.bprop(y)`` its derivative as a function of the **output**
y = f(x), because layers apply activations in place and lose the input. If the output does not determine the
derivative, ``bprop`` has a parameter ``inputs``, and layers keep the input for it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from neonlike.transforms.transform import Transform

if TYPE_CHECKING:
    from neonlike.backends.backend import Backend


class Identity(Transform):
    """f(x) = x.

    Parameters
    ----------
    name : str, optional
        Name in listings and model files; by default the class's with a number.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.transforms import Identity
    >>> be = gen_backend("cpu", batch_size=2)
    >>> Identity()(be.array([[-1.0, 2.0]])).tolist()
    [[-1.0, 2.0]]
    """

    def __call__(self, x: Any) -> Any:
        """``x`` itself."""
        return x

    def bprop(self, x: Any) -> Any:
        """The number 1."""
        return 1


class Rectlin(Transform):
    """Rectified linear unit max(x, 0) + slope · min(x, 0).

    Parameters
    ----------
    slope : float
        Slope below zero; 0 gives the plain rectifier, a small positive number the leaky one.
    name : str, optional
        Name in listings and model files; by default the class's with a number.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.transforms import Rectlin
    >>> be = gen_backend("cpu", batch_size=2)
    >>> Rectlin()(be.array([[-1.0, 2.0]])).tolist()
    [[0.0, 2.0]]
    >>> Rectlin(slope=0.5)(be.array([[-1.0, 2.0]])).tolist()
    [[-0.5, 2.0]]
    """

    def __init__(self, slope: float = 0, name: str | None = None) -> None:
        super().__init__(name)
        self.slope = slope

    def __call__(self, x: Any, nglayer: Any = None) -> Any:
        """Expression of the rectified ``x``; ``nglayer`` is accepted and ignored."""
        return _leaky(self.be, x, self.slope)

    def bprop(self, x: Any, nglayer: Any = None, error: Any = None, deltas: Any = None) -> Any:
        """Expression (y > 0) + slope · (y < 0); it does not contain the factor ``error``.

        Parameters
        ----------
        x : Tensor
            Outputs y of the activation.
        nglayer, error, deltas
            Accepted for compatibility and not used.
        """
        return _leaky_slope(self.be, x, self.slope)


class Rectlinclip(Transform):
    """Rectified linear unit clipped from above: min(max(x, 0) + slope · min(x, 0), xcut).

    Parameters
    ----------
    slope : float
        Slope below zero; 0 gives the plain rectifier.
    name : str, optional
        Name in listings and model files; by default the class's with a number.
    xcut : float
        The largest output.

    References
    ----------
    Hannun et al., "Deep Speech: scaling up end-to-end speech recognition" (2014), section 2.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.transforms import Rectlinclip
    >>> be = gen_backend("cpu", batch_size=2)
    >>> Rectlinclip(xcut=3.0)(be.array([[-1.0, 2.0, 5.0]])).tolist()
    [[0.0, 2.0, 3.0]]
    """

    def __init__(self, slope: float = 0, name: str | None = None, xcut: float = 20.0) -> None:
        super().__init__(name)
        self.slope, self.xcut = slope, xcut

    def __call__(self, x: Any) -> Any:
        """Expression of the clipped ``x``."""
        return self.be.minimum(_leaky(self.be, x, self.slope), self.xcut)

    def bprop(self, x: Any) -> Any:
        """Expression ((y > 0) + slope · (y < 0)) · (y < xcut)."""
        return _leaky_slope(self.be, x, self.slope) * self.be.less(x, self.xcut)


class Explin(Transform):
    """Exponential linear unit max(x, 0) + alpha · (exp(min(x, 0)) − 1).

    Source: Clevert et al., "Fast and accurate deep network learning by exponential linear units" (2015).

    Parameters
    ----------
    alpha : float
        Minus the limit of the outputs for x to −∞.
    name : str, optional
        Name in listings and model files; by default the class's with a number.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.transforms import Explin
    >>> be = gen_backend("cpu", batch_size=2)
    >>> Explin()(be.array([[0.0, 2.0]])).tolist()
    [[0.0, 2.0]]
    """

    def __init__(self, alpha: float = 1.0, name: str | None = None) -> None:
        super().__init__(name)
        self.alpha = alpha

    def __call__(self, x: Any) -> Any:
        """Expression of the activation."""
        be = self.be
        return be.maximum(x, 0) + self.alpha * (be.exp(be.minimum(x, 0)) - 1)

    def bprop(self, x: Any) -> Any:
        """Expression (y > 0) + min(y, 0) + alpha · (y < 0)."""
        be = self.be
        return be.greater(x, 0) + be.minimum(x, 0) + self.alpha * be.less(x, 0)


class Normalizer(Transform):
    """f(x) = x / divisor; the default maps bytes to [0, 2).

    Parameters
    ----------
    name : str, optional
        Name in listings and model files; by default the class's with a number.
    divisor : float
        The value that becomes 1.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.transforms import Normalizer
    >>> be = gen_backend("cpu", batch_size=2)
    >>> Normalizer()(be.array([[0.0, 64.0]])).tolist()
    [[0.0, 0.5]]
    """

    def __init__(self, name: str | None = None, divisor: float = 128.0) -> None:
        super().__init__(name)
        self.divisor = divisor

    def __call__(self, x: Any) -> Any:
        """Expression x / divisor."""
        return x / self.divisor

    def bprop(self, x: Any) -> Any:
        """The number 1 / divisor."""
        return 1.0 / self.divisor


class Softmax(Transform):
    """exp(x) normalized to sum 1 along ``axis``.

    ``bprop`` is 1: the derivative is left to the cost (CrossEntropyMulti), since its gradient y − t already includes
    the derivative.

    Parameters
    ----------
    axis : int
        0 (features, the default) or 1.
    name : str, optional
        Name in listings and model files; by default the class's with a number.
    epsilon : float
        Kept for compatibility; the maximum is subtracted first, so the sum is at least 1.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.transforms import Softmax
    >>> be = gen_backend("cpu", batch_size=2)
    >>> Softmax()(be.zeros((4, 1))).tolist()  # of each column
    [[0.25], [0.25], [0.25], [0.25]]
    """

    def __init__(self, axis: int = 0, name: str | None = None, epsilon: float = 2**-23) -> None:
        super().__init__(name)
        self.axis, self.epsilon = axis, epsilon

    def __call__(self, x: Any) -> Any:
        """Expression of the softmax of ``x``."""
        return self.be.fprop_softmax(x, self.axis)

    @property
    def left_to_cost(self) -> bool:
        """True: the derivative is left to the cost."""
        return True

    def bprop(self, x: Any) -> Any:
        """The number 1."""
        return 1

    def through(self, y: Any, error: Any) -> Any:
        """Expression y · (error − Σ error · y), the sum along ``axis``."""
        return y * (error - self.be.sum(self.be.multiply(error, y), axis=self.axis))

    def cross_entropy_slope(self, y: Any, t: Any) -> Any:
        """Expression y · Σ t − t: the gradient of −Σ t log y by the inputs."""
        return y * self.be.sum(t, axis=self.axis) - t


class PixelwiseSoftmax(Transform):
    """Softmax over ``c`` feature maps at each pixel, **in place**.

    Parameters
    ----------
    c : int
        Number of feature maps; the input has shape ``(c*H*W, N)``.
    name : str, optional
        Name in listings and model files; by default the class's with a number.
    epsilon : float
        Kept for compatibility, as in :class:`Softmax`.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.transforms import PixelwiseSoftmax
    >>> be = gen_backend("cpu", batch_size=2)
    >>> PixelwiseSoftmax(c=2)(be.zeros((6, 1))).tolist()  # two maps of three pixels
    [[0.5], [0.5], [0.5], [0.5], [0.5], [0.5]]
    """

    def __init__(self, c: int, name: str | None = None, epsilon: float = 2**-23) -> None:
        super().__init__(name)
        self.c, self.epsilon = c, epsilon

    def __call__(self, x: Any) -> Any:
        """Overwrite the tensor ``x`` and return it."""
        maps = x.reshape(self.c, -1)
        maps[:] = self.be.fprop_softmax(maps, 0)
        return x

    @property
    def left_to_cost(self) -> bool:
        """True: the derivative is left to the cost."""
        return True

    def bprop(self, x: Any) -> Any:
        """The number 1."""
        return 1

    def through(self, y: Any, error: Any) -> Any:
        """Expression y · (error − Σ error · y), the sum over the maps of a pixel."""
        return y * (error - self._sums(self.be.multiply(error, y)))

    def cross_entropy_slope(self, y: Any, t: Any) -> Any:
        """Expression y · Σ t − t: the gradient of −Σ t log y by the inputs."""
        return y * self._sums(t) - t

    def _sums(self, x: Any) -> Any:
        """Sums over the maps of each pixel, repeated for each map."""
        maps = self.be.sum(x.reshape(self.c, -1), axis=0)
        return self.be.concatenate([maps.reshape(-1, x.shape[1])] * self.c, axis=0)


class Tanh(Transform):
    """Hyperbolic tangent.

    Parameters
    ----------
    name : str, optional
        Name in listings and model files; by default the class's with a number.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.transforms import Tanh
    >>> be = gen_backend("cpu", batch_size=2)
    >>> print(Tanh()(be.array([[0.0, 1.0]])).get().round(3))
    [[0.    0.762]]
    """

    def __call__(self, x: Any) -> Any:
        """Expression tanh(x)."""
        return self.be.tanh(x)

    def bprop(self, x: Any) -> Any:
        """Expression 1 − y²."""
        return 1.0 - self.be.square(x)


class Logistic(Transform):
    """Logistic sigmoid 1 / (1 + exp(−x)).

    Parameters
    ----------
    name : str, optional
        Name in listings and model files; by default the class's with a number.
    shortcut : bool
        If true, ``bprop`` is 1: the derivative is left to the cost (CrossEntropyBinary), since its gradient y − t
        already includes the derivative.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.transforms import Logistic
    >>> be = gen_backend("cpu", batch_size=2)
    >>> print(Logistic()(be.array([[0.0, 1.0]])).get().round(3))
    [[0.5   0.731]]
    """

    def __init__(self, name: str | None = None, shortcut: bool = False) -> None:
        super().__init__(name)
        self.shortcut = shortcut

    def set_shortcut(self, shortcut: bool) -> None:
        """Switch the shortcut of the derivative on or off.

        Parameters
        ----------
        shortcut : bool
            Whether ``bprop`` is 1.
        """
        self.shortcut = shortcut

    @property
    def left_to_cost(self) -> bool:
        """Whether the shortcut is on."""
        return self.shortcut

    def through(self, y: Any, error: Any) -> Any:
        """Expression y (1 − y) · error, regardless of the shortcut."""
        return y * (1.0 - y) * error

    def __call__(self, x: Any) -> Any:
        """Expression sig(x)."""
        return self.be.sig(x)

    def bprop(self, y: Any) -> Any:
        """Expression y (1 − y), or the number 1 with the shortcut."""
        return 1 if self.shortcut else y * (1.0 - y)


class Swish(Transform):
    """Swish activation x · sig(beta · x).

    Its derivative needs the input, so layers use an output buffer of their own.

    Parameters
    ----------
    beta : float
        Factor of the input; 1 gives the sigmoid linear unit, :class:`SiLU`.
    name : str, optional
        Name in listings and model files; by default the class's with a number.

    References
    ----------
    Ramachandran et al., "Searching for activation functions" (2017).

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.transforms import Swish
    >>> be = gen_backend("cpu", batch_size=2)
    >>> print(Swish()(be.array([[0.0, 1.0]])).get().round(3))
    [[0.    0.731]]
    """

    def __init__(self, beta: float = 1.0, name: str | None = None) -> None:
        super().__init__(name)
        self.beta = beta

    def __call__(self, x: Any) -> Any:
        """Expression of the activation."""
        return x * self.be.sig(x if self.beta == 1 else self.beta * x)

    def bprop(self, inputs: Any) -> Any:
        """Expression s + beta · x · s · (1 − s) with s = sig(beta · x), of the **input** x.

        Parameters
        ----------
        inputs : Tensor
            Inputs x of the activation.
        """
        scaled = inputs if self.beta == 1 else self.beta * inputs
        s = self.be.sig(scaled)
        return s + scaled * s * (1 - s)


class SiLU(Swish):
    """Sigmoid linear unit x · sig(x): :class:`Swish` with beta 1.

    Parameters
    ----------
    name : str, optional
        Name in listings and model files; by default the class's with a number.

    References
    ----------
    Elfwing et al., "Sigmoid-weighted linear units for neural network function approximation" (2017).

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.transforms import SiLU
    >>> be = gen_backend("cpu", batch_size=2)
    >>> print(SiLU()(be.array([[0.0, 1.0]])).get().round(3))
    [[0.    0.731]]
    """

    def __init__(self, name: str | None = None) -> None:
        super().__init__(1.0, name)


class GELU(Transform):
    """Gaussian error linear unit x · Φ(x), with the normal distribution function Φ (exact, by erf).

    Its derivative needs the input, so layers use an output buffer of their own.

    Source: Hendrycks and Gimpel, "Gaussian error linear units" (2016).

    Parameters
    ----------
    name : str, optional
        Name in listings and model files; by default the class's with a number.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.transforms import GELU
    >>> be = gen_backend("cpu", batch_size=2)
    >>> print(GELU()(be.array([[0.0, 1.0]])).get().round(3))
    [[0.    0.841]]
    """

    def __call__(self, x: Any) -> Any:
        """Expression of the activation."""
        return self.be.gelu(x)

    def bprop(self, inputs: Any) -> Any:
        """Expression Φ(x) + x · φ(x) with the normal density φ, of the **input** x.

        Parameters
        ----------
        inputs : Tensor
            Inputs x of the activation.
        """
        density = self.be.exp(-0.5 * self.be.square(inputs)) * (1 / math.sqrt(2 * math.pi))
        return 0.5 * (1 + self.be.erf(inputs * math.sqrt(0.5))) + inputs * density


class Sign(Transform):
    """+1 where x ≥ 0, else −1, **in place**, with the straight-through estimate of the derivative.

    Source: Courbariaux et al., "Binarized neural networks" (2016).

    Parameters
    ----------
    name : str, optional
        Name in listings and model files; by default the class's with a number.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.transforms import Sign
    >>> be = gen_backend("cpu", batch_size=2)
    >>> Sign()(be.array([[-0.3, 0.0, 2.0]])).tolist()
    [[-1.0, 1.0, 1.0]]
    """

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name)
        self.inputs: Any = None

    def __call__(self, x: Any) -> Any:
        """Overwrite the tensor ``x`` with its signs and return it; the old values are kept for ``bprop``."""
        if self.inputs is None or self.inputs.shape != x.shape:
            self.inputs = self.be.empty_like(x)
        self.inputs[:] = x
        return self.be.binarize(x, x, stochastic=False)

    def bprop(self, x: Any) -> Any:
        """Expression ``|x| ≤ 1`` of the last input x.

        Parameters
        ----------
        x : Tensor
            Not used: the last input decides.
        """
        if self.inputs is None:
            raise RuntimeError("Sign.bprop: called before the activation was applied; call the transform first")
        return self.be.less_equal(self.be.absolute(self.inputs), 1)


def _leaky(be: Backend, x: Any, slope: float) -> Any:
    # A plain rectifier must not include 0 · min(x, 0), which is nan at −inf.
    return be.maximum(x, 0) + slope * be.minimum(x, 0) if slope else be.maximum(x, 0)


def _leaky_slope(be: Backend, y: Any, slope: float) -> Any:
    return be.greater(y, 0) + slope * be.less(y, 0) if slope else be.greater(y, 0)
