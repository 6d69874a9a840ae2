"""What a family may rely on: the attributes and helpers every backend has."""

from __future__ import annotations

from typing import Any

from neonlike.optree.dtypes import DType


class Family:
    """Typing base of the families; ``Backend`` provides all of this."""

    bsz: int | None
    closed: bool
    compat_mode: str | None
    default_dtype: Any
    default_np_dtype: DType
    rng: Any

    def assign(self, target: Any, value: Any) -> Any:
        """See ``Backend.assign``."""
        raise NotImplementedError

    def check_open(self, operation: str) -> None:
        """See ``Backend.check_open``."""
        raise NotImplementedError

    def wrap(self, host: Any) -> Any:
        """See ``CreationFamily.wrap``."""
        raise NotImplementedError

    def empty(self, shape: Any, dtype: Any = None, **options: Any) -> Any:
        """See ``CreationFamily.empty``."""
        raise NotImplementedError

    def zeros(self, shape: Any, dtype: Any = None, **options: Any) -> Any:
        """See ``CreationFamily.zeros``."""
        raise NotImplementedError

    def _finish(self, node: Any, out: Any) -> Any:
        """The lazy ``node``, or ``out`` with the node computed into it."""
        return node if out is None else self.assign(out, node)
