"""A list of layers made by one constructor, such as Affine: weight, bias or normalization, activation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from neonlike.checks import brief
from neonlike.errors import ArgumentTypeError, MissingArgument
from neonlike.layers.core.base import require_transform
from neonlike.layers.core.bias import Bias
from neonlike.layers.core.elementwise import Activation
from neonlike.layers.core.variables import ListOnVariables
from neonlike.layers.norm.normalization import BatchNorm

if TYPE_CHECKING:
    from neonlike.initializers.initializer import Init
    from neonlike.transforms.transform import Transform

__public_module__ = "neonlike.layers.layer"


class CompoundLayer(ListOnVariables, list[Any]):
    """Base of compound layers: a plain list that containers flatten.

    Parameters
    ----------
    bias : Initializer, optional
        Add a bias layer with this initializer.
    batch_norm : bool
        Add a batch normalization; it has a bias of its own, so ``bias`` cannot be given too.
    activation : Transform, optional
        Add an activation layer.
    name : str, optional
        Name of the first layer; the others add a suffix to it.

    Raises
    ------
    MissingArgument
        If there are both a bias and batch normalization.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.initializers import Constant
    >>> from neonlike.layers import Linear
    >>> from neonlike.layers.layer import CompoundLayer
    >>> from neonlike.transforms import Rectlin
    >>> be = gen_backend("cpu", batch_size=2)
    >>> class Twice(CompoundLayer):
    ...     def __init__(self, nout, init, bias=None, activation=None):
    ...         super().__init__(bias=bias, activation=activation)
    ...         self.extend([Linear(nout, init), Linear(nout, init)])
    ...         self.add_postfilter_layers()
    >>> Twice(2, Constant(1.0), bias=Constant(0.5), activation=Rectlin())(be.ones((3, 2))).tolist()
    [[6.5, 6.5], [6.5, 6.5]]
    """

    from_description: ClassVar[bool] = True
    normalization: ClassVar[type[BatchNorm]] = BatchNorm
    normalization_suffix: ClassVar[str] = "bnorm"

    def __init__(
        self,
        bias: Init | None = None,
        batch_norm: bool = False,
        activation: Transform | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(batch_norm, bool | int | np.bool_):
            raise ArgumentTypeError(f"{type(self).__name__}: batch_norm must be True or False, got {brief(batch_norm)}")
        if batch_norm and bias is not None:
            raise MissingArgument(
                f"{type(self).__name__}: bias and batch_norm exclude each other, since batch normalization has a "
                "bias of its own; leave one out"
            )
        if activation is not None:
            require_transform(activation, f"{type(self).__name__}: activation")
        self.bias, self.batch_norm, self.activation = bias, batch_norm, activation
        self.name = name
        self.base_name = name

    def add_postfilter_layers(self, bias_class: Any = Bias) -> None:
        """Append the layers after the weight: bias or batch normalization, then the activation.

        Parameters
        ----------
        bias_class : type or None
            Constructor of the bias layer, called with ``init`` and ``name``; None if the weight includes a bias.
        """
        self.base_name = self.name or self[0].name
        if self.bias is not None and bias_class is not None:
            self.append(bias_class(init=self.bias, name=f"{self.base_name}_bias"))
        if self.batch_norm:
            self.append(self.normalization(name=f"{self.base_name}_{self.normalization_suffix}"))
        if self.activation is not None:
            suffix = type(self.activation).__name__
            self.append(Activation(transform=self.activation, name=f"{self.base_name}_{suffix}"))
