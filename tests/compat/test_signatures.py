"""The backend's methods have neon's names, argument names, order and defaults."""

from __future__ import annotations

import ast
import inspect

import numpy as np
import pytest

from neonlike.backends import Backend, NervanaCPU
from neonlike.backends.backend import OpTreeNode
from neonlike.backends.nervanamkl import NervanaMKL

_CREATE = "dtype=None, name=None, persist_values=True, parallel=False, distributed=False, [allocator=None]"
_REDUCE = "a, axis=None, out=None, keepdims=True"
SIGNATURES = [
    *[f"{n}(a, out=None)" for n in (
        "absolute fabs negative sgn sqrt square exp exp2 log log2 safelog sig sig2 tanh tanh2 rint finite reciprocal"
    ).split()],
    *[f"{n}(a, b, out=None)" for n in (
        "add subtract multiply divide true_divide power maximum minimum equal not_equal less less_equal greater "
        "greater_equal dot"
    ).split()],
    *[f"{n}({_REDUCE})" for n in ("sum", "max", "min")],
    *[f"{n}(a, axis=1, out=None, keepdims=True)" for n in ("argmax", "argmin")],
    *[f"{n}(a, axis=None, partial=None, out=None, keepdims=True)" for n in ("mean", "std")],
    "var(a, axis=None, partial=None, out=None, keepdims=True, binary=False)",
    "clip(a, a_min, a_max, out=None)", "take(a, indices, axis, out=None)", "onehot(indices, axis, out=None)",
    "rand(out=None)", "dropout(keep=0.5, out=None)", "make_binary_mask(out, keepthresh=0.5)",
    "fill_normal(ary, mean=0, stdv=1)", "binarize(ary, out, stochastic=True)",
    "shift(ary, shift_ary, value=True, out=None)", "Relu(ary, out=None)", "execute(optree)",
    f"array(ary, {_CREATE})", f"empty(shape, {_CREATE})", f"zeros(shape, {_CREATE})", f"ones(shape, {_CREATE})",
    "empty_like(other, [dtype=None], name=None, persist_values=True)",
    "zeros_like(other, [dtype=None], name=None, persist_values=True)",
    "iobuf(dim0, x=None, dtype=None, name=None, persist_values=True, shared=None, parallelism=None)",
    "shared_iobuf_size(shape, parallelism)", "consume(buf_index, hostlist, devlist)",
    "gen_rng(seed=None)", "rng_get_state()", "rng_set_state(state)", "rng_reset()",
    "compound_dot(A, B, C, alpha=1.0, beta=0.0, relu=False, bsum=None, [repeat=1], [size=None])",
    "batched_dot(A, B, C, alpha=1.0, beta=0.0, relu=False, [repeat=1], [size=None])",
    "cublas_dot(A, B, C, alpha=1.0, beta=0.0)", "xnor_compound_dot(A, B, C, beta=0.0, bsum=None)",
    "copy_transpose(a, out, axes=None, repeat=1)",
    "compensated_sum(sum_tensor, cmp_tensor, add_tensor, cmp_scale=1.0, add_scale=1.0)",
    "set_hist_buffers(hist_bins, hist_offset)", "dump_hist_data()",
    "add_fc_bias(inputs, bias)", "update_fc_bias(err, out)", "fprop_softmax(x, axis)", "fprop_relu(layer, x, slope)",
    "bprop_relu(layer, x, error, deltas, slope)", "fprop_skipnode(x, y, beta)",
    "bprop_skipnode(error, deltas, alpha, beta)",
    "fprop_transform(ngLayer, transform, inputs, outputs, relu=False)",
    "bprop_transform(ngLayer, transform, outputs, error, deltas, relu)",
    "allocate_new_deltas(delta, in_shape, parallelism)", "allocate_new_outputs(layer, share_output)",
    "batchnorm_layer(in_shape)", "relu_layer()", "mergesum_layer(layer_num)", "mergebroadcast_layer(layer_num)",
    "bibnrnn_layer(h_buffer_all, h_ff_buffer, W_recur_f, W_recur_b, nsteps, nout)",
    "begin(block, identifier)", "end(block, identifier)", "check_caffe_compat()", "set_caffe_compat()", "is_mkl()",
    "clean_data(tensor, layer_mkl)", "convert_data(tensor, layer_mkl)", "revert_tensor(tensor)",
    "distribute_data(tensor, layer_parallelism)", "cleanup_backend()", "backend_choices()",
    "compound_bprop_lut(nin, inputs, error, error_t, dW, pad_idx, alpha=1.0, beta=0)",
    "fprop_mergesum(ngLayer, inputs, inference, layers, outputs, out_shape)",
    "bprop_mergesum(ngLayer, alpha, beta, layers, error, deltas)",
    "fprop_mergebroadcast(ngLayer, inputs, inference, outputs, layers, out_shape)",
    "bprop_mergebroadcast(ngLayer, layers, error_views, error, delta, out_shape, alpha, beta, alphas, betas)",
    "scratch_buffer(size)", "scratch_buffer_offset(size)", "scratch_buffer_init()", "scratch_buffer_reset()",
    "get_events()", "change_data_store_order(a, a_row, a_col, a_len, axis=1, b=None)",
    "init_mark()", "record_mark(marker)", "synchronize_mark(marker)", "get_time(start, end)",
]  # fmt: skip
"""neon's methods, CPU and GPU. In brackets what only one of them has: it must be accepted by keyword."""


