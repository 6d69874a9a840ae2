"""Parameters of layers in PyTorch's names and layouts, and back: a table by the layer's class."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from neonlike.errors import NotDefined
from neonlike.exchange.places import Arrays
from neonlike.exchange.units import Unit
from neonlike.layers.core.bias import Bias
from neonlike.layers.dense.attention import MultiHeadAttention
from neonlike.layers.dense.linear import Linear
from neonlike.layers.dense.lookup import Embedding, LookupTable
from neonlike.layers.images.convolution import Convolution, Convolution_bias
from neonlike.layers.images.deconvolution import Deconvolution
from neonlike.layers.images.depthwise import DepthwiseConvolution
from neonlike.layers.norm.batchnorm_autodiff import BatchNormAutodiff
from neonlike.layers.norm.normalization import BatchNorm
from neonlike.layers.norm.samplenorm import GroupNorm, LayerNorm
from neonlike.layers.recurrent import GRU, LSTM, BiLSTM, BiRNN, Recurrent, ResetAfterGRU
from neonlike.transforms import Logistic, Rectlin, Tanh

Assigned = list[tuple[Any, Arrays]]
"""Layers with the values of their parameters."""
LSTM_GATES = (0, 1, 3, 2)
"""Places of PyTorch's gates i, f, g, o among ours, i, f, o, g; and the reverse, which is the same."""
RNN_GATES = (0,)


class Translation(NamedTuple):
    """The two ways between a unit's parameters and those of a module of PyTorch.

    Attributes
    ----------
    module : str
        The module's class.
    give : callable
        Unit -> arrays under PyTorch's names.
    take : callable
        Unit and arrays under PyTorch's names -> values of our parameters.
    optional : set of str
        Names that a module may lack: their values are then 0, those of ``weight`` 1.
    """

    module: str
    give: Callable[[Unit], Arrays]
    take: Callable[[Unit, Arrays], Assigned]
    optional: frozenset[str] = frozenset()


def _with_bias(unit: Unit, weight: np.ndarray) -> Arrays:
    place = unit.bias_parameter
    return {"weight": weight} if place is None else {"weight": weight, "bias": getattr(*place).get().ravel()}


def _with_bias_back(unit: Unit, weight: np.ndarray, arrays: Arrays) -> Assigned:
    place = unit.bias_parameter
    if place is None:
        return [(unit.layer, {"W": weight})]
    owner, name = place
    bias = arrays["bias"].reshape(-1, 1)
    if owner is unit.layer:
        return [(owner, {"W": weight, name: bias})]
    return [(unit.layer, {"W": weight}), (owner, {name: bias})]


# -- dense layers ------------------------------------------------------------------------------------------------------


def _give_weight(unit: Unit) -> Arrays:
    return _with_bias(unit, unit.layer.W.get())


def _take_weight(unit: Unit, arrays: Arrays) -> Assigned:
    return _with_bias_back(unit, arrays["weight"], arrays)


ATTENTION = {"W": "in_proj_weight", "bias_in": "in_proj_bias", "W_out": "out_proj.weight", "bias_out": "out_proj.bias"}


def _give_attention(unit: Unit) -> Arrays:
    found = {theirs: getattr(unit.layer, ours).get() for ours, theirs in ATTENTION.items()}
    return {name: array.ravel() if name.endswith("bias") else array for name, array in found.items()}


def _take_attention(unit: Unit, arrays: Arrays) -> Assigned:
    shapes = {ours: getattr(unit.layer, ours).shape for ours in ATTENTION}
    return [(unit.layer, {ours: arrays[theirs].reshape(shapes[ours]) for ours, theirs in ATTENTION.items()})]


# -- convolutions ------------------------------------------------------------------------------------------------------


def filter_sizes(layer: Any) -> tuple[int, ...]:
    """Sizes of a weight ``(C * T * R * S, K)`` apart: (C, R, S, K), with T before R for volumes."""
    params = layer.deconvparams if isinstance(layer, Deconvolution) else layer.convparams
    window = [params[name] for name in ("TRS" if len(layer.in_shape) == 4 or params["T"] > 1 else "RS")]
    rows, maps = layer.weight_shape
    return rows // int(np.prod(window)), *window, maps


def filters_first(layer: Any) -> np.ndarray:
    """The weight of a convolution as (K, C, R, S); of a transposed one K are the maps of its input."""
    weight: np.ndarray = layer.W.get().reshape(filter_sizes(layer))
    return np.ascontiguousarray(np.moveaxis(weight, -1, 0))


