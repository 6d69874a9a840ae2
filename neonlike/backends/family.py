"""Common base of the families: the attributes and helpers of every backend."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from neonlike.attached import attached, attached_names
from neonlike.backends.executor import Executor
from neonlike.backends.tensor import Tensor
from neonlike.checks import check_methods
from neonlike.distributed.ranks import Ranks
from neonlike.errors import DTypeError, MissingAttribute
from neonlike.optree.dtypes import DType, as_dtype, is_float
from neonlike.optree.ops import OPS, Kind, OpSpec


class Family:
    """Typing base of the families; ``Backend`` provides all of this."""

    bsz: int | None
    closed: bool
    compat_mode: str | None
    default_dtype: Any
    default_np_dtype: DType
    executor: Executor
    ranks: Ranks
    rng: Any
    builders: ClassVar[dict[Kind, Callable[[OpSpec, str], Callable[..., Any]]]] = {}
    """Creates the method ``name`` of a row, by the row's kind; families add their kinds."""

    def __init_subclass__(cls, builds_nodes: bool = False, **options: Any) -> None:
        """Add argument checks to a family's methods, unless they build nodes, which has to be fast."""
        super().__init_subclass__(**options)
        if cls.__name__.endswith("Family") and not builds_nodes:
            check_methods(cls)

    def __getattr__(self, name: str) -> Any:
        """Look up builders of rows registered later, and attributes attached by higher packages."""
        if name in attached_names():
            return attached(self, name)
        for spec in () if name.startswith("_") else OPS.values():
            if name in spec.builders and spec.kind in self.builders:
                return self.builders[spec.kind](spec, name).__get__(self)
        raise MissingAttribute(f"{type(self).__name__} has no method or attribute {name!r}", name, self._public_names)

    def _public_names(self) -> list[str]:
        """Candidates for a misspelt name."""
        made_later = (name for spec in OPS.values() if spec.kind in self.builders for name in spec.builders)
        return [name for name in {*dir(self), *made_later, *attached_names()} if not name.startswith("_")]

    def assign(self, target: Any, value: Any) -> Any:
        """See ``Backend.assign``."""
        raise NotImplementedError

    def _check_target(self, target: Any) -> None:
        """See ``Backend._check_target``."""
        raise NotImplementedError

    def check_open(self, operation: str) -> None:
        """See ``Backend.check_open``."""
        raise NotImplementedError

    def wrap(self, host: Any) -> Any:
        """See ``CreationFamily.wrap``."""
        raise NotImplementedError

    if TYPE_CHECKING:

        def empty(self, *args: Any, **options: Any) -> Any:
            """See ``CreationFamily.empty``."""

        def fresh(self, *args: Any, **options: Any) -> Any:
            """See ``CreationFamily.fresh``."""

        def zeros(self, *args: Any, **options: Any) -> Any:
            """See ``CreationFamily.zeros``."""

        def _run_primitive(self, name: str, run: Callable[[], Any], *args: Any, **options: Any) -> Any:
            """See ``TimingFamily._run_primitive``."""

    def _workspace(self, layer: Any, operation: str) -> int:
        """Bytes for ``workspace_bytes``; families answer for their layers, and delegate others."""
        raise DTypeError(
            f"workspace_bytes: layer must come from be.conv_layer, be.deconv_layer, be.pool_layer or "
            f"be.attention_layer, got {type(layer).__name__}"
        )

    def _layer_dtype(self, name: str, dtype: Any) -> DType:
        """Return ``dtype``, or this backend's if it is None, for ``name``; raise DTypeError if it is not a float."""
        found = self.default_np_dtype if dtype is None else as_dtype(dtype, name)
        if not is_float(found):
            raise DTypeError(f"{name}: dtype must be float16, bfloat16, float32 or float64, got {found.name}")
        return found

    def _finish(self, node: Any, out: Any) -> Any:
        """Return the lazy ``node``, or compute it into ``out`` and return that."""
        if out is None:
            return node
        if not isinstance(out, Tensor):
            raise DTypeError(
                f"{node}: out must be a tensor of this backend, got {type(out).__name__}; make one with be.empty(shape)"
            )
        return self.assign(out, node)


def public_methods(backend: type[Any]) -> dict[str, tuple[str, ...]]:
    """Public methods and attributes of a backend class by defining file, sorted, each name once.

    They are read from the classes, so the list is always complete.

    Parameters
    ----------
    backend : type
        ``Backend`` or a class derived from it.

    Returns
    -------
    dict
        Module below ``neonlike.backends``, such as "primitives.linalg", to names.

    Examples
    --------
    >>> from neonlike.backends import NervanaCPU
    >>> public_methods(NervanaCPU)["machine.timing"][:3]
    ('begin', 'bench', 'bench_measure')
    """
    found: dict[str, tuple[str, ...]] = {}
    seen: set[str] = set()
    for cls in reversed(backend.__mro__[:-1]):  # a family comes first, then its overrides
        names = {name for name in vars(cls) if not name.startswith("_")} - seen
        seen |= names
        if names:
            subject = cls.__module__.removeprefix("neonlike.backends.")
            found[subject] = tuple(sorted({*found.get(subject, ()), *names}))
    return found
