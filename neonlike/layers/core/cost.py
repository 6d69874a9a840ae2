"""Cost layers: they apply a cost function to the network's outputs and own the error buffer of the backward pass."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from neonlike.autograd.variable import Variable
from neonlike.backends.replays import Replays
from neonlike.errors import ArgumentError, DTypeError, NotDefined
from neonlike.kernels.run.depends import Depends
from neonlike.layers.core.base import Layer, interpret_in_shape
from neonlike.layers.core.variables import cost_of
from neonlike.logger import logger
from neonlike.nervanaobject import NervanaObject
from neonlike.optree import dialect
from neonlike.optree.dtypes import compute_dtype
from neonlike.optree.values import values
from neonlike.transforms.transform import Cost, Metric

if TYPE_CHECKING:
    from neonlike.transforms.cost import GANCost
    from neonlike.transforms.transform import Transform

__public_module__ = "neonlike.layers.layer"


class NetworkCost(Protocol):
    """The methods that a model needs of its cost. :class:`GeneralizedCost` and :class:`Multicost` have them."""

    def initialize(self, in_obj: Any, /) -> None:
        """Allocate the buffers for the outputs of a network, its container or last layer."""
        ...

    def get_cost(self, inputs: Any, targets: Any, /) -> Any:
        """Mean cost over all columns, ``(1, 1)`` on the host.

        Parameters
        ----------
        inputs, targets : Tensor, or list of Tensor
            Outputs of the network ``(nout, N)``, and their targets.
        """
        ...

    def get_errors(self, inputs: Any, targets: Any, /) -> Any:
        """Gradient of the summed cost with respect to the outputs, in their shape.

        Parameters
        ----------
        inputs, targets : Tensor, or list of Tensor
            Outputs of the network ``(nout, N)``, and their targets.
        """
        ...


class GeneralizedCost(NervanaObject):
    """Mean of a cost function over the columns of a batch, and its gradient with respect to the network's outputs.

    Parameters
    ----------
    costfunc : Cost
        Cost function, e.g. ``CrossEntropyMulti()``.
    name : str, optional
        Name in listings and model files; by default the class's with a number.

    Attributes
    ----------
    outputs : Tensor
        Cost of each column of the last batch, ``(1, steps*N)``.
    deltas : Tensor
        Gradient with respect to the network's outputs, summed over the batch.
    cost : ndarray
        Last value of ``get_cost``, ``(1, 1)``.
    column_weights : Tensor or None
        Weights ``(1, steps*N)`` of the columns of a batch, if not all count; see :meth:`count_samples`.
    activation : Transform or None
        The network's last activation, if it leaves its derivative to the cost, as Softmax does.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.initializers import Constant
    >>> from neonlike.layers import GeneralizedCost, Linear
    >>> from neonlike.transforms import SumSquared
    >>> be = gen_backend("cpu", batch_size=2)
    >>> layer, cost = Linear(nout=1, init=Constant(1.0)), GeneralizedCost(SumSquared())
    >>> cost(layer(be.ones((3, 2))), be.zeros((1, 2))).item()
    9.0
    """

    gradients: ClassVar[tuple[str, ...]] = ("bprop",)
    """Methods of the cost function that are called in addition to itself."""
    example: ClassVar[str] = "CrossEntropyMulti()"

    def __init__(self, costfunc: Cost, name: str | None = None) -> None:
        super().__init__(name)
        has_gradients = all(hasattr(costfunc, method) for method in self.gradients) and not isinstance(costfunc, Metric)
        if isinstance(costfunc, type) or not callable(costfunc) or not has_gradients:
            raise DTypeError(
                f"{self.classnm}: costfunc={costfunc!r} is not a cost function object; "
                f"construct one, e.g. {self.example}"
            )
        self.costfunc = costfunc
        self.outputs: Any = None
        self.deltas: Any = None
        self.prev_layer: Any = None
        self.activation: Transform | None = None
        self.column_weights: Any = None
        self.nstep = 1
        self.cost: Any = np.zeros((1, 1), dtype=np.float32)
        self.replays = Replays()
        self._make_cost_buffer()

    def depends_on(self) -> Depends | None:
        """Repeated passes depend on the attributes, and on what is in the cost function and activation.

        The last value is set by each pass.
        """
        return Depends(opened=frozenset(("costfunc", "activation")), free=frozenset(("cost",)))

    def _make_cost_buffer(self) -> None:
        be = self.require_backend()
        self.cost_buffer = be.zeros((1, 1), dtype=compute_dtype(be.default_np_dtype))

    def initialize(self, in_obj: Layer) -> None:
        """Allocate the buffers.

        Parameters
        ----------
        in_obj : Layer
            The last layer of the network, or the container.
        """
        self.prev_layer = in_obj
        if self.cost_buffer.backend is not self.be:
            self._make_cost_buffer()
        if isinstance(in_obj.out_shape, list):
            raise ArgumentError(
                f"{self.name}.initialize: the network has {len(in_obj.out_shape)} outputs; give each its cost: "
                "Multicost([GeneralizedCost(...), ...])"
            )
        self._pair_with(in_obj.get_terminal())
        _, self.nstep = interpret_in_shape(in_obj.out_shape)
        self.outputs = self.be.iobuf((1, self.nstep), dtype=self.cost_buffer.dtype)
        self.deltas = self.be.iobuf(in_obj.out_shape, parallelism=in_obj.parallelism)

    def count_samples(self, samples: int | None) -> None:
        """Restrict costs and gradients to the first ``samples`` of each batch; None: all.

        Their weights grow accordingly, so that the gradient over the batch size is the gradient of their mean. Several
        ranks share a batch: ``samples`` are those of ``be.global_bsz``, in the order of the ranks.

        Parameters
        ----------
        samples : int, optional
            Number of samples that count.
        """
        if samples is None:
            self.column_weights = None
            return
        weights = np.zeros((1, self.nstep, self.be.global_bsz))
        weights[:, :, :samples] = self.be.global_bsz / samples
        weights = weights[:, :, self.be.own_columns]
        self.column_weights = self.be.array(weights.reshape(1, -1), dtype=self.cost_buffer.dtype)

    def _pair_with(self, last: Any) -> None:
        """Determine the gradient for the last layer; warn if it is not the derivative of the cost."""
        transform = getattr(last, "transform", None)
        self.activation = transform if getattr(transform, "left_to_cost", False) else None
        if self.as_written:
            warn_of_pair(self.costfunc, self.activation)

    @property
    def as_written(self) -> bool:
        """Whether the gradient is ``bprop`` of the cost function alone, not of cost and activation combined.

        True in neon's dialect, and for user-defined cost functions that do not declare the form of their ``bprop``.
        """
        return dialect.is_neon() or not _is_known(self.costfunc)

    def get_cost(self, inputs: Any, targets: Any) -> np.ndarray:
        """Mean cost over all columns, ``(1, 1)`` on the host.

        Parameters
        ----------
        inputs, targets : Tensor
            Outputs of the network and their targets, ``(features, N)``.
        """
        self._check_ready("get_cost")
        self.replays.forward.run(self.be, (self, inputs, targets), self._compute, inputs, targets)
        return self.read_cost()

    def _compute(self, inputs: Any, targets: Any) -> None:
        """Compute the cost for :meth:`read_cost`."""
        self._store(self.of_columns(inputs, targets), inputs.shape[1])

    def of_columns(self, inputs: Any, targets: Any) -> Any:
        """Expression of the cost of each column.

        Parameters
        ----------
        inputs, targets : Tensor
            Outputs of the network, and targets of the same shape, ``(features, columns)``.
        """
        return self.costfunc(inputs, targets)

    def slope(self, inputs: Any, targets: Any) -> Any:
        """Expression of the summed cost's gradient for the network's last layer.

        The gradient is with respect to the network's outputs; if the last layer is an activation that leaves its
        derivative to the cost, it is with respect to the activation's inputs.

        Parameters
        ----------
        inputs, targets : Tensor
            Outputs of the network, and targets of the same shape, ``(features, columns)``.
        """
        if self.as_written:
            return self.costfunc.bprop(inputs, targets)
        return self.slope_by(self.activation, inputs, targets)

    def slope_by(self, activation: Transform | None, inputs: Any, targets: Any) -> Any:
        """Expression of the gradient by the inputs of ``activation``; if None, by ``inputs``.

        Parameters
        ----------
        activation : Transform or None
            The network's last activation.
        inputs : Tensor
            Outputs of the network, ``(features, columns)``.
        targets : Tensor
            Targets of the same shape.
        """
        if activation is None:
            return self.costfunc.slope(inputs, targets)
        return self.costfunc.slope_before(activation, inputs, targets)

    def __call__(self, inputs: Any, targets: Any) -> Variable:
        """The cost of a layer's result on variables, **summed** over the columns.

        Derivatives are sums over the batch, as in ``bprop``; optimizers divide them by ``be.bsz``. Cross-entropy has
        the true derivative behind any op; behind a softmax or logistic layer, the combined derivative of both.

        Parameters
        ----------
        inputs : Variable (features, columns)
        targets : tensor, array or Variable of that shape
            Or any targets accepted by ``get_cost``; they get no derivative.

        Raises
        ------
        ShapeError, DTypeError
            If ``inputs`` is not such a variable.
        """
        return cost_of(self, inputs, targets)

    def _check_ready(self, operation: str) -> None:
        if self.outputs is None:
            raise ArgumentError(
                f"{self.name}.{operation}: the cost does not know its network; call initialize(last layer) first, or "
                "give the cost to model.fit or model.initialize"
            )

    def _store(self, values_of_columns: Any, columns: int) -> None:
        if self.outputs.shape[1] != columns:  # a partial batch
            self.outputs = self.be.empty((1, columns), dtype=self.outputs.dtype)
        self.outputs[:] = values_of_columns
        weights = self._weights(columns)
        self.cost_buffer[:] = self.be.mean(self.outputs if weights is None else self.outputs * weights, axis=1)

    def _weights(self, columns: int) -> Any:
        """Weights of the columns of a batch; None if all are equal."""
        weights = self.column_weights
        return weights if weights is not None and weights.shape[1] == columns else None

    def read_cost(self) -> np.ndarray:
        """Read the last computed cost, in the form of :meth:`get_cost`."""
        buffer = self.cost_buffer
        self.cost = found = values(buffer.array.copy() if buffer.live_host else buffer.get())
        return found

    def get_errors(self, inputs: Any, targets: Any) -> Any:
        """Gradient of the summed cost for the last layer (``deltas``); see :meth:`slope`.

        Parameters
        ----------
        inputs, targets : Tensor
            Outputs of the network, and targets of the same shape, ``(features, columns)``.

        Returns
        -------
        Tensor
            ``deltas``, in the shape of the outputs.
        """
        self._check_ready("get_errors")
        return self.replays.backward.run(self.be, (self, inputs, targets), self._differentiate, inputs, targets)

    def _differentiate(self, inputs: Any, targets: Any) -> Any:
        slope, weights = self.slope(inputs, targets), self._weights(inputs.shape[1])
        self.deltas[:] = slope if weights is None else slope * weights
        return self.deltas


def _is_known(costfunc: Cost) -> bool:
    """Whether ``slope`` is the derivative by the outputs: true for our cost functions and for those that declare it."""
    if not isinstance(costfunc, Cost) or not costfunc.by_outputs or "bprop" in vars(costfunc):
        return False
    kind: Any = type(costfunc)
    return _knows_slopes(kind, kind.bprop, kind.slope, kind.slope_before)


@lru_cache(maxsize=256)
def _knows_slopes(kind: type, *methods: Any) -> bool:
    """Whether ``slope`` belongs to ``bprop``: a subclass that overrides only ``bprop`` has its own formula."""
    names = ("bprop", "slope", "slope_before")
    owners = [next(cls for cls in kind.__mro__ if name in vars(cls)) for name in names]
    return all(issubclass(owner, owners[0]) for owner in owners[1:] if owner is not Cost)


def warn_of_pair(costfunc: Cost, activation: Transform | None) -> None:
    """Warn once if the network is trained by a gradient other than that of its cost."""
    if _is_known(costfunc):
        fits = type(costfunc).slope is Cost.slope if activation is None else costfunc.fits(activation)
    else:
        fits = activation is None
    if not fits:
        _warn_once(type(costfunc).__name__, "another activation" if activation is None else type(activation).__name__)


@lru_cache(maxsize=256)
def _warn_once(cost: str, activation: str) -> None:
    logger.warning(
        "the gradient of %s behind %s is not the derivative of the two: bprop of the one contains the derivative of an "
        "activation, or that of the other leaves it out. Cost functions of yours whose bprop is the derivative by the "
        "outputs say so by by_outputs = True",
        cost,
        activation,
    )


class GeneralizedCostMask(GeneralizedCost):
    """Cost of the outputs where a mask is set; targets come as a pair (targets, mask).

    Parameters
    ----------
    costfunc : Cost
        Cost function, e.g. ``CrossEntropyMulti()``.
    weights : float
        Factor of cost and gradient.
    name : str, optional
        Name in listings and model files; by default the class's with a number.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.layers import GeneralizedCostMask
    >>> from neonlike.transforms import SumSquared
    >>> be = gen_backend("cpu", batch_size=2)
    >>> y, t, mask = be.ones((3, 2)), be.zeros((3, 2)), be.array([[1.0, 0.0]])
    >>> GeneralizedCostMask(SumSquared()).of_columns(y, (t, mask)).tolist()
    [[1.5, 0.0]]
    """

    def __init__(self, costfunc: Cost, weights: float = 1.0, name: str | None = None) -> None:
        super().__init__(costfunc, name)
        self.weights = weights

    def of_columns(self, inputs: Any, targets: Any) -> Any:
        """Expression of the masked cost of each column, times ``weights``; its mean is over **all** columns.

        Parameters
        ----------
        inputs : Tensor
            Outputs of the network, ``(features, columns)``.
        targets : pair of Tensor
            Targets of the same shape, and the mask, which broadcasts to it.
        """
        target, mask = self._pair(targets)
        return self.costfunc(inputs * mask, target * mask) * self.weights

    def slope(self, inputs: Any, targets: Any) -> Any:
        """Expression of the masked and weighted gradient.

        Parameters
        ----------
        inputs : Tensor
            Outputs of the network, ``(features, columns)``.
        targets : pair of Tensor
            Targets of the same shape, and the mask, which broadcasts to it.
        """
        if not self.as_written:
            return self.slope_by(self.activation, inputs, targets)
        target, mask = self._pair(targets)
        return self.costfunc.bprop(inputs, target) * mask * self.weights

    def slope_by(self, activation: Transform | None, inputs: Any, targets: Any) -> Any:
        """As :meth:`GeneralizedCost.slope_by`, masked and weighted.

        Parameters
        ----------
        activation : Transform or None
            The network's last activation.
        inputs : Tensor
            Outputs of the network, ``(features, columns)``.
        targets : pair of Tensor
            Targets of the same shape, and the mask, which broadcasts to it.
        """
        target, mask = self._pair(targets)
        if activation is None:
            return self.costfunc.slope(inputs * mask, target * mask) * mask * self.weights
        return self.costfunc.slope_before(activation, inputs, target, mask) * self.weights

    def _pair(self, targets: Any) -> tuple[Any, Any]:
        if not isinstance(targets, list | tuple) or len(targets) != 2:
            raise DTypeError(f"{self.name}: targets must be a pair (targets, mask), got a {type(targets).__name__}")
        return targets[0], targets[1]


class GeneralizedGANCost(GeneralizedCost):
    """Mean of the costs of a generative adversarial network over the columns of a batch.

    Parameters
    ----------
    costfunc : GANCost
        Cost function.
    name : str, optional
        Name in listings and model files; by default the class's with a number.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.layers import GeneralizedGANCost
    >>> from neonlike.transforms import GANCost
    >>> be = gen_backend("cpu", batch_size=2)
    >>> GeneralizedGANCost(GANCost(func="wasserstein")).costfunc.func
    'wasserstein'
    """

    costfunc: GANCost
    gradients = ("bprop_data", "bprop_noise", "bprop_generator")
    example = "GANCost(func='modified')"

    def depends_on(self) -> Depends | None:
        """No pass is repeated."""
        return None

    def count_samples(self, samples: int | None) -> None:
        """Refuse partial batches: noise always fills a batch, and all of it counts."""
        if samples is not None:
            raise ArgumentError(
                f"{self.name}: {samples} samples do not fill a batch of {self.be.global_bsz}, which generative "
                "adversarial networks need; use a smaller batch size"
            )

    def through_activation(self, y: Any, slope: Any) -> Any:
        """Gradient ``slope`` by the discriminator's outputs ``y``, or by the inputs of its last activation."""
        return slope if self.activation is None or self.as_written else self.activation.through(y, slope)

    def get_cost(self, y_data: Any, y_noise: Any, cost_type: str | None = None) -> np.ndarray:  # type: ignore[override]
        """Mean cost over all columns, ``(1, 1)`` on the host.

        Parameters
        ----------
        y_data, y_noise : Tensor
            Outputs of the discriminator for data and for generated samples, ``(features, N)``.
        cost_type : str, optional
            ``"dis"``, its parts ``"dis_data"`` and ``"dis_noise"``, or ``"gen"``; by default the cost function's.
        """
        self._check_ready("get_cost")
        cost_type = self.costfunc.cost_type if cost_type is None else cost_type
        columns = (y_noise if y_data is None else y_data).shape[1]
        self._store(self.costfunc(y_data, y_noise, cost_type), columns)
        return self.read_cost()

    def __call__(self, inputs: Any, targets: Any) -> Variable:
        """Not defined, as :meth:`get_errors`."""
        return self.get_errors(inputs, targets)  # type: ignore[no-any-return]

    def get_errors(self, inputs: Any, targets: Any) -> Any:
        """Not defined: the gradients of the two networks are ``costfunc.bprop_data`` and its like."""
        raise NotDefined(
            f"{self.name}: a GAN has several gradients; use costfunc.bprop_data, bprop_noise, bprop_generator"
        )
