"""Batch normalization layers."""

from __future__ import annotations

from typing import Any

from neonlike.backends.backend import Tensor
from neonlike.errors import ArgumentError
from neonlike.kernels.run.depends import Depends
from neonlike.layers.core.base import CLOSED, Layer, interpret_in_shape, require_input
from neonlike.layers.core.chain import taken_over
from neonlike.layers.core.epilogue import rectifier
from neonlike.layers.norm.scaleshift import ScaleShiftLayer
from neonlike.nervanaobject import Description

__public_module__ = "neonlike.layers.layer"

OLD_ORDER = ("beta", "gamma", "gmean", "gvar")
"""Order of the parameters in files of early versions of neon."""


class BatchNorm(ScaleShiftLayer):
    """Normalize each feature, or each map of an image, over the batch; then scale and shift it.

    outputs = gamma · (x − mean) / sqrt(variance + eps) + beta. In training, mean and (biased) variance are those of the
    batch and of all pixels or steps; in inference, they are running averages.

    Parameters
    ----------
    rho : float
        Decay of the running averages per batch. Both averages start at 0.
    eps : float
        Added to the variance.
    name : str, optional
        Name in listings and model files; by default the class's with a number.
    binary : bool
        Multiply by powers of two only, see :class:`ShiftBatchNorm`.

    Attributes
    ----------
    beta, gamma, gmean, gvar : Tensor
        Shift, scale, and running mean and variance, (features, 1), in float32, or float64 on a float64 backend.
    grad_beta, grad_gamma : Tensor
        Gradients of beta and gamma.
    xsum, xvar : Tensor
        State for the backward pass. ``xsum`` is the ``batch_sum`` of the previous layer, if it has one: filled by that
        layer, or in a chain by this one.
    states : list of two lists
        Optimizer states of beta and of gamma.

    References
    ----------
    Ioffe and Szegedy, "Batch normalization: accelerating deep network training" (2015).

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.layers import BatchNorm
    >>> be = gen_backend("cpu", batch_size=2)
    >>> layer = BatchNorm()
    >>> print(layer(be.array([[1.0, 3.0]])).get().round(2))  # mean 2, variance 1
    [[-1.  1.]]
    >>> print(layer.gmean.get().round(2))  # 0.9 · 0 + 0.1 · 2
    [[0.2]]
    """

    repeatable = True
    error_left: Any = None
    """The error whose rectifier derivative is left to this layer's backward pass."""

    def __init__(self, rho: float = 0.9, eps: float = 1e-3, name: str | None = None, binary: bool = False) -> None:
        super().__init__(name)
        self.rho, self.eps, self.binary = rho, eps, binary
        self.gmean: Any = None
        self.gvar: Any = None
        self.xsum: Any = None
        self.xvar: Any = None
        self.y: Any = None
        self.compute_batch_sum = True
        self._own_sum: Any = None
        self._targets: tuple[Any, Any, Any] = (None, None, None)

    def __str__(self) -> str:
        return f"{self.classnm} Layer '{self.name}': {self.in_shape}, {self.nfm} maps"

    def allocate(self, shared_outputs: Tensor | None = None, accumulate_updates: bool = False) -> None:
        """Create the output buffer, and the parameters unless they exist.

        Parameters
        ----------
        shared_outputs : Tensor, optional
            Memory for the outputs.
        accumulate_updates : bool
            Prepare for gradient accumulation over several backward passes.
        """
        super().allocate(shared_outputs, accumulate_updates)
        self.y = self.outputs if self.outputs.shape[0] == self.nfm else self.outputs.viewed(self.nfm, -1)
        self.make("gmean", 0.0)
        self.make("gvar", 0.0)
        self.xvar, self._own_sum = self.statistic(), self.statistic()

    def takes_over(self, following: Layer) -> bool:
        """Take over a plain rectifier, unless a subclass overrides the passes."""
        transform = rectifier(following)
        own = type(self).fprop is BatchNorm.fprop and type(self).bprop is BatchNorm.bprop
        return own and not self.folded and transform is not None and not transform.slope

    def depends_on(self) -> Depends | None:
        """Repeated passes depend on the layer before too, by whose sums this one normalizes."""
        said = super().depends_on()
        return None if said is None else said._replace(closed=CLOSED - {"prev_layer"})

    @property
    def takes_sums(self) -> bool:  # type: ignore[override]
        """Whether the forward pass sums its inputs into the ``batch_sum`` of the previous layer."""
        return type(self).fprop is BatchNorm.fprop

    def fprop(self, inputs: Tensor, inference: bool = False, beta: float = 0.0) -> Tensor:
        """outputs = normalized inputs + beta · outputs; inference accepts partial batches.

        Parameters
        ----------
        inputs : Tensor
            ``(features, columns)``: columns are samples, of sequences steps of samples.
        inference : bool
            True outside of training: batches may be partial.
        beta : float
            Factor of the previous outputs; 0 overwrites them.

        Returns
        -------
        Tensor
            ``outputs``, in the shape of the inputs.
        """
        inputs, outputs = require_input(self, inputs, self._rows, inference)
        self.inputs = inputs
        given = getattr(self.prev_layer, "batch_sum", None)
        self.compute_batch_sum = given is None or getattr(self.prev_layer, "sums_left", False)
        self.xsum = self._own_sum if given is None else given
        relu = bool(taken_over(self))
        self.be.compound_fprop_bn(
            inputs, self.xsum, self.xvar, self.gmean, self.gvar, self.gamma, self.beta, outputs, self.eps, self.rho,
            self.compute_batch_sum, accumbeta=beta, relu=relu, binary=self.binary, inference=bool(inference),
        )  # fmt: skip
        if relu:
            self.finished = outputs
        return outputs

    @Layer.accumulates
    def bprop(self, error: Tensor, alpha: float = 1.0, beta: float = 0.0) -> Tensor | None:
        """deltas = alpha · data gradient + beta · deltas; gradients of gamma and beta.

        Parameters
        ----------
        error : Tensor
            Gradient of the cost by the outputs, in their shape.
        alpha, beta : float
            deltas = alpha · gradient + beta · deltas.

        Returns
        -------
        Tensor or None
            ``deltas``, the gradient by the inputs; None if no layer before needs it.

        Raises
        ------
        ArgumentError
            If there was no forward pass.
        """
        if self.inputs is None:
            raise ArgumentError(f"{self.name}.bprop: there are no inputs to take the gradient by; call fprop first")
        y = self.outputs if self.error_left is error else None
        self.error_left = None
        self.be.compound_bprop_bn(
            self._target(error), self.grad_gamma, self.grad_beta, error, self.inputs, self.xsum, self.xvar,
            self.gamma, self.eps, binary=self.binary, y=y, alpha_data=alpha, beta_data=beta,
            own_sum=self.compute_batch_sum,
        )  # fmt: skip
        return self.deltas

    def _target(self, error: Tensor) -> Tensor:
        """Destination of the data gradient: the error itself, if it shares memory with the deltas."""
        deltas = self.deltas
        if error is not self._targets[0] or deltas is not self._targets[1]:
            if deltas is None:  # the first layer, where only the parameters need gradients
                target = self.be.empty_like(error)
            else:
                target = error if error.ptr == deltas.ptr and error.shape == deltas.shape else deltas
            self._targets = error, deltas, target
        found: Tensor = self._targets[2]
        return found

    # -- parameters ----------------------------------------------------------------------------------------

    @property
    def nin(self) -> int:
        """Number of rows of the inputs."""
        return self._rows

    @property
    def nsteps(self) -> int:
        """Number of steps of the inputs."""
        return interpret_in_shape(self.in_shape)[1]

    @property
    def inf_params(self) -> list[Any]:
        """The running mean and variance, used in inference; None before they exist."""
        return [self.gmean, self.gvar]

    @property
    def allparams(self) -> list[Any] | None:
        """beta, gamma, and the running mean and variance; None before they exist."""
        return None if self.beta is None else [*self.params, *self.inf_params]

    def parameter_names(self) -> tuple[str, ...]:
        """Attributes saved as parameters."""
        return OLD_ORDER

    def present_form(self, pdict: Any) -> Description:
        """Name the parameters in early files, which list them without names."""
        pdict = super().present_form(pdict)
        listed = pdict.get("params")
        if not isinstance(listed, list | tuple):
            return pdict
        if len(listed) != len(OLD_ORDER):
            raise ArgumentError(
                f"{self.name}: a list of {len(listed)} parameters was saved; expected {', '.join(OLD_ORDER)}"
            )
        return {**pdict, "params": dict(zip(OLD_ORDER, listed, strict=True))}


class ShiftBatchNorm(BatchNorm):
    """Batch normalization with multiplications by powers of two only.

    Source: Courbariaux et al., "Binarized neural networks" (2016), algorithm 3.

    Parameters
    ----------
    rho : float
        Decay of the running averages per batch.
    eps : float
        Added to the variance.
    name : str, optional
        Name in listings and model files; by default the class's with a number.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.layers import ShiftBatchNorm
    >>> be = gen_backend("cpu", batch_size=2)
    >>> ShiftBatchNorm()(be.array([[1.0, 3.0]])).tolist()
    [[-1.0, 1.0]]
    """

    def __init__(self, rho: float = 0.99, eps: float = 1e-6, name: str | None = None) -> None:
        super().__init__(rho, eps, name, binary=True)
