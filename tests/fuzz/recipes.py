"""Right arguments for public calls; the fuzzer of arguments replaces some by wrong ones."""

# ruff: noqa: E741 - I and O are what neon calls them

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from neonlike.callbacks import Callbacks
from neonlike.data import ArrayIterator
from neonlike.initializers import Constant, Gaussian
from neonlike.layers import Activation, Affine, Bias, GeneralizedCost, Linear
from neonlike.layers.core.deltas import DeltasTree
from neonlike.models import Model
from neonlike.optimizers import GradientDescentMomentum, Schedule
from neonlike.transforms import CrossEntropyMulti, Logistic, Misclassification, Rectlin, Softmax, Tanh
from tests.fuzz.junk import BATCH, World

Recipe = Callable[[World], dict[str, Any]]
RECIPES: dict[str, Recipe] = {}
"""Name of a method of the backend -> arguments that it takes; those without a name are a list under ""."""


def recipe(*names: str) -> Callable[[Recipe], Recipe]:
    """Keep a function as the recipe of ``names``."""

    def keep(made: Recipe) -> Recipe:
        RECIPES.update(dict.fromkeys(names, made))
        return made

    return keep


# Compound primitives ------------------------------------------------------------------------------------------------


def _conv(w: World) -> Any:
    return w.be.conv_layer(np.float32, BATCH, 2, 3, 1, 4, 4, 1, 2, 2)


@recipe("fprop_conv")
def _(w: World) -> dict[str, Any]:
    g = _conv(w)
    I, F, O, X = (w.tensor(*dims) for dims in (g.dimI, g.dimF, g.dimO, g.dimO))
    return {"layer": g, "I": I, "F": F, "O": O, "X": X, "bias": w.tensor(3, 1), "bsum": w.tensor(3, 1), "alpha": 2.0}


@recipe("bprop_conv")
def _(w: World) -> dict[str, Any]:
    g = _conv(w)
    return {"layer": g, "F": w.tensor(*g.dimF), "E": w.tensor(*g.dimO), "grad_I": w.tensor(*g.dimI), "beta": 1.0}


@recipe("update_conv")
def _(w: World) -> dict[str, Any]:
    g = _conv(w)
    return {"layer": g, "I": w.tensor(*g.dimI), "E": w.tensor(*g.dimO), "grad_F": w.tensor(*g.dimF), "alpha": 1.0}


@recipe("conv_layer", "deconv_layer")
def _(w: World) -> dict[str, Any]:
    return {"dtype": np.float32, "N": 4, "C": 2, "K": 3, "T": 1, "R": 1, "S": 1, "pad_h": 0, "str_w": 1, "dil_h": 1}


def _pool(w: World) -> Any:
    return w.be.pool_layer(np.float32, w.pick("max", "avg"), BATCH, 2, 1, 4, 4, 1, 1, 2, 2)


@recipe("fprop_pool")
def _(w: World) -> dict[str, Any]:
    g = _pool(w)
    argmax = w.tensor(*g.dimO, dtype="u1") if g.op == "max" else None
    return {"layer": g, "I": w.tensor(*g.dimI), "O": w.tensor(*g.dimO), "argmax": argmax, "beta": 1.0}


@recipe("bprop_pool")
def _(w: World) -> dict[str, Any]:
    g = _pool(w)
    argmax = w.tensor(*g.dimO, dtype="u1") if g.op == "max" else None
    return {"layer": g, "I": w.tensor(*g.dimO), "O": w.tensor(*g.dimI), "argmax": argmax, "alpha": 1.0}


@recipe("pool_layer")
def _(w: World) -> dict[str, Any]:
    return {"dtype": np.float32, "op": "max", "N": 4, "C": 2, "H": 4, "W": 4, "R": 2, "S": 2, "pad_h": 1, "str_w": 2}


def _lrn(w: World) -> Any:
    return w.be.lrn_layer(np.float32, BATCH, 3, 1, 2, 2, 3)


@recipe("fprop_lrn")
def _(w: World) -> dict[str, Any]:
    g = _lrn(w)
    I, O, denom = (w.tensor(*g.dimI) for _ in range(3))
    return {"layer": g, "I": I, "O": O, "denom": denom, "alpha": 1.0, "beta": 0.0, "ascale": 1.0, "bpower": 0.5}


@recipe("bprop_lrn")
def _(w: World) -> dict[str, Any]:
    g = _lrn(w)
    I, O, E, delta, denom = (w.tensor(*g.dimI) for _ in range(5))
    return {"layer": g, "I": I, "O": O, "E": E, "delta": delta, "denom": denom, "ascale": 1.0, "bpower": 0.5}


