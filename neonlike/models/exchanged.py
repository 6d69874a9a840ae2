"""Methods of a model for the formats of other libraries; :mod:`neonlike.exchange` implements them."""

from __future__ import annotations

from typing import Any

from neonlike.exchange import Differences, weights
from neonlike.models.statistics import complete
from neonlike.nervanaobject import NervanaObject

__all__ = ["Exchanged"]


class Exchanged(NervanaObject):
    """A mixin with a model's methods for files and weights of other libraries; see docs/exchange.md."""

    def save_safetensors(self, path: Any) -> None:
        """Save the parameters and running statistics to a file of the safetensors format.

        An existing file is replaced only after the new one is complete. All ranks have to call this; rank 0 writes.

        Parameters
        ----------
        path : path
            Names ending in ``.gz`` select compression. Names of parameters in the file are the layer's place in its
            containers and the parameter's name, as ``0.W``; dtypes are those of the model.

        Raises
        ------
        ArgumentError
            If the model is not initialized, and so has no weights.
        MissingExtra
            If the package safetensors is not installed.
        """
        complete(self)
        weights.save(self, path)

    def load_safetensors(self, path: Any, strict: bool = True) -> Differences:
        """Load parameters and running statistics from a file of the safetensors format.

        Everything is checked before anything is changed. A model that is not initialized is initialized for the input
        shape that the file names.

        Parameters
        ----------
        path : path
            A file of ``save_safetensors``, or of another program with the same names.
        strict : bool
            Raise unless the file has exactly the model's parameters. False: load those that fit.

        Returns
        -------
        Differences
            The names that were left out: ``missing``, ``unexpected``, and ``misshapen`` with both shapes.

        Raises
        ------
        ShapeError
            If ``strict`` and names or shapes differ; the message lists them.
        UnreadableFile
            If the file has another format, or is damaged.
        """
        return weights.restore(self, path, strict)