@pytest.mark.parametrize("signature", SIGNATURES)
def test_signatures_are_neons(be: Backend, signature: str) -> None:
    name, _, rest = signature.rstrip(")").partition("(")
    wanted = [part.partition("=") for part in rest.split(", ") if part]
    mine = inspect.signature(getattr(be, name)).parameters
    optional = {argument[1:] for argument, _, _ in wanted if argument.startswith("[")}
    assert optional <= set(mine)
    positional = [argument for argument, _, _ in wanted if not argument.startswith("[")]
    assert [argument for argument in mine if argument not in optional][: len(positional)] == positional
    for argument, _, text in wanted:
        if text:
            default = ast.literal_eval(text.rstrip("]"))
            found = mine[argument.lstrip("[")].default
            assert (found, type(found)) == (default, type(default))
    named = {argument.lstrip("[") for argument, _, _ in wanted}
    demanded = [a for a, parameter in mine.items() if a not in named and parameter.default is inspect.Parameter.empty]
    assert demanded == []


def test_constructors_take_neons_arguments() -> None:
    expected = {
        "rng_seed": None, "default_dtype": np.float32, "hist_bins": 64, "hist_offset": -48, "compat_mode": None,
        "num_devices": None, "stochastic_round": None, "device_id": None, "deterministic": None,
    }  # fmt: skip
    for cls in (NervanaCPU, NervanaMKL):
        found = inspect.signature(cls).parameters.items()
        assert {n: p.default for n, p in found if p.kind is p.POSITIONAL_OR_KEYWORD} == expected


@pytest.mark.parametrize(
    ("method", "op"),
    [
        ("add", "add"), ("subtract", "sub"), ("multiply", "mul"), ("divide", "div"), ("true_divide", "div"),
        ("power", "pow"), ("maximum", "maximum"), ("minimum", "minimum"), ("equal", "eq"), ("not_equal", "ne"),
        ("less", "lt"), ("less_equal", "le"), ("greater", "gt"), ("greater_equal", "ge"), ("negative", "neg"),
        ("absolute", "abs"), ("fabs", "abs"), ("sgn", "sgn"), ("sqrt", "sqrt"), ("square", "sqr"), ("exp", "exp"),
        ("exp2", "exp2"), ("log", "log"), ("log2", "log2"), ("safelog", "safelog"), ("sig", "sig"), ("sig2", "sig2"),
        ("tanh", "tanh"), ("tanh2", "tanh2"), ("rint", "rint"), ("finite", "finite"), ("reciprocal", "div"),
        ("sum", "sum"), ("max", "max"), ("min", "min"), ("argmax", "argmax"), ("argmin", "argmin"),
    ],
)  # fmt: skip
def test_builders_make_neons_ops(be: Backend, method: str, op: str) -> None:
    t = be.array([[0.5, 2.0]])
    binary = "b" in inspect.signature(getattr(be, method)).parameters
    node = getattr(be, method)(t, t) if binary else getattr(be, method)(t)
    assert isinstance(node, OpTreeNode)
    assert node.as_tuple()[0]["op"] == op
    out = be.zeros(node.shape)
    made = getattr(be, method)(t, t, out) if binary else getattr(be, method)(t, out=out)
    assert made is out
    assert np.array_equal(out.get(), node.asnumpyarray().astype(np.float32))
