"""Sequence-to-sequence networks: a recurrent encoder, and a decoder that starts from its final states.

Source: Sutskever et al., "Sequence to sequence learning with neural networks" (2014).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from neonlike.backends.backend import Tensor
from neonlike.checks import brief, shown
from neonlike.errors import ArgumentError, DTypeError, ShapeError
from neonlike.layers.container.coders import Decoder, Encoder
from neonlike.layers.container.sequential import LayerContainer
from neonlike.layers.core.base import Layer, interpret_in_shape, plain_shape
from neonlike.layers.core.deltas import DeltasTree
from neonlike.layers.recurrent.lstm import LSTM
from neonlike.nervanaobject import Description, build

if TYPE_CHECKING:
    from neonlike.layers.core.base import Layers, ShapeSource

__public_module__ = "neonlike.layers.container"


class Seq2Seq(LayerContainer):
    """An encoder and a decoder; the outputs are the decoder's, ``(nout, steps)``.

    In training the input is a pair: the encoder's sequence, and the previous target word for each step of the decoder.
    In inference only the first of them is read, and the decoder reads its own output.

    Parameters
    ----------
    layers : list
        Encoder and decoder: an :class:`Encoder` and a :class:`Decoder`, or a list of layers each.
    decoder_connections : list, optional
        For each recurrent layer of the decoder, the index of the encoder's recurrent layer whose final state it starts
        from; None starts from 0. By default layers are paired in order.
    name : str, optional
        Name in listings and model files; by default the class's with a number.

    Attributes
    ----------
    layers : list of Layer
        The layers of both.
    in_shape : tuple
        The shapes of both inputs, concatenated.

    Notes
    -----
    The cells of an LSTM start from 0: only the state h is passed on.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.initializers import Constant
    >>> from neonlike.layers import Affine, Recurrent, Seq2Seq
    >>> from neonlike.transforms import Softmax, Tanh
    >>> be = gen_backend("cpu", batch_size=2)
    >>> encoder = [Recurrent(4, Constant(0.1), activation=Tanh())]
    >>> decoder = [Recurrent(4, Constant(0.1), activation=Tanh()), Affine(7, Constant(0.1), activation=Softmax())]
    >>> Seq2Seq([encoder, decoder]).configure((3, 5, 7, 6)).out_shape  # 5 steps in, 6 steps out
    (7, 6)
    """

    def __init__(
        self, layers: Layers, decoder_connections: Sequence[int | None] | None = None, name: str | None = None
    ) -> None:
        super().__init__(name)
        if not isinstance(layers, list | tuple) or len(layers) != 2:
            raise ArgumentError(f"{self.name}: layers must be a pair of an encoder and a decoder, got {shown(layers)}")
        encoder, decoder = layers
        self.encoder = encoder if isinstance(encoder, Encoder) else Encoder(encoder)
        self.decoder = decoder if isinstance(decoder, Decoder) else Decoder(decoder)
        self.layers = self.encoder.layers + self.decoder.layers
        self.decoder_connections = self._connections(decoder_connections)
        self._written: Any = None

    def _connections(self, given: Sequence[int | None] | None) -> list[int | None]:
        sources, targets = len(self.encoder.recurrent), len(self.decoder.recurrent)
        if given is None:
            if sources != targets:
                raise ArgumentError(
                    f"{self.name}: the encoder has {sources} recurrent layers, the decoder {targets}; give "
                    "decoder_connections, for each of the decoder's the number of the encoder's that it begins from"
                )
            return list(range(sources))
        found = list(given)
        if len(found) != targets or any(i is not None and not 0 <= i < sources for i in found):
            raise ArgumentError(
                f"{self.name}: decoder_connections={brief(given)}; expected {targets} numbers below {sources}, one for "
                "each recurrent layer of the decoder, or None"
            )
        return found

    def nested_str(self, level: int = 0) -> str:
        """Text of the container and, indented, of encoder and decoder."""
        head = "  " * level + f"{self.classnm} '{self.name}'"
        return "\n".join([head, *(part.nested_str(level + 1) for part in (self.encoder, self.decoder))])

    # -- setting up ----------------------------------------------------------------------------------------

    def data_shape(self, in_obj: ShapeSource) -> Any:
        """The shapes of both inputs, concatenated, from a dataset or from shapes."""
        shape = plain_shape(getattr(in_obj, "shape", in_obj))
        if hasattr(in_obj, "decoder_shape"):
            given = in_obj.decoder_shape
            second = self._own_words(_as_tuple(shape)) if given is None else _as_tuple(plain_shape(given))
            return (*_as_tuple(shape), *second)
        if isinstance(shape, tuple) and len(shape) == 4:
            return shape
        if isinstance(shape, list | tuple) and len(shape) == 2 and all(isinstance(part, tuple) for part in shape):
            return (*plain_shape(shape[0]), *plain_shape(shape[1]))
        return _as_tuple(shape) * 2

    def _own_words(self, read: tuple[int, ...]) -> tuple[int, ...]:
        """Shape of the decoder's inputs for data without them: the decoder then reads its own output.

        It is the shape that the network was set up for, or trained for according to its file. A new network generates
        as many steps as the encoder reads.
        """
        if self.in_shape is not None:
            return self.in_shape[len(self.in_shape) // 2 :]
        saved = self.trained_shape
        if isinstance(saved, tuple) and len(saved) == 2 * len(read) and all(map(_is_size, saved)):
            return saved[len(read) :]
        if self.decoder.takes_words or len(read) == 1:
            return read
        self.decoder.configure(read)
        return (interpret_in_shape(self.decoder.out_shape)[0], *read[1:])

    def configure(self, in_obj: ShapeSource) -> Layer:
        """Configure encoder and decoder.

        Parameters
        ----------
        in_obj : dataset or tuple
            Has an attribute ``shape`` and, if the decoder's input shape differs, ``decoder_shape`` (None: no decoder
            inputs, so that the network can decode, but not be trained); or both shapes in one tuple of four.
        """
        self.prev_layer = None
        self.in_shape = self.data_shape(in_obj)
        half = len(self.in_shape) // 2
        self.encoder.configure(self.in_shape[:half])
        self.decoder.configure(self.in_shape[half:])
        for target, source in zip(self.decoder.recurrent, self.decoder_connections, strict=True):
            if source is not None and self.encoder.recurrent[source].nout != target.nout:
                other = self.encoder.recurrent[source]
                raise ShapeError(
                    f"{self.name}: {target.name} has {target.nout} units, but begins in the state of {other.name}, "
                    f"which has {other.nout}; make them equal, or give decoder_connections"
                )
        self.parallelism = self.decoder.parallelism
        self.out_shape = self.decoder.out_shape
        return self

    def allocate(self, shared_outputs: Tensor | None = None) -> None:
        """Allocate the encoder, then the decoder."""
        self.encoder.allocate()
        self.decoder.allocate(shared_outputs)
        self.outputs = self.decoder.outputs

    def allocate_deltas(self, global_deltas: DeltasTree | None = None) -> None:
        """Build a tree of error buffers for the encoder and one for the decoder."""
        self.encoder.allocate_deltas()
        self.decoder.allocate_deltas()

    def set_deltas(self, delta_buffers: DeltasTree | list[Any]) -> None:
        """Do nothing: encoder and decoder have error buffers of their own."""

    # -- passes --------------------------------------------------------------------------------------------

    def fprop(self, inputs: Any, inference: bool = False) -> Any:
        """Outputs of the decoder for all steps, ``(nout, steps * N)``; in inference see :meth:`generate`.

        Parameters
        ----------
        inputs : pair of Tensor, or Tensor
            Sequences of the encoder and of the decoder; in inference the first is enough.
        inference : bool
            True outside of training: batches may be partial.
        """
        pair = isinstance(inputs, list | tuple)
        if inference:
            return self.generate(inputs[0] if pair else inputs)
        if not pair or len(inputs) != 2:
            raise DTypeError(
                f"{self.name}.fprop: in training the inputs are a pair, of the encoder and of the decoder, as "
                f"Text(..., get_prev_target=True) gives them; got {shown(inputs)}"
            )
        x, z = inputs
        self.encoder.fprop(x)
        return self.decoder.fprop(z, init_state=self.initial_states())

    def initial_states(self) -> list[Any]:
        """Initial states of the decoder's recurrent layers: final states of the encoder, or None."""
        sources = [None if i is None else self.encoder.recurrent[i].final_state() for i in self.decoder_connections]
        return begin_states(self.decoder, sources)

    def generate(self, x: Any) -> Any:
        """Generate a sequence with the decoder: each step reads the previous output, the first one zeros.

        Parameters
        ----------
        x : Tensor
            Input of the encoder; partial batches are accepted.

        Returns
        -------
        Tensor
            ``(nout, steps * N)``, in a buffer that is overwritten by the next call.
        """
        self.encoder.fprop(x, inference=True)
        rows, steps = interpret_in_shape(self.out_shape)
        samples = self.samples_in(x)
        if self._written is None or self._written.shape != (rows, steps * samples):
            self._written = self.be.empty((rows, steps * samples))
        decoder, states, z = self.decoder, self.initial_states(), None
        with decoder.step_by_step():
            for t in range(steps):
                z = decoder.next_inputs(samples, z)
                y = decoder.fprop(z, True, states)
                self._written[:, t * samples : (t + 1) * samples] = y
                states, z = decoder.states(), decoder.as_inputs(y)
        return self._written

    def set_lengths(self, lengths: Any) -> None:
        """Set the length of each encoder input; the decoder starts from the state after its last step."""
        self.encoder.set_lengths(lengths)

    def samples_in(self, inputs: Any) -> int:
        """Number of samples in the inputs of ``fprop``."""
        x = inputs[0] if isinstance(inputs, list | tuple) else inputs
        return self.encoder.samples_in(x)

    def bprop(self, error: Any) -> None:
        """Backward pass of the decoder, then of the encoder from the errors of its final states.

        Parameters
        ----------
        error : Tensor
            Gradient of the cost by the outputs, ``(nout, steps * N)``.
        """
        self.decoder.bprop(error)
        errors: list[list[Any]] = [[] for _ in self.encoder.recurrent]
        for target, source in zip(self.decoder.recurrent, self.decoder_connections, strict=True):
            if source is not None:
                errors[source].append(target.get_final_hidden_error())
        self.encoder.bprop_states(errors)

    def get_terminal(self) -> Any:
        """The last layer of the decoder."""
        return self.decoder.get_terminal()

    # -- descriptions --------------------------------------------------------------------------------------

    def get_description(  # type: ignore[override]
        self, get_weights: bool = False, keep_states: bool = True, **kwargs: Any
    ) -> Description:
        """Describe both; ``config["num_encoder_layers"]`` is the number of encoder layers."""
        described = super().get_description(get_weights, keep_states, **kwargs)
        described["config"]["num_encoder_layers"] = len(self.encoder.layers)
        described["config"]["decoder_connections"] = list(self.decoder_connections)
        if self.decoder.start_index is not None:
            described["config"]["start_index"] = self.decoder.start_index
        return described

    @classmethod
    def gen_class(cls, pdict: dict[str, Any]) -> Seq2Seq:
        """Build both from the descriptions in ``pdict["layers"]``, without the weights, which are loaded later."""
        rest = dict(pdict)
        layers = [build(entry) for entry in rest.pop("layers")]
        count, start = rest.pop("num_encoder_layers"), rest.pop("start_index", None)
        return cls([Encoder(layers[:count]), Decoder(layers[count:], start_index=start)], **rest)


def begin_states(decoder: Decoder, found: Sequence[Any]) -> list[Any]:
    """Build the initial states for ``decoder.fprop`` from hidden states h; cells start from 0."""
    return [
        [h, h.backend.zeros(h.shape, dtype=h.dtype)] if h is not None and isinstance(layer, LSTM) else h
        for layer, h in zip(decoder.recurrent, found, strict=True)
    ]


def _is_size(size: Any) -> bool:
    return isinstance(size, int | np.integer) and int(size) > 0


def _as_tuple(shape: Any) -> tuple[int, ...]:
    return (int(shape),) if isinstance(shape, int | np.integer) else tuple(shape)
