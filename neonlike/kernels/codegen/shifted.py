"""Sums of exp(x - c) with c from the maximum of x: computed in one pass with the maximum, as in a softmax.

A pass keeps the maximum so far, M, and S = sum(exp(x - M)); at a larger x, or when two such pairs merge, the S of the
smaller M is scaled by exp(M - larger M) (Milakov, Gimelshein 2018). Then sum(exp(x - c)) = S*exp(M - c) for any c, and
exactly S for c = M. ``nl_joined_f32`` and ``nl_sum_around_f32`` of functions.h implement these steps.
"""

from __future__ import annotations

from dataclasses import replace

from neonlike.kernels.codegen.emit import Line, Writer, type_of
from neonlike.kernels.codegen.reduce_values import ReduceValues, Shifted
from neonlike.kernels.codegen.reductions import Reduction
from neonlike.kernels.planning.lower import Arg, Value
from neonlike.kernels.planning.plan import pass_depths
from neonlike.optree.dtypes import F32, F64, compute_dtype

_SUFFIX = {F32: "f32", F64: "f64"}


def with_shifted(values: ReduceValues) -> ReduceValues:
    """Remove passes from ``values`` whose reductions are all sums that the previous pass can compute as well."""
    depth = 2
    while depth <= values.passes:
        sums = {value.index: _shifted(values, value) for value in values.reductions(depth)}
        found = {index: sum_ for index, sum_ in sums.items() if sum_ is not None}
        if len(found) < len(sums):
            depth += 1
            continue
        shifted = {**values.shifted, **found}
        depths = pass_depths(values.kernel.values, shifted)
        values = replace(values, depth=depths, passes=max(depths.values()), shifted=shifted)
    return values


def _shifted(values: ReduceValues, value: Value) -> Shifted | None:
    """Match ``value`` as a sum of exp(x - c) after the pass of the maximum of x; None if it is anything else."""
    power = _computed(values, value.args[0]) if value.spec.name == "sum" else None
    difference = _computed(values, power.args[0]) if power is not None and power.spec.name == "exp" else None
    if power is None or difference is None or difference.spec.name != "sub":
        return None
    before = values.reductions(values.depth[value.index] - 1)
    most = next((v for v in before if v.spec.name == "max" and v.args[0] == difference.args[0]), None)
    if most is None or {compute_dtype(v.dtype) for v in (value, power, difference, most)} not in ({F32}, {F64}):
        return None
    around = _computed(values, difference.args[1])
    return Shifted(most.index, difference) if around is None or values.is_row_value(around.index) else None


def _computed(values: ReduceValues, arg: Arg) -> Value | None:
    """The value of this stage behind ``arg``; None for an array or a number."""
    return next((values.by_index[index] for index in values.computed([arg])), None)


def with_sum(reduction: Reduction, value: Value) -> Reduction:
    """The maximum ``value`` with the sum S as companion."""
    dtype = compute_dtype(value.dtype)
    suffix, ctype = _SUFFIX[dtype], type_of(dtype)
    joins = {"double": f"nl_joined_wide_{suffix}" if dtype == F32 else f"nl_joined_{suffix}"}
    joins[ctype] = f"nl_joined_{suffix}"
    return replace(reduction, start=f"NL_LEAST_{suffix.upper()}", joins=joins)


def sum_line(writer: Writer, value: Value, shifted: Shifted) -> Line:
    """Line that computes the shifted sum ``value`` from S and M.

    Parameters
    ----------
    writer : Writer
    value : Value
    shifted : Shifted
    """
    dtype, most = compute_dtype(value.dtype), shifted.most
    around = writer.converted_operands(shifted.difference)[1]
    return Line(f"v{value.index}", type_of(dtype), f"nl_sum_around_{_SUFFIX[dtype]}(v{most}, e{most}, {around})")
