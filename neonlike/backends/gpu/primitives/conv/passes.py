"""The base of all ways to compute a forward pass or data gradient on a GPU."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from neonlike.backends.gpu.primitives.calls import Draft
from neonlike.backends.gpu.primitives.conv import kernels as kernels
from neonlike.backends.gpu.primitives.conv.kernels import BIAS, TARGET, Ends, X
from neonlike.backends.gpu.primitives.elements import vector_length
from neonlike.backends.primitives.conv.request import ConvPass
from neonlike.optree.dtypes import F64, DType, compute_dtype


class Given(NamedTuple):
    """The arguments of a forward pass or data gradient besides its request; None: there is no such tensor."""

    dtype: DType
    x: DType | None = None
    bias: DType | None = None
    bsum: DType | None = None
    aligned: bool = True
    method: str = "auto"
    winograd: int = 0
    """The largest edge of Winograd's tiles that is allowed."""


class DataPass:
    """The base of all ways to compute a forward pass or data gradient.

    Parameters
    ----------
    device : GpuDevice
    products : Products
    request : ConvPass
    given : Given
    """

    def __init__(self, device: Any, products: Any, request: ConvPass, given: Given) -> None:
        self.device, self.products, self.request, self.given = device, products, request, given
        self.program = Draft(device)
        self.geometry = request.geometry
        self.real = compute_dtype(given.dtype)
        self.maps, self.columns = request.target_dims[0], math.prod(request.target_dims[1:])

    def build(self) -> None:
        """Append the steps."""
        raise NotImplementedError

    def ends(self, tiles: int) -> Ends:
        """The other tensors, with room for so many partial sums of each map."""
        given, reads = self.given, self.request.epilogue.reads_x
        x = (TARGET if given.x is None else X) if reads else None
        sums = None if given.bsum is None else self.program.room(self.maps * tiles * F64.itemsize)
        bias = None if given.bias is None else BIAS
        x_dtype = given.x if reads and given.x is not None else given.dtype
        return Ends(x, x_dtype, bias, given.bias or given.dtype, sums)

    def lanes(self, multiple_of: int, *more: DType) -> int:
        """Elements that a thread of the kernel that stores results takes at once."""
        given = self.given
        widest = max(given.dtype, given.x or given.dtype, *more, key=lambda dtype: dtype.itemsize)
        return vector_length(widest, multiple_of, given.aligned)

    def add_sums(self, ends: Ends, tiles: int) -> None:
        """Add up the partial sums, if there are any."""
        if ends.sums is not None and self.given.bsum is not None:
            self.program.steps.append(
                kernels.sums_kernel(self.device, self.maps, tiles, ends.sums, self.given.bsum)
            )