def _give_filters(unit: Unit) -> Arrays:
    return _with_bias(unit, filters_first(unit.layer))


def _take_filters(unit: Unit, arrays: Arrays) -> Assigned:
    weight = np.moveaxis(arrays["weight"], 0, -1).reshape(unit.layer.weight_shape)
    return _with_bias_back(unit, weight, arrays)


# -- normalization -----------------------------------------------------------------------------------------------------

AFFINE = {"gamma": "weight", "beta": "bias"}
STATISTICS = {"gmean": "running_mean", "gvar": "running_var"}


def _give_batch_norm(unit: Unit) -> Arrays:
    found = {theirs: getattr(unit.layer, ours).get().ravel() for ours, theirs in {**AFFINE, **STATISTICS}.items()}
    return {**found, "num_batches_tracked": np.array(0, np.int64)}


def _take_batch_norm(unit: Unit, arrays: Arrays) -> Assigned:
    return [(unit.layer, {ours: arrays[name].reshape(-1, 1) for ours, name in {**AFFINE, **STATISTICS}.items()})]


def _give_sample_norm(unit: Unit) -> Arrays:
    shape = unit.layer.in_shape
    whole = type(unit.layer) is LayerNorm and isinstance(shape, tuple) and len(shape) > 2
    return {name: getattr(unit.layer, ours).get().reshape(shape if whole else -1) for ours, name in AFFINE.items()}


def _take_sample_norm(unit: Unit, arrays: Arrays) -> Assigned:
    return [(unit.layer, {ours: arrays[name].reshape(-1, 1) for ours, name in AFFINE.items()})]


# -- recurrent layers --------------------------------------------------------------------------------------------------


def ways(layer: Any) -> dict[str, str]:
    """Suffixes of the parts of a recurrent layer's weight -> suffixes of PyTorch's parameters."""
    return {"": ""} if layer.directions == 1 else {"_f": "", "_b": "_reverse"}


def gates_in_order(array: np.ndarray, order: tuple[int, ...]) -> np.ndarray:
    """The rows of an array with its gates in another order."""
    return array.reshape(len(order), -1, *array.shape[1:])[list(order)].reshape(array.shape)


def whole_weight(layer: Any, parts: Arrays) -> np.ndarray:
    """The weight ``W`` of a recurrent layer of its parts, such as ``W_input_f``."""
    names = [f"{name}{way}" for name in ("W_input", "W_recur", "b") for way in ways(layer)]
    return np.concatenate([parts[name].ravel() for name in names]).reshape(layer.weight_shape)


def _recurrent(module: str, order: tuple[int, ...], gate: type | None, activations: tuple[type, ...]) -> Translation:
    def check(layer: Any) -> None:
        found = layer.activation, getattr(layer, "gate_activation", None)
        plain = type(found[0]) in activations and not getattr(found[0], "slope", 0)
        if not plain or (gate is not None and type(found[1]) is not gate):
            names = " and ".join(type(one).__name__ for one in found if one is not None)
            raise NotDefined(f"{layer.name}: PyTorch has no {module} with the activation {names}")
        if getattr(layer, "split_inputs", False):
            raise NotDefined(
                f"{layer.name}: its directions read half of the features each (split_inputs), those of a {module} of "
                "PyTorch all"
            )

    def give(unit: Unit) -> Arrays:
        check(unit.layer)
        found = {}
        for ours, theirs in ways(unit.layer).items():
            part = {name: getattr(unit.layer, f"{name}{ours}").get() for name in ("W_input", "W_recur", "b")}
            part = {name: gates_in_order(array, order) for name, array in part.items()}
            found[f"weight_ih_l0{theirs}"], found[f"weight_hh_l0{theirs}"] = part["W_input"], part["W_recur"]
            found[f"bias_ih_l0{theirs}"] = part["b"].ravel()
            found[f"bias_hh_l0{theirs}"] = np.zeros_like(part["b"].ravel())
        return found

    def take(unit: Unit, arrays: Arrays) -> Assigned:
        parts = {}
        for ours, theirs in ways(unit.layer).items():
            bias = arrays[f"bias_ih_l0{theirs}"] + arrays[f"bias_hh_l0{theirs}"]
            parts[f"W_input{ours}"] = gates_in_order(arrays[f"weight_ih_l0{theirs}"], order)
            parts[f"W_recur{ours}"] = gates_in_order(arrays[f"weight_hh_l0{theirs}"], order)
            parts[f"b{ours}"] = gates_in_order(bias, order)
        return [(unit.layer, {"W": whole_weight(unit.layer, parts)})]

    names = (f"bias_{kind}_l0{way}" for kind in ("ih", "hh") for way in ("", "_reverse"))
    return Translation(module, give, take, frozenset(names))


