"""Every public class and function of neon above its backends: under neon's paths, with neon's arguments and defaults.

Those of ``neon.data`` are in ``tests/data/test_contract.py``.

What stands here are facts about neon. A `...` in place of a default: there is one, whose value no literal writes. The
tables of the paths alone are in ``neonlike/compat/table.py``; this list does not come from there.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT

_RECURRENT = "output_size, init, init_inner=None, activation=None"
_GATED = f"{_RECURRENT}, gate_activation=None, reset_cells=False"
_CONV = "fshape, strides={}, padding={}, dilation={}, init=None, bsum=False, name=None"
_CLIPS = "gradient_clip_norm=None, gradient_clip_value=None, param_clip_value=None"
_HOOKS = {
    "on_train_begin": "callback_data, model, epochs", "on_train_end": "callback_data, model",
    "on_epoch_begin": "callback_data, model, epoch", "on_epoch_end": "callback_data, model, epoch",
    "on_minibatch_begin": "callback_data, model, epoch, minibatch",
    "on_minibatch_end": "callback_data, model, epoch, minibatch",
    "should_fire": "callback_data, model, time, freq",
}  # fmt: skip
SIGNATURES: dict[str, dict[str, str]] = {
    "layers.layer": {
        "Layer": "name=None, parallelism='Unknown'",
        "ParameterLayer": "init=None, name=None, parallelism='Unknown'",
        "Linear": "nout, init, bsum=False, name=None, parallelism='Disabled'",
        "BinaryLinear": "nout, init, bsum=..., name=None, parallelism=...",
        "Bias": "init, name=None",
        "Convolution": f"{_CONV}, parallelism='Data'",
        "Convolution_bias": f"{_CONV}, bias=None, parallelism='Data'",
        "Deconvolution": _CONV,
        "LookupTable": "vocab_size, embedding_dim, init, update=True, pad_idx=None, name=None",
        "BatchNorm": "rho=0.9, eps=1e-3, name=None, binary=False",
        "BatchNormAutodiff": "rho=0.99, eps=1e-6, name=None",
        "ShiftBatchNorm": "rho=0.99, eps=1e-6, name=None",
        "Pooling": "fshape, op='max', strides={}, padding={}, name=None",
        "Activation": "transform, name=None",
        "Dropout": "keep=0.5, name=None",
        "LRN": "depth, alpha=1., beta=0., ascale=1., bpower=1., name=None",
        "Reshape": "reshape, name=None",
        "DataTransform": "transform, name=None",
        "SkipNode": "name=None",
        "BranchNode": "name=None",
        "RoiPooling": "HW=(7, 7), bprop_enabled=True, spatial_scale=0.0625, name=None",
        "CompoundLayer": "bias=None, batch_norm=False, activation=None, name=None",
        "Affine": "nout, init, bias=None, batch_norm=False, activation=None, name=None, parallelism='Disabled'",
        "Conv": "fshape, init, strides={}, padding={}, dilation={}, bias=None, batch_norm=False, activation=None, "
        "name=None",
        "Deconv": "fshape, init, strides={}, padding={}, dilation={}, bias=None, batch_norm=False, activation=None, "
        "name=None",
        "BinaryAffine": "nout, init, bias=None, batch_norm=False, activation=None, name=None",
        "GeneralizedCost": "costfunc, name=None",
        "GeneralizedCostMask": "costfunc, weights=1.0, name=None",
        "GeneralizedGANCost": "costfunc, name=None",
        "interpret_in_shape": "in_shape",
        "Layer.configure": "in_obj",
        "Layer.allocate": "shared_outputs=None",
        "Layer.allocate_deltas": "global_deltas",
        "Layer.set_deltas": "delta_buffers",
        "Layer.fprop": "inputs, inference=False",
        "Layer.load_weights": "pdict, load_states=True",
        "Layer.get_params_serialize": "keep_states=True",
        "Layer.set_batch_size": "N",
        "Layer.set_seq_len": "S",
        "Layer.nested_str": "level=0",
        "Linear.allocate": "shared_outputs=None, accumulate_updates=False",
        "Linear.fprop": "inputs, inference=False, beta=0.0",
        "Linear.bprop": "error, alpha=1.0, beta=0.0",
        "Convolution.fprop": "inputs, inference=False, beta=0.0",
        "Convolution.bprop": "error, alpha=1.0, beta=0.0",
        "Pooling.fprop": "inputs, inference=False, beta=0.0",
        "BatchNorm.fprop": "inputs, inference=False, beta=0.0",
        "BatchNorm.bprop": "error, alpha=1.0, beta=0.0",
        "GeneralizedCost.get_cost": "inputs, targets",
        "GeneralizedCost.get_errors": "inputs, targets",
    },
    "layers.container": {
        "LayerContainer": "name=None",
        "Sequential": "layers, name=None",
        "Tree": "layers, name=None, alphas=None",
        "SingleOutputTree": "layers, name=None, alphas=None",
        "Broadcast": "layers, name=None",
        "MergeSum": "layers, name=None",
        "MergeBroadcast": "layers, merge, alphas=None, name=None",
        "MergeMultistream": "layers, merge, name=None",
        "GenerativeAdversarial": "generator, discriminator, name=None",
        "Encoder": "layers, name=None",
        "Decoder": "layers, name=None, start_index=None",
        "Seq2Seq": "layers, decoder_connections=None, name=None",
        "SkipThought": "vocab_size, embed_dim, init_embed, nhidden, rec_layer, init_rec, activ_rec, activ_rec_gate, "
        "init_ff, init_const, layers=None, name=None",
        "Multicost": "costs, weights=None, name=None",
        "DeltasTree": "parent=None",
        "Sequential.fprop": "inputs, inference=False, beta=0.0",
        "Sequential.bprop": "error, alpha=1.0, beta=0.0",
        "flatten": "item",
        "pairwise": "iterable",
    },
    "layers.recurrent": {
        "Recurrent": f"{_RECURRENT}, reset_cells=False, name=None",
        "LSTM": f"{_GATED}, name=None",
        "GRU": f"{_GATED}, name=None",
        "BiRNN": f"{_RECURRENT}, reset_cells=False, split_inputs=False, name=None, parallelism='Data'",
        "BiBNRNN": f"{_RECURRENT}, reset_cells=False, split_inputs=False, name=None",
        "BiLSTM": f"{_GATED}, split_inputs=False, name=None",
        "DeepBiRNN": "nout, init, init_inner=None, activation=None, reset_cells=False, depth=1, batch_norm=False, "
        "bi_sum=False",
        "DeepBiLSTM": "nout, init, init_inner, activation, gate_activation, reset_cells=False, depth=1",
        "RecurrentSum": "name=None",
        "RecurrentMean": "name=None",
        "RecurrentLast": "name=None",
        "RecurrentOutput": "name=None",
        "BiSum": "name=None",
        "Recurrent.fprop": "inputs, inference=False, init_state=None",
        "LSTM.fprop": "inputs, inference=False, init_state=None",
        "GRU.fprop": "inputs, inference=False, init_state=None",
        "Recurrent.bprop": "deltas, alpha=1.0, beta=0.0",
        "get_steps": "x, shape",
    },
    "initializers.initializer": {
        "Initializer": "name=...",
        "Constant": "val=0.0, name='constantInit'",
        "Array": "val=0.0, name='constantInit'",
        "Uniform": "low=0.0, high=1.0, name='uniformInit'",
        "Gaussian": "loc=0.0, scale=1.0, name='gaussianInit'",
        "GlorotUniform": "name='autouniformInit'",
        "Xavier": "local=True, name='xavier'",
        "Kaiming": "local=True, name='Kaiming'",
        "IdentityInit": "local=True, name='Identity'",
        "Orthonormal": "scale=1.1, name='orthonormal'",
    },
    "transforms.activation": {
        "Identity": "name=None",
        "Rectlin": "slope=0, name=None",
        "Rectlinclip": "slope=0, name=None, xcut=20.0",
        "Explin": "alpha=1.0, name=None",
        "Normalizer": "name=None, divisor=128.",
        "Softmax": "axis=0, name=None, epsilon=...",
        "PixelwiseSoftmax": "c, name=None, epsilon=...",
        "Tanh": "name=None",
        "Logistic": "name=None, shortcut=False",
        "Sign": "name=None",
        "Rectlin.__call__": "x, nglayer=None",
        "Rectlin.bprop": "x, nglayer=None, error=None, deltas=None",
        "Logistic.set_shortcut": "shortcut",
    },
    "transforms.cost": {
        "CrossEntropyBinary": "scale=1",
        "CrossEntropyMulti": "scale=1, usebits=False",
        "SumSquared": "",
        "MeanSquared": "",
        "SmoothL1Loss": "sigma=1.0",
        "SquareHingeLoss": "margin=1",
        "GANCost": "scale=1., cost_type='dis', func='modified'",
        "Misclassification": "steps=1",
        "Accuracy": "",
        "LogLoss": "",
        "TopKMisclassification": "k",
        "PrecisionRecall": "num_classes, binarize=False, epsilon=1e-6",
        "ObjectDetection": "",
        "BLEUScore": "unk='<unk>'",
        "MultiMetric": "metric, index",
        "Misclassification.__call__": "y, t, calcrange=...",
        "BLEUScore.__call__": "y, t, N=4, brevity_penalty=False, lower_case=True",
    },
    "optimizers.optimizer": {
        "get_param_list": "layer_list",
        "GradientDescentMomentum": "learning_rate, momentum_coef, stochastic_round=False, wdecay=0.0, "
        f"{_CLIPS}, name=None, schedule=..., nesterov=False",
        "RMSProp": f"stochastic_round=False, decay_rate=0.95, learning_rate=2e-3, epsilon=1e-6, {_CLIPS}, name=None, "
        "schedule=...",
        "Adagrad": f"stochastic_round=False, learning_rate=0.01, epsilon=1e-6, {_CLIPS}, name=None",
        "Adadelta": "stochastic_round=False, decay=0.95, epsilon=1e-6, param_clip_value=None, name=None",
        "Adam": f"stochastic_round=False, learning_rate=0.001, beta_1=0.9, beta_2=0.999, epsilon=1e-8, {_CLIPS}, "
        "name='adam'",
        "ShiftAdaMax": "stochastic_round=False, learning_rate=0.002, beta_1=0.9, beta_2=0.999, epsilon=1e-8, "
        "schedule=..., name='ShiftAdaMax'",
        "MultiOptimizer": "optimizer_mapping, name=None",
        "Optimizer": "name=None",
        "Schedule": "step_config=None, change=1.",
        "StepSchedule": "step_config, change",
        "PowerSchedule": "step_config, change",
        "ExpSchedule": "decay",
        "PolySchedule": "total_epochs, power",
        "ShiftSchedule": "interval, shift_size=1",
        "Schedule.get_learning_rate": "learning_rate, epoch",
        "Optimizer.optimize": "layer_list, epoch",
        "Optimizer.clip_gradient_norm": "param_list, clip_norm",
        "Optimizer.clip_value": "v, abs_bound",
    },
    "models.model": {
        "Model": "layers, dataset=None, weights_only=False, name='model', optimizer=None",
        "GAN": "layers, noise_dim, noise_type='normal', weights_only=False, name='model', optimizer=None, k=1, "
        "wgan_param_clamp=None, wgan_train_sched=False",
        "Model.initialize": "dataset, cost=None",
        "Model.fit": "dataset, cost, optimizer, num_epochs, callbacks",
        "Model.fprop": "x, inference=False",
        "Model.bprop": "delta",
        "Model.eval": "dataset, metric",
        "Model.get_outputs": "dataset",
        "Model.get_outputs_beam": "dataset, num_beams=0, steps=None",
        "Model.get_description": "get_weights=False, keep_states=False",
        "Model.serialize": "fn=None, keep_states=True",
        "Model.save_params": "param_path, keep_states=True",
        "Model.load_params": "param_path, load_states=True",
        "Model.deserialize": "model_dict, data=None, load_states=True",
        "Model.set_batch_size": "N",
        "Model.set_seq_len": "S",
        "Model.benchmark": "dataset, inference=False, cost=None, optimizer=None, niterations=20, nskip=2",
    },
    "callbacks.callbacks": {
        "Callbacks": "model, train_set=None, output_file=None, eval_freq=None, progress_bar=True, save_path=None, "
        "serialize=0, history=1, model_file=None, eval_set=None, metric=None, log_token=None, multicost=False",
        "Callback": "epoch_freq=1, minibatch_freq=1",
        "TrainCostCallback": "wsz=10",
        "TrainMulticostCallback": "wsz=10",
        "LossCallback": "eval_set, epoch_freq=1",
        "MetricCallback": "eval_set, metric, epoch_freq=1",
        "MultiLabelStatsCallback": "eval_set, labels, metric, epoch_freq=1",
        "SerializeModelCallback": "save_path, epoch_freq=1, history=1",
        "RunTimerCallback": "",
        "ProgressBarCallback": "epoch_freq=1, minibatch_freq=1, update_thresh_s=0.1",
        "TrainLoggerCallback": "epoch_freq=1, minibatch_freq=None",
        "SaveBestStateCallback": "path",
        "EarlyStopCallback": "stop_func",
        "HistCallback": "plot_per_mini, filter_key",
        "DeconvCallback": "train_set, valid_set, max_fm=16, dataset_pct=25",
        "BatchNormTuneCallback": "tune_set, epoch_freq=1",
        "WatchTickerCallback": "model, valid_set, epoch_freq=1",
        "GANCostCallback": "",
        "get_progress_string": "tag, epoch, minibatch, nbatches, cost, time, blockchar=...",
        **{f"Callback.{name}": arguments for name, arguments in _HOOKS.items()},
        "Callbacks.add_callback": "callback, insert_pos=None",
        "Callbacks.add_save_best_state_callback": "path",
        "Callbacks.add_early_stop_callback": "stop_func",
        "Callbacks.add_deconv_callback": "train_set, valid_set, max_fm=16, dataset_pct=25",
        "Callbacks.add_hist_callback": "plot_per_mini=False, filter_key=['W']",
        "Callbacks.add_watch_ticker_callback": "valid",
    },
    "callbacks.plotting_callbacks": {
        "GANPlotCallback": "filename, hw=28, nchan=1, num_samples=16, sym_range=False, padding=2, plot_width=1200, "
        "plot_height=600, dpi=60., font_size=10, epoch_freq=1",
    },
    "util.argparser": {"extract_valid_args": "args, func, startidx=0"},
    "util.persist": {
        "save_obj": "obj, save_path",
        "load_obj": "load_path",
        "load_class": "ctype",
        "serialize": "model, callbacks=None, datasets=None, dump_weights=True, keep_states=True",
        "ensure_dirs_exist": "path",
        "get_cache_dir": "subdir=None",
        "get_data_cache_dir": "data_dir, subdir=None",
        "get_data_cache_or_nothing": "subdir=None",
    },
    "util.beamsearch": {"BeamSearch.beamsearch": "inputs, num_beams=5, steps=None"},
    "util.yaml_parse": {
        "create_objects": "root_yaml, be_type='gpu', batch_size=128, rng_seed=None, device_id=0, default_dtype=..., "
        "stochastic_rounding=False",
    },
    "util.load_experiment": {"deserialize": "fn, datasets=None, inference=False"},
    "util.shelver": {"atomic_shelve": "filename"},
    "benchmark": {
        "Benchmark": "model, time_layers=True",
        "Benchmark.time": "dataset, inference=False, niterations=20",
        "Benchmark.time_gan": "dataset, niterations=101",
        "Benchmark.print_stats": "stats, functions=None, output=None, nskip=0",
    },
    "visualizations.data": {"h5_cost_data": "filename, epoch_axis=True"},
    "backends.util.check_gpu": {
        "get_compute_capability": "device_id=None, verbose=False",
        "get_device_count": "verbose=False",
        "ensure_gpu_capability": "device_id",
    },
    "backends.util.check_mkl": {"get_mkl_lib": "device_id=None, verbose=False"},
}  # fmt: skip
"""Module below ``neon`` -> name, or ``Class.method``, -> arguments. Of functions and methods of one argument whose name
no script writes, the name may be another."""

SHALLOW = {
    "layers": (
        "Linear Bias Affine Conv Convolution GeneralizedCost Dropout Pooling Activation DataTransform BatchNorm "
        "BatchNormAutodiff ShiftBatchNorm Deconv Deconvolution GeneralizedCostMask LookupTable BranchNode SkipNode LRN "
        "BinaryAffine BinaryLinear Reshape RoiPooling GeneralizedGANCost Recurrent LSTM GRU RecurrentSum RecurrentMean "
        "RecurrentLast BiRNN BiBNRNN BiLSTM DeepBiRNN DeepBiLSTM Tree Sequential MergeMultistream MergeBroadcast "
        "Multicost MergeSum SingleOutputTree Seq2Seq SkipThought"
    ),
    "initializers": (
        "Array Constant Gaussian GlorotUniform IdentityInit Kaiming Orthonormal Uniform Xavier"
    ),
    "transforms": (
        "Identity Explin Rectlin Rectlinclip Sign Softmax Tanh Logistic Normalizer PixelwiseSoftmax CrossEntropyBinary "
        "CrossEntropyMulti SumSquared MeanSquared LogLoss Misclassification TopKMisclassification Accuracy "
        "PrecisionRecall SmoothL1Loss SquareHingeLoss ObjectDetection BLEUScore GANCost"
    ),
    "transforms.transform": "Transform",
    "transforms.cost": "Cost Metric",
    "optimizers": (
        "GradientDescentMomentum RMSProp Adagrad Adadelta Adam ShiftAdaMax Schedule StepSchedule PowerSchedule "
        "ExpSchedule PolySchedule ShiftSchedule MultiOptimizer"
    ),
    "models": "Model",
    "callbacks": "Callbacks",
    "util.argparser": "NeonArgparser",
    "util.modeldesc": "ModelDescription",
    "util.compat": "PY3 xrange pickle pickle_load",
    "util.beamsearch": "BeamSearch",
    "util.display_information": "display_model_params display_cpu_information display_platform_information",
    "visualizations.data": "h5_hist_data h5_deconv_data create_minibatch_x create_epoch_x convert_rgb_to_bokehrgba",
    "backends.layer_gpu": "DataLayer FullLayer Inception BatchNorm Layer ConvLayer DeconvLayer PoolLayer",
    "backends.autodiff": "Autodiff GradUtil GradNode grad_map",
}
"""Module below ``neon`` -> further names, and those that it hands on."""

WITHOUT_NAMES = ("data", "data.convert_manifest", "util.update_dataset_cache", "visualizations.figure")
MODULES = sorted({*SIGNATURES, *SHALLOW, *WITHOUT_NAMES})
CASES = [(module, name) for module, names in SIGNATURES.items() for name in names]


def found(module: str, name: str) -> object:
    """Value of ``name`` in this library's module."""
    value: object = importlib.import_module(f"neonlike.{module}")
    for part in name.split("."):
        value = getattr(value, part)
    return value


