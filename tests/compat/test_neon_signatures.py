"""Arguments by neon's names and in its order, and the attributes of its objects, in programs that import its alias."""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.backends.autodiff import GradUtil
from neonlike.backends.backend import OpTreeNode
from neonlike.benchmark import Benchmark
from neonlike.callbacks import Callbacks, ProgressBarCallback
from neonlike.compat import calls, contract
from neonlike.compat.absent import ABSENT, ATTRIBUTES, OTHERWISE
from neonlike.data import ArrayIterator
from neonlike.errors import ArgumentError
from neonlike.initializers import Constant, Gaussian
from neonlike.layers import (
    GRU,
    LSTM,
    Activation,
    Bias,
    DataTransform,
    Dropout,
    GeneralizedCost,
    GeneralizedCostMask,
    Linear,
    LookupTable,
    Multicost,
    Sequential,
)
from neonlike.layers.container import Decoder, DeltasTree, Encoder, LayerContainer
from neonlike.layers.layer import interpret_in_shape
from neonlike.models import Model
from neonlike.transforms import (
    CrossEntropyMulti,
    Logistic,
    MeanSquared,
    Normalizer,
    PrecisionRecall,
    SmoothL1Loss,
    SquareHingeLoss,
    SumSquared,
    Tanh,
)
from neonlike.util.modeldesc import ModelDescription
from tests.support.lone_layers import Alone

pytestmark = [pytest.mark.engines("numpy"), pytest.mark.samples(4)]


@pytest.fixture
def taking() -> Iterator[None]:
    """Functions take neon's arguments, as in a program that imported its alias."""
    was_on = calls._on
    contract.install()
    calls.install()
    yield
    if not was_on:
        calls.remove()


# Functions ----------------------------------------------------------------------------------------------------------

ARGUMENTS = {
    "backends.autodiff.GradUtil.is_invalid": "grad_op_tree be",
    "backends.backend.OpTreeNode.list_to_optree": "l",
    "backends.backend.OpTreeNode.traverse": "stack",
    "backends.backend.Tensor.dimension_reorder": "new_order",
    "backends.backend.Tensor.set": "ary",
    "backends.nervanacpu.CPUTensor.set": "ary",
    "data.dataloader_transformers.OneHot.__init__": "dataloader index nclasses",
    "data.hdf5iterator.HDF5Iterator.gen_input": "mini_batch",
    "data.hdf5iterator.HDF5Iterator.gen_output": "mini_batch",
    "data.hdf5iterator.HDF5IteratorAutoencoder.gen_output": "mini_batch",
    "data.hdf5iterator.HDF5IteratorOneHot.gen_output": "mini_batch",
    "data.indexer.Indexer.__init__": "path index_file? pattern?",
    "data.questionanswer.BABI.parse_babi": "babi_file",
    "layers.container.Decoder.bprop": "error inference? alpha? beta?",
    "layers.container.Decoder.fprop": "x inference? init_state_list?",
    "layers.container.Encoder.bprop": "hidden_error_list inference? alpha? beta?",
    "layers.container.LayerContainer.accumulates": "f",
    "layers.container.LayerContainer.propagate_parallelism": "p",
    "layers.container.LayerContainer.set_deltas": "global_deltas",
    "layers.container.Seq2Seq.bprop": "error inference? alpha? beta?",
    "layers.container.Seq2Seq.fprop": "inputs inference? beta?",
    "layers.container.Sequential.set_deltas": "global_deltas",
    "layers.container.SingleOutputTree.bprop": "error alpha? beta?",
    "layers.container.SkipThought.bprop": "error alpha? beta?",
    "layers.container.Tree.bprop": "error alpha? beta?",
    "layers.container.Tree.set_deltas": "global_deltas",
    "layers.layer.DataTransform.bprop": "*error",
    "layers.layer.GeneralizedCostMask.get_cost": "inputs targets_mask",
    "layers.layer.GeneralizedCostMask.get_errors": "inputs targets_mask",
    "layers.layer.GeneralizedGANCost.get_cost": "inputs targets cost_type",
    "layers.layer.Layer.accumulates": "f",
    "layers.layer.Layer.set_params": "pdict",
    "layers.layer.Layer.set_states": "pdict",
    "layers.layer.ParameterLayer.accumulates": "f",
    "layers.layer.interpret_in_shape": "xshape",
    "layers.recurrent.BiBNRNN.bprop": "error alpha? beta?",
    "layers.recurrent.BiLSTM.bprop": "error alpha? beta?",
    "layers.recurrent.BiRNN.bprop": "error alpha? beta?",
    "layers.recurrent.DeepBiLSTM.__init__": "nout init init_inner? activation? gate_activation? reset_cells? depth?",
    "layers.recurrent.interpret_in_shape": "xshape",
    "transforms.activation.Logistic.bprop": "y",
    "util.compat.pickle_load": "filepath",
    "util.modeldesc.ModelDescription.__init__": "pdict",
    "util.modeldesc.ModelDescription.find_by_name": "layers layer_name",
    "util.modeldesc.ModelDescription.match": "o1 o2",
    "util.persist.load_class": "ctype",
    "util.yaml_parse.format_yaml_dict": "yamldict type_prefix?",
}
"""neon's arguments in its order; ``?``: it has a default there."""


