"""Residual blocks: layers with a shortcut connection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from neonlike.errors import ArgumentError
from neonlike.layers.container.merge import MergeSum
from neonlike.layers.core.base import Layer, require_layer, require_transform
from neonlike.layers.core.elementwise import Activation
from neonlike.layers.core.structure import SkipNode
from neonlike.layers.core.variables import ListOnVariables

if TYPE_CHECKING:
    from neonlike.layers.core.base import Layers
    from neonlike.transforms.transform import Transform

__public_module__ = "neonlike.layers.layer"


class Residual(ListOnVariables, list[Any]):
    """Layers and a shortcut with summed outputs, followed by an activation.

    The block is a list that containers flatten: ``[MergeSum([layers, shortcut])]`` and the activation.

    Parameters
    ----------
    layers : list
        The block.
    shortcut : layer or list, optional
        Layers of the shortcut, such as ``Conv((1, 1, K), init, strides=2)`` for differing shapes; the identity by
        default.
    activation : Transform, optional
        Applied to the sum.
    name : str, optional
        Name in listings and model files; by default the class's with a number.

    Raises
    ------
    ArgumentError
        If ``layers`` is no list of layers.

    References
    ----------
    He et al., "Deep residual learning for image recognition" (2015).

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.initializers import Constant
    >>> from neonlike.layers import Linear, Residual
    >>> from neonlike.transforms import Rectlin
    >>> be = gen_backend("cpu", batch_size=2)
    >>> block = Residual([Linear(2, Constant(1.0))], activation=Rectlin())
    >>> block(be.ones((2, 2))).tolist()  # 2 + 1
    [[3.0, 3.0], [3.0, 3.0]]
    """

    def __init__(
        self, layers: Layers, shortcut: Any = None, activation: Transform | None = None, name: str | None = None
    ) -> None:
        super().__init__()
        if isinstance(layers, Layer) or not isinstance(layers, list | tuple) or not layers:
            raise ArgumentError("Residual: layers must be a list of at least one layer")
        beside = SkipNode() if shortcut is None else shortcut
        if not isinstance(beside, list | tuple):
            require_layer(beside, "Residual: shortcut")
        self.append(MergeSum([list(layers), beside], name=name))
        if activation is not None:
            self.append(Activation(require_transform(activation, "Residual: activation")))