@recipe("lrn_layer")
def _(w: World) -> dict[str, Any]:
    return {"dtype": np.float32, "N": 4, "C": 2, "D": 1, "H": 4, "W": 4, "J": 3}


@recipe("compound_fprop_bn")
def _(w: World) -> dict[str, Any]:
    columns = {name: w.tensor(3, 1) for name in ("xsum", "xvar", "gmean", "gvar", "gamma", "beta")}
    numbers = {"eps": 0.1, "rho": 0.9, "compute_batch_sum": True, "accumbeta": 0.0, "relu": False}
    return {"x": w.tensor(3, 4), "y": w.tensor(3, 4), **columns, **numbers}


@recipe("compound_bprop_bn")
def _(w: World) -> dict[str, Any]:
    columns = {name: w.tensor(3, 1) for name in ("grad_gamma", "grad_beta", "xsum", "xvar", "gamma")}
    return {**{name: w.tensor(3, 4) for name in ("delta_out", "delta_in", "x")}, **columns, "eps": 0.1}


def _steps(w: World, rows: int = 3) -> list[Any]:
    return [w.tensor(rows, 4) for _ in range(2)]


def _unroll(w: World, **tensors: Any) -> dict[str, Any]:
    return {**tensors, "nout": 3, "num_steps": 2, "num_used_steps": w.pick(None, 1), "activation": Tanh()}


@recipe("compound_rnn_unroll_fprop")
def _(w: World) -> dict[str, Any]:
    W, bias = w.tensor(3, 3), w.tensor(3, 1)
    return _unroll(w, W_recur=W, h_prev_s=_steps(w), h_ff_s=_steps(w), h_s=_steps(w), bias=bias)


@recipe("compound_rnn_unroll_bprop")
def _(w: World) -> dict[str, Any]:
    return _unroll(w, W_recur=w.tensor(3, 3), delta_prev_s=_steps(w), delta_s=_steps(w), h_s=_steps(w))


@recipe("compound_lstm_unroll_fprop")
def _(w: World) -> dict[str, Any]:
    states = {name: _steps(w) for name in ("h_prev_s", "c_prev_s", "c_s", "c_act_s", "h_s")}
    gates = {"ifog_ff_s": _steps(w, 12), "ifog_s": _steps(w, 12), "bias": w.tensor(12, 1)}
    return _unroll(w, W_recur=w.tensor(12, 3), **states, **gates) | {"gate_activation": Logistic()}


@recipe("compound_lstm_unroll_bprop")
def _(w: World) -> dict[str, Any]:
    names = ("delta_prev_s", "delta_s", "c_delta_prev_s", "c_delta_s", "c_prev_s", "c_act_s")
    gates = {"ifog_delta_s": _steps(w, 12), "ifog_s": _steps(w, 12)}
    states = {name: _steps(w) for name in names}
    return _unroll(w, W_recur=w.tensor(3, 12), **states, **gates) | {"gate_activation": Logistic()}


@recipe("compound_gru_unroll_fprop")
def _(w: World) -> dict[str, Any]:
    states = {name: _steps(w) for name in ("h_prev_s", "reset_h_s", "h_s")}
    gates = {"rzn_ff_s": _steps(w, 9), "rzn_s": _steps(w, 9), "bias": w.tensor(9, 1)}
    return _unroll(w, W_recur=w.tensor(9, 3), **states, **gates) | {"gate_activation": Logistic()}


@recipe("compound_gru_unroll_bprop")
def _(w: World) -> dict[str, Any]:
    states = {name: _steps(w) for name in ("delta_prev_s", "delta_s", "h_prev_s")}
    gates = {"rzn_delta_s": _steps(w, 9), "rzn_s": _steps(w, 9)}
    return _unroll(w, W_recur=w.tensor(3, 9), **states, **gates) | {"gate_activation": Logistic()}


@recipe("compound_bprop_lut")
def _(w: World) -> dict[str, Any]:
    given = {"nin": 1, "inputs": w.tensor(1, 4, dtype="i4"), "error": w.tensor(2, 4), "error_t": None}
    return {**given, "dW": w.tensor(5, 2), "pad_idx": 0, "alpha": 1.0, "beta": 0}


@recipe("roipooling_fprop")
def _(w: World) -> dict[str, Any]:
    sizes = {"roi_count": 2, "C": 2, "H": 3, "W": 3, "pooled_height": 2, "pooled_width": 2, "spatial_scale": 1.0}
    rois = w.watch(w.be.array([[0, 0, 0, 2, 2], [1, 0, 1, 1, 2]]))
    argmax = w.watch(w.be.zeros((8, 2), dtype=np.int32))
    return {"I": w.tensor(18, 4), "rois": rois, "O": w.tensor(8, 2), "argmax": argmax, **sizes}


