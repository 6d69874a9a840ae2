"""Encoder and decoder of sequence-to-sequence networks."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from neonlike.backends.backend import Tensor
from neonlike.errors import ArgumentError, ShapeError
from neonlike.layers.container.branches import chain
from neonlike.layers.container.sequential import LayerContainer, Sequential
from neonlike.layers.core.base import interpret_in_shape
from neonlike.layers.core.chain import running

if TYPE_CHECKING:
    from neonlike.layers.core.base import Layer, Layers

__public_module__ = "neonlike.layers.container"


class Encoder(Sequential):
    """A chain that reads a sequence and keeps the final states of its recurrent layers.

    Parameters
    ----------
    layers : list
        Layers, some of them recurrent.
    name : str, optional
        Name in listings and model files; by default the class's with a number.

    Attributes
    ----------
    recurrent : list of Layer
        The recurrent layers, including those of nested chains.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.initializers import Constant
    >>> from neonlike.layers import Recurrent
    >>> from neonlike.layers.container import Encoder
    >>> from neonlike.transforms import Identity
    >>> be = gen_backend("cpu", batch_size=2)
    >>> encoder = Encoder([Recurrent(1, Constant(1.0), activation=Identity())])
    >>> y = encoder(be.ones((1, 3, 2)))
    >>> [state.tolist() for state in encoder.get_final_states()]
    [[[3.0, 3.0]]]
    """

    def __init__(self, layers: Layers, name: str | None = None) -> None:
        super().__init__(layers, name)
        self.recurrent = self._recurrent = recurrent_layers(chain(self))
        self._no_error: Any = None

    def get_final_states(self) -> list[Any]:
        """The final state ``(nout, N)`` of each recurrent layer."""
        return [layer.final_state() for layer in self.recurrent]

    def bprop_states(self, errors: Sequence[Sequence[Any]]) -> None:
        """Backward pass that starts from the errors of the final states only.

        Parameters
        ----------
        errors : list of lists of Tensor ``(nout, N)``
            Per recurrent layer, the terms added to the error of its last step.
        """
        shape = self.outputs.shape
        if self._no_error is None or self._no_error.shape != shape:
            self._no_error = self.be.empty(shape, dtype=self.outputs.dtype)
        error = self._no_error.fill(0)  # layers overwrite it
        added = {id(layer): entries for layer, entries in zip(self.recurrent, errors, strict=True)}
        for layer in reversed(chain(self)):
            for final in added.get(id(layer), ()):
                layer.add_final_error(error, final)
            error = layer.bprop(error)


class Decoder(Sequential):
    """A chain that generates a sequence: step by step, or all steps at once if its inputs are known.

    Parameters
    ----------
    layers : list
        Layers, some of them recurrent.
    name : str, optional
        Name in listings and model files; by default the class's with a number.
    start_index : int, optional
        First word of a beam search; by default the first step reads zeros.

    Attributes
    ----------
    recurrent : list of Layer
        The recurrent layers, including those of nested chains.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.initializers import Constant
    >>> from neonlike.layers import Recurrent
    >>> from neonlike.layers.container import Decoder
    >>> from neonlike.transforms import Tanh
    >>> be = gen_backend("cpu", batch_size=2)
    >>> decoder = Decoder([Recurrent(4, Constant(0.1), activation=Tanh())])
    >>> decoder.configure((3, 5)).out_shape, len(decoder.recurrent)
    ((4, 5), 1)
    """

    def __init__(self, layers: Layers, name: str | None = None, start_index: int | None = None) -> None:
        super().__init__(layers, name)
        self.start_index = start_index
        self.recurrent = self._recurrent = recurrent_layers(chain(self))
        self._step: Sequential | None = None
        self._running: list[Any] = chain(self)

    def allocate(self, shared_outputs: Tensor | None = None, accumulate_updates: bool = False) -> None:
        """Allocate all layers; the last layer with an output of its own comes first."""
        super().allocate(shared_outputs, accumulate_updates)
        self._step = None

    def fprop(self, inputs: Any, inference: bool = False, init_state: Any = None) -> Any:  # type: ignore[override]
        """Forward pass.

        Parameters
        ----------
        inputs : Tensor
            ``(features, steps * N)``, or word numbers; in single-step mode those of one step.
        inference : bool
            True outside of training: batches may be partial.
        init_state : list, optional
            Initial state of each recurrent layer: a tensor ``(nout, N)``, a list of tensors, or None.
        """
        recurrent = recurrent_layers(self._running)
        states = [None] * len(recurrent) if init_state is None else list(init_state)
        if len(states) != len(recurrent):
            raise ArgumentError(
                f"{self.name}.fprop: {len(recurrent)} recurrent layers need as many initial states, got {len(states)}"
            )
        begin = {id(layer): state for layer, state in zip(recurrent, states, strict=True)}
        x = inputs
        with running:
            for layer in self._running:
                state = begin.get(id(layer))
                if state is not None:
                    x = layer.fprop(x, inference, init_state=state)
                    continue
                if init_state is not None and id(layer) in begin:
                    layer.set_state(None)
                x = layer.fprop(x, inference)
        self.outputs = x
        return x

    def states(self) -> list[Any]:
        """States passed to the next step: for each recurrent layer a list of copies."""
        return [layer.get_state() for layer in recurrent_layers(self._running)]

    # -- single steps --------------------------------------------------------------------------------------

    def switch_mode(self, inference: bool) -> None:
        """Switch to one step per call; with False, switch back to all steps.

        Single steps run on copies of the layers, with the same parameters and separate buffers.
        """
        if inference and self._step is None:
            self._step = Sequential([of_one_step(layer) for layer in self.layers], name=self.name)
            self._step.configure((1,) if self.takes_words else (self.in_features, 1))
            self._step.allocate()
        step = self._step if inference else None
        self._running = chain(self if step is None else step)

    @contextmanager
    def step_by_step(self) -> Iterator[None]:
        """Run one step per call inside a ``with`` block."""
        self.switch_mode(True)
        try:
            yield
        finally:
            self.switch_mode(False)

    @property
    def takes_words(self) -> bool:
        """Whether the inputs are word numbers, not features."""
        return hasattr(chain(self)[0], "vocab_size")

    @property
    def in_features(self) -> int:
        """Features of a step of the input."""
        return interpret_in_shape(self.in_shape)[0]

    def next_inputs(self, samples: int, given: Any = None) -> Any:
        """Inputs of a step: the given ones, or zeros."""
        if given is not None:
            return given
        if self.takes_words:
            return self.be.zeros((1, samples), dtype=np.int32)
        return self.be.zeros((self.in_features, samples))

    def as_inputs(self, y: Tensor) -> Any:
        """Turn the output of a step, ``(nout, N)``, into the next input: the most likely word, or ``y`` itself.

        Raises
        ------
        ShapeError
            If inputs and outputs have different numbers of features.
        """
        if self.takes_words:
            words = self.be.empty((1, y.shape[1]), dtype=np.int32)
            words[:] = self.be.argmax(y, axis=0)
            return words
        if y.shape[0] != self.in_features:
            raise ShapeError(
                f"{self.name}: cannot read what it wrote, since inputs have {self.in_features} features and outputs "
                f"{y.shape[0]}"
            )
        return self.be.array(y)

    def words_as_inputs(self, words: np.ndarray) -> Any:
        """Word numbers ``(1, N)`` as the input of a step: unchanged, or as one-hot columns."""
        if self.takes_words:
            return self.be.array(words, dtype=np.int32)
        return self.be.array((np.arange(self.in_features).reshape(-1, 1) == words).astype(np.float32))


def recurrent_layers(layers: Sequence[Any]) -> list[Any]:
    """The layers that keep a final state."""
    return [layer for layer in layers if hasattr(layer, "final_state")]


def of_one_step(layer: Layer) -> Any:
    """Copy a layer with its parameters, ready to be configured and allocated for other inputs."""
    if isinstance(layer, LayerContainer):
        config = layer.get_description()["config"]
        config["layers"] = [of_one_step(inner) for inner in layer.layers]
        return type(layer)(**config)
    twin = copy.copy(layer)
    twin.outputs = twin.inputs = twin.deltas = None
    twin.actual_bsz = twin.actual_seq_len = None
    if hasattr(twin, "set_lengths"):
        twin.set_lengths(None)
    return twin
