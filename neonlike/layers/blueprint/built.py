"""Objects that blueprints build: layers with input, output and their gradients, a forward and a backward pass."""

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
from neonlike.layers.blueprint.steps import require_optimizer, update


class Port(NamedTuple):
    """An output of a layer that has several, as a ``source``."""

    output: Any
    diff_output: Any


def ports_of(source: Any) -> list[Any]:
    """A source for each input: the outputs of a layer, or several sources."""
    if isinstance(source, BuiltLayer) and isinstance(source.output, tuple):
        gradients = source.diff_output or (None,) * len(source.output)
        return [Port(*pair) for pair in zip(source.output, gradients)]
    return list(source) if isinstance(source, (tuple, list)) else [source]


class BuiltLayer:
    """A layer that a blueprint built.

    Attributes
    ----------
    blueprint : Blueprint
    input, output : Tensor or tuple of Tensor
        Of the shapes of the descriptors. The input is read when the layer computes: ``layer.input[:] = x``.
    diff_input, diff_output : Tensor, tuple of Tensor or None
        Gradients of the cost with respect to them; None in inference. ``diff_output`` is what ``backward`` reads, which
        the next layer wrote.
    workspace
        The memory for what it keeps no longer than a call takes.
    name : str
        The kind of the blueprint, by which ``MultiOptimizer`` may choose an optimizer; may be set.
    """

    draws_weights = False
    """Whether ``init`` of a network is for this layer."""

    def __init__(
        self, blueprint: Any, train: bool, source: Any, workspace: Any, input_gradient: bool, output: Any
    ) -> None:
        self.blueprint, self.be, self.train = blueprint, blueprint.be, bool(train)
        self.name: str = blueprint.kind
        self.workspace = self._workspace(workspace)
        self._build(source, input_gradient, output)

    def _build(self, source: Any, input_gradient: bool, output: Any) -> None:
        self._connect(source, input_gradient)
        self.output = self._output(output)
        self.diff_output = self._diff_output() if self.train else None
        self._allocate()

    # Memory

    def _new(self, desc: TensorDesc) -> Any:
        return self.be.tensor(desc)

    def _news(self, desc: TensorDesc | tuple[TensorDesc, ...]) -> Any:
        return tuple(map(self._new, desc)) if isinstance(desc, tuple) else self._new(desc)

    def _connect(self, source: Any, input_gradient: bool) -> None:
        """Make the input that of ``source``, and its gradient, if it is wanted, that of ``source``'s output."""
        desc = self.blueprint.src_desc
        if not isinstance(desc, tuple):
            self.input, self.diff_input = self._connected(desc, source, input_gradient)
            return
        given = [None] * len(desc) if source is None else ports_of(source)
        if len(given) != len(desc):
            raise ShapeError(f"{self.blueprint}: takes {len(desc)} inputs, got {shown(source)}")
        pairs = [self._connected(one, port, input_gradient) for one, port in zip(desc, given)]
        self.input, gradients = zip(*pairs)
        self.diff_input = gradients if self.train and input_gradient else None

    def _connected(self, desc: TensorDesc, source: Any, input_gradient: bool) -> tuple[Any, Any]:
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
        if not (self.train and input_gradient):
            return tensor, None
        return tensor, self._new(desc) if gradient is None else fitting(str(self.blueprint), desc, gradient)

    def _output(self, given: Any) -> Any:
        desc = self.blueprint.dst_desc
        if given is None:
            return self._news(desc)
        if isinstance(desc, tuple):
            raise ArgumentError(f"{self.blueprint}: has several outputs, whose memory cannot be given")
        return fitting(str(self.blueprint), desc, given)

    def _diff_output(self) -> Any:
        return self._news(self.blueprint.diff_desc)

    def _allocate(self) -> None:
        """Take what the layer needs beside inputs and outputs."""

    def _workspace(self, given: Any) -> Any:
        needed = self.blueprint.train_workspace_bytes if self.train else self.blueprint.inf_workspace_bytes
        if given is None:
            return self.be.workspace(needed) if needed else None
        if not isinstance(given, Workspace):
            raise DTypeError(f"{self.blueprint}: a workspace is what be.workspace(bytes) gives, got {shown(given)}")
        if given.nbytes < needed:
            raise ShapeError(f"{self.blueprint}: needs a workspace of {needed} bytes, got one of {given.nbytes}")
        return given

    @property
    def _dtype(self) -> Any:
        return self._desc.dtype

    @property
    def _desc(self) -> TensorDesc:
        """The input, or the first of several."""
        desc: Any = self.blueprint.src_desc
        return desc[0] if isinstance(desc, tuple) else desc

    # Parameters

    input: Any
    output: Any
    diff_input: Any
    diff_output: Any
    weights: Any = None
    bias: Any = None
    diff_weights: Any = None
    diff_bias: Any = None
    weights_layer: Any = None
    weights_iter: Any = None
    bias_layer: Any = None
    bias_iter: Any = None

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
            Something with ``fill(tensor)``, or a function that writes into the tensor it is called with. Biases are 0
            by default.
        """
        with working(self.be, self._desc):
            self._init(filler(fn), filler(Constant(0) if bias is None else bias))
        return self

    def _init(self, fn: Any, bias: Any) -> None:
        if self.weights is not None:
            fn(self.weights)
        if self.bias is not None:
            bias(self.bias)

    # Passes

    @property
    def diff_z(self) -> Any:
        """The gradient after the linear part; that of the output where there is no activation."""
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
            What ``backward`` will be called with. The parameters are where its gradient is to be taken, also with
            Nesterov's momentum, whose formula has moved them there: nothing else follows from it.
        """
        self._require_training("forward")
        require_optimizer(self, "forward", hyper)
        with working(self.be, self._desc):
            self._forward(inference=False)
        return self.output

    def backward(self, hyper: Any = None, epoch: int = 0) -> Any:
        """Compute all gradients of ``diff_output``, with ``hyper`` update the parameters; returns ``diff_input``.

        Parameters
        ----------
        hyper : Optimizer, optional
            Such as ``GradientDescentMomentum(0.1, 0.9)`` or ``Adam()``. It divides gradients, which are sums over the
            batch, by the number of samples.
        epoch : int
            For its schedule.
        """
        self._require_training("backward")
        require_optimizer(self, "backward", hyper)
        with working(self.be, self._desc):
            self._backward()
            if hyper is not None and self.trainable:
                update(self, hyper, epoch)
        return self.diff_input

    def _backward(self) -> None:
        """All gradients."""
        self._backward_activation()
        self._backward_diff(1.0, 0.0, 0.0, 1.0)

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
        """
        self._require_training("backward_diff")
        with working(self.be, self._desc):
            self._backward_diff(float(scale_dw), float(scale_g), float(scale_db), float(scale_b))
        return self.diff_input

    def _require_training(self, operation: str) -> None:
        if not self.train:
            raise ArgumentError(
                f"{self.blueprint}: {operation} is of training, the layer was built for inference; build(train=True), "
                "or call the layer itself"
            )

    def _forward(self, inference: bool) -> None:
        raise NotImplementedError

    def _backward_activation(self) -> None:
        """Gradient of the activation; nothing where there is none."""

    def _backward_diff(self, scale_dw: float, scale_g: float, scale_db: float, scale_b: float) -> None:
        """The rest of the backward pass, as :meth:`backward_diff`."""
        raise NotImplementedError

    def leave_to_cost(self, left: bool) -> None:
        """Let the cost's gradient contain the derivative of the activation, as that of cross-entropy does, or not."""

    def _blend_bias(self, scale_db: float, scale_b: float) -> None:
        """``bias = scale_db · diff_bias + scale_b · bias``."""
        blend(self.bias, self.diff_bias, scale_db, scale_b)

    def __repr__(self) -> str:
        return f"<{self.blueprint}, {'training' if self.train else 'inference'}>"