def found(dotted: str) -> Any:
    """The function behind a dotted name of neon's, bound to its class where it belongs to that."""
    parts = dotted.split(".")
    cut = next((k for k, part in enumerate(parts) if part[0].isupper()), len(parts) - 1)
    module = importlib.import_module(".".join(["neonlike", *parts[:cut]]))
    return functools.reduce(getattr, parts[cut:], module)


@pytest.mark.parametrize("dotted", ARGUMENTS)
def test_arguments_have_neons_names_and_order(taking: None, dotted: str) -> None:
    names = [
        ("*" * (one.kind is one.VAR_POSITIONAL)) + name + "?" * (one.default is not one.empty)
        for name, one in inspect.signature(found(dotted)).parameters.items()
        if name != "self" and one.kind is not one.KEYWORD_ONLY
    ]
    wanted = ARGUMENTS[dotted].split()
    assert [name.rstrip("?") for name in names[: len(wanted)]] == [name.rstrip("?") for name in wanted]
    assert all(name.endswith("?") for name, needed in zip(names, wanted) if needed.endswith("?"))
    assert all(name.endswith("?") for name in names[len(wanted) :]), "what only ours has may be left out"


def test_every_translated_function_has_a_row() -> None:
    assert not set(calls.CALLS) - set(ARGUMENTS)


def test_names_positions_and_refusals_of_a_translated_function() -> None:
    def function(self: Any, ours: int, scale: float = 2.0, *, only: str = "x") -> tuple[Any, ...]:
        return ours, scale, only

    arguments = calls.taken("theirs:ours gone:- beta:0.0 scale=3.0")
    call = calls.translated(function, arguments, "Thing.function", bound=True)
    me = object()
    assert call(me, 1) == call(me, theirs=1) == call(me, ours=1) == (1, 3.0, "x")
    assert call(me, 1, "anything", 0, 5.0, only="y") == (1, 5.0, "y")
    assert call(me, 1, gone=3, beta=0.0, scale=4.0) == (1, 4.0, "x")
    with pytest.raises(ArgumentError, match=r"Thing.function: beta=1.5 has no effect here; leave it at 0.0"):
        call(me, 1, None, 1.5)
    with pytest.raises(TypeError, match="multiple values for argument 'ours'"):
        call(me, 1, ours=2)
    with pytest.raises(TypeError, match="unexpected keyword argument 'wrong'"):
        call(me, 1, wrong=2)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'ours'"):
        call(me)
    with pytest.raises(TypeError, match="takes from 2 to 3 positional arguments but 6 were given"):
        call(me, 1, 2, 0, 4, 5)
    assert str(inspect.signature(call)) == "(self: 'Any', theirs, gone=None, beta=0.0, scale=3.0, *, only: 'str' = 'x')"


def test_functions_are_as_they_were_without_the_alias(taking: None) -> None:
    class Own(LayerContainer):
        """A container of a program's own."""

    assert list(inspect.signature(Own.set_deltas).parameters) == ["self", "global_deltas"]
    calls.remove()
    assert list(inspect.signature(Own.set_deltas).parameters) == ["self", "delta_buffers"]
    assert list(inspect.signature(interpret_in_shape).parameters) == ["shape"]
    assert "bprop" not in vars(Encoder)
    calls.install()


