"""Base classes of activations, costs and metrics.

A transform builds expressions and owns no layer state, so one object can serve several layers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from neonlike.checks import admit, require_method, shown
from neonlike.errors import DTypeError, NotDefined, ShapeError
from neonlike.kernels.run.depends import Dependent
from neonlike.nervanaobject import NervanaObject
from neonlike.optree import dialect
from neonlike.optree.dtypes import compute_dtype
from neonlike.optree.node import Expression

if TYPE_CHECKING:
    from neonlike.backends.backend import Backend


class Transform(NervanaObject, Dependent):
    """Base of activation functions.

    A subclass either overrides ``__call__`` and ``bprop``, or sets ``func`` and ``funcgrad`` to callables that build
    the expression and its derivative.

    ``bprop(x)`` receives the activation's **output**, because layers apply activations in place and lose the input. A
    ``bprop`` with parameters named ``inputs`` or ``outputs`` receives those tensors: ``bprop(inputs)``,
    ``bprop(inputs, outputs)``. Layers keep the input only if ``bprop`` asks for it. ``be.check_grad(f, x)`` compares a
    ``bprop`` with numerical differences.

    Parameters
    ----------
    name : str, optional
        Name in listings and model files; by default the class's with a number.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.transforms import Transform
    >>> be = gen_backend("cpu")
    >>> class Mish(Transform):
    ...     def __call__(self, x):
    ...         return x * self.be.tanh(self.be.softplus(x))
    ...     def bprop(self, inputs):
    ...         t = self.be.tanh(self.be.softplus(inputs))
    ...         return t + inputs * (1 - t * t) * self.be.sig(inputs)
    >>> be.check_grad(Mish(), be.array([[-1.0, 0.3, 2.0]])) < 1e-5
    True
    """

    func: Callable[[Any], Any] | None = None
    funcgrad: Callable[[Any], Any] | None = None
    is_mklop: ClassVar[bool] = False

    @property
    def left_to_cost(self) -> bool:
        """Whether ``bprop`` is 1 because the gradient of the cost already includes the derivative."""
        return False

    def through(self, y: Any, error: Any) -> Any:
        """Gradient by the inputs from a gradient ``error`` by the outputs ``y``, even if ``bprop`` is 1.

        Parameters
        ----------
        y, error : Tensor or expression
            Outputs, and the gradient by them, of one shape.

        Returns
        -------
        expression of that shape
        """
        return self.bprop(y) * error

    def __call__(self, x: Any) -> Any:
        """Expression of the transformed ``x``."""
        if self.func is None:
            raise NotDefined(f"{self.classnm} defines neither __call__ nor func")
        return self.func(x)

    def bprop(self, x: Any) -> Any:
        """Expression (or number) of the derivative, as a function of the transform's **output**.

        Parameters
        ----------
        x : Tensor
            Outputs y of the transform.

        Returns
        -------
        expression or float
            The derivative of each element, in the shape of ``x``.
        """
        if self.funcgrad is None:
            raise NotDefined(f"{self.classnm} defines neither bprop nor funcgrad")
        return self.funcgrad(x)


class Cost(NervanaObject, Dependent):
    """Base of cost functions: a value per column and the derivative with respect to the network's output.

    A subclass either overrides ``__call__`` and ``bprop``, or sets ``func`` and ``funcgrad``.

    If the last activation of a network leaves its derivative to the cost, as Softmax does, ``bprop`` of a user-defined
    cost is taken as the gradient by the activation's inputs, as in neon, unless ``by_outputs`` is true.

    Attributes
    ----------
    by_outputs : bool
        Whether :meth:`slope` is the gradient by the outputs themselves.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.transforms import Cost
    >>> be = gen_backend("cpu", batch_size=2)
    >>> class Absolute(Cost):
    ...     by_outputs = True
    ...     def __call__(self, y, t):
    ...         return self.be.sum(self.be.absolute(y - t), axis=0)
    ...     def bprop(self, y, t):
    ...         return self.be.sgn(y - t)
    >>> y, t = be.ones((3, 2)), be.zeros((3, 2))
    >>> Absolute()(y, t).tolist(), Absolute().bprop(y, t)[0].tolist()
    ([[3.0, 3.0]], [[1.0, 1.0]])
    """

    func: Any = None
    funcgrad: Any = None
    by_outputs: ClassVar[bool] = False

    def __call__(self, y: Any, t: Any) -> Any:
        """Expression of the cost of each column, shape ``(1, N)``."""
        if self.func is None:
            raise NotDefined(f"{self.classnm} defines neither __call__ nor func")
        return self.func(y, t)

    def bprop(self, y: Any, t: Any) -> Any:
        """Expression of the derivative with respect to ``y``, in its shape; summed, not averaged, over the batch.

        Parameters
        ----------
        y, t : Tensor or expression
            Outputs and targets, ``(features, columns)``.
        """
        if self.funcgrad is None:
            raise NotDefined(f"{self.classnm} defines neither bprop nor funcgrad")
        return self.funcgrad(y, t)

    def slope(self, y: Any, t: Any) -> Any:
        """Expression of the derivative with respect to ``y`` alone, without any activation's derivative.

        Parameters
        ----------
        y, t : Tensor or expression
            Outputs and targets, ``(features, columns)``.
        """
        return self.bprop(y, t)

    def fits(self, activation: Transform) -> bool:
        """Whether ``bprop`` includes the derivative of ``activation``.

        Parameters
        ----------
        activation : Transform
            The last activation of a network.
        """
        return False

    def slope_before(self, activation: Transform, y: Any, t: Any, mask: Any = None) -> Any:
        """Expression of the derivative with respect to the inputs of the activation with output ``y``.

        Parameters
        ----------
        activation : Transform
            The last activation of the network.
        y, t : Tensor or expression
            Outputs and targets, ``(features, columns)``.
        mask : tensor of a shape that broadcasts to theirs, optional
            Mask of 0 and 1: the cost is computed for y · mask and t · mask.
        """
        require_method(f"{self.classnm}.slope_before", "activation", activation, "through", "Rectlin()")
        if mask is None:
            return activation.through(y, self.slope(y, t))
        masked = self.be.multiply
        return activation.through(y, masked(self.slope(masked(y, mask), masked(t, mask)), mask))

    def _check_shapes(self, y: Any, t: Any) -> None:
        if isinstance(y, Expression) and isinstance(t, Expression):
            if y.shape == t.shape:
                return
            if dialect.is_neon() and self.by_outputs and t.shape == (1, y.shape[-1]):
                return  # one row for all outputs: it broadcasts
        for name, value in (("outputs", y), ("targets", t)):
            if not isinstance(value, Expression):
                raise DTypeError(f"{self.classnm}: the {name} must be a tensor or an expression, got {shown(value)}")
        steps, left = divmod(y.shape[-1], t.shape[-1] or 1)
        hint = f"; the outputs are sequences of {steps} steps: RecurrentLast() takes the last one of each"
        raise ShapeError(
            f"{self.classnm}: outputs have shape {tuple(y.shape)}, targets {tuple(t.shape)}; they must be equal "
            "(class labels as one-hot columns)" + (hint if steps > 1 and not left else "")
        )


def smooth_l1(be: Backend, x: Any, sigma2: float = 1.0) -> Any:
    """Column sums of 0.5 σ² x² where ``|x| < 1/σ²``, else ``|x| − 0.5/σ²``, as an expression without overflow.

    Parameters
    ----------
    be : Backend
        The backend.
    x : Tensor or expression
        Differences, ``(features, columns)``.
    sigma2 : float
        σ².
    """
    return be.sum(smooth_l1_of_each(be, x, sigma2), axis=0)


def smooth_l1_of_each(be: Backend, x: Any, sigma2: float = 1.0) -> Any:
    """Expression of 0.5 σ² x² where ``|x| < 1/σ²``, else ``|x| − 0.5/σ²``, without overflow.

    Parameters
    ----------
    be : Backend
        The backend.
    x : Tensor or expression
        Differences, of any shape.
    sigma2 : float
        σ².
    """
    size = be.absolute(x)
    near = be.minimum(size, 1.0 / sigma2)
    return (0.5 * sigma2) * be.square(near) + (size - near)


class Metric(Cost):
    """Base of metrics: numbers on the host that compare outputs with targets.

    Attributes
    ----------
    metric_names : list of str
        A name for each number returned.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.transforms import Metric
    >>> be = gen_backend("cpu", batch_size=2)
    >>> class LargestError(Metric):
    ...     metric_names = ["LargestError"]
    ...     def __call__(self, y, t, calcrange=slice(0, None)):
    ...         return float(abs(y.get() - t.get())[:, calcrange].max())
    >>> LargestError()(be.ones((2, 2)), be.zeros((2, 2)))
    1.0
    """

    metric_names: list[str]

    @property
    def accumulates(self) -> bool:
        """Whether a data set's metric is computed from summed :meth:`counts`, not as a mean over samples."""
        return False

    def counts(self, y: Any, t: Any, calcrange: slice = slice(0, None)) -> np.ndarray:
        """Counts to be summed over the batches of a data set; :meth:`of_counts` computes the metric from them.

        Parameters
        ----------
        y, t : Tensor
            Outputs and targets, ``(classes, N)``.
        calcrange : slice
            Columns that count; all by default.
        """
        raise NotDefined(f"{self.classnm} does not define counts: it is a mean over samples")

    def of_counts(self, counts: np.ndarray) -> Any:
        """Value(s) of the metric from summed :meth:`counts`.

        Parameters
        ----------
        counts : ndarray
            Sum of :meth:`counts` over batches.
        """
        raise NotDefined(f"{self.classnm} does not define of_counts: it is a mean over samples")

    def __call__(self, y: Any, t: Any, calcrange: slice = slice(0, None)) -> Any:
        """Value(s) over the columns ``calcrange`` of outputs ``y`` and targets ``t``."""
        raise NotDefined(f"{self.classnm} does not define __call__(y, t, calcrange)")

    def _row_buffer(self, attribute: str, columns: int | None = None, dtype: Any = None) -> Any:
        """The (1, columns) buffer in ``attribute``, reallocated when the number of columns changes.

        It has float32 for results of 16 bits, unless there is a ``dtype``.
        """
        be = self.require_backend()
        columns = columns if columns is not None else (be.bsz or 0) * getattr(self, "steps", 1)
        buffer = getattr(self, attribute, None)
        if buffer is None or buffer.shape[1] != columns or buffer.backend is not be:
            dtype = compute_dtype(be.default_np_dtype) if dtype is None else dtype
            buffer = be.empty((1, columns), dtype=dtype) if columns else None
            setattr(self, attribute, buffer)
        return buffer


admit(Metric, "a metric")


class MetricLike(Protocol):
    """The attributes that evaluation needs of a metric. :class:`Metric` has them, and other classes may."""

    @property
    def metric_names(self) -> Sequence[str]:
        """A name for each number returned."""
        ...

    def __call__(self, y: Any, t: Any, /, calcrange: slice) -> Any:
        """Value(s) over the columns ``calcrange`` of outputs ``y`` and targets ``t``, ``(features, N)``."""
        ...


def column_mean(buffer: Any, calcrange: slice) -> np.ndarray:
    """Mean of each row of a tensor over the columns ``calcrange``, on the host; float16 is averaged in float32.

    Parameters
    ----------
    buffer : Tensor
        ``(rows, columns)``.
    calcrange : slice
        Columns that count.
    """
    values = buffer.get()[:, calcrange]
    return np.asarray(values.astype(compute_dtype(values.dtype), copy=False).mean(axis=1))
