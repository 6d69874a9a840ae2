"""Weight initializers: objects with a method ``fill(tensor)`` that initializes a parameter in place.

All random draws come from the backend's host generator ``be.rng``, so equal seeds give equal weights on every
backend. Linear weights are stored ``(nout, nin)``, convolution weights ``(C*T*R*S, K)``: the fan-in is the second
dimension of the former and the first of the latter (``local=True``).
"""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias

import numpy as np

from neonlike.backends.backend import Tensor
from neonlike.errors import ArgumentError, NotDefined, ShapeError
from neonlike.nervanaobject import Description, NervanaObject


class Fills(Protocol):
    """An object that fills a parameter. :class:`Initializer` is a base class that has more."""

    def fill(self, param: Tensor, /) -> Any:
        """Write the initial values into ``param``, of any shape, in place."""
        ...


Init: TypeAlias = Fills | Tensor | np.ndarray
"""What layers take as ``init``: an initializer, or values of the parameter's shape."""


class Initializer(NervanaObject):
    """Base class of initializers.

    Parameters
    ----------
    name : str, optional
        Name in listings and model files; by default the class's with a number.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.initializers import Initializer
    >>> be = gen_backend("cpu", batch_size=2)
    >>> class Alternating(Initializer):
    ...     def fill(self, param):
    ...         param[:] = 1.0
    ...         param[:, 1::2] = -1.0
    >>> weight = be.empty((1, 4))
    >>> Alternating().fill(weight)
    >>> weight.tolist()
    [[1.0, -1.0, 1.0, -1.0]]
    """

    def fill(self, param: Tensor) -> None:
        """Write the initial values into ``param``, in place.

        Parameters
        ----------
        param : Tensor
            The parameter, overwritten.
        """
        raise NotDefined(f"{self.classnm} does not define fill(param)")

    def _fan_in(self, param: Tensor) -> int:
        return param.shape[0] if getattr(self, "local", False) else param.shape[1]


class Constant(Initializer):
    """A constant value, or the values of an array.

    Parameters
    ----------
    val : float, Tensor or ndarray
        A scalar, or values of exactly the parameter's shape; a flat array is reshaped.
    name : str, optional
        Name in listings and model files; by default the class's with a number.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.initializers import Constant
    >>> be = gen_backend("cpu", batch_size=2)
    >>> weight = be.empty((2, 2))
    >>> Constant(0.5).fill(weight)
    >>> weight.tolist()
    [[0.5, 0.5], [0.5, 0.5]]
    """

    def __init__(self, val: float | Tensor | np.ndarray = 0.0, name: str | None = "constantInit") -> None:
        super().__init__(name=name)
        self.val = val

    def fill(self, param: Tensor) -> None:
        """Write the value(s) into ``param``, in place.

        Parameters
        ----------
        param : Tensor
            The parameter, overwritten.

        Raises
        ------
        ShapeError
            If an array has another shape.
        """
        val = self.val
        if isinstance(val, np.ndarray) and val.ndim == 0:
            val = val.item()
        elif isinstance(val, np.ndarray) and val.ndim == 1 and val.size == param.size:
            val = val.reshape(param.shape)
        if isinstance(val, Tensor | np.ndarray) and tuple(val.shape) != tuple(param.shape):
            raise ShapeError(
                f"{self.classnm}.fill: the values have shape {tuple(val.shape)}, the parameter "
                f"{tuple(param.shape)}; give values of the parameter's shape"
            )
        param[:] = val


class Array(Constant):
    """Values of an array; a description stores them as a NumPy array.

    Parameters
    ----------
    val : float, Tensor or ndarray
        Values of exactly the parameter's shape, or one value for all.
    name : str, optional
        Name in listings and model files; by default the class's with a number.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.initializers import Array
    >>> be = gen_backend("cpu", batch_size=2)
    >>> weight = be.empty((1, 2))
    >>> Array(be.array([[1.0, 2.0]])).fill(weight)
    >>> weight.tolist()
    [[1.0, 2.0]]
    """

    def get_description(self, skip: Any = (), **kwargs: Any) -> Description:
        """Describe the initializer with its values on the host."""
        described = super().get_description(skip=skip, **kwargs)
        if isinstance(value := described["config"].get("val"), Tensor):
            described["config"]["val"] = value.get()
        return described


