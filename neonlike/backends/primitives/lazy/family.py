"""Compound primitives in expressions: ``be.conv(x, w)`` is lazy and differentiable, like ``be.sig(x)``.

Each is a node that calls another family's primitive when the expression runs; ``requests.py`` has the calls and their
gradients. Images are 4-D (C, H, W, N) or 5-D (C, D, H, W, N), in neon's order.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from neonlike.backends.family import Family
from neonlike.backends.geometry.conv import ConvGeometry, deconv_geometry
from neonlike.backends.geometry.lrn import LrnGeometry
from neonlike.backends.geometry.pool import PoolGeometry
from neonlike.backends.geometry.sizes import whole
from neonlike.backends.primitives.lazy.norms import batchnorm_node, lrn_node
from neonlike.backends.primitives.lazy.requests import Custom, Primitive, conv_node, matmul_node, pool_node
from neonlike.backends.tensors.operands import as_numbers, check_floats
from neonlike.checks import brief
from neonlike.errors import ArgumentError, DTypeError, ShapeError
from neonlike.optree.calls import call
from neonlike.optree.dtypes import as_dtype, is_float
from neonlike.optree.functions import F as Functions
from neonlike.optree.node import Expression, common_backend, expression
from neonlike.optree.ops import OPS
from neonlike.optree.shapes import Shape, as_shape

F: Any = Functions
_LARGEST = 2**31 - 1
"""Limit on elements of steps and windows in a kernel's arguments."""


