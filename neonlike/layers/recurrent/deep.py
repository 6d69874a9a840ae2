"""Stacks of bidirectional layers, as lists of layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from neonlike.checks import shown
from neonlike.errors import ArgumentError, DTypeError
from neonlike.layers.recurrent.bidirectional import BiRNN
from neonlike.layers.recurrent.bidirectional_lstm import BiLSTM
from neonlike.layers.recurrent.bidirectional_norm import BiBNRNN
from neonlike.layers.recurrent.recurrent_output import BiSum

if TYPE_CHECKING:
    from neonlike.initializers.initializer import Init
    from neonlike.transforms.transform import Transform

__public_module__ = "neonlike.layers.recurrent"


def _require_depth(depth: Any, where: str) -> int:
    if isinstance(depth, bool) or not isinstance(depth, int | np.integer):
        raise DTypeError(f"{where}: depth must be an integer, got {shown(depth)}")
    if depth <= 0:
        raise ArgumentError(f"{where}: depth={depth}; expected at least one layer")
    return int(depth)


class DeepBiRNN(list[Any]):
    """A stack of :class:`BiRNN` layers; each direction reads the same direction of the layer below.

    Parameters
    ----------
    nout, init, init_inner, activation, reset_cells
        As of :class:`BiRNN`, for all layers.
    depth : int
        Number of layers.
    batch_norm : bool
        Use :class:`BiBNRNN` layers.
    bi_sum : bool
        Sum both directions after each layer (:class:`BiSum`); the next layer reads the sum in both directions.

    Raises
    ------
    ArgumentError
        If ``depth`` is below 1.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.initializers import Constant
    >>> from neonlike.layers import DeepBiRNN, Sequential
    >>> from neonlike.transforms import Tanh
    >>> be = gen_backend("cpu", batch_size=2)
    >>> layers = DeepBiRNN(4, init=Constant(0.1), activation=Tanh(), depth=2)
    >>> Sequential(layers).configure((3, 5)).out_shape  # both directions, steps
    (8, 5)
    """

    from_description: ClassVar[bool] = True

    def __init__(
        self,
        nout: int,
        init: Init,
        init_inner: Init | None = None,
        activation: Transform | None = None,
        reset_cells: bool = False,
        depth: int = 1,
        batch_norm: bool = False,
        bi_sum: bool = False,
    ) -> None:
        super().__init__()
        kind = BiBNRNN if batch_norm else BiRNN
        for level in range(_require_depth(depth, "DeepBiRNN")):
            split = level > 0 and not bi_sum
            self.append(kind(nout, init, init_inner, activation, reset_cells, split))
            if bi_sum:
                self.append(BiSum())


class DeepBiLSTM(list[Any]):
    """A stack of :class:`BiLSTM` layers; each direction reads the same direction of the layer below.

    Parameters
    ----------
    nout, init, init_inner, activation, gate_activation, reset_cells
        As of :class:`BiLSTM`, for all layers.
    depth : int
        Number of layers.

    Raises
    ------
    ArgumentError
        If ``depth`` is below 1.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.initializers import Constant
    >>> from neonlike.layers import DeepBiLSTM, Sequential
    >>> from neonlike.transforms import Logistic, Tanh
    >>> be = gen_backend("cpu", batch_size=2)
    >>> layers = DeepBiLSTM(4, init=Constant(0.1), activation=Tanh(), gate_activation=Logistic(), depth=2)
    >>> Sequential(layers).configure((3, 5)).out_shape  # both directions, steps
    (8, 5)
    """

    from_description: ClassVar[bool] = True

    def __init__(
        self,
        nout: int,
        init: Init,
        init_inner: Init | None = None,
        activation: Transform | None = None,
        gate_activation: Transform | None = None,
        reset_cells: bool = False,
        depth: int = 1,
    ) -> None:
        super().__init__()
        for level in range(_require_depth(depth, "DeepBiLSTM")):
            self.append(BiLSTM(nout, init, init_inner, activation, gate_activation, reset_cells, level > 0))