@pytest.mark.parametrize(("module", "name"), CASES, ids=lambda text: str(text))
def test_arguments_are_neons(module: str, name: str) -> None:
    wanted = [part.partition("=") for part in _split(SIGNATURES[module][name])]
    mine = dict(inspect.signature(found(module, name)).parameters)  # type: ignore[arg-type]
    mine.pop("self", None)
    names = list(mine)[: len(wanted)]
    if len(wanted) > 1 or (wanted and wanted[0][2]):
        assert names == [argument for argument, _, _ in wanted]
    for argument, (_, _, text) in zip(names, wanted, strict=True):
        default = mine[argument].default
        if text == "...":
            assert default is not inspect.Parameter.empty
        elif text:  # what neon demands may have a default here
            expected = ast.literal_eval(text)
            assert default == expected or (isinstance(expected, list) and list(default) == expected)
    more = [parameter for argument, parameter in mine.items() if argument not in names]
    assert all(p.default is not p.empty or p.kind in (p.VAR_KEYWORD, p.VAR_POSITIONAL) for p in more), more


def _split(text: str) -> list[str]:
    """The arguments of ``text``, which are parted by commas outside of brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts if part.strip()]


@pytest.mark.parametrize("module", SHALLOW)
def test_names_are_where_scripts_import_them_from(module: str) -> None:
    for name in SHALLOW[module].split():
        assert found(module, name) is not None


def test_all_of_it_is_the_same_under_neons_own_name(tmp_path: Path) -> None:
    names = {module: [*SIGNATURES.get(module, ()), *SHALLOW.get(module, "").split()] for module in MODULES}
    code = (
        "import importlib, json, operator, sys\n"
        "import neonlike.compat.neon\n"
        "for module, names in json.loads(sys.stdin.read()).items():\n"
        "    theirs, ours = (importlib.import_module(f'{root}.{module}') for root in ('neon', 'neonlike'))\n"
        "    assert theirs is ours, module\n"
        "    for name in names: assert operator.attrgetter(name)(theirs) is not None\n"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command, given = [sys.executable, "-c", code], json.dumps(names)
    done = subprocess.run(command, input=given, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