class Uniform(Initializer):
    """Uniform on [low, high).

    Parameters
    ----------
    low, high : float
        Bounds of the values.
    name : str, optional
        Name in listings and model files; by default the class's with a number.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.initializers import Uniform
    >>> be = gen_backend("cpu", batch_size=2)
    >>> weight = be.empty((1, 100))
    >>> Uniform(-0.1, 0.1).fill(weight)
    >>> bool(be.max(be.absolute(weight)) <= 0.1)
    True
    """

    def __init__(self, low: float = 0.0, high: float = 1.0, name: str | None = "uniformInit") -> None:
        super().__init__(name=name)
        self.low, self.high = low, high

    def fill(self, param: Tensor) -> None:
        """Draw the values of ``param``, in place.

        Parameters
        ----------
        param : Tensor
            The parameter, overwritten.
        """
        param[:] = self.be.rng.uniform(self.low, self.high, param.shape)


class Gaussian(Initializer):
    """Normal with mean ``loc`` and standard deviation ``scale``.

    Parameters
    ----------
    loc, scale : float
        Mean and standard deviation; ``scale`` is 0 or more.
    name : str, optional
        Name in listings and model files; by default the class's with a number.

    Raises
    ------
    ArgumentError
        If ``scale`` is negative.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.initializers import Gaussian
    >>> be = gen_backend("cpu", batch_size=2)
    >>> weight = be.empty((1, 100))
    >>> Gaussian(loc=5.0, scale=0.01).fill(weight)
    >>> bool(be.max(be.absolute(weight - 5.0)) < 0.1)
    True
    """

    def __init__(self, loc: float = 0.0, scale: float = 1.0, name: str | None = "gaussianInit") -> None:
        super().__init__(name=name)
        if scale < 0:
            raise ArgumentError(f"Gaussian: scale={scale}; expected a standard deviation, 0 or more")
        self.loc, self.scale = loc, scale

    def fill(self, param: Tensor) -> None:
        """Draw the values of ``param``, in place.

        Parameters
        ----------
        param : Tensor
            The parameter, overwritten.
        """
        param[:] = self.be.rng.normal(self.loc, self.scale, param.shape)


class GlorotUniform(Initializer):
    """Uniform on ±sqrt(6 / (fan-in + fan-out)).

    Source: Glorot & Bengio, "Understanding the difficulty of training deep feedforward neural networks" (2010).

    Parameters
    ----------
    name : str, optional
        Name in listings and model files; by default the class's with a number.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.initializers import GlorotUniform
    >>> be = gen_backend("cpu", batch_size=2)
    >>> weight = be.empty((2, 4))
    >>> GlorotUniform().fill(weight)
    >>> bool(be.max(be.absolute(weight)) <= 1.0)  # sqrt(6 / (2 + 4))
    True
    """

    def __init__(self, name: str | None = "autouniformInit") -> None:
        super().__init__(name=name)

    def fill(self, param: Tensor) -> None:
        """Draw the values of ``param``, in place.

        Parameters
        ----------
        param : Tensor
            The parameter, overwritten.
        """
        k = np.sqrt(6.0 / (param.shape[0] + param.shape[1]))
        param[:] = self.be.rng.uniform(-k, k, param.shape)


class Xavier(Initializer):
    """Uniform on ±sqrt(3 / fan-in).

    Parameters
    ----------
    local : bool
        True for convolution weights, False for linear weights (see the module's text).
    name : str, optional
        Name in listings and model files; by default the class's with a number.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.initializers import Xavier
    >>> be = gen_backend("cpu", batch_size=2)
    >>> weight = be.empty((2, 3))
    >>> Xavier(local=False).fill(weight)
    >>> bool(be.max(be.absolute(weight)) <= 1.0)  # sqrt(3 / 3)
    True
    """

    def __init__(self, local: bool = True, name: str | None = "xavier") -> None:
        super().__init__(name=name)
        self.local = local

    def fill(self, param: Tensor) -> None:
        """Draw the values of ``param``, in place.

        Parameters
        ----------
        param : Tensor
            The parameter, overwritten.
        """
        k = np.sqrt(3.0 / self._fan_in(param))
        param[:] = self.be.rng.uniform(-k, k, param.shape)


