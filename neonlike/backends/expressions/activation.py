"""Methods around activations: softmax, relu, transforms, skip connections, fully connected biases."""

from __future__ import annotations

import inspect
from functools import lru_cache
from typing import Any

from neonlike.backends.family import Family
from neonlike.checks import require_method, shown
from neonlike.errors import DTypeError, MissingArgument, ShapeError
from neonlike.optree import functions
from neonlike.optree.forms import mark, owner
from neonlike.optree.functions import F as Functions
from neonlike.optree.node import expression

F: Any = Functions


@owner
class ActivationFamily(Family):
    """Activation methods defined as op-trees; each is one fused kernel.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> be.fprop_relu(None, be.array([[-1., 2.]])).tolist()
    [[0.0, 2.0]]
    """

    def fprop_softmax(self, x: Any, axis: int | None = 0) -> Any:
        """exp(x - max) / sum(exp(x - max)) along ``axis``; lazy. x: tensor or expression (features, N).

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.fprop_softmax(be.zeros((4, 2))).tolist()[0]
        [0.25, 0.25]
        """
        return functions.softmax(expression("fprop_softmax", x, self), axis)

    mark(fprop_softmax, "composed", functions.softmax)

    def fprop_relu(self, layer: Any, x: Any, slope: float = 0) -> Any:
        """max(x, 0) + slope * min(x, 0); lazy.

        Parameters
        ----------
        layer : object or None
            Engine object of the layer; not used.
        x : tensor or expression
        slope : float
            Factor of negative inputs.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.fprop_relu(None, be.array([[-2., 0., 3.]]), slope=0.5).tolist()
        [[-1.0, 0.0, 3.0]]
        """
        x = expression("fprop_relu", x, self)
        return F.maximum(x, 0) + slope * F.minimum(x, 0) if slope else F.maximum(x, 0)

    def bprop_relu(self, layer: Any, x: Any, error: Any, deltas: Any, slope: float = 0) -> Any:
        """Derivative (x > 0) + slope * (x < 0), not multiplied by the error, as in neon; lazy.

        Parameters
        ----------
        layer, error, deltas
            neon's engine arguments; ignored.
        x : tensor or expression
            Input or output of the activation.
        slope : float
            Factor of negative inputs, as in :meth:`fprop_relu`.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.bprop_relu(None, be.array([[-2., 0., 3.]]), None, None, slope=0.5).tolist()
        [[0.5, 0.0, 1.0]]
        """
        x = expression("bprop_relu", x, self)
        return F.greater(x, 0) + slope * F.less(x, 0) if slope else F.greater(x, 0)

    def fprop_transform(self, ngLayer: Any, transform: Any, inputs: Any, outputs: Any, relu: bool = False) -> None:
        """outputs = transform(inputs).

        Parameters
        ----------
        ngLayer : object or None
            Engine object of the layer; not used.
        transform : callable
            Maps a tensor to an expression.
        inputs, outputs : tensors
            May be the same tensor.
        relu : bool
            States that the transform is a relu; ignored.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> x = be.array([[-2., 3.]])
        >>> be.fprop_transform(None, be.square, x, x)
        >>> x.tolist()
        [[4.0, 9.0]]
        """
        if isinstance(transform, type) or not callable(transform):
            raise DTypeError(f"fprop_transform: transform must be callable, as Rectlin() is; got {shown(transform)}")
        self.assign(outputs, transform(expression("fprop_transform", inputs, self)))

    def bprop_transform(
        self,
        ngLayer: Any,
        transform: Any,
        outputs: Any,
        error: Any,
        deltas: Any,
        relu: bool = False,
        *,
        inputs: Any = None,
    ) -> None:
        """deltas = transform.bprop(outputs) * error.

        Parameters
        ----------
        ngLayer, relu
            As in :meth:`fprop_transform`.
        transform : object
            Its ``bprop`` returns the derivative, an expression or a number; see :func:`derivative` for its arguments.
        outputs, error, deltas : tensors of one shape
            ``deltas`` may be ``error`` or ``outputs``.
        inputs : tensor of that shape, optional
            Input of the transform, for transforms that need it.

        Raises
        ------
        MissingArgument
            If the transform needs ``inputs`` and there are none.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> from neonlike.transforms import Rectlin
        >>> outputs, error, deltas = be.array([[0., 3.]]), be.ones((1, 2)), be.empty((1, 2))
        >>> be.bprop_transform(None, Rectlin(), outputs, error, deltas)
        >>> deltas.tolist()
        [[0.0, 1.0]]
        """
        require_method("bprop_transform", "transform", transform, "bprop", "Rectlin()")
        outputs = expression("bprop_transform", outputs, self)
        self.assign(deltas, derivative(transform, outputs, inputs) * expression("bprop_transform", error, self))

    def fprop_skipnode(self, x: Any, y: Any, beta: float) -> None:
        """y = beta * y + x, for tensors of one shape; with beta 0 the old y is not read.

        Parameters
        ----------
        x : tensor or expression
        y : tensor
            The target.
        beta : float
            Factor of the old contents.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> y = be.ones((1, 2))
        >>> be.fprop_skipnode(be.array([[1., 2.]]), y, beta=10)
        >>> y.tolist()
        [[11.0, 12.0]]
        """
        y, x = expression("fprop_skipnode", y, self), expression("fprop_skipnode", x, self)
        self.assign(y, y * float(beta) + x if beta else x)

    def bprop_skipnode(self, error: Any, deltas: Any, alpha: float, beta: float) -> None:
        """deltas = beta * deltas + alpha * error, for tensors of one shape; with beta 0 deltas are not read.

        Parameters
        ----------
        error : tensor or expression
        deltas : tensor
            The target.
        alpha, beta : float
            Factors of the error and of the old contents.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> deltas = be.ones((1, 2))
        >>> be.bprop_skipnode(be.array([[1., 2.]]), deltas, alpha=2, beta=1)
        >>> deltas.tolist()
        [[3.0, 5.0]]
        """
        error, deltas = expression("bprop_skipnode", error, self), expression("bprop_skipnode", deltas, self)
        scaled = error * float(alpha)
        self.assign(deltas, deltas * float(beta) + scaled if beta else scaled)

    def add_fc_bias(self, inputs: Any, bias: Any) -> None:
        """inputs += bias, in place; inputs (features, N), bias (features, 1).

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> x = be.ones((2, 3))
        >>> be.add_fc_bias(x, be.array([1., 2.]))
        >>> x.tolist()
        [[2.0, 2.0, 2.0], [3.0, 3.0, 3.0]]
        """
        self._check_target(inputs)
        _check_bias("add_fc_bias", inputs, bias)
        self.assign(inputs, inputs + bias)

    def update_fc_bias(self, err: Any, out: Any) -> None:
        """out = row sums of err, the gradient of :meth:`add_fc_bias`'s bias; err (features, N), out (features, 1).

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> gradient = be.empty((2, 1))
        >>> be.update_fc_bias(be.array([[1., 2.], [3., 4.]]), gradient)
        >>> gradient.tolist()
        [[3.0], [7.0]]
        """
        self._check_target(out)
        err = expression("update_fc_bias", err, self)
        _check_bias("update_fc_bias", err, out)
        self.assign(out, F.sum(err, axis=1))