@recipe("roipooling_bprop")
def _(w: World) -> dict[str, Any]:
    given = RECIPES["roipooling_fprop"](w)
    return {**given, "I": given["O"], "O": given["I"]}


@recipe("nms")
def _(w: World) -> dict[str, Any]:
    return {"detections": w.tensor(6, 5), "threshold": 0.5, "normalized": True}


@recipe("xnor_compound_dot", "compound_dot", "cublas_dot")
def _(w: World) -> dict[str, Any]:
    return {"A": w.tensor(3, 4), "B": w.tensor(4, 2), "C": w.tensor(3, 2), "beta": w.pick(0.0, 1.0)}


@recipe("batched_dot")
def _(w: World) -> dict[str, Any]:
    return {"A": w.tensor(2, 3, 4), "B": w.tensor(2, 4, 2), "C": w.tensor(2, 3, 2), "alpha": 1.0}


@recipe("conv")
def _(w: World) -> dict[str, Any]:
    return {"x": w.tensor(2, 1, 4, 4, BATCH), "w": w.tensor(2, 1, 2, 2, 3), "strides": 1, "padding": 0}


@recipe("deconv")
def _(w: World) -> dict[str, Any]:
    return {"x": w.tensor(3, 1, 3, 3, BATCH), "w": w.tensor(2, 1, 2, 2, 3), "strides": 1, "padding": 0}


@recipe("pool")
def _(w: World) -> dict[str, Any]:
    return {"x": w.tensor(2, 1, 4, 4, BATCH), "window": (1, 2, 2), "op": "max", "strides": 1, "padding": 0}


@recipe("lrn")
def _(w: World) -> dict[str, Any]:
    return {"x": w.tensor(3, 1, 2, 2, BATCH), "depth": 3, "ascale": 1.0, "bpower": 0.5}


@recipe("batchnorm")
def _(w: World) -> dict[str, Any]:
    return {"x": w.t, "gamma": w.tensor(3, 1), "beta": w.tensor(3, 1), "eps": 0.001}


# Other methods of the backend --------------------------------------------------------------------------------------


def _square(x: Any) -> Any:
    return x.backend.sum(x * x)


@recipe("grad", "value_and_grad")
def _(w: World) -> dict[str, Any]:
    return {"f": _square, "argnums": None}


@recipe("check_grad")
def _(w: World) -> dict[str, Any]:
    return {"f": _square, "tensors": [w.tensor(3, 4, dtype="f8")], "rtol": 1e-5}


@recipe("prepare")
def _(w: World) -> dict[str, Any]:
    return {"target": w.t, "value": w.u + 1}


@recipe("assign_many")
def _(w: World) -> dict[str, Any]:
    return {"pairs": [(w.t, w.u + 1), (w.square, 2)]}


@recipe("eval")
def _(w: World) -> dict[str, Any]:
    return {"": ["a * b + 1"], "a": w.t, "b": w.u}


@recipe("consume")
def _(w: World) -> dict[str, Any]:
    return {"buf_index": 0, "hostlist": [np.ones((4, 3)), np.ones((4, 3))], "devlist": [None, w.t]}


@recipe("concatenate", "stack")
def _(w: World) -> dict[str, Any]:
    return {"parts": [w.t, w.u], "axis": 0}


@recipe("sum_tensor")
def _(w: World) -> dict[str, Any]:
    return {"tensors": [w.t, w.u]}


@recipe("fprop_transform")
def _(w: World) -> dict[str, Any]:
    return {"ngLayer": None, "transform": Rectlin(), "inputs": w.t, "outputs": w.u}


@recipe("bprop_transform")
def _(w: World) -> dict[str, Any]:
    return {"ngLayer": None, "transform": Rectlin(), "outputs": w.t, "error": w.u, "deltas": w.view}


@recipe("change_data_store_order")
def _(w: World) -> dict[str, Any]:
    return {"a": w.t, "a_row": 3, "a_col": 2, "a_len": 2, "axis": 1, "b": w.u}


@recipe("gen_backend")
def _(w: World) -> dict[str, Any]:
    return {"backend": w.backend, "rng_seed": 1, "datatype": np.float32, "batch_size": BATCH}


# Training -----------------------------------------------------------------------------------------------------------


def layers() -> list[Any]:
    """Layers of a small network."""
    return [Affine(nout=3, init=Constant(0.5), bias=Constant(0.0), activation=Rectlin()), _softmax()]


def _softmax() -> Any:
    return Affine(nout=2, init=Gaussian(), activation=Softmax())


def data() -> Any:
    """Two minibatches of five features and two classes."""
    return ArrayIterator(np.ones((8, 5), np.float32), np.arange(8) % 2, nclass=2)


