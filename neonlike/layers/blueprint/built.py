"""Base of the layers that blueprints build: input, output and their gradients, a forward and a backward pass."""

from __future__ import annotations

from typing import Any, NamedTuple

from neonlike.backends.backend import Tensor
from neonlike.backends.descriptors import TensorDesc
from neonlike.backends.objects.workspace import Workspace
from neonlike.checks import shown
from neonlike.errors import ArgumentError, DTypeError, ShapeError
from neonlike.initializers import Constant
from neonlike.layers.blueprint.base import working
from neonlike.layers.blueprint.description import fitting
from neonlike.optimizers import Optimizer


class Port(NamedTuple):
    """One output of a layer that has several, as a ``source``.

    Parameters
    ----------
    output, diff_output : Tensor
        The output, and the tensor for its gradient, None in inference.
    """

    output: Any
    diff_output: Any


class Scales(NamedTuple):
    """Factors of :meth:`BuiltLayer.backward_diff`: of new and old values of the weights' gradients, and of the bias.

    Parameters
    ----------
    dw, g : float
        Factors of the new and of the old gradient by the weights.
    db, b : float
        Factors of the gradient by the bias, and of the bias.
    """

    dw: float = 1.0
    g: float = 0.0
    db: float = 0.0
    b: float = 1.0

    @property
    def are_plain(self) -> bool:
        """Whether the gradients of weights are what a backward pass leaves."""
        return self.dw == 1 and not self.g

    def apply(self, gradient: Any, old: Any) -> None:
        """``gradient = dw · gradient + g · old``; ``old`` may be None where ``g`` is 0."""
        if not self.are_plain:
            gradient[:] = self.dw * gradient + self.g * old if self.g else self.dw * gradient

    def move(self, bias: Any, gradient: Any) -> None:
        """``bias = db · gradient + b · bias``; a factor of 0 takes no part."""
        if (self.db, self.b) != (0.0, 1.0):
            bias[:] = self.db * gradient + self.b * bias if self.b else self.db * gradient


def ports_of(where: str, source: Any, count: int) -> list[Any]:
    """Sources of ``count`` inputs: the outputs of a layer, several sources, or None for each.

    Parameters
    ----------
    where : str
        Subject of the messages.
    source : BuiltLayer, Tensor, list of these or None
        A layer with as many outputs, or as many sources.
    count : int
        Number of inputs.

    Raises
    ------
    ShapeError
        If there is another number of sources.
    """
    if source is None:
        return [None] * count
    if isinstance(source, BuiltLayer) and isinstance(source.output, tuple):
        gradients = source.diff_output or (None,) * len(source.output)
        found: list[Any] = [Port(*pair) for pair in zip(source.output, gradients)]
    else:
        found = list(source) if isinstance(source, (tuple, list)) else [source]
    if len(found) != count:
        raise ShapeError(f"{where}: takes {count} inputs, got {shown(source)}")
    return found


