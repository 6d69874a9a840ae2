"""Protocol of a model: what the formats of other libraries read of it, which stand below the class."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from neonlike.layers.container import LayerContainer

if TYPE_CHECKING:
    from neonlike.layers.core.base import ShapeSource
    from neonlike.layers.core.cost import NetworkCost


class ExchangedModel(Protocol):
    """A model whose weights go to files and other libraries. :class:`~neonlike.models.Model` implements it."""

    name: str
    initialized: bool

    @property
    def layers(self) -> LayerContainer:
        """The network."""
        ...

    @property
    def be(self) -> Any:
        """The current backend."""
        ...

    def check_backend(self, operation: str) -> None:
        """Raise OtherBackend if the model has tensors on another backend than the current one."""
        ...

    def initialize(self, dataset: ShapeSource, cost: NetworkCost | None = None) -> None:
        """Configure the network for the shape of the data and allocate its buffers; done once.

        Parameters
        ----------
        dataset : iterator or shape
            What tells the shape of a sample.
        cost : cost layer, optional
            Prepared for the network's output.
        """
        ...
