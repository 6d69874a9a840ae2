"""The base class of containers, and the chain of layers, Sequential."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from neonlike.backends.backend import Tensor
from neonlike.backends.replays import Replays
from neonlike.checks import brief
from neonlike.errors import ArgumentError, ShapeError
from neonlike.layers.core.base import Layer, interpret_in_shape, require_layer
from neonlike.layers.core.chain import running
from neonlike.layers.core.deltas import DeltasTree
from neonlike.layers.core.elementwise import DataTransform, Dropout
from neonlike.layers.core.folding import fold, unfold
from neonlike.layers.core.oldformats import join_biases
from neonlike.layers.core.variables import ListOnVariables
from neonlike.layers.recurrent.padding import Padding
from neonlike.nervanaobject import Description, build, get_args
from neonlike.optree.node import Expression

if TYPE_CHECKING:
    from neonlike.layers.core.base import Layers, ShapeSource

__public_module__ = "neonlike.layers.container"


def flatten(item: Any) -> Iterator[Any]:
    """The entries of nested iterables, depth first.

    Parameters
    ----------
    item : object
        A list, of lists and other objects.

    Examples
    --------
    >>> from neonlike.layers.container import flatten
    >>> list(flatten([1, [2, [3]]]))
    [1, 2, 3]
    """
    if not hasattr(item, "__iter__") or isinstance(item, str | bytes | type | Expression | np.ndarray):
        yield item
        return
    for entry in item:
        yield from flatten(entry)


def pairwise(iterable: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
    """Neighbours: (a, b), (b, c), (c, d), …

    Parameters
    ----------
    iterable : iterable
        Any number of objects.

    Examples
    --------
    >>> from neonlike.layers.container import pairwise
    >>> list(pairwise("abc"))
    [('a', 'b'), ('b', 'c')]
    """
    previous: Any = None
    for i, entry in enumerate(iterable):
        if i:
            yield previous, entry
        previous = entry


class LayerContainer(Layer):
    """Base of containers.

    Attributes
    ----------
    layers : list of Layer
        The layers inside the container.
    trained_shape : tuple or None
        Input shape that the network was trained on according to its model file; unchecked.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.initializers import Constant
    >>> from neonlike.layers import Affine, Sequential
    >>> from neonlike.layers.container import LayerContainer
    >>> be = gen_backend("cpu", batch_size=2)
    >>> net = Sequential([Affine(2, Constant(0.1), bias=Constant(0.0), name="dense")])
    >>> isinstance(net, LayerContainer), [layer.name for layer in net.layers_fprop()]
    (True, ['dense', 'dense_bias'])
    """

    layers: list[Any]
    trained_shape: Any = None
    nests_deltas = True
    nest_deltas = property(lambda self: self.nests_deltas, doc="Whether error buffers are kept for what is inside.")

    @property
    def layers_to_optimize(self) -> list[Any]:
        """Layers with parameters that are trained, nested ones included.

        Layers initialized with an initializer named ``"Identity"`` are not trained.
        """
        found: list[Any] = []
        for layer in self.layers:
            if isinstance(layer, LayerContainer):
                found.extend(layer.layers_to_optimize)
            elif layer.has_params and getattr(getattr(layer, "init", None), "name", None) != "Identity":
                found.append(layer)
        return found

    def __str__(self) -> str:
        return self.nested_str()

    def nested_str(self, level: int = 0) -> str:
        """Text of the container and, indented, of its layers."""
        head = "  " * level + f"{self.classnm} '{self.name}'"
        return "\n".join([head, *(layer.nested_str(level + 1) for layer in self.layers)])

    def layers_fprop(self) -> Iterator[Any]:
        """Leaf layers in the order of the forward pass."""
        for layer in self.layers:
            if isinstance(layer, LayerContainer):
                yield from layer.layers_fprop()
            else:
                yield layer

    def layers_bprop(self) -> Iterator[Any]:
        """Leaf layers in the order of the backward pass."""
        for layer in reversed(self.layers):
            if isinstance(layer, LayerContainer):
                yield from layer.layers_bprop()
            else:
                yield layer

    def set_deltas(self, delta_buffers: DeltasTree | list[Any]) -> None:
        """Give each layer its error buffer."""
        for layer in self.layers:
            layer.set_deltas(delta_buffers)

    def propagate_parallelism(self, parallelism: str) -> None:
        """Set ``parallelism`` on all layers that leave it open."""
        for layer in self.layers:
            if isinstance(layer, LayerContainer):
                layer.parallelism = parallelism
                layer.propagate_parallelism(parallelism)
            elif layer.parallelism == "Unknown":
                layer.parallelism = parallelism

    def set_batch_size(self, N: int | None) -> None:
        """Set the number of samples in use on all layers."""
        super().set_batch_size(N)
        for layer in self.layers:
            layer.set_batch_size(N)

    def set_seq_len(self, S: int | None) -> None:
        """Set the number of steps in use on all layers."""
        super().set_seq_len(S)
        for layer in self.layers:
            layer.set_seq_len(S)

    def set_lengths(self, lengths: Any) -> None:
        """Set the sequence length of each sample in the following batches; None: all have all steps.

        Recurrent layers and layers that reduce a sequence to one output respect the lengths.

        Parameters
        ----------
        lengths : sequence of int, optional
            Number of steps of each of the N samples; None: all have all steps.
        """
        shared = lengths if isinstance(lengths, Padding | None) else Padding(lengths)
        for layer in self.layers:
            if hasattr(layer, "set_lengths"):
                layer.set_lengths(shared)

    def set_acc_on(self, acc_on: bool) -> None:
        """Switch gradient accumulation of all layers with parameters."""
        for layer in self.layers:
            if layer.has_params or isinstance(layer, LayerContainer):
                layer.set_acc_on(acc_on)

    def revert_tensors(self) -> None:
        """Undo the backend's distribution of tensors."""
        for layer in self.layers:
            layer.revert_tensors()

    # -- inputs --------------------------------------------------------------------------------------------

    def data_shape(self, in_obj: ShapeSource) -> Any:
        """The input shape of a dataset or shape, for comparison with ``in_shape``.

        Parameters
        ----------
        in_obj : dataset, Layer or shape
            What tells the shape of the input.
        """
        return getattr(in_obj, "shape", in_obj)

    def samples_in(self, inputs: Any) -> int:
        """Number of samples in the inputs of ``fprop``; of several inputs, the number in the first.

        Parameters
        ----------
        inputs : Tensor, or list of Tensor
            Inputs of ``fprop``.
        """
        shape, first = self.in_shape, inputs
        while isinstance(first, list | tuple):  # a list of shapes, or a tuple if all are numbers of features
            shape, first = shape if isinstance(shape, int) else shape[0], first[0] if first else None
        features, steps = interpret_in_shape(shape)
        given: Any = getattr(first, "shape", ())
        if len(given) != 2:
            raise ShapeError(f"{self.name}: inputs need a row a feature and a column a sample, got {brief(inputs)}")
        rows, columns = given
        whole = rows == features * steps  # a column is a whole sequence, as those of ArrayIterator are
        return max(1, int(columns) if whole else int(columns) // steps)

    # -- saving and loading --------------------------------------------------------------------------------

    def get_description(  # type: ignore[override]
        self, get_weights: bool = False, keep_states: bool = True, **kwargs: Any
    ) -> Description:
        """Describe the container with the descriptions of its layers in ``config["layers"]``."""
        skip = [*kwargs.pop("skip", ()), "layers"]
        described = super().get_description(skip=skip, **kwargs)
        described["container"] = True
        described["config"]["layers"] = [
            layer.get_description(get_weights=get_weights, keep_states=keep_states) for layer in self.layers
        ]
        return described

    @classmethod
    def gen_class(cls, pdict: dict[str, Any]) -> LayerContainer:
        """Build the container from the descriptions in ``pdict["layers"]``, without weights, which are loaded later.

        A user-defined class with another constructor creates its layers itself.
        """
        rest = {key: value for key, value in pdict.items() if key != "layers"}
        for key in rest:
            cls.recursive_gen(rest, key)
        parameters = inspect.signature(cls).parameters
        if "layers" in parameters or any(one.kind is one.VAR_KEYWORD for one in parameters.values()):
            rest["layers"] = [build(entry) for entry in pdict["layers"]]
        return cls(**rest)

    def _saved_layers(self, pdict: Description) -> list[Any]:
        config = pdict.get("config")
        saved = config.get("layers") if isinstance(config, dict) else None
        if not isinstance(saved, list):
            raise ArgumentError(f"{self.name}: expected the description of a container, with config and layers in it")
        return join_biases(saved, self.layers)

    def check_weights(self, pdict: Description) -> None:
        """Raise unless the saved layers match these in number and shapes."""
        saved = self._saved_layers(pdict)
        if len(saved) != len(self.layers):
            raise ArgumentError(
                f"{self.name}: the saved {pdict.get('type', 'container')} has {len(saved)} layers, this one "
                f"{len(self.layers)}; weights can be loaded only into the same network"
            )
        for layer, described in zip(self.layers, saved, strict=True):
            if not isinstance(described, dict):
                raise ArgumentError(f"{self.name}: what is saved for {layer.name} is no description, {described!r:.80}")
            _check_kind(layer, described)
            layer.check_weights(described)

    def load_weights(self, pdict: Description, load_states: bool = True) -> None:
        """Restore the parameters of all layers, by position; on a mismatch nothing is changed."""
        self.check_weights(pdict)
        for layer, described in zip(self.layers, self._saved_layers(pdict), strict=True):
            inside = isinstance(layer, LayerContainer)  # a container's states are those of its layers
            layer.load_weights(described, load_states and (inside or "states" in described))


def _check_kind(layer: Layer, described: Description) -> None:
    """Raise if a saved layer has another class than ``layer``, and only one of the two has parameters."""
    saved = str(described.get("type", layer.classnm)).rpartition(".")[2]
    takes = layer.has_params or type(layer).load_weights is not Layer.load_weights
    if saved != layer.classnm and (layer.has_params if "params" not in described else not takes):
        what = f"parameters {list(described['params'])}" if "params" in described else "no parameters"
        raise ArgumentError(
            f"{layer.name}: in its place the file has a {saved} with {what}; the file belongs to another network"
        )


class Sequential(LayerContainer):
    """A chain of layers: the output of each layer is the input of the next.

    Parameters
    ----------
    layers : list
        Layers; nested lists (such as Affine) are flattened. A BranchNode only marks a junction.
    name : str, optional
        Name in listings and model files; by default the class's with a number.

    Attributes
    ----------
    folds : bool
        Whether layers fuse the work of their successors into their own calls where possible, see
        :mod:`neonlike.layers.core.folding`. Set it on the class or on an object, before ``configure``.

    Raises
    ------
    ArgumentError
        If there are no layers, or the first works in place.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.initializers import Constant
    >>> from neonlike.layers import Affine, Linear, Sequential
    >>> from neonlike.transforms import Rectlin
    >>> be = gen_backend("cpu", batch_size=2)
    >>> net = Sequential([Affine(2, Constant(1.0), activation=Rectlin()), Linear(1, Constant(1.0))])
    >>> net(be.ones((3, 2))).tolist()
    [[6.0, 6.0]]
    """

    folds = repeatable = True
    set_forward = frozenset(("outputs",))

    def __init__(self, layers: Layers, name: str | None = None) -> None:
        super().__init__(name)
        self.layers = [require_layer(layer, self.name) for layer in flatten(layers)]
        self._layers = [layer for layer in self.layers if not layer.is_branch_node]
        if not self._layers:
            raise ArgumentError(f"{self.name}: the list of layers is empty; give at least one layer")
        first = self._layers[0]
        if not first.owns_output and not isinstance(first, Dropout | DataTransform | Sequential):
            raise ArgumentError(
                f"{self.name}: the first layer is {first.classnm}, which works in place on the layer before it; "
                "start with a layer that has an output of its own, e.g. Linear"
            )
        self.owns_output = any(layer.owns_output for layer in self._layers)
        self._after_node: dict[int, Any] = {}
        self.replays = Replays()
        self.handover: Any = None  # called with each layer whose gradients a backward pass has computed
        self.owns_delta = first.owns_delta

    @property
    def needs_outputs(self) -> bool:  # type: ignore[override]
        """Whether the last layer needs its outputs."""
        return bool(self._layers[-1].needs_outputs)

    def set_next(self, layer: Layer | None) -> None:
        """Set the layer after this chain, which is also the successor of its last layer."""
        super().set_next(layer)
        self._layers[-1].set_next(layer)

    def configure(self, in_obj: ShapeSource) -> Layer:
        """Configure each layer from its predecessor; None starts from a BranchNode that is already configured."""
        first = self.layers[0]
        if in_obj is not None:
            super().configure(in_obj)
        else:
            first.configure(None)
            self.in_shape = first.in_shape
        previous = in_obj
        for layer in self.layers:
            layer.configure(previous)
            previous = layer
        for layer, following in pairwise(self._layers):
            layer.set_next(following)
        self.owns_output = any(layer.owns_output for layer in self._layers)
        inside = self.layers[1:] if in_obj is None else self.layers  # without the node at its head
        self._after_node = {id(layer): node for node, layer in pairwise(inside) if node.is_branch_node}
        (fold if self.folds else unfold)(self.layers)
        self.parallelism = self._layers[0].parallelism if self.parallelism == "Unknown" else self.parallelism
        self.out_shape = self._layers[-1].out_shape
        return self

    def allocate(self, shared_outputs: Tensor | None = None, accumulate_updates: bool = False) -> None:
        """Allocate all layers; the last layer with an output of its own comes first.

        Parameters
        ----------
        shared_outputs : Tensor, optional
            Memory for the outputs of the chain.
        accumulate_updates : bool
            Prepare layers with parameters for gradient accumulation.
        """
        last_owner = next((layer for layer in reversed(self._layers) if layer.owns_output), None)
        if last_owner is not None:
            self._allocate_layer(last_owner, accumulate_updates, shared_outputs=shared_outputs)
        for layer in self.layers:
            if layer is not last_owner:
                self._allocate_layer(layer, accumulate_updates)
        self.outputs = self._layers[-1].outputs

    @staticmethod
    def _allocate_layer(layer: Layer, accumulate_updates: bool, **kwargs: Any) -> None:
        if accumulate_updates and "accumulate_updates" in get_args(layer.allocate):
            kwargs["accumulate_updates"] = True
        layer.allocate(**kwargs)

    def allocate_deltas(self, global_deltas: DeltasTree | None = None) -> None:
        """Register the layers with a tree of error buffers; without one, build and allocate a new tree."""
        tree = global_deltas if global_deltas is not None else DeltasTree()
        first = self.layers[0]
        # The first layer of a network returns no error, unless it contains branches that do.
        skipped = 1 if global_deltas is None and not first.nests_deltas and not first.prev_layer else 0
        for layer in self.layers[skipped:]:
            layer.allocate_deltas(tree)
        if global_deltas is None:
            tree.allocate_buffers()
            self.set_deltas(tree)

    def fprop(self, inputs: Any, inference: bool = False, beta: float = 0.0) -> Any:
        """Forward pass; ``beta`` is for the last layer. Inputs of None start from the first layer, a BranchNode.

        Parameters
        ----------
        inputs : Tensor, list of Tensor or None
            Input of the first layer.
        inference : bool
            True outside of training: batches may be partial.
        beta : float
            Factor of the last layer's previous outputs; 0 overwrites them.

        Returns
        -------
        Tensor or list of Tensor
            Outputs of the last layer.
        """
        if beta or running.depth:
            return self._fprop(inputs, inference, beta)
        passes = self.replays.inference if inference else self.replays.forward
        return passes.run(self.be, (self, inputs), self._fprop, inputs, inference)

    def _fprop(self, inputs: Any, inference: bool = False, beta: float = 0.0) -> Any:
        """Run the forward pass of each layer."""
        x = inputs
        last: Any = self._layers[-1] if beta else None
        with running:
            for layer in self.layers:
                x = layer.fprop(x, inference, beta=beta) if layer is last else layer.fprop(x, inference)
        self.outputs = x
        return x

    def bprop(self, error: Any, alpha: float = 1.0, beta: float = 0.0) -> Any:
        """Backward pass; ``alpha`` and ``beta`` are for the first layer and for layers after a BranchNode.

        Layers after a BranchNode inside the chain always add to the errors of the branches that start there.

        Parameters
        ----------
        error : Tensor
            Gradient of the cost by the outputs of the last layer.
        alpha, beta : float
            deltas = alpha · gradient + beta · deltas.

        Returns
        -------
        Tensor or None
            Gradient with respect to the chain's input; None if the first layer has no error buffer.
        """
        if alpha != 1 or beta or running.depth:
            return self._bprop(error, alpha, beta)
        return self.replays.backward.run(self.be, (self, error), self._bprop, error)

    def _bprop(self, error: Any, alpha: float = 1.0, beta: float = 0.0) -> Any:
        """Run the backward pass of each layer, starting with the last."""
        first = self._layers[0]
        plain = alpha == 1 and not beta and not self._after_node
        with running:
            for layer in reversed(self._layers):
                node = None if plain else self._after_node.get(id(layer))
                if node is None and (layer is not first or (alpha == 1 and not beta)):
                    error = layer.bprop(error)
                else:
                    kept = 1.0 if node is not None and node.has_branches else beta
                    error = layer.bprop(error, alpha, kept) if alpha != 1 or kept else layer.bprop(error)
                if self.handover is not None:
                    self.handover(layer)
        return first.deltas

    def set_deltas(self, delta_buffers: DeltasTree | list[Any]) -> None:
        """Give each layer its error buffer."""
        super().set_deltas(delta_buffers)
        self.deltas = self._layers[0].deltas

    def get_terminal(self) -> Any:
        """The last layer, or its terminals if it is a container."""
        return self._layers[-1].get_terminal()


ListOnVariables.sequential = Sequential
