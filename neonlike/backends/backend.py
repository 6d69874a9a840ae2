"""``Backend``: one object with everything, as in neon. Its methods come from the families of its parts (``parts.py``).

This file holds what all families rest on: assignment (the hot path), whose plans and engine are the executor's, the
registry and the life of a backend.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from neonlike import settings
from neonlike.backends.abstract_backend import AbstractBackend
from neonlike.backends.arguments import check_names, check_pairs, check_values
from neonlike.backends.current import release
from neonlike.backends.executor import Executor
from neonlike.backends.parts import Differentiable, Expressions, Images, Machine, Products, Sequences, Tensors
from neonlike.backends.tensor import Tensor
from neonlike.backends.tensors.creation import checked_default_dtype
from neonlike.checks import brief, shown
from neonlike.errors import ArgumentError, BackendUnavailable, DTypeError, OtherBackend, ShapeError
from neonlike.kernels.bench.recorder import make_bench
from neonlike.kernels.planning.plan_cache import PlanCache
from neonlike.kernels.run.depends import Depends
from neonlike.kernels.run.engine import Engine
from neonlike.kernels.run.prepared import Prepared
from neonlike.kernels.run.program import Replayed
from neonlike.kernels.run.threads import refresh as refresh_threads
from neonlike.markup import Explanation
from neonlike.optree.dialect import is_neon
from neonlike.optree.dtypes import whole_as_float
from neonlike.optree.forms import mark, owner
from neonlike.optree.node import Expression, OpTreeNode, adapt, is_operand
from neonlike.optree.shapes import FREE

__all__ = ["Backend", "Block", "OpTreeNode", "Tensor"]

DONE, LEFT = Replayed.DONE, Replayed.LEFT


class Block:
    """Names for the ``block`` argument of ``be.begin`` and ``be.end``.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.backends.backend import Block
    >>> gen_backend("cpu").begin(Block.epoch, 1)
    """

    epoch, minibatch, fprop, bprop, update = range(5)


@owner
class Backend(Expressions, Products, Images, Sequences, Differentiable, Tensors, Machine, AbstractBackend):
    """Makes tensors, runs expressions and compound primitives.

    Parameters
    ----------
    rng_seed : int or None
        Seed of ``be.rng`` and of ``rand``; None takes entropy from the system.
    default_dtype : dtype
        Of tensors made without a dtype: float16, bfloat16, float32 or float64.
    hist_bins, hist_offset : int
        Number of bins of ``tensor.hist``, and the exponent of the first.
    compat_mode : None or "caffe"
    num_devices, stochastic_round, device_id, deterministic
        Without effect on the CPU; ``be.deterministic`` says whether a seed was given.
    bench : bool, path or None
        Time every kernel and report it at the end, see :meth:`bench_report`: to the log, or to a file that ends in
        .txt, .json, .csv or .html. None: what the environment variable ``NEONLIKE_BENCH`` says, 0, 1 or a file.
    product_precision : {"float32", "tf32", "bfloat16"}, optional
        Precision of factors in float32 products, convolutions and recurrent layers (docs/precision.md); "tf32" on a GPU
        alone. None: what the environment variable ``NEONLIKE_PRODUCT_PRECISION`` says, else "float32".

    Raises
    ------
    BadDefaultDType
        If ``default_dtype`` is no float.
    ArgumentError
        On another ``compat_mode``, ``bench`` or ``product_precision``, on numbers that are none, or if an environment
        variable makes no sense (docs/environment.md).

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu", rng_seed=0, batch_size=32)
    >>> x, w, y = be.ones((4, 32)), be.full((2, 4), 0.5), be.empty((2, 32))
    >>> y[:] = be.relu(be.dot(w, x) - 1)
    >>> be.mean(y).item()
    1.0
    """

    __slots__ = ("_replay",)  # which every assignment asks first, and the extension reads faster than other attributes
    backends: ClassVar[dict[str, type[Backend]]] = {}
    loaders: ClassVar[dict[str, Callable[[], Any]]] = {}
    """What imports the classes of backends that are not loaded with the library; ``registry.py`` fills it."""
    backend_name: ClassVar[str] = ""
    tensor_cls: ClassVar[type[Tensor]] = Tensor
    bsz: int | None = None
    product_precision: str
    precisions: ClassVar[tuple[str, ...]] = settings.PRECISIONS
    """Values of ``product_precision``."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if cls.backend_name:
            Backend.backends[cls.backend_name] = cls

    def __init__(
        self,
        rng_seed: int | None = None,
        default_dtype: npt.DTypeLike = np.float32,
        hist_bins: int = 64,
        hist_offset: int = -48,
        compat_mode: str | None = None,
        num_devices: int | None = None,
        stochastic_round: bool | int | None = None,
        device_id: int | None = None,
        deterministic: bool | None = None,
        *,
        bench: bool | int | str | os.PathLike[str] | None = None,
        product_precision: str | None = None,
        **unknown: Any,
    ) -> None:
        name = type(self).__name__
        check_names(name, unknown, type(self).__init__)
        settings.check()
        check_values(name, rng_seed, stochastic_round, device_id, num_devices, compat_mode)
        refresh_threads()
        self.closed = False
        self.default_np_dtype = checked_default_dtype(name, default_dtype)
        self.compat_mode = compat_mode
        recorder = make_bench(bench)
        self.executor = Executor(self._make_engine(), self.tensor_cls)
        self._replay = self.executor.replay
        self.product_precision = self.precision_of(product_precision)
        self._switch_bench(recorder)
        self._init_random(rng_seed)
        self.set_hist_buffers(hist_bins, hist_offset)

    @classmethod
    def precision_of(cls, wanted: str | None) -> str:
        """Return the precision of products that is ``wanted``; None: the variable's, if backends of this kind have it.

        Raises
        ------
        ArgumentError
            If backends of this kind do not have it.

        Examples
        --------
        >>> from neonlike.backends import Backend
        >>> Backend.precision_of("bfloat16")
        'bfloat16'
        """
        if wanted is None:
            found = settings.PRODUCT_PRECISION.get()
            return found if found in cls.precisions else "float32"
        if wanted not in cls.precisions:
            raise ArgumentError(
                f"product_precision: got {brief(wanted)}; {cls.backend_name or cls.__name__} backends take "
                f"{', '.join(cls.precisions)}"
            )
        return wanted

    def _make_engine(self) -> Engine:
        raise NotImplementedError

    def depends_on(self) -> Depends:
        """A repeated pass depends on the settings of the backend, and on what its :class:`Executor` says.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> type(be.depends_on()).__name__
        'Depends'
        """
        return Depends(opened=frozenset(("executor",)))

    @property
    def engine(self) -> Engine:
        """The engine that runs the plans of expressions."""
        return self.executor.engine

    @property
    def plans(self) -> PlanCache:
        """The plans that were made."""
        return self.executor.plans

    # Running expressions: Tensor.__setitem__ -> assign -> executor: plan -> engine; or replay of one seen before

    def assign(self, target: Tensor, value: Any) -> Any:
        """Compute ``value`` into ``target`` and return ``target``; what ``target[:] = value`` calls.

        Raises
        ------
        ShapeError
            If ``value`` does not broadcast to ``target``.
        DTypeError
            If ``value`` is no number, tensor, expression or array, nor lists of numbers.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.assign(be.empty((1, 2)), be.ones((1, 2)) * 3).tolist()
        [[3.0, 3.0]]
        """
        table = self._replay.table
        answer = LEFT if table is None else table.run(self, target, value)
        if answer is DONE:
            return target
        if value.__class__ is OpTreeNode:
            try:
                ours = target.backend is self is value.backend and isinstance(target, Tensor)
            except AttributeError:  # the target is no tensor
                ours = False
            if self.closed or not ours:
                self._check_target(target)
                self._source(value)
            self.executor.run(((target, value),), answer)
            return target
        return self._assign_simple(target, value, answer)

    mark(assign, "assign")

    def _assign_simple(self, target: Tensor, value: Any, answer: Replayed) -> Tensor:
        self._check_target(target)
        if isinstance(value, Tensor):
            if value.backend is not self:
                return target.set(value.get())
        elif not is_operand(value) or (isinstance(value, np.ndarray) and value.ndim > 0):
            return target.set(value)
        if value is not target:
            self.executor.run(((target, self._source(value)),), answer)
        return target

    def _source(self, value: Any) -> Any:
        """``value`` as the right side of an assignment: a number, or an expression of this backend."""
        if value.__class__ is OpTreeNode and value.backend is self:
            return value
        operand = adapt("assignment", value, self)
        if isinstance(operand, int) and not -(2**63) <= operand < 2**64:
            return whole_as_float("assignment", operand)
        owner = getattr(operand, "backend", None)
        if owner is not None and owner is not self:
            raise OtherBackend(
                f"assignment: {operand} belongs to another backend, {owner!r}, and not to the target's, {self!r}; "
                "compute it there and copy the values: target.set(expression.asnumpyarray())"
            )
        return operand

    def _check_target(self, target: Any) -> None:
        self.check_open("assignment")
        if not isinstance(target, Tensor):
            raise DTypeError(
                f"assignment: the target must be a tensor of this backend, got {type(target).__name__}; "
                "make one with be.empty(shape)"
            )
        if target.backend is not self:
            raise OtherBackend(
                f"assignment: the target belongs to another backend, {target.backend!r}, and not to {self!r}; make one "
                "with be.empty(shape)"
            )
        if not target.writeable:
            target.check_writeable("assignment")

    def assign_many(self, pairs: Sequence[tuple[Tensor, Any]]) -> list[Tensor]:
        """Assign several targets at once, all right-hand sides evaluated from the old values; returns the targets.

        Shared subexpressions are computed once. An optimizer assigns a parameter and its states so, in one plan.

        Raises
        ------
        AliasError
            If two targets share memory.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> a, b = be.array([[1.]]), be.array([[2.]])
        >>> [t.item() for t in be.assign_many([(a, b), (b, a)])]
        [2.0, 1.0]
        """
        table = self._replay.table
        answer = LEFT if table is None else table.run_many(self, pairs, False)
        return [target for target, _ in pairs] if answer is DONE else self._assign_many(pairs, False, answer)

    def assign_fresh(self, pairs: Sequence[tuple[Tensor, Any]]) -> list[Tensor]:
        """As :meth:`assign_many`, to tensors that the caller alone has, and lets go of if this fails.

        Their contents do not matter then, so that each is written as soon as its value is known, and read from there.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> x = be.array([[3.]])
        >>> [t.item() for t in be.assign_fresh([(be.empty((1, 1)), x + 1), (be.empty((1, 1)), x * 2)])]
        [4.0, 6.0]
        """
        table = self._replay.table
        answer = LEFT if table is None else table.run_many(self, pairs, True)
        return [target for target, _ in pairs] if answer is DONE else self._assign_many(pairs, True, answer)

    def _assign_many(self, pairs: Sequence[tuple[Tensor, Any]], fresh: bool, answer: Replayed) -> list[Tensor]:
        check_pairs("assign_many", pairs)
        for target, _ in pairs:
            self._check_target(target)
        if pairs:
            self.executor.run([(target, self._source(value)) for target, value in pairs], answer, fresh)
        return [target for target, _ in pairs]

    def execute(self, optree: Any) -> Any:
        """Run an ``assign`` expression and return its target; tensors (already computed) are returned as they are.

        Raises
        ------
        ArgumentError
            If the expression assigns nothing.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> t = be.ones((1, 2))
        >>> be.execute(t) is t
        True
        """
        if isinstance(optree, Tensor):
            return optree
        raise ArgumentError(
            f"execute: {optree} assigns nothing; write target[:] = expression, or call astensor() on the expression"
        )

    def prepare(self, target: Any, value: Any = None) -> Prepared:
        """Bind an assignment for hot loops: ``step = be.prepare(out, expr)``, then ``step()`` as often as wanted.

        ``be.prepare([(out1, expr1), (out2, expr2)])`` prepares several at once, as :meth:`assign_many`. Each
        ``rand`` in it gives its own numbers the first time and new ones from then on. Kernels start to compile at
        once, in the background. What is between its stages is kept: call a step from one thread at a time.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> total, x = be.zeros((1, 1)), be.ones((1, 1))
        >>> step = be.prepare(total, total + x)
        >>> for _ in range(3):
        ...     result = step()
        >>> total.item()
        3.0
        """
        pairs = list(target) if isinstance(target, (list, tuple)) and value is None else [(target, value)]
        check_pairs("prepare", pairs)
        if not pairs:
            raise ArgumentError("prepare: nothing to assign; pass a target and its value, or pairs of them")
        for out, _ in pairs:
            self._check_target(out)
        sources = [(out, self._source(wanted)) for out, wanted in pairs]
        return Prepared(self, *self.executor.prepare(sources, self.rand))

    def explain(self, value: Any, out: Tensor | None = None) -> Explanation:
        """Text showing how ``value`` runs: stages with reasons, operations, bytes and flops; notebooks show a table.

        In bench mode it includes the share of the machine's rates that stages have reached, if they ran.

        Parameters
        ----------
        value : tensor, expression or number
        out : tensor, optional
            What it would be assigned to; default: a tensor of its shape and dtype. Nothing is written.

        Raises
        ------
        DTypeError, ShapeError
            If ``value`` is none of these, or ``out`` no tensor, or they do not fit.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> x = be.ones((4, 4))
        >>> "stage" in be.explain(be.sum(x * 2))
        True
        """
        self.check_open("explain")
        source = self._source(value)
        if out is not None:
            self._check_target(out)
        elif not isinstance(source, Expression) or source.shape is FREE:
            raise ShapeError(f"explain: {shown(value)} has no shape of its own; say where it would go: out=tensor")
        target = out if out is not None else self.fresh(source.shape, source.dtype)
        return self.executor.explain(target, source)

    def factors_of(self, call: Any, operation: str = "fprop") -> str:
        """Precision in which a call multiplies, and by which instruction; empty where nothing is known of it.

        Parameters
        ----------
        call : result of ``conv_layer``, ``deconv_layer`` or ``attention_layer``, ProductSizes, or UnrollSizes
            A call on contiguous tensors of its dtype.
        operation : "fprop", "bprop" or "update"

        Returns
        -------
        str
            Such as "float32", or of the CPU's "bfloat16 by vdpbf16ps", "bfloat16 by tdpbf16ps" or "bfloat16 in plain
            arithmetic".

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> layer = be.conv_layer(None, 16, 3, 8, H=8, W=8, R=3, S=3)
        >>> be.factors_of(layer)[:7]
        'float32'
        """
        return ""

    def check_open(self, operation: str) -> None:
        """Raise BackendUnavailable if the backend was closed.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.check_open("my function")
        """
        if self.closed:
            raise BackendUnavailable(f"{operation}: this backend was closed; make a new one with gen_backend()")

    def cleanup_backend(self) -> None:
        """Release what the backend holds; afterwards tensors of a GPU raise BackendUnavailable. May be called again.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.cleanup_backend()
        >>> be.closed
        True
        """
        self.closed = True
        self.executor.clear()
        if self.executor.recorder is not None:
            self.executor.recorder.finish()

    def __enter__(self) -> Backend:
        return self

    def __exit__(self, *exc: Any) -> None:
        release(self)

    def __repr__(self) -> str:
        state = ", closed" if self.closed else ""
        return f"<{type(self).__name__} {self.default_np_dtype.name} bsz={self.bsz}{state}>"

    @staticmethod
    def backend_choices() -> list[str]:
        """Sorted names of the backends. "gpu" always is one: asked for where it cannot run, it says what is missing.

        In neon's dialect it is one only where it loads: neon's scripts and tests ask here what they can use.

        Examples
        --------
        >>> from neonlike.backends import Backend
        >>> "cpu" in Backend.backend_choices()
        True
        """
        loaders = Backend.loaders.items()
        return sorted({*Backend.backends, *(name for name, load in loaders if not is_neon() or _loads(load))})

    @staticmethod
    def allocate_backend(name: str, **arguments: Any) -> Backend:
        """Construct the backend registered as ``name``.

        Parameters
        ----------
        name : str
            "cpu", "gpu" or another registered name.
        **arguments
            Those of the class, see :class:`Backend`.

        Raises
        ------
        UnknownBackend
            If there is none of that name, or it is "gpu" and PyCUDA or a driver is missing.
        BackendUnavailable
            If there is no GPU that can be used.

        Examples
        --------
        >>> from neonlike.backends import Backend
        >>> Backend.allocate_backend("cpu", default_dtype="float64").zeros((1, 1)).dtype.name
        'float64'
        """
        return Backend.backend_class(name)(**arguments)

    @classmethod
    def device_of(cls, local_rank: int) -> int:
        """Number of the device for a rank, by its number among the ranks of its machine; there is one device.

        Examples
        --------
        >>> from neonlike.backends import Backend
        >>> Backend.device_of(3)
        0
        """
        return 0

    @staticmethod
    def backend_class(name: str) -> type[Backend]:
        """The class registered as ``name``; "gpu" is loaded when it is first asked for.

        Raises
        ------
        UnknownBackend
            If there is none of that name, or it is "gpu" and PyCUDA or a driver is missing.

        Examples
        --------
        >>> from neonlike.backends import Backend
        >>> Backend.backend_class("cpu").__name__
        'NervanaCPU'
        """
        if isinstance(name, str) and name in Backend.loaders:
            try:
                Backend.loaders[name]()
            except BackendUnavailable as error:
                others = sorted(set(Backend.backends) - {name})
                raise UnknownBackend(f"{error}; or choose one of {others}") from error
        if not isinstance(name, str) or name not in Backend.backends:
            raise UnknownBackend(f"backend {brief(name)} does not exist; choose one of {Backend.backend_choices()}")
        return Backend.backends[name]


def _loads(load: Callable[[], Any]) -> bool:
    try:
        load()
    except BackendUnavailable:
        return False
    return True


class UnknownBackend(BackendUnavailable, ValueError):
    """A backend name that is not registered.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> try:
    ...     gen_backend("abacus")
    ... except UnknownBackend:
    ...     print("no such backend")
    no such backend
    """
