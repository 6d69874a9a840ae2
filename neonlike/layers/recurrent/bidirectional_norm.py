"""Bidirectional recurrent layer with batch normalization of the input projections."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from neonlike.backends.backend import Tensor
from neonlike.errors import ArgumentError
from neonlike.layers.core.parameter import stats_dtype
from neonlike.layers.recurrent.bidirectional import BiRNN
from neonlike.layers.recurrent.sequence import Views
from neonlike.layers.recurrent.steps import get_steps
from neonlike.nervanaobject import Description

if TYPE_CHECKING:
    from neonlike.initializers.initializer import Init
    from neonlike.transforms.transform import Transform

__public_module__ = "neonlike.layers.recurrent"


class BiBNRNN(BiRNN):
    """As :class:`BiRNN`, with W_input · x normalized over batch and steps before the recurrence.

    Normalization follows :class:`BatchNorm`: scale ``gamma``, shift ``beta``, running averages in inference. Sequences
    cannot have individual lengths, because padding would enter the statistics.

    Parameters
    ----------
    output_size, init, init_inner, activation, reset_cells, split_inputs
        As of :class:`BiRNN`.
    name : str, optional
        Name in listings and model files; by default the class's with a number.

    Attributes
    ----------
    beta, gamma, gmean, gvar : Tensor ``(2 nout, 1)``
        Shift, scale, running mean and variance.
    grad_beta, grad_gamma : Tensor
        Gradients of beta and gamma.
    rho, eps : float
        Decay of the running averages per batch; constant added to the variance.

    Notes
    -----
    Source: Laurent et al., "Batch normalized recurrent neural networks" (2015).

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.initializers import Constant
    >>> from neonlike.layers import BiBNRNN
    >>> from neonlike.transforms import Tanh
    >>> be = gen_backend("cpu", batch_size=2)
    >>> layer = BiBNRNN(4, init=Constant(0.1), activation=Tanh())
    >>> layer(be.ones((3, 5, 2))).shape  # both directions, steps, samples
    (8, 5, 2)
    """

    repeatable = True
    rho, eps = 0.9, 1e-3

    def __init__(
        self,
        output_size: int,
        init: Init,
        init_inner: Init | None = None,
        activation: Transform | None = None,
        reset_cells: bool = False,
        split_inputs: bool = False,
        name: str | None = None,
    ) -> None:
        super().__init__(output_size, init, init_inner, activation, reset_cells, split_inputs, name)
        self.stats_dtype = stats_dtype(self.require_backend())
        self.states: list[Any] = [[], [], []]
        self.beta: Any = None
        self.gamma: Any = None
        self.gmean: Any = None
        self.gvar: Any = None

    def _allocate_gates(self) -> None:
        shape = (2 * self.nout, self.nsteps)
        self.h_ff_buffer, self._projection, self._error_buffer = (self.be.iobuf(shape) for _ in range(3))
        statistic = lambda value: self.be.zeros((2 * self.nout, 1), dtype=self.stats_dtype).fill(value)  # noqa: E731
        for name, value in (("beta", 0.0), ("gamma", 1.0), ("gmean", 0.0), ("gvar", 0.0)):
            if getattr(self, name) is None:
                setattr(self, name, statistic(value))
        self._xsum, self._xvar, self.grad_beta, self.grad_gamma = (statistic(0.0) for _ in range(4))

    def init_params(self, shape: Any) -> None:
        """As in all recurrent layers, with states for three parameters."""
        super().init_params(shape)
        self.states = [[], [], []]

    def _cut_gates(self, views: Views) -> None:
        normalized, _ = views.cut(self.h_ff_buffer)
        views.normalized = normalized
        views.sums, _ = views.cut(self._projection)
        views.sums_error, _ = views.cut(self._error_buffer)
        for way, rows in zip(views.ways, self._halves(normalized), strict=True):
            way.h_ff = get_steps(rows, (self.nout, views.extent.steps))

    def _project(self, views: Views, inference: bool) -> None:
        super()._project(views, inference)
        self.be.compound_fprop_bn(
            views.sums, self._xsum, self._xvar, self.gmean, self.gvar, self.gamma, self.beta, views.normalized,
            self.eps, self.rho, compute_batch_sum=True, inference=bool(inference),
        )  # fmt: skip

    def _input_gradients(self, views: Views, D: Tensor, alpha: float, beta: float) -> None:
        self.be.compound_bprop_bn(
            views.sums_error, self.grad_gamma, self.grad_beta, D, views.sums, self._xsum, self._xvar, self.gamma,
            self.eps, own_sum=True,
        )  # fmt: skip
        super()._input_gradients(views, views.sums_error, alpha, beta)
        self.be.sum(D, axis=1, out=self.db)  # of the errors after normalization, where biases are added

    def set_lengths(self, lengths: Any) -> None:
        """Refuse lengths; only None is accepted."""
        if lengths is not None:
            raise ArgumentError(f"{self.name}.set_lengths: batch normalization over padded sequences is not defined")

    # -- parameters ----------------------------------------------------------------------------------------

    def get_params(self) -> Any:
        """``[((W, dW), states), ((beta, grad_beta), states), ((gamma, grad_gamma), states)]``."""
        pairs = (self.W, self.dW), (self.beta, self.grad_beta), (self.gamma, self.grad_gamma)
        return list(zip(pairs, self.states, strict=True))

    @property
    def inf_params(self) -> list[Any]:
        """The running mean and variance, used in inference; None before they exist."""
        return [self.gmean, self.gvar]

    def parameter_names(self) -> tuple[str, ...]:
        """Attributes saved as parameters."""
        return "W", "beta", "gamma", "gmean", "gvar"

    def stored_dtype(self, name: str) -> Any:
        """The dtype of a parameter; statistics have at least float32."""
        return super().stored_dtype(name) if name == "W" else self.stats_dtype

    def set_states(self, pdict: Description) -> None:
        """Load the optimizer states in ``pdict["states"]``, one list for each of W, beta and gamma."""
        super().set_states(pdict)
        if len(self.states) != 3:
            self.states = [[], [], []]