def test_calls_of_tensors_and_op_trees(be: Backend, taking: None) -> None:
    t = be.zeros((2, 3))
    assert t.set(ary=np.ones((2, 3))) is t and t.get().sum() == 6
    assert t.dimension_reorder(new_order=(1, 0)).shape == (3, 2)
    tree = be.exp(t) + 1
    found_parts: list[Any] = []
    assert tree.traverse(stack=found_parts) is found_parts and found_parts[0] is t
    assert GradUtil.is_invalid(grad_op_tree=t * 1e6, be=be)
    assert OpTreeNode.list_to_optree(l=tree.optree_to_list(tree)).asnumpyarray()[0, 0] == tree.asnumpyarray()[0, 0]


def test_calls_as_in_neons_programs(be: Backend, taking: None) -> None:
    chain = Sequential([Linear(3, Constant(1)), Linear(2, Constant(1))])
    chain.configure(4)
    chain.propagate_parallelism(p="Data")
    chain.allocate()
    chain.allocate_deltas()
    chain.set_deltas(global_deltas=DeltasTree())
    assert found("layers.layer.interpret_in_shape")(xshape=(2, 3)) == (2, 3)
    cost = GeneralizedCostMask(CrossEntropyMulti())
    y, t, mask = be.array([[0.25] * 4] * 4), be.array(np.eye(4)), be.ones((1, 4))
    cost.initialize(chain)
    cost.get_cost(y, targets_mask=(t, mask))
    described = ModelDescription(pdict={"model": chain.get_description()})
    layers = described["model"]["config"]["layers"]
    name = chain.layers[1].name
    assert ModelDescription.find_by_name(layers=layers, layer_name=name) is layers[1]
    assert described.getlayer(name) is layers[1] and ModelDescription.match(o1=layers[0], o2=layers[0])
    assert DataTransform(Normalizer()).bprop() is None
    assert found("util.persist.load_class")(ctype="neon.layers.layer.Linear") is Linear


def test_coders_as_in_neons_programs(be: Backend, taking: None) -> None:
    encoder = Encoder([GRU(3, Gaussian(), activation=Tanh(), gate_activation=Logistic())])
    decoder = Decoder([GRU(3, Gaussian(), activation=Tanh(), gate_activation=Logistic())])
    for coder in (encoder, decoder):
        coder.configure((2, 5))
        coder.allocate()
        coder.allocate_deltas()
    x = be.array(np.random.default_rng(0).standard_normal((2, 20)))
    encoder.fprop(x)
    states = encoder.get_final_states()
    assert [state.shape for state in states] == [(3, 4)]
    y = decoder.fprop(x=x, inference=False, init_state_list=states)
    error = be.array(y.get())
    decoder.bprop(error, False, 1.0, 0.0)
    by_name = decoder.layers[0].dW.get()
    decoder.fprop(x, False, states)
    decoder.bprop(be.array(y.get()))
    assert np.array_equal(by_name, decoder.layers[0].dW.get())
    encoder.bprop(hidden_error_list=be.ones((3, 20)), inference=False)


# Attributes ---------------------------------------------------------------------------------------------------------


def test_steps_of_gates(be: Backend) -> None:
    for name, gates, buffer in (("LSTM", "ifog", "ifog_buffer"), ("GRU", ("r", "z", "hcan"), "rzhcan_buffer")):
        net = Alone(be, name)
        net.forward()
        for place, gate in enumerate(gates):
            rows = getattr(net.layer, buffer)[6 * place : 6 * (place + 1)].get()
            assert np.array_equal(np.hstack([step.get() for step in getattr(net.layer, gate)]), rows), gate
    assert LSTM(3, Gaussian(), activation=Tanh(), gate_activation=Logistic()).i is None
    W, b = net.layer.W_recur.get(), net.layer.b.get()
    parts = {"Wrz_recur": W[:12], "Whcan_recur": W[12:], "b_rz": b[:12], "b_hcan": b[12:]}
    assert all(np.array_equal(getattr(net.layer, name).get(), part) for name, part in parts.items())


@pytest.mark.parametrize("name", ["RecurrentSum", "RecurrentMean", "RecurrentLast"])
def test_inputs_of_reductions_of_steps(be: Backend, name: str) -> None:
    net = Alone(be, name)
    assert net.layer.x is None and net.layer.xs is None
    net.forward()
    assert net.layer.x is net.x
    assert [step.tolist() for step in net.layer.xs] == [part.tolist() for part in np.hsplit(net.x.get(), 5)]


