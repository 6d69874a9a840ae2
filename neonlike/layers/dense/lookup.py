"""Lookup tables: a vector for each word."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from neonlike.backends.backend import Tensor
from neonlike.errors import ArgumentError, IndexRangeError, ShapeError
from neonlike.initializers import Gaussian
from neonlike.kernels.run.trace import call_again
from neonlike.layers.core.base import Layer, interpret_in_shape, part_of, require_size, require_tensor
from neonlike.layers.core.parameter import ParameterLayer
from neonlike.logger import logger
from neonlike.optree import dialect

if TYPE_CHECKING:
    from neonlike.initializers.initializer import Init
    from neonlike.layers.core.base import ShapeSource

__public_module__ = "neonlike.layers.layer"


class LookupTable(ParameterLayer):
    """The embedding of each word: row ``id`` of the weight.

    Inputs are word numbers ``(steps, N)``, of any dtype; outputs ``(embedding_dim, steps * N)``.

    Parameters
    ----------
    vocab_size, embedding_dim : int
        The weight is ``(vocab_size, embedding_dim)``.
    init : Initializer or array
        For the weight.
    update : bool
        Whether the weight gets a gradient.
    pad_idx : int, optional
        The padding word: its row starts at 0 and gets no gradient.
    name : str, optional
        Name in listings and model files; by default the class's with a number.

    Attributes
    ----------
    inputs : Tensor
        The word numbers as int32, ``(1, steps * N)``.

    Raises
    ------
    IndexRangeError
        If ``pad_idx`` is not in the vocabulary.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.initializers import Constant
    >>> from neonlike.layers import LookupTable
    >>> be = gen_backend("cpu", batch_size=2)
    >>> table = LookupTable(vocab_size=3, embedding_dim=2, init=Constant(7.0), pad_idx=0)
    >>> table(be.array([[0, 2]])).tolist()  # one step of two samples: padding, and word 2
    [[0.0, 7.0], [0.0, 7.0]]
    """

    repeatable = True

    def __init__(
        self,
        vocab_size: int,
        embedding_dim: int,
        init: Init,
        update: bool = True,
        pad_idx: int | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(init, name)
        self.vocab_size = require_size(vocab_size, f"{self.classnm}: vocab_size")
        self.embedding_dim = require_size(embedding_dim, f"{self.classnm}: embedding_dim")
        if pad_idx is not None and not 0 <= pad_idx < self.vocab_size:
            raise IndexRangeError(f"{self.classnm}: pad_idx={pad_idx} is not in a vocabulary of {self.vocab_size}")
        self.update, self.pad_idx = update, pad_idx
        self.nin = 0
        self._words: Any = None
        self._error_t: Any = None

    def __str__(self) -> str:
        return (
            f"{self.classnm} Layer '{self.name}': {self.vocab_size} words, vectors of {self.embedding_dim}, "
            f"{self.nin} steps"
        )

    def configure(self, in_obj: ShapeSource) -> Layer:
        """Set the shapes: input ``(steps,)``, ``(steps, 1)`` or an int, output ``(embedding_dim, steps)``.

        Neon's dialect ignores a second size, with a warning, as neon does.
        """
        super().configure(in_obj)
        self.nin, other = interpret_in_shape(self.in_shape)
        if other != 1:
            expected = f"{self.name}: expected word numbers, an input of shape (steps,), got {self.in_shape}"
            if not dialect.is_neon():
                raise ShapeError(expected)
            logger.warning("%s; its second size is ignored", expected)
        self.out_shape = (self.embedding_dim, self.nin)
        self.weight_shape = (self.vocab_size, self.embedding_dim)
        return self

    def allocate(self, shared_outputs: Tensor | None = None) -> None:  # type: ignore[override]
        """Create the buffers, and the weight unless it exists."""
        super().allocate(shared_outputs)
        columns = self.outputs.shape[1]
        if self._words is None or self._words.shape[1] != columns:
            self._words = self.be.zeros((1, columns), dtype=np.int32)
            self._error_t = self.be.empty((columns, self.embedding_dim))
        self.inputs = self._words
        del self.accumulate_updates  # set_acc_on reads its presence as support for accumulation

    def init_params(self, shape: Any) -> None:
        """Create the weight and its gradient and fill the weight; the row of ``pad_idx`` is 0."""
        super().init_params(shape)
        if self.pad_idx is not None:
            self.W[self.pad_idx : self.pad_idx + 1] = 0

    def fprop(self, inputs: Tensor, inference: bool = False) -> Tensor:
        """Set column ``t*N + n`` of the outputs to row ``inputs[t, n]`` of the weight.

        Parameters
        ----------
        inputs : Tensor
            Word numbers, ``(steps, N)``, of any dtype.
        inference : bool
            True outside of training: batches may be partial.

        Returns
        -------
        Tensor
            ``outputs``, ``(embedding_dim, steps * N)``.

        Raises
        ------
        IndexRangeError
            If a word is not in the vocabulary. Negative numbers count from the end here, but ``bprop`` refuses them.
        """
        words, outputs = self._words, self.outputs
        if words is None:
            raise ArgumentError(f"{self.name}.fprop: the layer is not set up; call configure and allocate on it")
        require_tensor(f"{self.name}.fprop", "inputs", inputs)
        if inputs.size != words.size:
            if not (inference and inputs.size < words.size and inputs.size % self.nin == 0):
                raise ShapeError(
                    f"{self.name}.fprop: input has shape {tuple(inputs.shape)}, expected word numbers "
                    f"{(self.nin, words.size // self.nin)}" + ("" if inference else "; fewer are for inference=True")
                )
            words, outputs = part_of(self, "words", words, inputs.size), part_of(self, "outputs", outputs, inputs.size)
        self.inputs = words
        words[:] = inputs.reshape(1, -1)
        outputs[:] = self.be.take(self.W, words, axis=0).T
        return outputs

    def bprop(self, error: Tensor, alpha: float = 1.0, beta: float = 0.0) -> Tensor | None:
        """dW = sum of the errors of each word; word numbers have no gradient, so deltas = beta · deltas.

        Parameters
        ----------
        error : Tensor
            Gradient of the cost by the outputs, ``(embedding_dim, steps * N)``.
        alpha : float
            Not used.
        beta : float
            Factor of the previous ``deltas``.
        """
        if self.update:
            self.dW.fill(0)
            given = self.nin, self.inputs, error, self._error_t, self.dW, self.pad_idx
            call_again(lambda: self.be.compound_bprop_lut(*given))  # the host looks at the words
        if self.deltas is not None:
            self.deltas[:] = self.deltas * beta if beta else 0
        return self.deltas


class Embedding(LookupTable):
    """:class:`LookupTable` under the name and arguments of other libraries.

    Parameters
    ----------
    num_embeddings, embedding_dim : int
        The weight is ``(num_embeddings, embedding_dim)``.
    init : Initializer or array, optional
        Default: the standard normal distribution.
    padding_idx : int, optional
        The padding word.
    name : str, optional
        Name in listings and model files; by default the class's with a number.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.initializers import Constant
    >>> from neonlike.layers import Embedding
    >>> be = gen_backend("cpu", batch_size=2)
    >>> Embedding(3, 2, init=Constant(7.0))(be.array([[0, 2]])).tolist()
    [[7.0, 7.0], [7.0, 7.0]]
    """

    repeatable = True

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        init: Init | None = None,
        padding_idx: int | None = None,
        name: str | None = None,
    ) -> None:
        init = Gaussian(0.0, 1.0) if init is None else init
        super().__init__(num_embeddings, embedding_dim, init, pad_idx=padding_idx, name=name)
        self.num_embeddings, self.padding_idx = self.vocab_size, padding_idx