def model() -> Any:
    """A small network."""
    return Model(layers())


def ready_model() -> Any:
    """A network that has its memory."""
    made, cost = model(), GeneralizedCost(CrossEntropyMulti())
    made.initialize(data(), cost)
    made.optimizer = sgd()
    return made


def sgd() -> Any:
    """An optimizer."""
    return GradientDescentMomentum(0.1, 0.9)


def linear() -> Any:
    """A layer that has its memory."""
    made = Linear(nout=2, init=Constant(0.5))
    made.configure(3)
    made.allocate()
    buffers = DeltasTree()
    made.allocate_deltas(buffers)
    buffers.allocate_buffers()
    made.set_deltas(buffers)
    return made


BY_NAME: dict[str, Callable[[World], Any]] = {
    **dict.fromkeys(("axis", "argnums", "index"), lambda w: w.pick(0, 1, -1)),
    **dict.fromkeys(("axes",), lambda w: w.pick(None, (1, 0))),
    **dict.fromkeys(("indices",), lambda w: w.pick(w.index, [0, 1])),
    **dict.fromkeys(("dtype", "datatype"), lambda w: w.pick(None, np.float32, "int32")),
    **dict.fromkeys(("shape", "dim0", "in_shape"), lambda w: w.pick((3, 4), 5)),
    **dict.fromkeys(("name", "tag", "identifier", "operation"), lambda w: w.pick(None, "name")),
    **dict.fromkeys(("alpha", "beta", "scale", "slope", "learning_rate", "decay", "power"), lambda w: 0.5),
    **dict.fromkeys(("counts", "k", "N", "num", "nout", "num_classes", "c", "interval", "nclass"), lambda w: 2),
    **dict.fromkeys(("seed", "rng_seed", "repeat", "shift", "total_epochs"), lambda w: 1),
    **dict.fromkeys(("keep", "keepthresh", "threshold", "momentum_coef", "eps"), lambda w: 0.5),
    **dict.fromkeys(("inference", "reverse", "keepdims", "relu", "batch_norm"), lambda w: w.pick(False, True)),
    **dict.fromkeys(("layers",), lambda w: layers()),
    **dict.fromkeys(("model",), lambda w: ready_model()),
    **dict.fromkeys(("dataset", "train_set", "eval_set"), lambda w: data()),
    **dict.fromkeys(("cost", "costfunc"), lambda w: w.pick(CrossEntropyMulti(), GeneralizedCost(CrossEntropyMulti()))),
    **dict.fromkeys(("optimizer",), lambda w: sgd()),
    **dict.fromkeys(("optimizer_mapping",), lambda w: {"default": sgd()}),
    **dict.fromkeys(("metric",), lambda w: Misclassification()),
    **dict.fromkeys(("callbacks",), lambda w: Callbacks(ready_model(), progress_bar=False)),
    **dict.fromkeys(("init",), lambda w: w.pick(Gaussian(), Constant(1))),
    **dict.fromkeys(("activation", "transform"), lambda w: w.pick(Rectlin(), Softmax(), None)),
    **dict.fromkeys(("schedule",), lambda w: w.pick(None, Schedule(), Schedule([1, 2], 0.5))),
    **dict.fromkeys(("layer_list",), lambda w: [linear()]),
    **dict.fromkeys(("num_epochs", "epoch"), lambda w: 1),
    **dict.fromkeys(("costs",), lambda w: [GeneralizedCost(CrossEntropyMulti())]),
    **dict.fromkeys(("X",), lambda w: np.ones((8, 5), np.float32)),
    **dict.fromkeys(("y", "t"), lambda w: w.u),
    **dict.fromkeys(("layer", "in_obj"), lambda w: w.pick(linear(), 3, Bias(Constant(0)), Activation(Rectlin()))),
    **dict.fromkeys(("op_tree",), lambda w: w.pick(w.t * 2, w.be.sum(w.t * w.u))),
    **dict.fromkeys(("be", "backend"), lambda w: w.be),
    **dict.fromkeys(("tensors", "parts", "layers"), lambda w: [w.t, w.u]),
    **dict.fromkeys(("step_config",), lambda w: w.pick(1, [1, 2])),
    **dict.fromkeys(("change",), lambda w: w.pick(0.5, [0.5, 0.1])),
    **dict.fromkeys(("param_path", "fn", "save_path", "path", "load_path", "weight_path"), lambda w: "file.p"),
    **dict.fromkeys(("reshape",), lambda w: (5, 1)),
    **dict.fromkeys(("out",), lambda w: w.pick(None, w.t, w.u, w.view)),
}
"""Name of a parameter -> what it may well be."""
