"""The base of all optimizers: the list of parameters, clipping, states, and the step prepared for them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from neonlike.backends.replays import Repeated
from neonlike.checks import brief, checked, require_method, shown
from neonlike.errors import ArgumentError, DTypeError, NotDefined
from neonlike.kernels.run.depends import Depends
from neonlike.nervanaobject import NervanaObject
from neonlike.optimizers.masters import by_masters
from neonlike.optimizers.shards import Exchange, Shard
from neonlike.optimizers.states import complete_states, keeper
from neonlike.optimizers.step import Norm, Parameter, Step, identity
from neonlike.optree import dialect

__public_module__ = "neonlike.optimizers.optimizer"

CLIPPING = ("stochastic_round", "gradient_clip_norm", "gradient_clip_value", "param_clip_value")
"""What every optimizer has beside its ``hyperparameters`` that expressions are built from."""

MOST_BITS = 52
"""Mantissa bits of float64."""

MOST_STEPS = 8
"""Groups of parameters whose prepared steps an optimizer keeps."""


@checked
def get_param_list(layer_list: Iterable[Any]) -> list[Parameter]:
    """All parameters of the layers, ``[((param, grad), states), ...]``.

    A layer's ``get_params()`` gives one such entry, or a list of them.

    Parameters
    ----------
    layer_list : iterable of Layer
        Layers with parameters, or variables of :mod:`neonlike.autograd`.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.initializers import Constant
    >>> from neonlike.layers import Linear
    >>> from neonlike.optimizers import get_param_list
    >>> be = gen_backend("cpu", batch_size=2)
    >>> layer = Linear(2, Constant(0.1))
    >>> y = layer(be.ones((3, 2)))
    >>> [(param.shape, grad.shape, states) for (param, grad), states in get_param_list([layer])]
    [((2, 3), (2, 3), [])]
    """
    found: list[Parameter] = []
    for layer in layer_list:
        try:
            params = layer.get_params()
        except (AttributeError, TypeError):  # a class, or no layer
            require_method("get_param_list", "each layer", layer, "get_params", "Linear")
            raise
        found += params if isinstance(params, list) else [params]
    return found


class Group(list[Parameter]):
    """The parameters of some layers, with all their states.

    Attributes
    ----------
    step : Step or None
        The step that updated them last. It is used again while nothing changes that it depends on.
    parts : list of Group or None
        The parameters by how many steps they have had, for optimizers that count them.
    count : Count or None
        Of a part: what all its parameters share.
    exchange : Exchange or None
        What sends gradients and updates to other ranks.
    """

    step: Any = None
    parts: list[Group] | None = None
    count: Any = None
    exchange: Exchange | None = None


class Optimizer(NervanaObject):
    """Base of optimizers.

    A subclass sets ``number_of_states`` and ``hyperparameters`` and defines ``_numbers`` (what differs from step to
    step) and ``_updates`` (the assignments of one parameter). These are one plan: their right-hand sides are evaluated
    with the values before the step.

    Parameters
    ----------
    name : str, optional
        Name in listings and model files; by default the class's with a number.

    Attributes
    ----------
    hyperparameters : tuple of str
        Attributes that expressions are built from: a prepared step holds for their present values.
    advancing : frozenset of str
        Attributes that each step sets.
    by_elements : bool
        Set in a class beside its ``_updates``, if each element of a parameter is updated by itself alone.
    shards : dict
        Id of a gradient -> ``shards.Shard``, of the parameters whose rows ranks updated in the last step.
    scales_errors : bool
        Whether :meth:`scale_errors` is to be called on the errors of each minibatch.
    master_weights : bool
        Whether parameters of 16 bits are updated in a float32 copy and rounded (``masters``), so that small steps add
        up; False loses those below half the distance of two numbers. Not with stochastic rounding, which GPUs have.

    Examples
    --------
    >>> from neonlike import autograd as ag
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.optimizers import Optimizer
    >>> be = gen_backend("cpu", batch_size=2)
    >>> class Descent(Optimizer):
    ...     def _numbers(self, scale, epoch):
    ...         return (0.25,)
    ...     def _updates(self, param, grad, states, rate):
    ...         return [(param, param - rate * self._mean_gradient(grad))]
    >>> w = ag.param([[2.0]])
    >>> (w * w).sum().backprop()
    >>> Descent().optimize([w], epoch=0)
    >>> w.tolist()
    [[1.5]]
    """

    number_of_states: ClassVar[int] = 0
    hyperparameters: ClassVar[tuple[str, ...]] = ()
    advancing: ClassVar[frozenset[str]] = frozenset()
    by_elements: ClassVar[bool] = False
    stochastic_round: bool | int = False
    gradient_clip_norm: float | None = None
    gradient_clip_value: float | None = None
    param_clip_value: float | None = None
    scales_errors: bool = False
    master_weights: bool = True

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name=name)
        self._steps: dict[Any, Step] = {}
        self._found = Repeated()
        self._norms: dict[Any, Norm] = {}
        self._scale: Any = None
        self.shards: Mapping[int, Shard] = {}
        self._exchanges: dict[Any, Exchange] = {}

    def __getstate__(self) -> dict[str, Any]:
        # of tensors that a copy does not have
        here: dict[str, Any] = {"_steps": {}, "_norms": {}, "_scale": None, "_found": Repeated()}
        return {**self.__dict__, **here, "shards": {}, "_exchanges": {}}

    def depends_on(self) -> Depends | None:
        """The record of found parameters depends on all attributes, except those that each step reads or sets."""
        return Depends(opened=frozenset(), free=self.advancing | frozenset(("learning_rate", "shards")))

    def optimize(self, layer_list: Sequence[Any], epoch: int) -> None:
        """Update the parameters of the layers in place.

        Parameters
        ----------
        layer_list : list
            Objects with ``get_params()``; gradients are sums over the batch and are divided by ``be.global_bsz`` here.
            Several ranks sum them first.
        epoch : int
            Number of the epoch, from 0, for the learning rate.
        """
        group = self._known(layer_list)
        if group is not None:
            self.update_group(group, epoch)
        elif isinstance(layer_list, list | tuple):
            roots = self, *layer_list
            self.update_group(self._found.played(self.be, roots, self._find, layer_list), epoch, False)
        else:
            self.update_group(self._find(layer_list), epoch, False)

    def known_group(self, layer_list: Sequence[Any]) -> Group | None:
        """The parameters of the layers, if nothing has changed since they were found that :meth:`optimize` depends on.

        None means to call :meth:`optimize`: what it depends on has changed or is not known, as for a class without a
        ``depends_on`` of its own, or it is another one than this class has.

        Parameters
        ----------
        layer_list : list
            Layers as :meth:`Optimizer.optimize` takes them.
        """
        own = type(self).optimize is Optimizer.optimize and "optimize" not in self.__dict__
        return self._known(layer_list) if own else None

    def _known(self, layer_list: Any) -> Group | None:
        """The parameters found last, if nothing has changed since that they depend on."""
        found = self._found
        return found.result if isinstance(layer_list, (list, tuple)) and found.again((self, *layer_list)) else None

    def update_group(self, group: Group, epoch: int, known: bool = True) -> None:
        """Update the parameters of a group as :meth:`optimize` does.

        Parameters
        ----------
        group : Group
            Parameters that :meth:`known_group` found.
        epoch : int
            Number of the epoch, from 0.
        known : bool
            Whether nothing has changed since they were found, so that the step of the last update serves again.

        Raises
        ------
        DTypeError
            If ``group`` is not what :meth:`known_group` found.
        """
        if not isinstance(group, Group):
            raise DTypeError(f"{self.classnm}.update_group: got {shown(group)}; expected what known_group returned")
        if self.be.ranks.size > 1:
            self._update_by_ranks(group, epoch, known)
        else:
            self._update(group, epoch, known)

    def _update_by_ranks(self, group: Group, epoch: int, known: bool) -> None:
        """Update parameters together with the other ranks."""
        be = self.be
        if self._scale is not None:  # gradients of a scaled loss have been summed
            self.shards = {}
            self._update(group, epoch, known)
            return
        exchange = self._exchange_of(group)
        with be.bench_measure("gradients summed over ranks", *exchange.summed):
            exchange.before()
        self.shards = exchange.shards
        self._update(group, epoch, known)
        if exchange.shards:
            with be.bench_measure("updated rows sent to ranks", *exchange.sent):
                exchange.after()

    def _exchange_of(self, group: Group) -> Exchange:
        """The exchange of the group's gradients, which is kept with prepared steps: these read what it receives."""
        if group.exchange is None:
            be, pairs = self.be, [pair for pair, _ in group]
            shared = be.shard_optimizer and self._may_share()
            compression = be.gradient_compression
            key = be, shared, compression, tuple([id(tensor) for pair in pairs for tensor in pair])
            group.exchange = self._exchanges.get(key)
            if group.exchange is None:
                group.exchange = Exchange(be.ranks, pairs, shared, compression)
                keep(self._exchanges, key, group.exchange)
        return group.exchange

    def _update(self, group: Group, epoch: int, known: bool) -> None:
        """Update parameters whose gradients are those of all ranks."""
        clips = self.gradient_clip_norm or type(self).clip_gradient_norm is not Optimizer.clip_gradient_norm
        scale = self.clip_gradient_norm(group, self.gradient_clip_norm) if clips else 1.0
        if group.parts is not None:
            self._advance_parts(group, scale, epoch, known)
            return
        numbers = self._numbers(scale, epoch)
        if known and group.step is not None:
            group.step(numbers)
        else:
            self._apply(group, numbers)

    def _advance_parts(self, group: Group, scale: float, epoch: int, known: bool) -> None:
        """Update parameters that have had different numbers of steps."""
        raise NotDefined(f"{self.classnm} counts no steps")

    def _rate(self, epoch: int) -> float:
        """The learning rate of an epoch.

        Raises
        ------
        ArgumentError
            If it is negative, infinite or nan: a step with it would lead uphill, or lose the parameters.
        """
        schedule = getattr(self, "schedule", None)
        rate: Any = self.learning_rate  # type: ignore[attr-defined]
        rate = rate if schedule is None else schedule.get_learning_rate(rate, epoch)
        return require_rate(self.classnm, rate, epoch)  # type: ignore[no-any-return]

    def _find(self, layer_list: Iterable[Any]) -> Group:
        """The parameters of the layers with all their states."""
        found = Group(get_param_list(layer_list))
        if not self.require_backend("optimize").bsz:
            raise ArgumentError(
                f"{self.classnm}.optimize: the backend's batch size is {self.be.bsz}; gradients are divided by it, "
                "so set be.bsz to the number of samples in a batch"
            )
        # A GPU's stochastic rounding stores other numbers than the nearest, and is another way not to lose small steps.
        masters = self.master_weights and not (self.stochastic_round and self.be.device_type)
        complete_states(self.be, found, type(self), self.number_of_states, masters)
        return found

    def _apply(self, param_list: Sequence[Parameter], numbers: tuple[float, ...]) -> None:
        """Update the parameters by a prepared step, made now if there is none for these tensors."""
        own = tuple([id(self.shards[id(grad)].own_grad) for (_, grad), _ in param_list if id(grad) in self.shards])
        key = (*self._situation(), *map(_hashable, self._settings()), self._scale, identity(param_list), own)
        step = self._steps.get(key)
        if step is None:
            for (param, _), _ in param_list:
                param.rounding = self.stochastic_round
            step = Step(self.be, self._own(param_list), self._assignments, len(numbers))
            keep(self._steps, key, step)
        step(numbers)
        if isinstance(param_list, Group):
            param_list.step = step

    def _may_share(self) -> bool:
        """Whether a step on some rows of a parameter is that of the whole: of the library's own updates, each is."""
        own = type(self)
        plain = own._apply is Optimizer._apply and own.clip_gradient_norm is Optimizer.clip_gradient_norm
        return plain and "by_elements" in vars(keeper(own))

    def _own(self, param_list: Sequence[Parameter]) -> list[Parameter]:
        """The parameters as this rank updates them: of those that ranks share its rows alone."""
        shards = self.shards
        return [
            shards[id(grad)].entry(states) if id(grad) in shards else ((param, grad), states)
            for (param, grad), states in param_list
        ]

    def _settings(self) -> list[Any]:
        """The present values of what expressions are built from."""
        return [getattr(self, name) for name in (*self.hyperparameters, *CLIPPING)]

    def _situation(self) -> tuple[Any, ...]:
        """Dependencies of a prepared step beside tensors and hyperparameters; the key holds the backend."""
        be = self.be
        return be, be.engine, be.num_threads, be.bsz

    def scale_errors(self, errors: Any) -> Any:
        """Scale the ``errors`` of a cost, a tensor or a list, in place if the optimizer uses loss scaling.

        Parameters
        ----------
        errors : Tensor, or list of Tensor
            Gradient of a cost by the outputs.
        """
        return errors

    def use_scale(self, scale: Any) -> None:
        """Take gradients as those of a scaled loss (``loss_scaling.Scale``) until it is None again."""
        self._scale = scale

    def _assignments(self, param: Any, grad: Any, states: list[Any], *numbers: Any) -> list[tuple[Any, Any]]:
        """The updates of one parameter, of its master weight if it has one; of a scaled loss, skipped on overflow."""
        updates, scale = by_masters(self._updates), self._scale
        if scale is None:
            return updates(param, grad, states, *numbers)
        found: list[tuple[Any, Any]] = scale.masked(updates(param, scale.unscaled(grad), states, *numbers))
        return found

    def progress(self) -> dict[str, Any]:
        """The plain values that resuming a saved training needs beside the states of the layers."""
        return {}

    def set_progress(self, saved: dict[str, Any]) -> None:
        """Resume from the :meth:`progress` of an optimizer; what is not in it stays.

        Parameters
        ----------
        saved : dict
            Result of :meth:`progress`.
        """

    def _numbers(self, scale: float, epoch: int) -> tuple[float, ...]:
        """Numbers of this step; ``scale`` is the factor of norm clipping."""
        raise NotDefined(f"{self.classnm} does not define the update of a step")

    def _updates(self, param: Any, grad: Any, states: list[Any], *numbers: Any) -> list[tuple[Any, Any]]:
        """Assignments ``[(target, expression), ...]`` of one parameter; the numbers of a step are tensors (1, 1)."""
        raise NotDefined(f"{self.classnm} does not define the update of a parameter")

    def _mean_gradient(self, grad: Any) -> Any:
        """Gradient divided by the batch size and clipped by value."""
        return self.clip_value(grad / self.be.global_bsz, self.gradient_clip_value)

    def clip_gradient_norm(self, param_list: Sequence[Parameter], clip_norm: float | None) -> float:
        """Factor that brings the norm of the mean gradient of all parameters down to at most ``clip_norm``.

        Parameters
        ----------
        param_list : list
            Parameters as :func:`~neonlike.optimizers.get_param_list` gives them.
        clip_norm : float, optional
            Bound on the norm.

        Returns
        -------
        float
            clip_norm / max(sqrt(Σ‖grad‖²) / bsz, clip_norm), or 1 if ``clip_norm`` is None or 0.

        Raises
        ------
        ArgumentError
            If ``clip_norm`` is negative.
        """
        if not isinstance(param_list, list | tuple) or not all(map(_is_parameter, param_list)):
            raise DTypeError(f"{self.classnm}.clip_gradient_norm: param_list must be what get_param_list returns")
        if not clip_norm or not param_list:
            return 1.0
        if clip_norm < 0:  # the factor would be negative: steps uphill
            raise ArgumentError(f"{self.classnm}: gradient_clip_norm={clip_norm}; expected a positive number, or None")
        norm = self._norm_over_ranks(param_list) if self.shards else self._norm(param_list)
        return float(clip_norm / max(norm, clip_norm))

    def _norm_over_ranks(self, param_list: Sequence[Parameter]) -> float:
        """As :meth:`_norm`, of parameters of which the ranks update rows each, and others."""
        by_rows: list[Parameter] = []
        whole: list[Parameter] = []
        for entry in param_list:
            (by_rows if id(entry[0][1]) in self.shards else whole).append(entry)
        if not by_rows:
            return self._norm(whole)
        squares = np.array([self._norm(by_rows) ** 2])
        self.be.ranks.reduce(squares)
        norm = math.sqrt(squares[0])
        return math.hypot(norm, self._norm(whole)) if whole else norm

    def _norm(self, param_list: Sequence[Parameter]) -> float:
        """The norm of the mean gradient of parameters; of shared ones, of this rank's rows."""
        entries = self._own(param_list) if self.shards else param_list
        key = (*self._situation(), self._scale, tuple(id(grad) for (_, grad), _ in entries))
        norm = self._norms.get(key)
        if norm is None:
            norm = Norm(self.be, entries, self._scale)
            keep(self._norms, key, norm)
        return norm()

    def clip_value(self, v: Any, abs_bound: float | None = None) -> Any:
        """Expression of ``v`` clipped to ±|abs_bound|; ``v`` itself if the bound is None or 0.

        Parameters
        ----------
        v : Tensor or expression
            The values.
        abs_bound : float, optional
            Bound on their magnitude.
        """
        if not abs_bound:
            return v
        return self.be.clip(v, -abs(abs_bound), abs(abs_bound))


