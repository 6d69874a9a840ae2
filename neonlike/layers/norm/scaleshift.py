"""Base of normalization layers, with a scale gamma and a shift beta per feature or map."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from neonlike.backends.backend import Tensor
from neonlike.checks import shown
from neonlike.errors import ShapeError
from neonlike.layers.core.base import Layer, interpret_in_shape
from neonlike.layers.core.parameter import StoredLayer, stats_dtype
from neonlike.nervanaobject import Description

if TYPE_CHECKING:
    from neonlike.layers.core.base import ShapeSource


class ScaleShiftLayer(StoredLayer):
    """Base of layers with ``beta`` (starts at 0) and ``gamma`` (starts at 1), one of each per feature or map.

    Parameters
    ----------
    name : str, optional
        Name in listings and model files; by default the class's with a number.

    Attributes
    ----------
    beta, gamma, grad_beta, grad_gamma : Tensor
        Shift, scale, and their gradients, (features, 1), in float32, or float64 on a float64 backend.
    nfm : int
        Number of features or maps: the first entry of the input shape.
    states : list of two lists
        Optimizer states of beta and of gamma.
    """

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name)
        self.stats_dtype = stats_dtype(self.require_backend())
        self.states = [[], []]
        self.nfm = self._rows = 0
        self.beta: Any = None
        self.gamma: Any = None
        self.grad_beta: Any = None
        self.grad_gamma: Any = None

    def configure(self, in_obj: ShapeSource) -> Layer:
        """Set the output shape to the input shape."""
        super().configure(in_obj)
        self.out_shape = self.in_shape
        first = self.in_shape if isinstance(self.in_shape, int) else self.in_shape[0]
        if not isinstance(first, int):
            raise ShapeError(f"{self.name}: the layer before must have one output, got shapes {shown(self.in_shape)}")
        self.nfm, self._rows = first, interpret_in_shape(self.in_shape)[0]
        return self

    def allocate(self, shared_outputs: Tensor | None = None, accumulate_updates: bool = False) -> None:
        """Create the output buffer, and the parameters unless they exist.

        Parameters
        ----------
        shared_outputs : Tensor, optional
            Memory for the outputs.
        accumulate_updates : bool
            Prepare for gradient accumulation over several backward passes.
        """
        super().allocate(shared_outputs)
        self.make("beta", 0.0)
        self.make("gamma", 1.0)
        if self.grad_beta is None:
            self.grad_beta, self.grad_gamma = self.gradient_of(self.beta), self.gradient_of(self.gamma)
        self.accumulate_updates = accumulate_updates
        if accumulate_updates:
            self.acc_params = [(self.be.empty_like(grad), grad) for grad in self.grad_params]

    def statistic(self) -> Tensor:
        """A new tensor of zeros, (features, 1)."""
        made: Tensor = self.be.zeros((self.nfm, 1), dtype=self.stats_dtype, **self.get_param_attrs())
        return made

    def make(self, name: str, value: float) -> None:
        """Create the parameter ``name`` with a constant value; an existing one must have the right shape."""
        present = getattr(self, name)
        if present is None:
            setattr(self, name, self.statistic().fill(value))
        elif present.shape != (self.nfm, 1):
            raise ShapeError(
                f"{self.name}: its {name} has shape {present.shape}, but an input of shape {self.in_shape} needs "
                f"{(self.nfm, 1)}; the parameters belong to another input shape"
            )

    @property
    def params(self) -> list[Any]:
        """beta and gamma."""
        return [self.beta, self.gamma]

    @property
    def grad_params(self) -> list[Any]:
        """Gradients of beta and gamma."""
        return [self.grad_beta, self.grad_gamma]

    @property
    def acc_grad_beta(self) -> Any:
        """Accumulated gradient of beta; None unless the layer was allocated for accumulation."""
        return self.acc_params[0][0] if self.acc_params else None

    @property
    def acc_grad_gamma(self) -> Any:
        """Accumulated gradient of gamma; None unless the layer was allocated for accumulation."""
        return self.acc_params[1][0] if self.acc_params else None

    @property
    def plist(self) -> list[Any]:
        """``[((beta, grad_beta), states), ((gamma, grad_gamma), states)]``."""
        of_beta, of_gamma = self.states
        return [((self.beta, self.grad_beta), of_beta), ((self.gamma, self.grad_gamma), of_gamma)]

    def get_params(self) -> Any:
        """``[((beta, grad_beta), states), ((gamma, grad_gamma), states)]``."""
        return self.plist

    def parameter_names(self) -> tuple[str, ...]:
        """Attributes saved as parameters."""
        return "beta", "gamma"

    def stored_dtype(self, name: str) -> Any:
        """The dtype of all parameters."""
        return self.stats_dtype

    def set_states(self, pdict: Description) -> None:
        """Load the optimizer states in ``pdict["states"]``, one list for beta and one for gamma."""
        super().set_states(pdict)
        if len(self.states) != 2:
            self.states = [[], []]
