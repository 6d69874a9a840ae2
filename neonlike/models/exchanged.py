"""Methods of a model for the formats of other libraries.

:mod:`neonlike.exchange` implements them. Its modules are imported by the first call: few programs need them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from neonlike.exchange import Differences
from neonlike.models.statistics import complete
from neonlike.nervanaobject import NervanaObject

if TYPE_CHECKING:
    from neonlike.exchange.protocol import ExchangedModel
    from neonlike.models.protocol import TrainedModel

__all__ = ["Exchanged"]


class Exchanged(NervanaObject):
    """A mixin with a model's methods for files and weights of other libraries; see docs/exchange.md."""

    def save_safetensors(self: TrainedModel, path: Any) -> None:
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

        Examples
        --------
        >>> import os, tempfile
        >>> from neonlike.backends import gen_backend
        >>> from neonlike.initializers import Constant
        >>> from neonlike.layers import Affine
        >>> from neonlike.models import Model
        >>> be = gen_backend("cpu", batch_size=1)
        >>> model = Model([Affine(2, Constant(0.5), bias=Constant(0))])
        >>> model.initialize(3)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     model.save_safetensors(os.path.join(folder, "model.safetensors"))
        ...     again = Model([Affine(2, Constant(0), bias=Constant(1))])
        ...     print(again.load_safetensors(os.path.join(folder, "model.safetensors")))
        Differences(missing=[], unexpected=[], misshapen=[])
        >>> again.layers.layers[0].W.get().tolist()
        [[0.5, 0.5, 0.5], [0.5, 0.5, 0.5]]
        """
        from neonlike.exchange import weights

        complete(self)
        weights.save(self, path)

    def load_safetensors(self: ExchangedModel, path: Any, strict: bool = True) -> Differences:
        """Load parameters and running statistics from a file of the safetensors format.

        Everything is checked before anything is changed. A model that is not initialized is initialized for the input
        shape that the file names, once the names are checked: shapes of parameters can be compared only then.

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

        Examples
        --------
        See :meth:`save_safetensors`.
        """
        from neonlike.exchange import weights

        return weights.restore(self, path, strict)

    def load_torch(self: ExchangedModel, weights: Any, names: Any = None, eps: float | None = 1e-5) -> None:
        """Load the weights of a PyTorch model of the same architecture.

        Layouts are changed as far as needed. Everything is checked before anything is changed.

        Parameters
        ----------
        weights : mapping, module or path
            A ``state_dict``, of tensors or arrays; a module, which tells ``eps`` and ``momentum`` of its
            normalizations, too; or a file of the safetensors format.
        names : list or dict, optional
            Names of the modules in the order of the layers with weights; or place of the layer -> name. By default
            modules are taken in their order.
        eps : float, optional
            Set as ``eps`` of normalizations, because a state_dict does not contain it; 1e-5 is PyTorch's default. None
            leaves that of the layers.

        Raises
        ------
        ArgumentError, ShapeError
            If modules, names or shapes differ; the message lists them.
        NotDefined
            If PyTorch has no such layer, or one with another formula.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> from neonlike.initializers import Constant
        >>> from neonlike.layers import Affine
        >>> from neonlike.models import Model
        >>> be = gen_backend("cpu", batch_size=1)
        >>> model = Model([Affine(2, Constant(0), bias=Constant(0))])
        >>> model.initialize(3)
        >>> model.load_torch({"fc.weight": np.array([[1, 2, 3], [4, 5, 6]]), "fc.bias": np.array([7, 8])})
        >>> model.fprop(be.ones((3, 1)), inference=True).get().ravel().tolist()
        [13.0, 23.0]
        """
        from neonlike.exchange import torch_weights

        torch_weights.load_torch(self, weights, names, eps)

    def to_torch(self: TrainedModel, names: Any = None) -> dict[str, np.ndarray]:
        """Return the weights as a ``state_dict`` of arrays, for a PyTorch model of the same architecture.

        All ranks have to call this.

        Parameters
        ----------
        names : list, dict, mapping or module, optional
            As of :meth:`load_torch`; or PyTorch's model or its ``state_dict``, whose names are taken in their order. By
            default the places of the layers, as in ``0.weight``.

        Returns
        -------
        dict
            Name -> array, in PyTorch's layouts.

        Raises
        ------
        NotDefined
            If PyTorch has no such layer, or one with another formula.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> from neonlike.initializers import Constant
        >>> from neonlike.layers import Affine
        >>> from neonlike.models import Model
        >>> be = gen_backend("cpu", batch_size=1)
        >>> model = Model([Affine(2, Constant(0.5), bias=Constant(0))])
        >>> model.initialize(3)
        >>> {name: array.shape for name, array in model.to_torch(["fc"]).items()}
        {'fc.weight': (2, 3), 'fc.bias': (2,)}
        """
        from neonlike.exchange import torch_weights

        complete(self)
        return torch_weights.to_torch(self, names)

    def to_onnx(self: TrainedModel, path: Any, batch_size: int | None = None) -> None:
        """Save the model as an ONNX file that computes what ``fprop(x, inference=True)`` does.

        Inputs and outputs have the samples first: ``(N, features)``, ``(N, C, H, W)``, and ``(N, steps, features)`` for
        sequences. Recurrent layers start from a state of 0. All ranks have to call this; rank 0 writes.

        Parameters
        ----------
        path : path
            An existing file is replaced only after the new one is complete.
        batch_size : int, optional
            Number of samples; by default any.

        Raises
        ------
        NotDefined
            If ONNX cannot say what a layer computes; the message names the layer and the reason.
        MissingExtra
            If the package onnx is not installed.

        Examples
        --------
        >>> import os, tempfile
        >>> from neonlike.backends import gen_backend
        >>> from neonlike.initializers import Constant
        >>> from neonlike.layers import Affine
        >>> from neonlike.models import Model
        >>> be = gen_backend("cpu", batch_size=1)
        >>> model = Model([Affine(2, Constant(0.5), bias=Constant(1))])
        >>> model.initialize(3)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     model.to_onnx(os.path.join(folder, "model.onnx"))
        ...     again = Model.from_onnx(os.path.join(folder, "model.onnx"))
        >>> again.fprop(be.ones((3, 1)), inference=True).get().ravel().tolist()
        [2.5, 2.5]
        """
        from neonlike.exchange.onnx import export

        complete(self)
        export.to_onnx(self, path, batch_size)

    @classmethod
    def from_onnx(cls, path: Any) -> Any:
        """Make a model of an ONNX file, initialized and with the file's weights.

        Parameters
        ----------
        path : path
            A file of :meth:`to_onnx`, or of another program with the same operators.

        Returns
        -------
        Model
            Its outputs in inference are those of the graph; its inputs are laid out as everywhere in this library.

        Raises
        ------
        NotDefined
            If an operator or attribute cannot be read; the message names node, operator and attribute.
        UnreadableFile
            If the file is not in the ONNX format, or is damaged.
        MissingExtra
            If the package onnx is not installed.

        Examples
        --------
        See :meth:`to_onnx`.
        """
        from neonlike.exchange.onnx import importing

        return importing.from_onnx(cls, path)