def asks_for(transform: Any) -> frozenset[str]:
    """The names among ``inputs`` and ``outputs`` that are parameters of an activation's ``bprop``."""
    bprop = getattr(transform, "bprop", None)
    return _asked(getattr(bprop, "__func__", bprop))


@lru_cache(maxsize=1024)
def _asked(bprop: Any) -> frozenset[str]:
    try:
        parameters = inspect.signature(bprop).parameters
    except (TypeError, ValueError):  # a builtin without a signature
        return frozenset()
    return frozenset(("inputs", "outputs")) & parameters.keys()


def derivative(transform: Any, outputs: Any, inputs: Any = None) -> Any:
    """Derivative of an activation, by its ``bprop``: an expression or a number.

    ``bprop(x)`` receives the outputs, as in neon. Parameters named ``inputs`` and ``outputs`` receive those tensors,
    and no other parameter is filled then, unless ``outputs`` is missing: ``bprop(x, inputs)`` receives the outputs
    first.

    Parameters
    ----------
    transform : object with ``bprop``
    outputs : tensor or expression
        Values of the transform.
    inputs : tensor or expression, optional
        Its arguments.

    Raises
    ------
    MissingArgument
        If it needs ``inputs``, and they are None: overwritten, as in recurrent layers.
    """
    asked = asks_for(transform)
    if not asked:
        return transform.bprop(outputs)
    if inputs is None:
        refuse_inputs("derivative", transform)
    named = {name: value for name, value in (("inputs", inputs), ("outputs", outputs)) if name in asked}
    return transform.bprop(**named) if _all_named(transform.bprop, asked) else transform.bprop(outputs, **named)


def refuse_inputs(operation: str, transform: Any) -> None:
    """Raise MissingArgument if an activation's ``bprop`` needs ``inputs``, which ``operation`` does not have."""
    if "inputs" in asks_for(transform):
        raise MissingArgument(
            f"{operation}: the derivative of {type(transform).__name__} needs the inputs of the activation, which are "
            "not kept here; use an activation whose derivative follows from its output (Tanh, Logistic, Rectlin, ...)"
        )


def _all_named(bprop: Any, asked: frozenset[str]) -> bool:
    """Whether all required parameters are in ``asked``."""
    kinds = inspect.Parameter
    return not any(
        p.default is p.empty and p.kind in (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD) and name not in asked
        for name, p in inspect.signature(bprop).parameters.items()
    )


def _check_bias(operation: str, rows: Any, bias: Any) -> None:
    shape = getattr(bias, "shape", None)
    if len(rows.shape) != 2 or shape != (rows.shape[0], 1):
        raise ShapeError(
            f"{operation}: for (features, N) = {rows.shape}, the bias must be (features, 1), got {shape or bias!r}"
        )