class WeightedLayer(BuiltLayer):
    """Base of layers with one weight and one bias."""

    draws_weights = True

    def _make_parameters(self, weights: tuple[int, ...], bias: tuple[int, ...], dtype: Any = None) -> None:
        kind = self._dtype if dtype is None else dtype
        self.weights, self.bias = (self.be.zeros(shape, dtype=kind) for shape in (weights, bias))
        if self.train:
            self.diff_weights, self.diff_bias = (self.be.zeros(shape, dtype=kind) for shape in (weights, bias))
        self.states: tuple[list[Any], list[Any]] = [], []

    def get_params(self) -> list[Any]:
        """``[((weights, diff_weights), states), ((bias, diff_bias), states)]``."""
        pairs = (self.weights, self.diff_weights), (self.bias, self.diff_bias)
        return list(zip(pairs, self.states))


def flat(tensor: Any, rows: int | None = None) -> Any:
    """A view ``(features, N)`` of a tensor ``(..., N)``, or with so many rows."""
    shape = (-1, tensor.shape[-1]) if rows is None else (rows, -1)
    return tensor if tensor.ndim == 2 and rows in (None, tensor.shape[0]) else tensor.viewed(shape)


def blend(target: Any, value: Any, alpha: float, beta: float) -> None:
    """``target = alpha · value + beta · target``; a factor of 0 takes no part."""
    if (alpha, beta) == (0.0, 1.0):
        return
    scaled = value if alpha == 1 else alpha * value
    target[:] = scaled if beta == 0 else scaled + (target if beta == 1 else beta * target)


def filler(fn: Any) -> Any:
    """A function that fills a tensor: a function, or the ``fill`` of an initializer."""
    found = getattr(fn, "fill", fn)
    if isinstance(fn, type) or not callable(found):
        raise DTypeError(f"init: expected an initializer such as Gaussian(scale=0.1), or a function, got {shown(fn)}")
    return found
