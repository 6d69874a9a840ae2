"""The ops of variables, a file a family, and the table of the names that the source document gives them.

Adding one. An op is a function of variables; what is none (a tensor, an array, nested lists) is taken as a constant.

1. If ops of the table (``docs/ops.md``) or lazy primitives (``be.conv`` ...) express it, build their expression of the
   operands' expressions; ``derived`` takes them out of the variables and makes the result one. Gradient, laziness and
   fusion follow::

       def silu(a):
           return derived("silu", F.silu, a)

   ``build`` gets expressions (``a.shape``, ``a.dtype``, ``a.backend`` are there), and numbers as they were given.
2. If the gradient of that expression is worse than one written by hand (``log_softmax``, ``norm2``), give it one with
   ``with_rule(name, value, parents, grad)``: ``grad(F, d, z, *parents)`` returns an expression for each parent, or
   None, and broadcasting is undone for you. Use z where it will do: then the parents need not be kept. ``options`` says
   what else ``grad`` depends on, so that passes are repeated without asking it again.
3. If it is no expression at all (LAPACK, SciPy), write ``be.primitive(forward, backward, shape)`` or a
   :class:`neonlike.autograd.Op` with ``forward``; on a GPU the host computes it, from a copy.
4. Check arguments before building; errors from ``neonlike.errors``. Tensors have two axes at least: vectors are (n, 1).
5. Name it in ``__all__`` of its file and in ``DOCUMENT_NAMES``; add a case to ``tests/autograd/op_cases.py``: its
   value, gradient and second derivative are compared with float64 on every engine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from neonlike.autograd.ops import decompositions, elementwise, linalg, loss, network, pooling, reduction, shape, sparse
from neonlike.autograd.ops.decompositions import *  # noqa: F403
from neonlike.autograd.ops.elementwise import *  # noqa: F403
from neonlike.autograd.ops.linalg import *  # noqa: F403
from neonlike.autograd.ops.loss import *  # noqa: F403
from neonlike.autograd.ops.network import *  # noqa: F403
from neonlike.autograd.ops.pooling import *  # noqa: F403
from neonlike.autograd.ops.reduction import *  # noqa: F403
from neonlike.autograd.ops.shape import *  # noqa: F403
from neonlike.autograd.ops.sparse import *  # noqa: F403

FAMILIES = (elementwise, shape, reduction, linalg, decompositions, sparse, network, pooling, loss)
__all__ = [name for family in FAMILIES for name in family.__all__]

DOCUMENT_NAMES: dict[str, Callable[..., Any]] = {
    name: function for family in FAMILIES for name, function in family.DOCUMENT_NAMES.items()
}
"""The source document's name of an op -> the function here."""