def require_averages(optimizer: str, **weights: float) -> None:
    """Raise ArgumentError unless these weights of what was before, in running averages, are in [0, 1)."""
    for name, weight in weights.items():
        if not 0 <= weight < 1:
            raise ArgumentError(f"{optimizer}: {name} must be in [0, 1), got {weight}")


def require_rate(optimizer: str, rate: Any, epoch: int | None = None) -> Any:
    """The learning rate (of an epoch), refused if it is negative, infinite or nan; neon's dialect takes any.

    Parameters
    ----------
    optimizer : str
        Class of the optimizer, for the message.
    rate : float
        The learning rate.
    epoch : int, optional
        The epoch that has it, for the message.

    Raises
    ------
    ArgumentError
    """
    try:
        fine = bool(0 <= rate < math.inf)
    except (TypeError, ValueError):
        return rate  # no number: what computes with it says so
    if not fine and not dialect.is_neon():
        when = "" if epoch is None else f" in epoch {epoch}"
        raise ArgumentError(f"{optimizer}: learning_rate={brief(rate)}{when}; expected a number from 0")
    return rate


def mantissa_bits(optimizer: str, stochastic_round: Any) -> Any:
    """The argument ``stochastic_round`` of an optimizer.

    Raises
    ------
    ArgumentError
        If it is neither a flag nor a number of bits: in neon's order it comes before the rate of most optimizers.
    """
    given = False if stochastic_round is None else stochastic_round
    if not isinstance(given, bool | np.bool_ | int | np.integer) or not 0 <= given <= MOST_BITS:
        raise ArgumentError(
            f"{optimizer}: stochastic_round must be True, False or a number of mantissa bits, got {brief(given)}; "
            "give other arguments by their names, as learning_rate=0.01"
        )
    return given


def _is_parameter(entry: Any) -> bool:
    """Whether ``entry`` has the form of :data:`Parameter`."""
    pair = isinstance(entry, tuple | list) and len(entry) == 2
    return pair and isinstance(entry[0], tuple | list) and len(entry[0]) == 2


def keep(prepared: dict[Any, Any], key: Any, made: Any) -> None:
    """Add to what is prepared; the oldest goes where there are many, as with parameters that are made anew.

    Parameters
    ----------
    prepared : dict
        What is prepared, in the order in which it was made.
    key : hashable
        Its key.
    made : object
        What to add.
    """
    if len(prepared) >= MOST_STEPS:
        del prepared[next(iter(prepared))]
    prepared[key] = made


def _hashable(value: Any) -> Any:
    """A hyperparameter as part of a key: a number may have come as an array without axes."""
    return value.item() if isinstance(value, np.ndarray) else value
