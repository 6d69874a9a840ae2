"""SkipThought: a sentence encoder trained to predict the previous and the next sentence.

Source: Kiros et al., "Skip-thought vectors" (2015).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from neonlike.backends.backend import Tensor
from neonlike.checks import shown
from neonlike.errors import ArgumentError, DTypeError
from neonlike.layers.container.coders import Decoder, Encoder
from neonlike.layers.container.seq2seq import begin_states
from neonlike.layers.container.sequential import LayerContainer, flatten
from neonlike.layers.core.base import Layer, plain_shape
from neonlike.layers.core.deltas import DeltasTree
from neonlike.layers.dense.linear import Affine
from neonlike.layers.dense.lookup import LookupTable
from neonlike.layers.recurrent import GRU, LSTM, Recurrent
from neonlike.nervanaobject import Description
from neonlike.transforms import Softmax

if TYPE_CHECKING:
    from neonlike.initializers.initializer import Init
    from neonlike.layers.core.base import Layers, ShapeSource

__public_module__ = "neonlike.layers.container"

KINDS = {"GRU": GRU, "LSTM": LSTM, "Recurrent": Recurrent}
NAMES = ("lookupTable", "encoder", "lookupTable_previous", "decoder_previous", "affine_previous",
         "lookupTable_next", "decoder_next", "affine_next")  # fmt: skip
SIZES = (1, 1, 1, 1, 3, 1, 1, 3)
"""Number of layers of each part: an affine is a product, a bias and a softmax."""


class SkipThought(LayerContainer):
    """One encoder of a sentence, with two decoders for the previous and the next sentence.

    Inputs are three batches of word numbers: the sentence, and for each decoder the words before each step. Outputs are
    the word probabilities of both decoders, ``(vocab_size, steps)``.

    Parameters
    ----------
    vocab_size, embed_dim : int
        Number of words, and size of their vectors.
    init_embed : Initializer
        Initializer of the vectors.
    nhidden : int
        Units of the recurrent layers.
    rec_layer : type
        Class of the recurrent layers: GRU, LSTM or Recurrent, or its name.
    init_rec, activ_rec, activ_rec_gate
        Initializer, activation and gate activation (GRU and LSTM) of the recurrent layers.
    init_ff, init_const : Initializer
        Initializers of weights and biases in the output layers.
    layers : list, optional
        The layers of a saved network.
    name : str, optional
        Name in listings and model files; by default the class's with a number.

    Attributes
    ----------
    layer_dict : dict
        The parts by their names: ``lookupTable``, ``encoder``, and ``lookupTable_``, ``decoder_`` and ``affine_`` of
        ``previous`` and ``next``; an affine is a list of layers.

    Notes
    -----
    The three tables of vectors start equal and receive the mean of their gradients, as do the two affines: each group
    stays equal.

    References
    ----------
    Kiros et al., "Skip-thought vectors" (2015).

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.initializers import Constant
    >>> from neonlike.layers import GRU, SkipThought
    >>> from neonlike.transforms import Logistic, Tanh
    >>> be = gen_backend("cpu", batch_size=2)
    >>> init = Constant(0.1)
    >>> net = SkipThought(9, 3, init, 4, GRU, init, Tanh(), Logistic(), init, init)
    >>> net.configure([(5,), (6,), (7,)]).out_shape  # of both decoders
    [(9, 6), (9, 7)]
    """

    def __init__(
        self,
        vocab_size: int,
        embed_dim: int,
        init_embed: Init,
        nhidden: int,
        rec_layer: Any,
        init_rec: Init,
        activ_rec: Any,
        activ_rec_gate: Any,
        init_ff: Init,
        init_const: Init,
        layers: Layers | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(name)
        self.vocab_size, self.embed_dim, self.nhidden = vocab_size, embed_dim, nhidden
        self.init_embed, self.init_rec, self.init_ff, self.init_const = init_embed, init_rec, init_ff, init_const
        self.activ_rec, self.activ_rec_gate = activ_rec, activ_rec_gate
        self.rec_layer: Any = KINDS.get(rec_layer, rec_layer) if isinstance(rec_layer, str) else rec_layer
        if not isinstance(self.rec_layer, type) or not issubclass(self.rec_layer, Recurrent):
            raise DTypeError(f"{self.name}: rec_layer must be one of the classes {', '.join(KINDS)}, got {rec_layer!r}")
        self.layers = list(flatten(self._parts() if layers is None else layers))
        if len(self.layers) != sum(SIZES):
            raise ArgumentError(f"{self.name}: expected {sum(SIZES)} layers, got {len(self.layers)}")
        self._name_parts()
        self.outputs: list[Any] = [None, None]

    def _parts(self) -> list[Any]:
        def table() -> Any:
            return LookupTable(self.vocab_size, self.embed_dim, self.init_embed)

        def recurrent() -> Any:
            gates = {} if self.rec_layer is Recurrent else {"gate_activation": self.activ_rec_gate}
            return self.rec_layer(self.nhidden, self.init_rec, activation=self.activ_rec, reset_cells=True, **gates)

        def affine() -> Any:
            return Affine(self.vocab_size, self.init_ff, bias=self.init_const, activation=Softmax())

        return [table(), recurrent(), *(make() for _ in range(2) for make in (table, recurrent, affine))]

    def _name_parts(self) -> None:
        """Assign names to the parts, also for the layers of a saved network."""
        self.layer_dict: dict[str, Any] = {}
        rest = list(self.layers)
        for name, size in zip(NAMES, SIZES, strict=True):
            self.layer_dict[name] = rest[0] if size == 1 else rest[:size]
            del rest[:size]
        part = self.layer_dict
        self.encoder = Encoder([part["lookupTable"], part["encoder"]])
        self.decoders = [
            Decoder([part[f"lookupTable_{side}"], part[f"decoder_{side}"], part[f"affine_{side}"]])
            for side in ("previous", "next")
        ]
        tables = [part[name] for name in NAMES if name.startswith("lookup")]
        affines = [part["affine_previous"], part["affine_next"]]
        self._tied = [tables, [affine[0] for affine in affines], [affine[1] for affine in affines]]

    # -- setting up ----------------------------------------------------------------------------------------

    def data_shape(self, in_obj: ShapeSource) -> Any:
        """The shapes of the three sentences, from a dataset or from shapes."""
        shape: Any = getattr(in_obj, "shape", in_obj)
        alone = not isinstance(shape, list | tuple) or all(isinstance(size, int | np.integer) for size in shape)
        shapes = [shape] * 3 if alone else list(shape)
        if len(shapes) != 3:
            raise ArgumentError(f"{self.name}: expected the shapes of three sentences, got {shown(shape)}")
        return [plain_shape(one) for one in shapes]

    def configure(self, in_obj: ShapeSource) -> Layer:
        """Configure all parts.

        Parameters
        ----------
        in_obj : dataset, shape or list of shapes
            ``(steps,)`` or ``(steps, 1)`` of all three sentences, or one for each.
        """
        self.prev_layer, self.in_shape = None, self.data_shape(in_obj)
        for part, one in zip((self.encoder, *self.decoders), self.in_shape, strict=True):
            part.configure(one)
        self.parallelism = self.decoders[0].parallelism
        self.out_shape = [decoder.out_shape for decoder in self.decoders]
        return self

    def allocate(self, shared_outputs: Tensor | None = None) -> None:
        """Allocate all parts; parts of a group start with the values of the first, unless they have values already."""
        new = [layer for group in self._tied for layer in group if layer.W is None]
        for part in (self.encoder, *self.decoders):
            part.allocate()
        for first, *others in self._tied:
            for layer in others:
                if layer in new:
                    layer.W[:] = first.W

    def allocate_deltas(self, global_deltas: DeltasTree | None = None) -> None:
        """Build a tree of error buffers for each part."""
        for part in (self.encoder, *self.decoders):
            part.allocate_deltas()

    def set_deltas(self, delta_buffers: DeltasTree | list[Any]) -> None:
        """Do nothing: the parts have error buffers of their own."""

    # -- passes --------------------------------------------------------------------------------------------

    def fprop(self, inputs: Any, inference: bool = False) -> list[Any]:
        """Outputs for the previous and for the next sentence, as a list.

        Parameters
        ----------
        inputs : list of three Tensors ``(steps, N)``
            Word numbers.
        inference : bool
            True outside of training: batches may be partial.
        """
        if not isinstance(inputs, list | tuple) or len(inputs) != 3:
            raise DTypeError(f"{self.name}.fprop: expected three batches of word numbers, got {shown(inputs)}")
        self.encoder.fprop(inputs[0], inference)
        h = self.layer_dict["encoder"].final_state()
        self.outputs = [
            decoder.fprop(x, inference, begin_states(decoder, [h]))
            for decoder, x in zip(self.decoders, inputs[1:], strict=True)
        ]
        return self.outputs

    def bprop(self, error: Any) -> None:
        """Backward pass of both decoders, then of the encoder; tied parameters get the mean of their gradients.

        Parameters
        ----------
        error : list of Tensor
            Gradient of the cost by the outputs of each decoder.
        """
        if not isinstance(error, list | tuple) or len(error) != 2:
            raise DTypeError(f"{self.name}.bprop: expected a list of 2 errors, got {shown(error)}; use Multicost")
        for decoder, e in zip(self.decoders, error, strict=True):
            decoder.bprop(e)
        self.encoder.bprop_states([[decoder.recurrent[0].get_final_hidden_error() for decoder in self.decoders]])
        for first, *others in self._tied:
            mean = sum((layer.dW for layer in others), first.dW) * (1.0 / (len(others) + 1))
            first.dW[:] = mean
            for layer in others:
                layer.dW[:] = first.dW

    def get_terminal(self) -> list[Any]:
        """The last layers of the decoders."""
        return [decoder.get_terminal() for decoder in self.decoders]

    def get_description(  # type: ignore[override]
        self, get_weights: bool = False, keep_states: bool = True, **kwargs: Any
    ) -> Description:
        """Describe the container with its layers; the class of the recurrent layers is stored by name."""
        described = super().get_description(get_weights, keep_states, **kwargs)
        described["config"]["rec_layer"] = self.rec_layer.__name__
        return described