class BuiltLayer:
    """A layer that a blueprint built.

    Parameters
    ----------
    blueprint : Blueprint
        The layer's blueprint.
    train : bool
        Whether the layer has gradients.
    source, workspace, input_gradient, output
        As of :meth:`~neonlike.layers.blueprint.Blueprint.build`.

    Attributes
    ----------
    input, output : Tensor or tuple of Tensor
        Tensors of the descriptors' shapes. The input is read when the layer computes: ``layer.input[:] = x``.
    diff_input, diff_output : Tensor, tuple of Tensor or None
        Gradients of the cost with respect to them; None in inference. ``backward`` reads ``diff_output``, which the
        next layer wrote.
    weights, bias, diff_weights, diff_bias : Tensor, tuple of Tensor or None
        Parameters and their gradients; of recurrent layers ``weights_layer``, ``weights_iter``, ``bias_layer`` and
        ``bias_iter`` too.
    workspace : Workspace or None
        Memory for values that are kept no longer than a call takes.
    name : str
        The kind of the blueprint, by which ``MultiOptimizer`` may choose an optimizer; may be set.
    blueprint : Blueprint
        The blueprint that built the layer.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.layers.blueprint.built import BuiltLayer
    >>> be = gen_backend("cpu", batch_size=2)
    >>> layer = be.blueprints.inner_product((4, 2), 1).build(train=False).init(lambda weights: weights.fill(0.5))
    >>> layer.input[:] = 1
    >>> isinstance(layer, BuiltLayer), layer().tolist()
    (True, [[2.0, 2.0]])
    """

    input: Any
    output: Any
    diff_input: Any
    diff_output: Any = None
    weights: Any = None
    bias: Any = None
    diff_weights: Any = None
    diff_bias: Any = None
    weights_layer: Any = None
    weights_iter: Any = None
    bias_layer: Any = None
    bias_iter: Any = None

    def __init__(
        self, blueprint: Any, train: bool, source: Any, workspace: Any, input_gradient: bool, output: Any
    ) -> None:
        self.blueprint, self.be, self.train = blueprint, blueprint.be, bool(train)
        self.name: str = blueprint.kind
        first = blueprint.src_desc
        self._desc: TensorDesc = first[0] if isinstance(first, tuple) else first
        self.workspace = self._workspace(workspace)
        self._build(source, input_gradient, output)

    # -- memory --------------------------------------------------------------------------------------------

    def _build(self, source: Any, input_gradient: bool, output: Any) -> None:
        bp, wanted = self.blueprint, self.train and input_gradient
        if isinstance(bp.src_desc, tuple):
            ports = ports_of(str(bp), source, len(bp.src_desc))
            pairs = [self._connected(desc, port, wanted) for desc, port in zip(bp.src_desc, ports)]
            self.input, gradients = zip(*pairs)
            self.diff_input = gradients if wanted else None
        else:
            self.input, self.diff_input = self._connected(bp.src_desc, source, wanted)
        self.output = self._output(output)
        self.diff_output = self._new(bp.diff_desc) if self.train else None
        with working(self.be, self._desc):
            self._allocate()

    def _new(self, desc: Any) -> Any:
        return tuple(map(self.be.tensor, desc)) if isinstance(desc, tuple) else self.be.tensor(desc)

    def _connected(self, desc: TensorDesc, source: Any, wanted: bool) -> tuple[Any, Any]:
        """An input and its gradient, if that is wanted: output and gradient of ``source``, or new tensors."""
        tensor, gradient = source, None
        if isinstance(source, (BuiltLayer, Port)):
            tensor, gradient = source.output, source.diff_output
        if tensor is None:
            tensor = self._new(desc)
        elif not isinstance(tensor, Tensor):
            raise DTypeError(
                f"{self.blueprint}: its input must be a tensor or a layer with one output, got {shown(tensor)}"
            )
        else:
            tensor = fitting(str(self.blueprint), desc, tensor)
        if not wanted:
            return tensor, None
        return tensor, self._new(desc) if gradient is None else fitting(str(self.blueprint), desc, gradient)

    def _output(self, given: Any) -> Any:
        desc = self.blueprint.dst_desc
        if given is None:
            return self._new(desc)
        if isinstance(desc, tuple):
            raise ArgumentError(f"{self.blueprint}: has several outputs, whose memory cannot be given")
        return fitting(str(self.blueprint), desc, given)

    def _workspace(self, given: Any) -> Any:
        needed = self.blueprint.train_workspace_bytes if self.train else self.blueprint.inf_workspace_bytes
        if given is None:
            return self.be.workspace(needed) if needed else None
        if not isinstance(given, Workspace):
            raise DTypeError(f"{self.blueprint}: a workspace is what be.workspace(bytes) gives, got {shown(given)}")
        if given.nbytes < needed:
            raise ShapeError(f"{self.blueprint}: needs a workspace of {needed} bytes, got one of {given.nbytes}")
        return given

    def _allocate(self) -> None:
        """Take the memory that the layer needs beside inputs and outputs."""

    # -- parameters ----------------------------------------------------------------------------------------

    @property
    def parameters(self) -> tuple[Any, ...]:
        """All parameters, weights before biases."""
        return tuple(tensor for tensor in (self.weights, self.bias) if tensor is not None)

    def get_params(self) -> list[Any]:
        """``[((parameter, gradient), states), ...]`` for optimizers."""
        return []

    @property
    def trainable(self) -> list[Any]:
        """The layers with parameters: this one, none, or those of a network."""
        return [self] if self.parameters else []

    def init(self, fn: Any, bias: Any = None) -> Any:
        """Fill the weights by ``fn`` and the biases by ``bias``; returns the layer.

        Parameters
        ----------
        fn, bias : initializer or callable
            An object with ``fill(tensor)``, or a function that writes into the tensor it is called with. Biases are 0
            by default.
        """
        with working(self.be, self._desc):
            self._init(filler(fn), filler(Constant(0) if bias is None else bias))
        return self

    def _init(self, fn: Any, bias: Any) -> None:
        if self.weights is not None:
            fn(self.weights)
            bias(self.bias)

    # -- passes --------------------------------------------------------------------------------------------

    @property
    def diff_z(self) -> Any:
        """The gradient before the activation; that of the output where there is no activation."""
        return self.diff_output

    def __call__(self) -> Any:
        """Compute the output of the input as inference does, and return it."""
        with working(self.be, self._desc):
            self._forward(inference=True)
        return self.output

    def forward(self, hyper: Any = None) -> Any:
        """Compute the output of the input as training does, and return it.

        Parameters
        ----------
        hyper : Optimizer, optional
            The optimizer that ``backward`` will be called with. The parameters are where its gradient is to be taken,
            also with Nesterov's momentum, whose formula has moved them there: nothing else follows from it.
        """
        self._require_training("forward", hyper)
        with working(self.be, self._desc):
            self._forward(inference=False)
        return self.output

    def backward(self, hyper: Any = None, epoch: int = 0) -> Any:
        """Compute all gradients of ``diff_output``, with ``hyper`` update the parameters; returns ``diff_input``.

        Layers may be updated one by one by the same optimizer: those that count steps (Adam) count them for each.

        Parameters
        ----------
        hyper : Optimizer, optional
            Such as ``GradientDescentMomentum(0.1, 0.9)`` or ``Adam()``. It divides gradients, which are sums over the
            batch, by the number of samples.
        epoch : int
            For its schedule.
        """
        self._require_training("backward", hyper)
        with working(self.be, self._desc):
            self._backward()
            if hyper is not None and self.trainable:
                hyper.optimize(self.trainable, epoch)
        return self.diff_input

    def backward_activation(self) -> Any:
        """Compute ``diff_z`` of ``diff_output``, and return it."""
        self._require_training("backward_activation")
        with working(self.be, self._desc):
            self._backward_activation()
        return self.diff_z

    def backward_diff(self, scale_dw: float, scale_g: float, scale_db: float, scale_b: float) -> Any:
        """The linear part of the backward pass, from ``diff_z``; returns ``diff_input``.

        With dW and db the gradients by weights and bias: ``diff_weights = scale_dw · dW + scale_g · diff_weights``,
        ``bias = scale_db · db + scale_b · bias`` and ``diff_bias = db``. So (-rate / N, momentum, -rate / N, 1) leaves
        a velocity in ``diff_weights`` and takes a step with the bias. With a factor of 0, old values are not read.

        Parameters
        ----------
        scale_dw, scale_g : float
            Factors of the new and of the old gradient by the weights.
        scale_db, scale_b : float
            Factors of the gradient by the bias, and of the bias.
        """
        self._require_training("backward_diff")
        with working(self.be, self._desc):
            self._backward_diff(Scales(float(scale_dw), float(scale_g), float(scale_db), float(scale_b)))
        return self.diff_input

    def _require_training(self, operation: str, hyper: Any = None) -> None:
        if not self.train:
            raise ArgumentError(
                f"{self.blueprint}: {operation} is of training, the layer was built for inference; build(train=True), "
                "or call the layer itself"
            )
        if hyper is not None and not isinstance(hyper, Optimizer):
            raise DTypeError(
                f"{self.blueprint}: {operation} takes an optimizer, such as GradientDescentMomentum(0.1, 0.9) or "
                f"Adam(); got {shown(hyper)}"
            )

    def _forward(self, inference: bool) -> None:
        raise NotImplementedError

    def _backward(self) -> None:
        """Compute all gradients."""
        self._backward_activation()
        self._backward_diff(Scales())

    def _backward_activation(self) -> None:
        """Compute the gradient before the activation; nothing where there is none."""

    def _backward_diff(self, scales: Scales) -> None:
        """Compute the rest of the backward pass."""
        raise NotImplementedError

    def leave_to_cost(self, left: bool) -> None:
        """Set whether the cost's gradient contains the derivative of the activation, as that of cross-entropy does.

        Parameters
        ----------
        left : bool
            Whether errors contain the derivative.
        """

    def __repr__(self) -> str:
        return f"<{self.blueprint}, {'training' if self.train else 'inference'}>"


def filler(fn: Any) -> Any:
    """A function that fills a tensor: a function, or the ``fill`` of an initializer."""
    found = getattr(fn, "fill", fn)
    if isinstance(fn, type) or not callable(found):
        raise DTypeError(f"init: expected an initializer such as Gaussian(scale=0.1), or a function, got {shown(fn)}")
    return found
