"""Training of generative adversarial networks.

Source: Goodfellow et al., "Generative adversarial nets" (2014); for the options ``wgan_...`` Arjovsky et al.,
"Wasserstein GAN" (2017).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np

from neonlike.checks import brief
from neonlike.errors import ArgumentError, DTypeError, ShapeError
from neonlike.layers.container import GenerativeAdversarial
from neonlike.layers.core.base import plain_shape
from neonlike.layers.core.cost import GeneralizedGANCost, NetworkCost
from neonlike.models.model import Model
from neonlike.optimizers.base import Optimizer, get_param_list
from neonlike.optree.values import values

if TYPE_CHECKING:
    from neonlike.data.protocol import DataIterator
    from neonlike.layers.core.base import ShapeSource
    from neonlike.models.protocol import Hooks
    from neonlike.nervanaobject import Description

__public_module__ = "neonlike.models.model"


class GAN(Model):
    """A generator and a discriminator, trained against each other.

    Each minibatch trains the discriminator on a generated batch and on a batch of data, with one update by the summed
    gradients. After every ``k`` minibatches the generator is trained once.

    Parameters
    ----------
    layers : GenerativeAdversarial, path or dict
        Both networks, or a saved model.
    noise_dim : int or tuple
        Shape of the generator's noise, without the batch.
    noise_type : str
        ``"normal"`` for N(0, 1), ``"uniform"`` for U(-1, 1).
    weights_only : bool
        When loading, leave the optimizer states out.
    name : str, optional
        Name in listings and model files; by default the class's with a number.
    optimizer : Optimizer, optional
        Default for ``fit`` without an optimizer.
    k : int
        Number of discriminator updates per generator update.
    wgan_param_clamp : float, optional
        Bound for the discriminator's parameters, which are clipped before each minibatch.
    wgan_train_sched : bool
        Use 100 instead of ``k`` for the first 25 updates of the generator, and for every 500th.

    Attributes
    ----------
    gen_iter : int
        Number of generator updates.
    current_batch, last_gen_batch : int
        Minibatches trained so far, and up to the last update of the generator.
    cost_dis : ndarray
        Cost of the discriminator in the last minibatch, ``(1, 1)``; ``total_cost`` is its mean over the epoch.
    zbuf, ybuf, z0 : Tensor
        Noise of the minibatch, the discriminator's outputs for its generated samples, and constant noise.
    data_batch, noise_batch : Tensor
        The last data of an epoch, and the generator's output for ``z0`` after it.

    Raises
    ------
    ArgumentError
        If ``noise_type`` is none of these, or ``k`` is below 1.
    DTypeError
        If ``layers`` is no GenerativeAdversarial.

    References
    ----------
    Goodfellow et al., "Generative adversarial nets" (2014); Arjovsky et al., "Wasserstein GAN" (2017).

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.initializers import Constant
    >>> from neonlike.layers import Linear
    >>> from neonlike.layers.container import GenerativeAdversarial
    >>> from neonlike.models import GAN
    >>> be = gen_backend("cpu", batch_size=2)
    >>> both = GenerativeAdversarial([Linear(2, Constant(0.1))], [Linear(1, Constant(0.1))])
    >>> gan = GAN(both, noise_dim=5, k=3, wgan_train_sched=True)
    >>> [gan.get_k(update) for update in (0, 24, 25, 500, 501)]
    [100, 100, 3, 100, 3]
    """

    def __init__(
        self,
        layers: GenerativeAdversarial | str | bytes | os.PathLike[str] | Description,
        noise_dim: Any,
        noise_type: str = "normal",
        weights_only: bool = False,
        name: str = "model",
        optimizer: Optimizer | None = None,
        k: int = 1,
        wgan_param_clamp: float | None = None,
        wgan_train_sched: bool = False,
    ) -> None:
        if noise_type not in ("normal", "uniform"):
            raise ArgumentError(f"GAN: noise_type={brief(noise_type)} is not one of normal, uniform")
        if k < 1:
            raise ArgumentError(f"GAN: k={k}; the discriminator has to be updated at least once for the generator")
        self.noise_dim = plain_shape(noise_dim)
        self.noise_type, self.k = noise_type, k
        self.wgan_param_clamp, self.wgan_train_sched = wgan_param_clamp, wgan_train_sched
        self.gen_iter = self.last_gen_batch = self.current_batch = 0
        self.cost_dis = values(np.zeros((1, 1), dtype=np.float32))
        self.zbuf: Any = None
        self.ybuf: Any = None
        self.z0: Any = None
        self.data_batch: Any = None
        self.noise_batch: Any = None
        self._trained: tuple[list[Any], list[Any]] = ([], [])
        super().__init__(layers, weights_only=weights_only, name=name, optimizer=optimizer)
        if not isinstance(self.layers, GenerativeAdversarial):
            raise DTypeError(
                f"GAN: layers must be a GenerativeAdversarial(generator, discriminator), got {layers!r:.80}"
            )

    def initialize(self, dataset: ShapeSource, cost: NetworkCost | None = None) -> None:
        """Set up both networks for the noise; the generator's output must have the shape of the data.

        Parameters
        ----------
        dataset : iterator or shape
            The data.
        cost : GeneralizedGANCost, optional
            Cost, prepared for the discriminator's output.
        """
        if cost is not None and not isinstance(cost, GeneralizedGANCost):
            raise DTypeError(f"GAN: the cost must be a GeneralizedGANCost(GANCost(...)), got a {type(cost).__name__}")
        was_initialized = self.initialized
        super().initialize(self.noise_dim, cost)
        shape, made = plain_shape(getattr(dataset, "shape", dataset)), self.layers.generator.out_shape
        if np.prod(shape) != np.prod(made):
            raise ShapeError(f"{self.name}: the generator makes samples of shape {made}, but the data have {shape}")
        if not was_initialized:
            self.zbuf, self.z0 = self.be.iobuf(self.noise_dim), self.be.iobuf(self.noise_dim)
            self.ybuf = self.be.iobuf(self.layers.out_shape)
            self.fill_noise(self.z0, self.noise_type == "normal")

    def fill_noise(self, z: Any, normal: bool = True) -> None:
        """Fill ``z`` with N(0, 1), or with U(-1, 1).

        Parameters
        ----------
        z : Tensor
            Tensor of the noise, ``(noise_dim, N)``, overwritten.
        normal : bool
            Draw from N(0, 1), else from U(−1, 1).
        """
        if normal:
            self.be.fill_normal(z)
        else:
            z[:] = 2.0 * self.be.rand() - 1.0

    def fprop_gen(self, x: Any, inference: bool = False) -> Any:
        """Generate samples from noise.

        Parameters
        ----------
        x : Tensor
            Noise, ``(noise_dim, N)``.
        inference : bool
            True outside of training: batches may be partial.

        Returns
        -------
        Tensor
            Generated samples, ``(features, N)``.
        """
        return self.layers.generator.fprop(x, inference)

    def fprop_dis(self, x: Any, inference: bool = False) -> Any:
        """The discriminator's outputs for samples.

        Parameters
        ----------
        x : Tensor
            Samples, ``(features, N)``.
        inference : bool
            True outside of training: batches may be partial.
        """
        return self.layers.discriminator.fprop(x, inference)

    def bprop_gen(self, delta: Any) -> Any:
        """Gradients of the generator's parameters.

        Parameters
        ----------
        delta : Tensor
            Gradient of the cost by the generated samples.
        """
        return self.layers.generator.bprop(delta)

    def bprop_dis(self, delta: Any) -> Any:
        """Compute gradients of the discriminator's parameters; return the gradient of its input.

        Parameters
        ----------
        delta : Tensor
            Gradient of the cost by the discriminator's outputs.
        """
        return self.layers.discriminator.bprop(delta)

    def clip_param_in_layers(self, layer_list: Any, abs_bound: float | None = None) -> None:
        """Clip all parameters of the layers to ±abs_bound; do nothing if it is None or 0.

        Parameters
        ----------
        layer_list : list of Layer
            Layers with parameters.
        abs_bound : float, optional
            Bound on the magnitude of each parameter.
        """
        if abs_bound:
            for (param, _), _ in get_param_list(layer_list):
                param[:] = self.be.clip(param, -abs(abs_bound), abs(abs_bound))

    def get_k(self, giter: int) -> int:
        """Number of discriminator updates before update ``giter`` of the generator, counted from 0.

        Parameters
        ----------
        giter : int
            Number of the generator's update, from 0.
        """
        return 100 if self.wgan_train_sched and (giter < 25 or giter % 500 == 0) else self.k

    # -- training ------------------------------------------------------------------------------------------

    def _epoch_fit(self, dataset: DataIterator, callbacks: Hooks) -> None:
        self.start_training()
        super()._epoch_fit(dataset, callbacks)
        self.noise_batch = self.fprop_gen(self.z0, inference=True)

    def start_training(self) -> None:
        """Collect the layers of both networks for :meth:`train_minibatch`."""
        parts = self.layers.generator, self.layers.discriminator
        self._trained = parts[0].layers_to_optimize, parts[1].layers_to_optimize

    def _train_batch(self, x: Any, t: Any, layers: list[Any]) -> Any:
        return self.train_minibatch(x)

    def train_minibatch(self, x: Any) -> Any:
        """Train the discriminator on the data ``x`` (features, N), and the generator if it is due.

        Parameters
        ----------
        x : Tensor
            Data of a minibatch, ``(features, N)``.

        Returns
        -------
        ndarray
            ``cost_dis``.
        """
        generator_layers, discriminator_layers = self._trained
        self.current_batch += 1
        self.clip_param_in_layers(discriminator_layers, self.wgan_param_clamp)
        self._train_discriminator(x)
        self._step(discriminator_layers)
        if self.current_batch >= self.last_gen_batch + self.get_k(self.gen_iter):
            self._train_generator()
            self._step(generator_layers)
            self.last_gen_batch = self.current_batch
            self.gen_iter += 1
        self.data_batch = x
        return self.cost_dis

    def _made(self) -> Any:
        """The discriminator's outputs for a newly generated batch."""
        self.fill_noise(self.zbuf, self.noise_type == "normal")
        return self.fprop_dis(self.fprop_gen(self.zbuf))

    def _train_discriminator(self, x: Any) -> None:
        cost, discriminator = self.cost, self.layers.discriminator
        y_noise = self._made()
        self.ybuf[:] = y_noise  # into the buffer for the outputs on data
        cost.deltas[:] = cost.through_activation(y_noise, cost.costfunc.bprop_noise(y_noise))
        self.bprop_dis(cost.deltas)
        discriminator.set_acc_on(True)
        try:
            y_data = self.fprop_dis(x)
            cost.deltas[:] = cost.through_activation(y_data, cost.costfunc.bprop_data(y_data))
            self.bprop_dis(cost.deltas)
        finally:
            discriminator.set_acc_on(False)
        self.cost_dis[:] = cost.get_cost(y_data, self.ybuf, cost_type="dis")

    def _train_generator(self) -> None:
        cost = self.cost
        y_noise = self._made()
        cost.deltas[:] = cost.through_activation(y_noise, cost.costfunc.bprop_generator(y_noise))
        self.bprop_gen(self.bprop_dis(cost.deltas))

    # -- resuming ----------------------------------------------------------------------------------------------

    def counters(self) -> dict[str, int]:
        """Counters of updates, for a resumed training."""
        return {name: getattr(self, name) for name in ("gen_iter", "last_gen_batch", "current_batch")}

    def set_counters(self, saved: dict[str, int]) -> None:
        """Restore the counters of a saved training."""
        for name in self.counters():
            setattr(self, name, int(saved.get(name, 0)))
