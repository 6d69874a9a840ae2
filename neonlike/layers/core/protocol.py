"""Protocols of a layer: what the modules below its class read and call."""

from __future__ import annotations

from typing import Any, Protocol


class HasShape(Protocol):
    """An object that tells the shape of a sample, or of a batch: a data iterator or a tensor."""

    @property
    def shape(self) -> Any:
        """Features, ``(C, H, W)`` or ``(features, steps)``; of a tensor ``(features, N)``."""
        ...


class Shaped(Protocol):
    """A layer whose input shape is known. :class:`~neonlike.layers.layer.Layer` implements it."""

    name: str
    in_shape: Any
    parallelism: str


class CalledLayer(Shaped, Protocol):
    """A layer or container that is called on variables. :class:`~neonlike.layers.layer.Layer` implements it."""

    out_shape: Any
    prev_layer: Any
    deltas: Any
    has_params: bool

    @property
    def be(self) -> Any:
        """The current backend."""
        ...

    def require_backend(self, operation: str = "") -> Any:
        """Return the current backend, or raise BackendUnavailable."""
        ...

    def configure(self, in_obj: Any) -> Any:
        """Read the input shape, ``(C, H, W)``, ``(features, steps)`` or features, and compute the output shape."""
        ...

    def allocate(self) -> None:
        """Create the buffers."""
        ...

    def allocate_deltas(self, global_deltas: Any) -> None:
        """Register the size of the error buffer with a :class:`~neonlike.layers.core.deltas.DeltasTree`."""
        ...

    def set_deltas(self, delta_buffers: Any) -> None:
        """Take a view of the buffers of the tree."""
        ...

    def fprop(self, inputs: Any, inference: bool = False) -> Any:
        """Forward pass on a tensor ``(features, N)``.

        Parameters
        ----------
        inputs : Tensor, or list of Tensor
            Inputs.
        inference : bool
            Whether this is inference, not training.
        """
        ...

    def bprop(self, error: Any) -> Any:
        """Backward pass on the gradient by the outputs, in their shape."""
        ...

    def get_terminal(self) -> Any:
        """The layer or layers with the outputs."""
        ...
