"""Scaled dot-product attention: ``attention_layer``, ``fprop_attention``, ``bprop_attention``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from neonlike.backends.family import Family
from neonlike.backends.geometry.attention import AttentionGeometry
from neonlike.backends.primitives.attention import definition
from neonlike.backends.primitives.attention.definition import AttentionPass
from neonlike.backends.tensors.operands import as_numbers, check_apart, check_floats, check_size, require_tensors
from neonlike.errors import ArgumentError, DTypeError, ShapeError
from neonlike.kernels.run.calls import KernelCall, repeatable
from neonlike.kernels.run.trace import Operands
from neonlike.optree.dtypes import compute_dtype
from neonlike.optree.forms import owner


@owner
class AttentionFamily(Family):
    """Scaled dot-product attention: ``attention_layer``, ``fprop_attention``, ``bprop_attention``.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> be.attention_layer(None, 2, 8, queries=10, size=64).dimO
    (2, 8, 10, 64)
    """

    def attention_layer(
        self,
        dtype: Any,
        N: int,
        heads: int,
        queries: int,
        size: int,
        keys: int | None = None,
        value_size: int | None = None,
        causal: bool = False,
        scale: float | None = None,
    ) -> AttentionGeometry:
        """Create the geometry of an attention for the calls below.

        Parameters
        ----------
        dtype : dtype
            Dtype of the tensors; None for the backend's.
        N, heads : int
            Samples, and heads per sample. Calls accept any number of both.
        queries, size : int
            Number of queries, and elements per query.
        keys, value_size : int, optional
            Number of keys and values, and elements per value; default: ``queries`` and ``size``.
        causal : bool
            Query i sees only keys 0 to i, also with more or fewer keys than queries: the first query sees the first
            key, as with PyTorch's ``is_causal``.
        scale : float, optional
            Factor of the products of queries and keys; default: 1 / sqrt(size).

        Raises
        ------
        DTypeError, ArgumentError
            If sizes are not integers, or negative, heads or elements are 0, or the scale is not a number.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> print(be.attention_layer(None, 2, 8, 100, 64, causal=True))
        causal attention of 100 queries of size 64 to 100 keys, values of size 64; 2 samples, 8 heads
        """
        name = "attention_layer"
        kind = self._layer_dtype(name, dtype)
        keys = queries if keys is None else keys
        value_size = size if value_size is None else value_size
        made = AttentionGeometry(kind, N, heads, queries, keys, size, value_size, causal, 1.0)
        factor = 1 / math.sqrt(made.size) if scale is None else as_numbers(name, scale=scale)[0]
        object.__setattr__(made, "scale", factor)
        return made

    @repeatable()
    def fprop_attention(
        self, layer: AttentionGeometry, Q: Any, K: Any, V: Any, O: Any, lse: Any = None, repeat: int = 1  # noqa: E741
    ) -> tuple[float, float] | None:
        """Attention ``O = softmax(scale * Q.K^T) . V`` with the softmax over keys: each query averages the values.

        The matrix of all scores is never stored: working memory does not grow with the product of queries and keys.

        Parameters
        ----------
        layer : AttentionGeometry
        Q, K, V : tensors (N, heads, queries, size), (N, heads, keys, size), (N, heads, keys, value_size)
            One float dtype; float16 and bfloat16 are computed in float32, on a GPU's tensor cores with weights rounded
            to the dtype as factors. Two leading axes, one, (N heads, queries, size), or none. Views of any strides,
            such as parts of one projection; kernels access them in place, on a GPU if the elements of a query are
            contiguous.
        O : tensor (N, heads, queries, value_size)
            Output.
        lse : tensor (N, heads, queries), optional
            Receives the logarithm of each query's sum of exponentials, for ``bprop_attention``. float32, or float64 for
            float64 tensors.
        repeat : int
            Number of timed runs if above 1; see ``_run_primitive``.

        Raises
        ------
        DTypeError, ShapeError, AliasError
            If the tensors do not fit the layer and each other, or an output shares memory; then nothing is written.

        Notes
        -----
        A score of -inf gives the weight 0. A query with all scores -inf, or with one score of nan or +inf, gives nan.
        Without keys, outputs are 0. Keys hidden by causality take no part in the softmax; a value of inf or nan there
        may still reach the query, as 0 times it is nan.

        Source: Vaswani et al., "Attention is all you need" (2017), section 3.2.1.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> layer = be.attention_layer(None, 1, 1, queries=2, size=4, keys=3)
        >>> Q, K, V, out = be.zeros((2, 4)), be.ones((3, 4)), be.ones((3, 4)), be.empty((2, 4))
        >>> rate = be.fprop_attention(layer, Q, K, V, out)
        >>> out.get().round(4).tolist()[0]
        [1.0, 1.0, 1.0, 1.0]
        """
        name = "fprop_attention"
        request = self._check_attention(name, layer, lse, Q=Q, K=K, V=V, O=O)
        check_apart(name, {"O": O, "lse": lse}, {"Q": Q, "K": K, "V": V})

        def run() -> KernelCall | None:
            if layer.keys and request.heads * layer.queries:
                return self._fprop_attention(request, Q, K, V, O, lse)
            self.assign(O, 0)
            return None if lse is None else self.assign(lse, -math.inf) and None

        return self._run_attention(name, run, request, (Q, K, V, O), (O, lse), repeat, Operands((Q, K, V, O, lse)))

    @repeatable()
    def bprop_attention(
        self,
        layer: AttentionGeometry,
        Q: Any,
        K: Any,
        V: Any,
        O: Any,  # noqa: E741
        lse: Any,
        E: Any,
        dQ: Any,
        dK: Any,
        dV: Any,
        repeat: int = 1,
    ) -> tuple[float, float] | None:
        """Gradients of the queries, keys and values from the error of the output.

        With the weights ``P = exp(scale * Q.K^T - lse)``, which are recomputed, and ``S = P * (E.V^T - rowsums(E *
        O))``: ``dV = P^T.E``, ``dQ = scale * S.K``, ``dK = scale * S^T.Q``.

        Parameters
        ----------
        layer : AttentionGeometry
        Q, K, V, O, lse : tensors
            As read and written by ``fprop_attention``.
        E : tensor (N, heads, queries, value_size)
            Error of O; not modified.
        dQ, dK, dV : tensors of the shapes of Q, K and V
            Outputs. They may be parts of one tensor.
        repeat : int
            Number of timed runs if above 1; see ``_run_primitive``.

        Raises
        ------
        DTypeError, ShapeError, AliasError
            If the tensors do not fit the layer and each other, or an output shares memory; then nothing is written.

        Notes
        -----
        A query with output nan gives gradients of nan to itself and to the keys and values that it sees.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> layer = be.attention_layer(None, 1, 1, queries=2, size=4)
        >>> Q, K, V, error = (be.ones((1, 1, 2, 4)) for _ in range(4))
        >>> out, lse = be.empty((1, 1, 2, 4)), be.empty((1, 1, 2))
        >>> rate = be.fprop_attention(layer, Q, K, V, out, lse)
        >>> dQ, dK, dV = (be.empty((1, 1, 2, 4)) for _ in range(3))
        >>> rate = be.bprop_attention(layer, Q, K, V, out, lse, error, dQ, dK, dV)
        >>> dV.get().round(4)[0, 0, 0].tolist()
        [1.0, 1.0, 1.0, 1.0]
        """
        name = "bprop_attention"
        require_tensors(self, name, lse=lse)
        request = self._check_attention(name, layer, lse, Q=Q, K=K, V=V, O=O, E=E, dQ=dQ, dK=dK, dV=dV)
        outputs = {"dQ": dQ, "dK": dK, "dV": dV}
        check_apart(name, outputs, {"Q": Q, "K": K, "V": V, "O": O, "lse": lse, "E": E})

        def run() -> KernelCall | None:
            if layer.keys and request.heads * layer.queries:
                return self._bprop_attention(request, Q, K, V, O, lse, E, dQ, dK, dV)
            for gradient in outputs.values():
                self.assign(gradient, 0)
            return None

        operands = Operands((Q, K, V, O, lse, E, dQ, dK, dV))
        return self._run_attention(name, run, request, (Q, K, V, O, E, dQ, dK, dV), (dQ, dK, dV), repeat, operands)

    def _run_attention(
        self, name: str, run: Any, request: AttentionPass, moved: Any, outputs: Any, repeat: int, operands: Operands
    ) -> tuple[float, float] | None:
        """Call ``_run_primitive`` with the bytes of ``moved`` and the operations of all heads."""
        layer = request.layer
        flops = 2 * request.heads * layer.pairs * (layer.size + layer.value_size)
        if request.backward:  # recomputed scores, and two products for each of the forward pass
            flops = 2 * flops + 2 * request.heads * layer.pairs * layer.size
        shapes = tuple(tensor.shape for tensor in moved[:3])
        nbytes = sum(tensor.nbytes for tensor in moved)
        rate: tuple[float, float] | None = self._run_primitive(
            name, run, outputs, shapes, nbytes, flops, "product", repeat=repeat, operands=operands
        )
        return rate

    def _check_attention(self, name: str, layer: Any, lse: Any, **tensors: Any) -> AttentionPass:
        """Check that all tensors are of this backend, one float dtype and the layer's sizes; return the request."""
        if not isinstance(layer, AttentionGeometry):
            raise DTypeError(f"{name}: layer must come from be.attention_layer(...), got {type(layer).__name__}")
        require_tensors(self, name, **tensors)
        dtype = compute_dtype(check_floats(name, **tensors))
        leading = tensors["Q"].shape[:-2]
        if len(leading) > 2:
            raise ShapeError(
                f"{name}: Q must have two to four axes, (N, heads, queries, size) or fewer, got {tensors['Q'].shape}"
            )
        dims = {"Q": layer.dimQ, "K": layer.dimK, "V": layer.dimV, "O": layer.dimO, "E": layer.dimO}
        for what, tensor in tensors.items():
            wanted = (*leading, *dims[what.lstrip("d")][2:])
            if tensor.shape != wanted:
                raise ShapeError(
                    f"{name}: {what} must have the shape {wanted}, as Q's leading axes and {layer.describe()} give; "
                    f"got {tensor.shape}"
                )
        request = AttentionPass(layer, leading, "dQ" in tensors)
        if lse is not None:
            require_tensors(self, name, lse=lse)
            check_size(name, "lse", lse, (request.heads, layer.queries), layer.describe())
            if lse.dtype != dtype:
                raise DTypeError(f"{name}: lse must be of {dtype.name}, got {lse.dtype.name}")
        return request

    # Hooks, with the definitions

    def _fprop_attention(
        self, request: AttentionPass, Q: Any, K: Any, V: Any, O: Any, lse: Any  # noqa: E741
    ) -> KernelCall | None:
        """``fprop_attention`` of checked, non-empty tensors; lse may be None.

        Returns the kernel launch, if that was all; see ``kernels/run/calls.py``.
        """
        definition.forward(self, request, Q, K, V, O, lse)
        return None

    def _bprop_attention(
        self,
        request: AttentionPass,
        Q: Any,
        K: Any,
        V: Any,
        O: Any,  # noqa: E741
        lse: Any,
        E: Any,
        dQ: Any,
        dK: Any,
        dV: Any,
    ) -> KernelCall | None:
        """``bprop_attention`` of checked, non-empty tensors; returns as :meth:`_fprop_attention`."""
        definition.backward(self, request, (Q, K, V, O, E), lse, (dQ, dK, dV))
        return None

    def _planned_attention(self, arrays: Sequence[Any], request: AttentionPass) -> KernelCall | None:
        """Kernel call for arrays of these layouts and order, with arrays in the place of addresses.

        None if the operation takes more than one kernel.
        """
        return None

    def _workspace(self, layer: Any, operation: str) -> int:
        if not isinstance(layer, AttentionGeometry):
            return super()._workspace(layer, operation)
        if operation not in ("fprop", "bprop"):
            raise ArgumentError(f"workspace_bytes: operation must be fprop or bprop, got {operation!r}")
        return self._attention_workspace(AttentionPass(layer, (layer.N, layer.heads), operation == "bprop"))

    def _attention_workspace(self, request: AttentionPass) -> int:
        """Bytes of workspace; see ``workspace_bytes``."""
        return definition.workspace(request)