def _refuse_gru(unit: Unit, *_: Any) -> Any:
    raise NotDefined(
        f"{unit.layer.name}: a GRU of PyTorch resets behind the product, n = tanh(W x + b + r (U h + b')), and this "
        "layer before it, n = tanh(W x + U (r h) + b); no weights make them equal. Use ResetAfterGRU"
    )


def own_biases(layer: Any) -> np.ndarray:
    """The biases of the state's products of all gates of a ResetAfterGRU: 0 but for those of n."""
    last: np.ndarray = layer.b_recur.get().ravel()
    return np.concatenate([0 * last, 0 * last, last])


def split_biases(inputs: np.ndarray, states: np.ndarray) -> Arrays:
    """``b`` and ``b_recur`` of a ResetAfterGRU, of two biases in the order r, z, n: those of gates are added up."""
    units = len(inputs) // 3
    of_gates = inputs[: 2 * units] + states[: 2 * units]
    b = np.concatenate([of_gates, inputs[2 * units :]])
    return {"b": b.reshape(-1, 1), "b_recur": states[2 * units :].reshape(-1, 1)}


def _give_gru(unit: Unit) -> Arrays:
    layer = unit.layer
    return {
        "weight_ih_l0": layer.W_input.get(), "weight_hh_l0": layer.W_recur.get(),
        "bias_ih_l0": layer.b.get().ravel(), "bias_hh_l0": own_biases(layer),
    }  # fmt: skip


def _take_gru(unit: Unit, arrays: Arrays) -> Assigned:
    weights = {"W_input": arrays["weight_ih_l0"], "W_recur": arrays["weight_hh_l0"]}
    return [(unit.layer, {**weights, **split_biases(arrays["bias_ih_l0"], arrays["bias_hh_l0"])})]


DENSE = Translation("Linear", _give_weight, _take_weight)
CONVOLUTION = Translation("Conv", _give_filters, _take_filters)
LOOKUP = Translation("Embedding", _give_weight, _take_weight)
BATCH_NORM = Translation(
    "BatchNorm", _give_batch_norm, _take_batch_norm, frozenset({"weight", "bias", "num_batches_tracked"})
)
OF_SIMPLE = _recurrent("RNN", RNN_GATES, None, (Tanh, Rectlin))
OF_LSTM = _recurrent("LSTM", LSTM_GATES, Logistic, (Tanh,))
IN_PROJECTIONS = frozenset({"in_proj_bias", "out_proj.bias"})

TRANSLATIONS: dict[type, Translation] = {
    Linear: DENSE,
    Convolution: CONVOLUTION,
    Convolution_bias: CONVOLUTION,
    DepthwiseConvolution: CONVOLUTION,
    Deconvolution: CONVOLUTION._replace(module="ConvTranspose"),
    LookupTable: LOOKUP,
    Embedding: LOOKUP,
    BatchNorm: BATCH_NORM,
    BatchNormAutodiff: BATCH_NORM,
    LayerNorm: Translation("LayerNorm", _give_sample_norm, _take_sample_norm, frozenset({"weight", "bias"})),
    GroupNorm: Translation("GroupNorm", _give_sample_norm, _take_sample_norm, frozenset({"weight", "bias"})),
    MultiHeadAttention: Translation("MultiheadAttention", _give_attention, _take_attention, IN_PROJECTIONS),
    Recurrent: OF_SIMPLE,
    BiRNN: OF_SIMPLE,
    LSTM: OF_LSTM,
    BiLSTM: OF_LSTM,
    GRU: Translation("GRU", _refuse_gru, _refuse_gru),
    ResetAfterGRU: Translation("GRU", _give_gru, _take_gru, frozenset({"bias_ih_l0", "bias_hh_l0"})),
}
"""Class of a layer -> its translation. Subclasses may compute something else, and are not found."""


def translation_of(unit: Unit) -> Translation:
    """The translation of a unit.

    Raises
    ------
    NotDefined
        If PyTorch has no such module.
    """
    found = TRANSLATIONS.get(type(unit.layer))
    if found is None:
        reason = "a bias apart from a layer with weights" if isinstance(unit.layer, Bias) else "a layer of this kind"
        raise NotDefined(f"{unit.layer.name}: PyTorch has no module for {reason}, {unit.layer.classnm} at {unit.path}")
    return found
