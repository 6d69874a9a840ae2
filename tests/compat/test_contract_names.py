"""Every method of neon's backends exists here, is documented, and takes neon's arguments by keyword and in order.

The names and arguments are facts about neon, typed here; what the library says of itself is read from its classes.
"""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from neonlike.backends import Backend, NervanaCPU
from neonlike.backends.family import Family, public_methods

_UNARY = (
    "absolute fabs negative sgn sqrt square exp exp2 log log2 safelog sig sig2 tanh tanh2 rint finite reciprocal"
).split()
_BINARY = (
    "add subtract multiply divide true_divide power maximum minimum equal not_equal less less_equal greater "
    "greater_equal dot"
).split()
_MAKE = "dtype? name? persist_values? parallel? distributed? allocator?"
_FILTER = "D? H? W? T? R? S? pad_d? pad_h? pad_w? str_d? str_h? str_w? dil_d? dil_h? dil_w?"
_EPILOGUE = "X? bias? bsum? alpha? beta? relu? brelu? slope? repeat? layer_op?"
_ROI = "I rois O argmax roi_count {} {} {} pooled_height pooled_width spatial_scale"
_BN_HINTS = "threads? repeat? binary?"

ARGUMENTS: dict[str, str] = {
    **dict.fromkeys(_UNARY, "a out?"),
    **dict.fromkeys(_BINARY, "a b out?"),
    **dict.fromkeys(("sum", "max", "min", "argmax", "argmin"), "a axis? out? keepdims?"),
    **dict.fromkeys(("mean", "std"), "a axis? partial? out? keepdims?"),
    **dict.fromkeys(("empty", "zeros", "ones"), f"shape {_MAKE}"),
    **dict.fromkeys(("begin", "end"), "block identifier"),
    **dict.fromkeys(("record_mark", "synchronize_mark"), "marker"),
    **dict.fromkeys(("clean_data", "convert_data"), "tensor layer_mkl"),
    **dict.fromkeys(("mergesum_layer", "mergebroadcast_layer"), "layer_num"),
    **dict.fromkeys(("scratch_buffer", "scratch_buffer_offset"), "size"),
    **dict.fromkeys(("roipooling_fprop", "roipooling_bprop"), _ROI.format("C", "H", "W")),
    **dict.fromkeys(
        (
            "backend_choices check_caffe_compat cleanup_backend dump_hist_data get_events init_mark is_mkl relu_layer "
            "rng_get_state rng_reset scratch_buffer_init scratch_buffer_reset set_caffe_compat"
        ).split(),
        "",
    ),
    "add_fc_bias": "inputs bias",
    "allocate_backend": "name",
    "allocate_new_deltas": "delta in_shape parallelism",
    "allocate_new_outputs": "layer share_output",
    "array": f"ary {_MAKE}",
    "batched_dot": "A B C alpha? beta? relu? repeat? size?",
    "batchnorm_layer": "in_shape",
    "bibnrnn_layer": "h_buffer_all h_ff_buffer W_recur_f W_recur_b nsteps nout",
    "binarize": "ary out stochastic?",
    "bprop_conv": f"layer F E grad_I {_EPILOGUE}",
    "bprop_lrn": "layer I O E delta denom alpha? beta? ascale? bpower? repeat?",
    "bprop_mergebroadcast": "ngLayer layers error_views error delta out_shape alpha beta alphas betas",
    "bprop_mergesum": "ngLayer alpha beta layers error deltas",
    "bprop_pool": "layer I O argmax? alpha? beta? repeat?",
    "bprop_relu": "layer x error deltas slope",
    "bprop_skipnode": "error deltas alpha beta",
    "bprop_transform": "ngLayer transform outputs error deltas relu",
    "clip": "a a_min a_max out?",
    "compensated_sum": "sum_tensor cmp_tensor add_tensor cmp_scale? add_scale?",
    "compound_bprop_bn": f"delta_out grad_gamma grad_beta delta_in x xsum xvar gamma eps {_BN_HINTS} layer?",
    "compound_bprop_lut": "nin inputs error error_t dW pad_idx alpha? beta?",
    "compound_dot": "A B C alpha? beta? relu? bsum? repeat? size?",
    "compound_fprop_bn": (
        "x xsum xvar gmean gvar gamma beta y eps rho compute_batch_sum accumbeta? relu? "
        f"{_BN_HINTS} inference? outputs? layer?"
    ),
    "compound_rnn_unroll_bprop": (
        "W_recur delta_prev_s delta_s h_s nout num_steps num_used_steps activation reverse?"
    ),
    "compound_rnn_unroll_bprop_bibnrnn": (
        "ngLayer error in_deltas_f prev_in_deltas in_deltas_b next_in_deltas W_recur_f W_recur_b h_f h_b nout nsteps "
        "used_nsteps activation h_buffer_all"
    ),
    "compound_rnn_unroll_fprop": (
        "W_recur h_prev_s h_ff_s h_s bias nout num_steps num_used_steps activation reverse?"
    ),
    "compound_rnn_unroll_fprop_bibnrnn": (
        "ngLayer h_buffer_all h_ff_buffer W_recur_f h_prev h_ff_f h_f b_f W_recur_b h_next h_ff_b h_b b_b nout nsteps "
        "used_nsteps activation"
    ),
    "consume": "buf_index hostlist devlist",
    "conv_layer": f"dtype N C K {_FILTER}",
    "copy_transpose": "a out axes? repeat?",
    "cublas_dot": "A B C alpha? beta?",
    "deconv_layer": f"dtype N C K M P Q {_FILTER.removeprefix('D? H? W? ')}",
    "distribute_data": "tensor layer_parallelism",
    "dropout": "keep? out?",
    "empty_like": "other dtype? name? persist_values?",
    "execute": "optree",
    "fill_normal": "ary mean? stdv?",
    "fprop_conv": f"layer I F O {_EPILOGUE}",
    "fprop_lrn": "layer I O denom alpha? beta? ascale? bpower? repeat?",
    "fprop_mergebroadcast": "ngLayer inputs inference outputs layers out_shape",
    "fprop_mergesum": "ngLayer inputs inference layers outputs out_shape",
    "fprop_pool": "layer I O argmax? alpha? beta? repeat?",
    "fprop_relu": "layer x slope",
    "fprop_skipnode": "x y beta",
    "fprop_softmax": "x axis",
    "fprop_transform": "ngLayer transform inputs outputs relu?",
    "gen_rng": "seed?",
    "get_time": "start end",
    "iobuf": "dim0 x? dtype? name? persist_values? shared? parallelism?",
    "lrn_layer": "dtype N C D? H? W? J?",
    "make_binary_mask": "out keepthresh?",
    "nms": "detections threshold normalized?",
    "onehot": "indices axis out?",
    "output_dim": "X S padding strides pooling? dilation?",
    "pool_layer": (
        "dtype op N C D? H? W? J? T? R? S? pad_c? pad_d? pad_h? pad_w? str_c? str_d? str_h? str_w?"
    ),
    "rand": "out?",
    "revert_tensor": "tensor",
    "rng_set_state": "state",
    "set_hist_buffers": "hist_bins hist_offset",
    "set_scratch_size": "*",
    "shared_iobuf_size": "shape parallelism",
    "shift": "ary shift_ary value? out?",
    "take": "a indices axis out?",
    "update_conv": "layer I E grad_F alpha? beta? repeat? grad_bias? layer_op?",
    "update_fc_bias": "err out",
    "var": "a axis? partial? out? keepdims? binary?",
    "xnor_compound_dot": "A B C beta? bsum?",
    "zeros_like": "other dtype? name? persist_values?",
}
"""Arguments of the public methods of neon's GPU backend and of the CPU's, in order; "?": may be left out."""