class LazyFamily(Family):
    """Lazy forms of compound primitives: ``conv``, ``deconv``, ``pool``, ``batchnorm``, ``lrn``, ``matmul``.

    Operands are tensors or expressions of one float dtype; the result is an expression. :meth:`primitive` creates such
    a form from a user's function.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> be.matmul(be.ones((2, 3)), be.ones((3, 4))).shape
    (2, 4)
    """

    def conv(
        self, x: Any, w: Any, bias: Any = None, strides: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
    ) -> Any:
        """Convolution (cross-correlation, as :meth:`fprop_conv`) as an expression.

        Parameters
        ----------
        x : (C, H, W, N) or (C, D, H, W, N)
        w : (C / groups, R, S, K) or (C / groups, T, R, S, K)
        bias : (K, 1), optional
        strides, padding, dilation : int or tuple
            One number for all spatial axes, or one per axis.
        groups : int
            Groups of feature maps that are convolved apart; C and K are multiples of it.

        Returns
        -------
        expression (K, P, Q, N) or (K, M, P, Q, N)

        Raises
        ------
        ShapeError, DTypeError, ArgumentError
            If shapes or dtypes do not fit; nothing is computed until the expression is used.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> x, w = be.ones((3, 8, 8, 2)), be.ones((3, 3, 3, 4))
        >>> dw = be.grad(lambda w: be.sum(be.relu(be.conv(x, w, padding=1))))(w)
        >>> dw.shape
        (3, 3, 3, 4)
        """
        x, w, *more = self._floats("conv", {"bias": bias}, x=x, w=w)
        axes = _spatial("conv", x, w)
        K = w.shape[-1]
        sizes = _sizes("conv", axes, x, w, padding, strides, dilation)
        g = ConvGeometry(x.dtype, x.shape[-1], x.shape[0], K, *sizes, groups)
        _same_size("conv", "w", w.shape, (g.dimF[0], *w.shape[1:]))
        shape = (K, *g.MPQ[3 - axes :], x.shape[-1])
        return conv_node("fprop", g, (x, w, *self._bias("conv", more, K)), shape)

    def deconv(
        self, x: Any, w: Any, bias: Any = None, strides: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
    ) -> Any:
        """Transposed convolution as an expression: the data gradient of :meth:`conv` with the same filters.

        Parameters
        ----------
        x : (K, P, Q, N) or (K, M, P, Q, N)
        w : (C / groups, R, S, K) or (C / groups, T, R, S, K)
        bias : (C, 1), optional
        strides, padding, dilation, groups
            As in :meth:`conv`.

        Returns
        -------
        expression (C, H, W, N) or (C, D, H, W, N)
            With ``H = (P - 1) strides - 2 padding + dilation (R - 1) + 1``.

        Raises
        ------
        ShapeError, DTypeError, ArgumentError
            As :meth:`conv`.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.deconv(be.ones((5, 2, 2, 1)), be.ones((3, 3, 3, 5))).shape
        (3, 4, 4, 1)
        """
        x, w, *more = self._floats("deconv", {"bias": bias}, x=x, w=w)
        whole("deconv", groups=groups)
        axes = _spatial("deconv", x, w)
        _same_size("deconv", "x", x.shape, (w.shape[-1], *x.shape[1:]))
        sizes = _sizes("deconv", axes, x, w, padding, strides, dilation)
        C = w.shape[0] * groups
        g = deconv_geometry(x.dtype, x.shape[-1], C, w.shape[-1], *sizes, groups)
        shape = (C, *g.DHW[3 - axes :], x.shape[-1])
        return conv_node("bprop", g, (x, w, *self._bias("deconv", more, C)), shape, transposed=True)

    def pool(self, x: Any, window: Any, op: str = "max", strides: Any = None, padding: Any = 0) -> Any:
        """Pooling as an expression; see :meth:`pool_layer` for its definition.

        Parameters
        ----------
        x : (C, H, W, N) or (C, D, H, W, N)
        window : int or tuple
            For all spatial axes, or per axis.
        op : "max", "avg" or "l2"
        strides : int or tuple, optional
            The window by default.
        padding : int or tuple

        Returns
        -------
        expression (C, P, Q, N) or (C, M, P, Q, N)

        Raises
        ------
        ShapeError, DTypeError, ArgumentError
            If x is not such an image, or the window does not fit.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> x = be.array([[1., 5.], [3., 2.]]).reshape(1, 2, 2, 1)
        >>> be.pool(x, 2).tolist()
        [[[[5.0]]]]
        """
        (x,) = self._floats("pool", x=x)
        if not isinstance(op, str):
            raise ArgumentError(f"pool: op must be 'max', 'avg' or 'l2', got {brief(op)}")
        axes = _spatial("pool", x)
        frame = per_axis("pool", "window", window, axes, 1)
        steps = frame if strides is None else per_axis("pool", "strides", strides, axes, 1)
        (image,) = _five(axes, x.shape[1:-1])
        margins = per_axis("pool", "padding", padding, axes, 0)
        caffe = self.compat_mode == "caffe"
        g = PoolGeometry(op, x.dtype, x.shape[-1], (x.shape[0], *image), (1, *frame), (0, *margins), (1, *steps), caffe)
        return pool_node(g, x, (x.shape[0], *g.MPQ[3 - axes :], x.shape[-1]))

    def batchnorm(self, x: Any, gamma: Any, beta: Any, eps: float = 1e-3) -> Any:
        """Batch normalisation by the statistics of this batch (the training form) as an expression.

        ``gamma * (x - mean) / sqrt(variance + eps) + beta`` by rows, with the biased variance; see
        :meth:`compound_fprop_bn`. Running statistics are not kept.

        Parameters
        ----------
        x : (C, H, W, N), (features, N), or any shape whose leading axes give as many rows as gamma has elements
        gamma, beta : (C, 1)
            One row per feature map; or (C*H*W, 1) with x (C*H*W, N): one per activation.
        eps : float
            What is added to the variance.

        Returns
        -------
        expression of x's shape

        Raises
        ------
        ShapeError, DTypeError
            If x has no such rows, or an argument is not of floats.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.batchnorm(be.array([[1., 3.]]), be.ones((1, 1)), be.full((1, 1), 5), eps=0).tolist()
        [[4.0, 6.0]]
        """
        x = expression("batchnorm", x, self)
        gamma, beta = (expression("batchnorm", value, self) for value in (gamma, beta))
        for name, value in {"x": x, "gamma": gamma, "beta": beta}.items():
            if not is_float(value.dtype):
                raise DTypeError(f"batchnorm: {name} must hold floats, got {value.dtype.name}")
        (eps,) = as_numbers("batchnorm", eps=eps)
        rows = gamma.shape[0]
        _same_size("batchnorm", "gamma", gamma.shape, (rows, 1))
        _same_size("batchnorm", "beta", beta.shape, (rows, 1))
        if not any(math.prod(x.shape[:n]) == rows for n in range(1, len(x.shape))) or not math.prod(x.shape):
            raise ShapeError(
                f"batchnorm: x of shape {x.shape} has no {rows} rows to normalise, as gamma {gamma.shape} asks for; "
                "pass x (C, H, W, N) with gamma (C, 1), or x (features, N) with gamma (features, 1)"
            )
        return batchnorm_node(x, gamma, beta, eps)

    def lrn(self, x: Any, depth: int, ascale: float = 1.0, bpower: float = 1.0) -> Any:
        """Local response normalisation across channels as an expression; see :meth:`fprop_lrn`.

        Parameters
        ----------
        x : (C, H, W, N) or (C, D, H, W, N)
        depth : int
            Channels in a window; odd.
        ascale, bpower : float
            Factor of the mean square, and the power, as of :meth:`fprop_lrn`.

        Returns
        -------
        expression of x's shape

        Raises
        ------
        ShapeError, DTypeError, ArgumentError
            If x is not such an image, or ``depth`` is even.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.lrn(be.ones((3, 1, 1, 1)), depth=1).reshape(1, 3).tolist()
        [[0.5, 0.5, 0.5]]
        """
        (x,) = self._floats("lrn", x=x)
        (image,) = _five(_spatial("lrn", x), x.shape[1:-1])
        scale, power = as_numbers("lrn", ascale=ascale, bpower=bpower)
        return lrn_node(LrnGeometry(x.dtype, x.shape[-1], x.shape[0], image, depth), x, scale, power)

    def matmul(self, a: Any, b: Any) -> Any:
        """Matrix product as an expression; for 3-D operands, one product per entry of the leading axis.

        Parameters
        ----------
        a, b : (m, k) and (k, n), or (X, m, k) and (X, k, n)
            One of them may be 2-D, and is then used for every entry.

        Returns
        -------
        expression (m, n) or (X, m, n)

        Raises
        ------
        ShapeError, DTypeError
            If sizes or dtypes do not fit.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.matmul(be.ones((5, 2, 3)), be.ones((3, 4))).shape
        (5, 2, 4)
        """
        if all(isinstance(value, Expression) and len(value.shape) == 2 for value in (a, b)):
            return F.dot(a, b)
        a, b = self._floats("matmul", a=a, b=b)
        batches = {value.shape[0] for value in (a, b) if len(value.shape) == 3}
        if {len(a.shape), len(b.shape)} - {2, 3} or len(batches) > 1 or a.shape[-1] != b.shape[-2]:
            raise ShapeError(
                f"matmul: cannot multiply {a.shape} and {b.shape}; expected (m, k) and (k, n), with an axis of equal "
                "size before them in one or both"
            )
        shape = (*batches, a.shape[-2], b.shape[-1])
        return F.dot(a, b) if len(shape) == 2 else matmul_node(a, b, shape, a.dtype)

    # User-defined primitives

    def primitive(
        self,
        forward: Callable[..., Any],
        backward: Callable[..., Any] | None = None,
        shape: Callable[..., Any] | None = None,
        dtype: Any = None,
        name: str | None = None,
    ) -> Callable[..., Any]:
        """Create a primitive for expressions from a user's function, with its own gradient.

        Parameters
        ----------
        forward : callable
            ``forward(out, *arguments)`` writes the tensor ``out``, whenever an expression with it runs. Expressions
            among the arguments are computed to tensors before, and must not be modified; other arguments pass
            unchanged.
        backward : callable, optional
            ``backward(error, out, *arguments)`` returns a gradient for each argument, or None: expressions of
            ``error``, ``out`` and the arguments, which are all lazy here. Without it there are no gradients.
        shape : callable, optional
            Computes the result's shape from the shapes of the tensor arguments; default: the first one's.
        dtype : dtype, optional
            Dtype of the result; default: that of the first tensor.
        name : str, optional
            Name in ``be.explain`` and errors; default: that of ``forward``.

        Returns
        -------
        callable
            Takes tensors or expressions and other arguments; returns a lazy expression.

        Raises
        ------
        DTypeError
            If ``forward``, ``backward`` or ``shape`` is not callable.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> def forward(out, x):
        ...     out[:] = be.rint(x)
        >>> straight_through = be.primitive(forward, lambda error, out, x: error, name="straight_through")
        >>> x = be.array([[0.2, 1.7]])
        >>> be.grad(lambda x: be.sum(straight_through(x) * 3))(x).get().tolist()
        [[3.0, 3.0]]
        """
        for what, function in {"forward": forward, "backward": backward, "shape": shape}.items():
            if not callable(function) and (function is not None or what == "forward"):
                raise DTypeError(f"primitive: {what} must be a function, got {brief(function)}")
        found = _name_of(forward, name)
        made = Primitive(forward, backward, shape, None if dtype is None else as_dtype(dtype, "primitive"), found)

        def build(*arguments: Any) -> Any:
            return self._custom(made, arguments)

        build.__name__ = build.__qualname__ = found
        build.__doc__ = forward.__doc__
        return build

    def _custom(self, made: Primitive, arguments: tuple[Any, ...]) -> Any:
        places = tuple(place for place, value in enumerate(arguments) if isinstance(value, Expression))
        operands = [expression(made.name, arguments[place], self) for place in places]
        if not operands:
            raise DTypeError(f"{made.name}: needs a tensor or an expression among its arguments {brief(arguments)}")
        shapes = [operand.shape for operand in operands]
        shape: Shape = shapes[0] if made.shape is None else as_shape(made.shape(*shapes), made.name)
        dtype = operands[0].dtype if made.dtype is None else made.dtype
        others = tuple(None if place in places else value for place, value in enumerate(arguments))
        request = Custom(made, others, places, ((shape, dtype),), tuple(operand.dtype for operand in operands))
        return call(made.spec, request, operands)

    # Checks

    def _floats(self, operation: str, optional: dict[str, Any] | None = None, **operands: Any) -> list[Any]:
        """Operands, including the given optional ones, as expressions of one float dtype and this backend."""
        more = {name: value for name, value in (optional or {}).items() if value is not None}
        found = {name: expression(operation, value, self) for name, value in {**operands, **more}.items()}
        check_floats(operation, **found)
        backend = common_backend(operation, tuple(found.values()))
        if backend is not self:
            raise DTypeError(f"{operation}: {', '.join(found)} belong to another backend; copy: be.array(x.get())")
        return list(found.values())

    def _bias(self, operation: str, given: list[Any], rows: int) -> list[Any]:
        for bias in given:
            _same_size(operation, "bias", bias.shape, (rows, 1))
        return given


