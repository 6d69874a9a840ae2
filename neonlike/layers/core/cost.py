"""Cost layers: they apply a cost function to a network's outputs and own the error that starts the backward pass."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from neonlike.autograd.variable import Variable
from neonlike.backends.replays import Replays
from neonlike.errors import ArgumentError, DTypeError, NotDefined
from neonlike.kernels.run.recorded import beside
from neonlike.layers.core.base import Layer, interpret_in_shape
from neonlike.layers.core.variables import cost_of
from neonlike.nervanaobject import NervanaObject
from neonlike.optree.dtypes import compute_dtype
from neonlike.optree.values import values
from neonlike.transforms.transform import Metric

__public_module__ = "neonlike.layers.layer"


class GeneralizedCost(NervanaObject):
    """Mean of a cost function over the columns of a batch, and its gradient with respect to the network's outputs.

    Parameters
    ----------
    costfunc : Cost
        Cost function, e.g. ``CrossEntropyMulti()``.

    Attributes
    ----------
    outputs : Tensor
        Cost of each column of the last batch, ``(1, steps*N)``.
    deltas : Tensor
        Gradient with respect to the network's outputs, a sum over the batch.
    cost : ndarray
        Last value of ``get_cost``, ``(1, 1)``.
    """

    __slots__ = ("cost",)  # which each pass sets, and none depends on
    gradients: ClassVar[tuple[str, ...]] = ("bprop",)
    """Methods of the cost function that are called beside itself."""
    example: ClassVar[str] = "CrossEntropyMulti()"
    repeatable = True
    """As of layers: values and gradients are recorded, see ``replays.py``."""

    def __init__(self, costfunc: Any, name: str | None = None) -> None:
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
        self.nstep = 1
        self.cost: Any = np.zeros((1, 1), dtype=np.float32)
        self.replays = Replays()
        self._make_cost_buffer()

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
        _, self.nstep = interpret_in_shape(in_obj.out_shape)
        self.outputs = self.be.iobuf((1, self.nstep))
        self.deltas = self.be.iobuf(in_obj.out_shape, parallelism=in_obj.parallelism)

    def get_cost(self, inputs: Any, targets: Any) -> np.ndarray:
        """Mean cost over all columns, ``(1, 1)`` on the host.

        Parameters
        ----------
        inputs, targets : Tensor
            Outputs of the network and what they should be, ``(features, N)``.
        """
        self._check_ready("get_cost")
        roots = self.costfunc, inputs, targets
        self.replays.forward.run(self.be, roots, self._compute, inputs, targets, alone=self)
        return self.read_cost()

    def _compute(self, inputs: Any, targets: Any) -> None:
        """Compute the cost, which :meth:`read_cost` gives."""
        self._store(self.of_columns(inputs, targets), inputs.shape[1])

    def of_columns(self, inputs: Any, targets: Any) -> Any:
        """Expression of the cost of each column."""
        return self.costfunc(inputs, targets)

    def slope(self, inputs: Any, targets: Any) -> Any:
        """Expression of the gradient of the summed cost with respect to the network's outputs."""
        return self.costfunc.bprop(inputs, targets)

    def __call__(self, inputs: Any, targets: Any) -> Variable:
        """The cost of a result of a layer that was called on variables, **summed** over the columns.

        Its derivatives are sums over the batch, as those of ``bprop`` are, which optimizers divide by ``be.bsz``.
        Cross-entropy has the true derivative behind any op; behind a softmax or logistic layer, that of both in one.

        Parameters
        ----------
        inputs : Variable (features, columns)
        targets : tensor, array or Variable of that shape
            Or what ``get_cost`` takes; they get no derivative.

        Raises
        ------
        ShapeError, DTypeError
            If ``inputs`` are no such variable.
        """
        return cost_of(self, inputs, targets)

    def _check_ready(self, operation: str) -> None:
        if self.outputs is None:
            raise ArgumentError(
                f"{self.name}.{operation}: the cost does not know its network; call initialize(last layer) first, or "
                "give the cost to model.fit or model.initialize"
            )

    def _store(self, values_of_columns: Any, columns: int) -> None:
        if self.outputs.shape[1] != columns:  # a batch that is not full
            self.outputs = self.be.empty((1, columns), dtype=self.outputs.dtype)
        self.outputs[:] = values_of_columns
        self.cost_buffer[:] = self.be.mean(self.outputs, axis=1)

    def read_cost(self) -> np.ndarray:
        """The cost that was computed last, as :meth:`get_cost` returns it."""
        buffer = self.cost_buffer
        self.cost = found = values(buffer.array.copy() if buffer.live_host else beside(buffer.get))
        return found

    def get_errors(self, inputs: Any, targets: Any) -> Any:
        """Gradient of the summed cost with respect to the network's outputs (``deltas``)."""
        self._check_ready("get_errors")
        roots = self.costfunc, inputs, targets
        return self.replays.backward.run(self.be, roots, self._differentiate, inputs, targets, alone=self)

    def _differentiate(self, inputs: Any, targets: Any) -> Any:
        self.deltas[:] = self.slope(inputs, targets)
        return self.deltas


class GeneralizedCostMask(GeneralizedCost):
    """Cost of the outputs where a mask is set; targets come as a pair (targets, mask).

    Parameters
    ----------
    weights : float
        Factor of the cost and of the gradient.
    """

    repeatable = True

    def __init__(self, costfunc: Any, weights: float = 1.0, name: str | None = None) -> None:
        super().__init__(costfunc, name)
        self.weights = weights

    def of_columns(self, inputs: Any, targets: Any) -> Any:
        """Expression of the masked cost of each column, times ``weights``; its mean is over **all** columns."""
        target, mask = self._pair(targets)
        return self.costfunc(inputs * mask, target * mask) * self.weights

    def slope(self, inputs: Any, targets: Any) -> Any:
        """Expression of the masked and weighted gradient."""
        target, mask = self._pair(targets)
        return self.costfunc.bprop(inputs, target) * mask * self.weights

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
    """

    gradients = ("bprop_data", "bprop_noise", "bprop_generator")
    example = "GANCost(func='modified')"

    def get_cost(self, y_data: Any, y_noise: Any, cost_type: str | None = None) -> np.ndarray:  # type: ignore[override]
        """Mean cost over all columns, ``(1, 1)`` on the host.

        Parameters
        ----------
        y_data, y_noise : Tensor
            What the discriminator says of data, and of samples that were made of noise, ``(features, N)``.
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