EXTRAS: dict[str, str] = {
    "Relu": "ary out?",
    "convert": "a",
    "convert_mkl": "a",
    "get_numpy": "a",
    "sum_tensor": "",
    "trans2d": "",
    "change_data_store_order": "a a_row a_col a_len axis? b?",
    "detectionOutput_fprop": (
        "conf_view loc_view detection prior_boxes proposals nms_top_k image_top_k score_threshold nms_threshold"
    ),
}
"""Methods of the CPU's and of the MKL backend alone. Where no arguments stand, neon's are not known."""

ATTRIBUTES = (
    "backend_name backends bsz default_dtype rng rng_seed init_rng_state compat_mode deterministic device_type "
    "device_id tensor_cls use_pinned_mem hist_bins hist_offset hist_max hist_idx hist_map bench stream scratch_size "
    "scratch_offset round_mode warmup buf buf_active sm_count gpu_memory_size compute_capability use_cudac_kernels "
    "cublas_handle enable_winograd cache_dir ctx init_rng_state_dev pcg context_rand_state_map context_rand_state_alive"
).split()


def test_there_are_136_names() -> None:
    assert len(ARGUMENTS) == 136
    assert not set(ARGUMENTS) & set(EXTRAS)


@pytest.mark.parametrize("name", [*sorted(ARGUMENTS), *EXTRAS])
def test_methods_exist_with_documentation_and_neons_arguments(be: Backend, name: str) -> None:
    method = getattr(be, name)
    documentation = inspect.getdoc(method) or ""
    assert documentation.strip(), f"{name} says nothing about itself"
    assert documentation.splitlines()[0].rstrip().endswith((".", ";", ":")), documentation.splitlines()[0]
    signature = inspect.signature(method)
    given = {**ARGUMENTS, **EXTRAS}[name]
    if name in EXTRAS and not given:
        return
    if given == "*":
        signature.bind(1, 2, 3)
        return
    every = [argument.rstrip("?") for argument in given.split()]
    needed = [argument for argument in given.split() if not argument.endswith("?")]
    signature.bind(**dict.fromkeys(every, 0))
    signature.bind(*[0] * len(needed))
    mine = list(signature.bind(*[0] * len(needed)).arguments)
    assert name == "allocate_backend" or mine == needed
    demanded = [p.name for p in signature.parameters.values() if p.default is p.empty and p.kind is not p.VAR_KEYWORD]
    assert set(demanded) <= set(needed)