def _name_of(forward: Any, name: Any) -> str:
    """Name of a user's primitive, distinct from those of ops."""
    if not isinstance(name, str | None):
        raise DTypeError(f"primitive: name must be a string, got {brief(name)}")
    found = str(name or getattr(forward, "__name__", type(forward).__name__))
    return f"{found}_" if found in OPS else found


def _spatial(operation: str, x: Any, w: Any = None) -> int:
    """Number of spatial axes, 2 or 3."""
    axes = len(x.shape) - 2
    if axes not in (2, 3) or (w is not None and len(w.shape) != len(x.shape)):
        filters = "" if w is None else f" and filters {w.shape}"
        wanted = "" if w is None else " with filters (C, R, S, K) or (C, T, R, S, K)"
        raise ShapeError(
            f"{operation}: got images of shape {x.shape}{filters}; expected (C, H, W, N) or (C, D, H, W, N){wanted}: "
            "reshape them"
        )
    return axes


def _five(axes: int, *sizes: Shape) -> list[Any]:
    """Each of ``sizes`` with a depth of 1 where there is none."""
    return [(1,) * (3 - axes) + tuple(size) for size in sizes]


def _sizes(
    operation: str, axes: int, x: Any, w: Any, padding: Any, strides: Any, dilation: Any
) -> tuple[Any, Any, Any, Any, Any]:
    """Image, filter, padding, strides and dilation, each for three axes."""
    steps = {"padding": padding, "strides": strides, "dilation": dilation}
    images = _five(axes, x.shape[1:-1], w.shape[1:-1])
    given = [per_axis(operation, name, value, axes, int(name != "padding")) for name, value in steps.items()]
    return images[0], images[1], given[0], given[1], given[2]


def per_axis(operation: str, name: str, value: Any, axes: int, filler: int) -> Any:
    """Expand ``value`` to depth, height and width, with ``filler`` for a missing depth.

    Parameters
    ----------
    operation, name : str
        Method and argument, for messages.
    value : int, tuple or list
    axes : int
        Number of spatial axes, 2 or 3.
    filler : int
        The number for a depth that is not there.

    Raises
    ------
    ArgumentError
        If ``value`` is neither a number nor ``axes`` of them.
    """
    each = tuple(value) if isinstance(value, (tuple, list)) else (value,) * axes
    if len(each) != axes or any(isinstance(size, int) and size > _LARGEST for size in each):
        raise ArgumentError(f"{operation}: {name} must be a number or {axes} of them, got {brief(value)}")
    return (filler,) * (3 - axes) + each


def _same_size(operation: str, name: str, shape: Shape, wanted: Shape) -> None:
    if shape != wanted:
        raise ShapeError(f"{operation}: {name} has shape {shape}, expected {wanted}")
