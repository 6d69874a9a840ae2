"""The model: a network, and the loops that train it and evaluate it."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, Any

import numpy as np

from neonlike.backends.backend import Block
from neonlike.backends.replays import Repeated
from neonlike.checks import require_method
from neonlike.data.sharing import require_shares
from neonlike.errors import ArgumentError, OtherBackend
from neonlike.layers.container import LayerContainer, Sequential
from neonlike.layers.core.cost import GeneralizedCost, NetworkCost
from neonlike.markup import Explanation
from neonlike.models import arguments, divergence, evaluation, graph, quantize, saving, timing, together
from neonlike.models.arguments import DATASET_EXAMPLE, NoCallbacks, as_list, call_if_there, check_input_shape, require
from neonlike.models.explain import explain
from neonlike.models.progress import Progress, check_epochs, warn_if_done
from neonlike.models.saved import Saved
from neonlike.models.together import Together
from neonlike.optimizers.accumulation import GradientAccumulation
from neonlike.optimizers.base import Optimizer
from neonlike.optimizers.loss_scaling import scaled_errors
from neonlike.optree import dialect
from neonlike.optree.values import values
from neonlike.util.interrupts import InterruptGuard

if TYPE_CHECKING:
    from neonlike.data.protocol import DataIterator
    from neonlike.layers.core.base import Layers, ShapeSource
    from neonlike.models.protocol import Hooks
    from neonlike.nervanaobject import Description
    from neonlike.transforms.transform import MetricLike

__all__ = ["Model"]


class Model(Saved):
    """A network with its training, evaluation and storage.

    Parameters
    ----------
    layers : list, container, path or dict
        Layers (a list becomes a Sequential), or a saved model: its file or its dictionary.
    dataset : object
        Not used; kept for compatibility.
    weights_only : bool
        When loading, leave the optimizer states out.
    name : str, optional
        Name in listings and model files; by default the class's with a number.
    optimizer : Optimizer, optional
        Kept until ``fit`` is given one.

    Attributes
    ----------
    layers : LayerContainer
        The network; ``model.layers.layers`` is the list.
    cost, optimizer
        Those of the last ``fit``.
    epoch_index : int
        Number of the epoch that is next or in progress; the next ``fit`` continues there.
    finished : bool
        Set by a callback to end the training.
    made_on : Backend or None
        The backend of the model's tensors, once it has some.
    ended_early : bool
        Whether an error or an interrupt ended the last training, of several ranks: each has states of its own then.
    diverged : bool
        Whether a cost of the last training was nan or infinite.
    total_cost : ndarray
        Cost of the epoch, ``(1, 1)``: the sum so far, and the mean over the batches at its end.

    Examples
    --------
    >>> import numpy as np
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.data import ArrayIterator
    >>> from neonlike.initializers import Constant
    >>> from neonlike.layers import Affine, GeneralizedCost
    >>> from neonlike.models import Model
    >>> from neonlike.optimizers import GradientDescentMomentum
    >>> from neonlike.transforms import Rectlin, SumSquared
    >>> be = gen_backend("cpu", batch_size=2)
    >>> model = Model([Affine(2, init=Constant(0.5), activation=Rectlin()), Affine(1, init=Constant(0.0))])
    >>> data = ArrayIterator(np.ones((4, 3)), np.ones((4, 1)), make_onehot=False)
    >>> cost, descent = GeneralizedCost(SumSquared()), GradientDescentMomentum(0.1, momentum_coef=0.0)
    >>> model.fit(data, cost, descent, num_epochs=20)
    >>> model.completed_epochs, model.get_outputs(data).round(2)[0].tolist()
    (20, [1.0])
    """

    from_description = False

    def __init__(
        self,
        layers: Layers | str | bytes | os.PathLike[str] | Description,
        dataset: Any = None,
        weights_only: bool = False,
        name: str = "model",
        optimizer: Optimizer | None = None,
    ) -> None:
        super().__init__(name)
        self.optimizer: Any = optimizer
        self.cost: Any = None
        self.layers: Any = None
        self.epoch_index = 0
        self.finished = False
        self.initialized = False
        self.made_on: Any = None
        self.nbatches = 0
        self.ndata = 0
        self.diverged = self.ended_early = False
        self.total_cost = values(np.zeros((1, 1), dtype=np.float32))
        self.optimizer_progress: dict[str, Any] = {}
        self.progress = Progress()
        self._interrupts = InterruptGuard()
        self.together: Together | None = None
        self._both_passes = Repeated(forward=True)
        self._epoch_is_done = False
        arguments.check_no_dataset(dataset)
        if isinstance(layers, dict):
            self.deserialize(layers, load_states=not weights_only)
        elif isinstance(layers, str | bytes | os.PathLike):
            self.load_params(layers, load_states=not weights_only)
        else:
            self.layers = layers if isinstance(layers, LayerContainer) else Sequential(as_list(layers))
            self.layers.propagate_parallelism("Data")

    @property
    def layers_to_optimize(self) -> list[Any]:
        """Layers with parameters that are trained."""
        found: list[Any] = self.layers.layers_to_optimize
        return found

    def __str__(self) -> str:
        return "Network Layers:\n" + self.layers.nested_str()

    def explain(self) -> Explanation:
        """Tell in a line for each layer which others its call computes, and in which precision it multiplies.

        Returns
        -------
        str
            Notebooks show it as a table.
        """
        return explain(self.layers, together.explain(self))

    def plot(self, path: str | os.PathLike[str] | None = None) -> Explanation:
        """Draw the network's graph, with shapes and frames around layers that one call computes.

        Parameters
        ----------
        path : path, optional
            File for the graph: .svg, .png or .pdf; .dot or .gv for its text in the DOT language.

        Returns
        -------
        str
            The text of :meth:`explain`; notebooks show the graph, or without Graphviz's program ``dot`` a table.

        Raises
        ------
        ArgumentError
            If the network's shapes are not known yet, or for another kind of file.
        MissingExtra
            If a picture is to be written and Graphviz is not installed.
        """
        return graph.plot(self.layers, path)

    # -- setting up ----------------------------------------------------------------------------------------

    def initialize(self, dataset: ShapeSource, cost: NetworkCost | None = None) -> None:
        """Configure the network for the data and allocate its buffers; done once. A cost is prepared each time.

        Parameters
        ----------
        dataset : iterator or shape
            What tells the shape of the input.
        cost : cost layer, optional
            Prepared for the network's output. It gets new buffers, so passes that were recorded with it are played,
            and recorded anew.
        """
        if not self.require_backend("initialize").bsz:
            raise ArgumentError(
                f"{self.name}.initialize: the backend's batch size is {self.be.bsz}; give gen_backend(batch_size=...) "
                "or set be.bsz"
            )
        self.check_backend("initialize")
        if self.initialized:
            if not dialect.is_neon():  # neon's method returns at once
                check_input_shape(self, dataset)
        else:
            arguments.check_layers(self)
            self.layers.configure(dataset)
        if cost is not None:
            require_method(f"{self.name}.initialize", "cost", cost, "initialize", "GeneralizedCost(...)")
            cost.initialize(self.layers)
            self.cost = cost
        if not self.initialized:
            self.layers.allocate()
            self.allocate_deltas()
            self.initialized = True
            self.made_on = self.be

    def check_backend(self, operation: str) -> None:
        """Raise OtherBackend if the model has tensors on another backend than the current one."""
        be = self.require_backend(operation)
        if self.made_on is not None and self.made_on is not be:
            raise OtherBackend(
                f"{self.name}.{operation}: the model was made on {self.made_on!r}, but the current backend is {be!r}; "
                "make it after gen_backend, or save it before by model.save_params(path) and load it by Model(path)"
            )

    def allocate_deltas(self) -> None:
        """Allocate the error buffers of the network."""
        self.layers.allocate_deltas()

    def set_shortcut(self) -> None:
        """Does nothing; kept for compatibility."""

    def set_batch_size(self, N: int | None) -> None:
        """Use only the first ``N`` samples of each batch."""
        self.layers.set_batch_size(N)

    def set_seq_len(self, S: int | None) -> None:
        """Use only the first ``S`` time steps."""
        self.layers.set_seq_len(S)

    def set_lengths(self, lengths: Any) -> None:
        """Let each of the N samples of the following batches have so many time steps; None: all of them all."""
        self.layers.set_lengths(lengths)

    # -- training ------------------------------------------------------------------------------------------

    def fit(
        self, dataset: DataIterator, cost: NetworkCost, optimizer: Optimizer, num_epochs: int,
        callbacks: Hooks | None = None,
    ) -> None:  # fmt: skip
        """Train until ``num_epochs`` epochs are done in all, or a callback sets ``finished``.

        With ``--profile`` on the command line (``NeonArgparser``) some minibatches are timed instead.

        Parameters
        ----------
        dataset : iterator
            Yields (inputs, targets).
        cost : GeneralizedCost or Multicost
            What is minimized.
        optimizer : Optimizer
            Updates the parameters after each batch.
        num_epochs : int
            Total number of epochs, those of earlier calls and of a loaded model included.
        callbacks : Callbacks, optional
            Called at the start and end of training, epochs and batches.

        Raises
        ------
        ArgumentError
            If more epochs are done than ``num_epochs``.
        KeyboardInterrupt
            After Ctrl-C, once the minibatch is done; at once if that takes long, or after a second one. The next
            ``fit`` goes on where it was.
        """
        callbacks = NoCallbacks() if callbacks is None else callbacks
        self._check_fit(dataset, cost, optimizer, num_epochs, callbacks)
        self.nbatches, self.ndata, self.optimizer = dataset.nbatches, dataset.ndata, optimizer
        self.initialize(dataset, cost)
        call_if_there(cost, "count_samples", getattr(dataset, "masked_to", None))
        arguments.warn_of_unused_keys(self, optimizer)
        if timing.wanted is not None:
            timing.profile(self, dataset, timing.wanted)
            return
        self.diverged = False
        self.together = Together.of(self, self._interrupts)
        try:
            with self._interrupts:
                self.progress.expect(dataset)
                callbacks.on_train_begin(num_epochs)
                saving.resume(self, optimizer)
                self.progress.begin(self, dataset, callbacks)
                if self.together:
                    self.together.check(dataset, num_epochs)
                    self.together.start()
                warn_if_done(self, num_epochs)
                self._epochs(num_epochs, dataset, callbacks)
                if self.together:
                    self.together.end()
                callbacks.on_train_end()
                self._settle()
        except KeyboardInterrupt:
            self._save_interrupted(callbacks)
            raise
        finally:
            self._interrupts.shared, self.together = False, None
            if self._epoch_is_done:  # a callback raised after the epoch had been trained
                self.epoch_index += 1
                self._epoch_is_done = False
            self.progress.end(self)
            call_if_there(callbacks, "on_fit_exit")

    def _save_interrupted(self, callbacks: Hooks) -> None:
        if self.together:
            self.together.require_all()
        call_if_there(callbacks, "on_interrupt")

    def _check_fit(
        self, dataset: DataIterator, cost: NetworkCost, optimizer: Optimizer, num_epochs: Any, callbacks: Hooks
    ) -> None:
        require(cost, ("initialize", "get_cost", "get_errors"), "cost", "GeneralizedCost(CrossEntropyMulti())")
        require(optimizer, ("optimize",), "optimizer", "GradientDescentMomentum(0.1, 0.9)")
        require(dataset, ("nbatches", "ndata", "__iter__"), "dataset", DATASET_EXAMPLE)
        require(callbacks, ("on_train_begin",), "callbacks", "Callbacks(model, eval_set=...)", unlike="should_fire")
        owner = getattr(callbacks, "model", None)
        if isinstance(owner, Model) and owner is not self:
            raise ArgumentError("fit: callbacks were made with another model; make them with this: Callbacks(model)")
        require_shares(dataset)
        quantize.check_trains(self)
        check_epochs(self, num_epochs, is_read=bool(getattr(callbacks, "model_file", None)))

    def _epochs(self, num_epochs: int, dataset: DataIterator, callbacks: Hooks) -> None:
        while self.epoch_index < num_epochs and not self.finished:
            self.nbatches = dataset.nbatches
            callbacks.on_epoch_begin(self.epoch_index)
            self._interrupts.check()
            self._epoch_fit(dataset, callbacks)
            if self.finished and self.diverged and not self._epoch_is_done:
                return  # without what comes at the end of an epoch: files stay those of before
            self._epoch_is_done = True
            callbacks.on_epoch_end(self.epoch_index)
            self.epoch_index += 1
            self._epoch_is_done = False
            self._settle()

    def _settle(self) -> None:
        """Stop here if this training, or another rank's, was interrupted."""
        if self.together:
            self.together.settle()
        self._interrupts.check()

    def _epoch_fit(self, dataset: DataIterator, callbacks: Hooks) -> None:
        be, epoch, total, progress, train = self.be, self.epoch_index, self.total_cost, self.progress, self._train_batch
        to_optimize, interrupts = self.layers_to_optimize, self._interrupts
        if not progress.minibatches:
            total[:] = 0
            if isinstance(self.optimizer, GradientAccumulation):
                self.optimizer.forget()
        for x, t in progress.batches(self):
            batch = progress.minibatches
            callbacks.on_minibatch_begin(epoch, batch)
            interrupts.check()
            be.begin(Block.minibatch, batch)
            total += self.together.trained(train, x, t, to_optimize) if self.together else train(x, t, to_optimize)
            be.end(Block.minibatch, batch)
            if not math.isfinite(total.item()) and divergence.met(self, epoch, batch, x, callbacks):
                return
            progress.minibatches += 1
            callbacks.on_minibatch_end(epoch, batch)
            interrupts.check()
        if not progress.minibatches:
            raise ArgumentError(f"{self.name}.fit: the data iterator {dataset!r} yielded no batch")
        self._end_group(to_optimize)
        total /= progress.minibatches
        progress.minibatches = 0
        self._epoch_is_done = True

    def _train_batch(self, x: Any, t: Any, layers: list[Any]) -> Any:
        """Train ``layers``, those with parameters, on one minibatch; returns its cost."""
        cost, optimizer = self.cost, self.optimizer
        is_read_back = isinstance(cost, GeneralizedCost) and type(cost).get_cost is GeneralizedCost.get_cost
        if not is_read_back or getattr(optimizer, "scales_errors", False) or self._has_other_passes():
            value = self._play(x, t)
        else:
            roots, group = (self.layers, cost, x, t), None
            if isinstance(optimizer, Optimizer):  # before the kernels push these objects out of the caches
                group = optimizer.known_group(layers)
            if self._both_passes.again(roots):
                value = cost.read_cost()
                if group is not None:  # still right: only kernels have run since
                    optimizer.update_group(group, self.epoch_index)
                    return value
            else:
                value = self._both_passes.played(self.be, roots, self._play, x, t)
        self._step(layers)
        return value

    def _step(self, layers: list[Any]) -> None:
        """Update the parameters of ``layers``, if this is no minibatch whose gradients are accumulated."""
        optimizer = self.optimizer
        if not isinstance(optimizer, GradientAccumulation):
            self._update(optimizer, layers)
        elif optimizer.add(layers):
            self._update(optimizer.optimizer, layers)

    def _end_group(self, layers: list[Any]) -> None:
        """Update the parameters by the last minibatches of an epoch, if these are no whole group."""
        optimizer = self.optimizer
        if isinstance(optimizer, GradientAccumulation) and optimizer.end_group(layers):
            self._update(optimizer.optimizer, layers)

    def _update(self, optimizer: Optimizer, layers: list[Any]) -> None:
        if self.together:
            self.together.average_for(layers)
        optimizer.optimize(layers, self.epoch_index)

    def _play(self, x: Any, t: Any) -> Any:
        """Both passes on one minibatch; returns its cost."""
        y = self.fprop(x)
        cost = self.cost.get_cost(y, t)
        self.bprop(scaled_errors(self.optimizer, self.cost.get_errors(y, t)))
        return cost

    def _has_other_passes(self) -> bool:
        """Whether passes of a user's stand in the place of these."""
        own = type(self)
        replaced = own.fprop is not Model.fprop or own.bprop is not Model.bprop
        return replaced or not {"fprop", "bprop"}.isdisjoint(vars(self))

    def fprop(self, x: Any, inference: bool = False) -> Any:
        """Outputs of the network for a batch of inputs, ``(features, N)``; in inference N may be less than a batch.

        They are in a buffer that the next batch overwrites.

        Parameters
        ----------
        x : Tensor, or list of Tensor
            Input of the network, ``(features, N)``.
        inference : bool
            True outside of training: batches may be partial.

        Returns
        -------
        Tensor, or list of Tensor
            Outputs of the network; the next call overwrites them.
        """
        if self.made_on is not self.be:
            self.check_backend("fprop")
        return self.layers.fprop(x, inference)

    def bprop(self, delta: Any) -> Any:
        """Gradients of all parameters, from the gradient with respect to the outputs.

        Parameters
        ----------
        delta : Tensor, or list of Tensor
            Gradient of the cost by the outputs, summed over the batch.
        """
        if self.made_on is not self.be:
            self.check_backend("bprop")
        return self.layers.bprop(delta)

    def __call__(self, inputs: Any, inference: bool = False) -> Any:
        """Forward pass on variables of :mod:`neonlike.autograd`, as of a layer; see ``layers.Layer``."""
        self.check_backend("called")
        results = self.layers(inputs, inference)
        self.initialized, self.made_on = True, self.be
        return results

    def parameters(self) -> list[Any]:
        """The weights that are trained as variables, whose derivatives are the layers' gradients."""
        return self.layers.parameters()  # type: ignore[no-any-return]

    def counters(self) -> dict[str, int]:
        """The counts of a kind of training beside epochs and minibatches, to be saved with the model."""
        return {}

    def set_counters(self, saved: dict[str, int]) -> None:
        """Go on counting from what :meth:`counters` of a saved training was."""

    # -- inference in int8 ---------------------------------------------------------------------------------

    def quantize(self, calibration: DataIterator | np.ndarray) -> None:
        """Let layers multiply in int8 in inference, which is faster: Affine, Convolution, Recurrent, LSTM and GRU.

        The weights stay as they are, so that :meth:`dequantize` leads back. Files keep that the model is quantized. See
        docs/precision.md.

        Parameters
        ----------
        calibration : iterator or ndarray
            Typical inputs, a batch or more; as a data iterator, or ``(samples, features)``. A forward pass on them
            finds the largest magnitude of each layer's inputs, and states, to which later ones are clipped.

        Raises
        ------
        ArgumentError
            On a GPU, of another dtype than float32, without such layers, or if inputs of a layer are not finite.
        """
        quantize.quantize(self, calibration)

    def dequantize(self) -> None:
        """Let all layers multiply in float32 again, with the weights they had; then the model can be trained."""
        quantize.dequantize(self)

    # -- evaluation ----------------------------------------------------------------------------------------

    def eval(self, dataset: DataIterator, metric: MetricLike) -> np.ndarray:
        """Average of a metric over all samples.

        Parameters
        ----------
        dataset : iterator
            Data to evaluate; it is reset first.
        metric : Metric
            For example ``Misclassification()``.

        Returns
        -------
        ndarray
            float32, one number for each of ``metric.metric_names``.

        Raises
        ------
        DTypeError
            If these are no data iterator and metric.
        """
        return evaluation.average(self, dataset, metric)

    def get_outputs(self, dataset: DataIterator) -> np.ndarray:
        """Outputs for all samples.

        Parameters
        ----------
        dataset : iterator
            Data whose inputs are read; it is reset first.

        Returns
        -------
        ndarray
            ``(ndata, nout)``, or ``(ndata, steps, nout)`` for sequences.
        """
        return evaluation.outputs(self, dataset)

    def get_outputs_beam(self, dataset: DataIterator, num_beams: int = 0, steps: int | None = None) -> np.ndarray:
        """The words that a sequence-to-sequence network writes for all samples.

        Parameters
        ----------
        dataset : iterator
            Data whose inputs are read.
        num_beams : int
            Beams of a search for the most likely words; 0: each step reads what the one before wrote.
        steps : int, optional
            Words to search for, by default as many as the decoder was configured for.

        Returns
        -------
        ndarray
            Word numbers ``(ndata, steps)``; with 0 beams outputs ``(ndata, steps, nout)``.
        """
        return evaluation.outputs_beam(self, dataset, num_beams, steps)

    @property
    def completed_epochs(self) -> int:
        """Number of epochs trained so far."""
        return self.epoch_index + int(self._epoch_is_done)

    # -- timing --------------------------------------------------------------------------------------------

    def benchmark(
        self,
        dataset: DataIterator,
        inference: bool = False,
        cost: NetworkCost | None = None,
        optimizer: Optimizer | None = None,
        niterations: int = 20,
        nskip: int = 2,
    ) -> dict[str, dict[str, float]]:
        """Measure and print the milliseconds of a forward pass, backward pass with update, and iteration.

        Parameters
        ----------
        dataset : iterator
            Data, iterated repeatedly as needed.
        inference : bool
            Forward passes only; otherwise the parameters are trained.
        cost : GeneralizedCost or Multicost, optional
            Cost of the training.
        optimizer : Optimizer, optional
            Optimizer of the training.
        niterations : int
            Number of batches that are timed.
        nskip : int
            Number of batches before them.

        Returns
        -------
        dict
            ``{"fprop"[, "bprop", "iteration"]: {"mean", "median", "min", "max"}}``.

        Raises
        ------
        BenchmarkError
            If cost or optimizer are missing and ``inference`` is false.
        """
        return timing.benchmark_model(self, dataset, inference, cost, optimizer, niterations, nskip)