class Kaiming(Initializer):
    """Normal with variance 2 / fan-in, for layers followed by a rectifier.

    Source: He et al., "Delving deep into rectifiers" (2015), equation 10.

    Parameters
    ----------
    local : bool
        True for convolution weights, False for linear weights (see the module's text).
    name : str, optional
        Name in listings and model files; by default the class's with a number.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.initializers import Kaiming
    >>> be = gen_backend("cpu", batch_size=2)
    >>> weight = be.empty((100, 200))
    >>> Kaiming(local=False).fill(weight)
    >>> round(weight.get().std().item(), 2)  # sqrt(2 / 200)
    0.1
    """

    def __init__(self, local: bool = True, name: str | None = "Kaiming") -> None:
        super().__init__(name=name)
        self.local = local

    def fill(self, param: Tensor) -> None:
        """Draw the values of ``param``, in place.

        Parameters
        ----------
        param : Tensor
            The parameter, overwritten.
        """
        param[:] = self.be.rng.normal(0.0, np.sqrt(2.0 / self._fan_in(param)), param.shape)


class IdentityInit(Initializer):
    """The identity in the first columns, zero elsewhere; its name excludes the layer from optimization.

    Parameters
    ----------
    local : bool
        Kept for compatibility.
    name : str, optional
        Name in listings and model files; by default the class's with a number.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.initializers import IdentityInit
    >>> be = gen_backend("cpu", batch_size=2)
    >>> weight = be.empty((2, 3))
    >>> IdentityInit().fill(weight)
    >>> weight.tolist()
    [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    """

    def __init__(self, local: bool = True, name: str | None = "Identity") -> None:
        super().__init__(name=name)
        self.local = local

    def fill(self, param: Tensor) -> None:
        """Write the identity into ``param`` of shape (m, n), n >= m, in place.

        Parameters
        ----------
        param : Tensor
            The parameter, of two axes, overwritten.
        """
        rows, columns = param.shape
        if columns < rows:
            raise ShapeError(
                f"IdentityInit.fill: a parameter of shape {tuple(param.shape)} has fewer columns than rows; "
                "an identity needs at least as many columns"
            )
        param[:] = np.eye(rows, columns)


class Orthonormal(Initializer):
    """A matrix with orthonormal rows or columns, times ``scale``.

    Source: Saxe et al., "Exact solutions to the nonlinear dynamics of learning in deep linear neural networks"
    (2013): a factor of the singular value decomposition of a Gaussian matrix.

    Parameters
    ----------
    scale : float
        Norm of each row or column.
    name : str, optional
        Name in listings and model files; by default the class's with a number.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.initializers import Orthonormal
    >>> be = gen_backend("cpu", batch_size=2)
    >>> weight = be.empty((2, 3))
    >>> Orthonormal(scale=1.0).fill(weight)
    >>> print(abs(be.dot(weight, weight.T).get()).round(3))  # rows of norm 1, at right angles
    [[1. 0.]
     [0. 1.]]
    """

    def __init__(self, scale: float = 1.1, name: str | None = "orthonormal") -> None:
        super().__init__(name=name)
        self.scale = scale

    def fill(self, param: Tensor) -> None:
        """Draw the values of ``param`` of shape (m, n), in place.

        Parameters
        ----------
        param : Tensor
            The parameter, of two axes, overwritten.
        """
        left, _, right = np.linalg.svd(self.be.rng.normal(0.0, 1.0, param.shape), full_matrices=False)
        param[:] = self.scale * (left if left.shape == tuple(param.shape) else right)
