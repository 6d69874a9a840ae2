"""Container of a generator of samples and a discriminator that are trained against each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from neonlike.backends.backend import Tensor
from neonlike.layers.container.branches import as_branch
from neonlike.layers.container.sequential import Sequential
from neonlike.layers.core.base import AccumulationError, Layer
from neonlike.layers.core.deltas import DeltasTree
from neonlike.nervanaobject import Description, NervanaObject, build, get_args

if TYPE_CHECKING:
    from neonlike.layers.core.base import ShapeSource

__public_module__ = "neonlike.layers.container"


class GenerativeAdversarial(Sequential):
    """A generator followed by a discriminator; for :class:`neonlike.models.GAN`.

    Parameters
    ----------
    generator : Sequential, layer or list of layers
        Network that turns noise into samples.
    discriminator : Sequential, layer or list of layers
        Network that judges samples; gradients of its layers are summed over generated and real samples.
    name : str, optional
        Name in listings and model files; by default the class's with a number.

    Attributes
    ----------
    layers : list of Layer
        The layers of both networks.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.initializers import Constant
    >>> from neonlike.layers import Linear
    >>> from neonlike.layers.container import GenerativeAdversarial
    >>> be = gen_backend("cpu", batch_size=2)
    >>> both = GenerativeAdversarial([Linear(2, Constant(0.1))], [Linear(1, Constant(0.1))])
    >>> both.configure(5).out_shape  # noise of 5 numbers, samples of 2, a judgement
    (1, 1)
    """

    def __init__(self, generator: Any, discriminator: Any, name: str | None = None) -> None:
        self.generator, self.discriminator = as_branch(generator), as_branch(discriminator)
        super().__init__(self.generator.layers + self.discriminator.layers, name)

    def nested_str(self, level: int = 0) -> str:
        """Text of the container and, indented, of both networks."""
        head = "  " * level + f"{self.classnm} '{self.name}'"
        return "\n".join([head, *(part.nested_str(level + 1) for part in (self.generator, self.discriminator))])

    def configure(self, in_obj: ShapeSource) -> Layer:
        """Configure the generator for the noise, and the discriminator for the generator's output."""
        super().configure(in_obj)
        for part in (self.generator, self.discriminator):
            part.in_shape, part.out_shape = part.layers[0].in_shape, part.layers[-1].out_shape
            part.prev_layer = part.layers[0].prev_layer
            part.parallelism = self.parallelism
        return self

    def allocate(self, shared_outputs: Tensor | None = None, accumulate_updates: bool = False) -> None:
        """Allocate both networks, the discriminator with support for gradient accumulation.

        Raises
        ------
        AccumulationError
            If a layer of the discriminator cannot accumulate gradients.
        """
        self.generator.allocate(accumulate_updates=accumulate_updates)
        self.discriminator.allocate(shared_outputs)
        for layer in self.discriminator.layers_to_optimize:
            if "accumulate_updates" not in get_args(layer.allocate):
                raise AccumulationError(
                    f"{self.name}: the gradients of {layer.name} cannot add up, as a discriminator's have to"
                )
            layer.allocate(accumulate_updates=True)  # containers with branches would not pass the flag on
        self.outputs = self.discriminator.outputs

    def set_deltas(self, delta_buffers: DeltasTree | list[Any]) -> None:
        """Give each layer its error buffer."""
        super().set_deltas(delta_buffers)
        for part in (self.generator, self.discriminator):
            part.deltas = part.layers[0].deltas

    def get_description(  # type: ignore[override]
        self, get_weights: bool = False, keep_states: bool = True, **kwargs: Any
    ) -> Description:
        """Describe both networks, and list the layers of both with their weights."""
        skip = [*kwargs.pop("skip", ()), "generator", "discriminator"]
        described = super().get_description(get_weights, keep_states, skip=skip, **kwargs)
        described["config"]["generator"] = self.generator.get_description()
        described["config"]["discriminator"] = self.discriminator.get_description()
        return described

    @classmethod
    def gen_class(cls, pdict: dict[str, Any]) -> GenerativeAdversarial:
        """Build both networks from their descriptions, without the weights, which are loaded later."""
        rest = {key: value for key, value in pdict.items() if key not in ("layers", "generator", "discriminator")}
        for key in rest:
            NervanaObject.recursive_gen(rest, key)
        return cls(build(pdict.get("generator")), build(pdict.get("discriminator")), **rest)