def test_regions_are_pooled_by_the_names_of_the_gpu_too(be: Backend) -> None:
    arguments = dict.fromkeys(_ROI.format("fm_channel", "fm_height", "fm_width").split(), 0)
    for name in ("roipooling_fprop", "roipooling_bprop"):
        inspect.signature(getattr(be, name)).bind(**arguments)


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_attributes_can_be_read(be: Backend, name: str) -> None:
    getattr(be, name)
    assert name in dir(be)


def test_families_list_what_the_backend_has(be: Backend) -> None:
    listed = public_methods(NervanaCPU)
    names = [name for group in listed.values() for name in group]
    assert len(names) == len(set(names))
    assert set(names) == {name for name in dir(NervanaCPU) if not name.startswith("_")}
    assert {*ARGUMENTS, *EXTRAS} <= set(names)
    assert "compound_dot" in listed["primitives.linalg"]
    assert "rand" in listed["expressions.random"]


def test_a_method_of_a_family_is_listed_without_being_typed_again() -> None:
    class SpareFamily(Family):
        """A family made up here."""

        def spare(self) -> Any:
            """Nothing."""

        def _hidden(self) -> Any:
            """Nothing."""

    class Overriding(SpareFamily):
        """As a backend overrides hooks."""

        def spare(self) -> Any:
            """Nothing more."""

    listed = public_methods(Overriding)
    assert listed[__name__] == ("spare",)