def test_sizes_and_names_of_layers(be: Backend) -> None:
    net = Alone(be, "BatchNorm")
    assert (net.layer.nin, net.layer.nsteps) == (6, 1)
    for layer in (Activation(Tanh()), Dropout()):
        assert layer.nout is None and layer.configure((3, 2)).nout == 3
    bias = Bias(Constant(1))
    assert bias.bias_size is None
    bias.configure(5)
    bias.allocate()
    assert bias.fprop(be.ones((5, 4))) is bias.y and bias.bias_size == 5
    assert Sequential([Linear(3, Constant(1))]).nest_deltas is True
    assert PrecisionRecall(2, epsilon=0.5).eps == 0.5
    layer: Any = Activation(Tanh())
    assert layer.set_params({}) is layer.set_states({}) is None


def test_functions_of_costs(be: Backend) -> None:
    y, t = be.array([[0.5, -2.0], [3.0, 0.25]]), be.array([[0.0, 1.0], [1.0, 0.0]])
    for cost in (SumSquared(), MeanSquared(), SmoothL1Loss(), SquareHingeLoss()):
        assert np.array_equal(cost.func(y, t).asnumpyarray(), cost(y, t).asnumpyarray())
        assert np.array_equal(cost.funcgrad(y, t).asnumpyarray(), cost.bprop(y, t).asnumpyarray())
    smooth, hinge = SmoothL1Loss(), SquareHingeLoss()
    assert smooth.smoothL1(y - t).asnumpyarray().tolist() == [[0.125, 2.5], [1.5, 0.03125]]
    assert smooth.smoothL1grad(y - t).asnumpyarray().tolist() == [[0.5, -1.0], [1.0, 0.25]]
    assert np.array_equal(hinge.squarehinge(y, t).asnumpyarray(), hinge(y, t).asnumpyarray())
    assert np.array_equal(hinge.squarehingegrad(y, t).asnumpyarray(), hinge.bprop(y, t).asnumpyarray())


def test_elements_without_an_axis_and_arrays_by_neons_name(be: Backend) -> None:
    t = be.array([[1.0, 2.0], [3.0, 4.0]])
    assert t.take([3, 0]).tolist() == t.take(indices=[3, 0], axis=None).tolist() == [[4.0], [1.0]]
    assert t.take([0, 0], out=be.empty((2, 1))).tolist() == [[1.0], [1.0]]
    assert be.empty_like(ary=t).shape == be.zeros_like(ary=t).shape == (2, 2)


# What is not there --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dotted", ABSENT)
def test_what_is_absent_is_absent(dotted: str) -> None:
    with pytest.raises((AttributeError, ImportError)):
        found(dotted)
    assert len(ABSENT[dotted].split()) > 3, "a reason"


def ready_table() -> LookupTable:
    table = LookupTable(5, 2, Gaussian())
    table.configure((3, 1))
    table.allocate()
    return table


@pytest.mark.parametrize("cls", ATTRIBUTES)
def test_what_objects_lack_is_lacking(be: Backend, cls: str) -> None:
    chain = [Linear(2, Constant(1))]
    cost = GeneralizedCost(SumSquared())
    objects: dict[str, Any] = {
        "Callbacks": lambda: Callbacks(Model(chain), progress_bar=False),
        "Encoder": lambda: Encoder(chain),
        "ProgressBarCallback": lambda: ProgressBarCallback(),
        "Benchmark": lambda: Benchmark(Model(chain)),
        "LookupTable": lambda: ready_table(),
        "ArrayIterator": lambda: ArrayIterator(np.zeros((8, 2), np.float32)),
        "GeneralizedCost": lambda: cost,
        "Model": lambda: Model(chain),
        "Multicost": lambda: Multicost([cost]),
        "Sequential": lambda: Sequential(chain),
    }
    made = objects[cls]() if cls in objects else Alone(be, cls).layer
    assert type(made).__name__ == cls
    for name, reason in ATTRIBUTES[cls].items():
        assert not hasattr(made, name) and len(reason.split()) > 3, name


def test_engine_objects_of_layers_without_one(be: Backend) -> None:
    for name in ("BatchNorm", "Activation tanh"):
        assert Alone(be, name).layer.nglayer is None
    for name in ("Convolution", "Pooling", "LRN"):
        assert Alone(be, name).layer.nglayer is not None


@pytest.mark.parametrize("dotted", OTHERWISE)
def test_what_takes_other_arguments_is_there(dotted: str) -> None:
    contract.install()
    there = found(dotted) if "." in dotted else getattr(importlib.import_module("neonlike"), dotted)
    assert callable(there) or isinstance(there, property)
