"""Backends: making and choosing; neon's attributes and signatures."""

from __future__ import annotations

import importlib
import inspect
import re
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from neonlike import NervanaObject
from neonlike.backends import Backend, NervanaCPU, gen_backend
from neonlike.backends.abstract_backend import AbstractBackend
from neonlike.backends.backend import Block, OpCollection, OpTreeNode, Tensor
from neonlike.backends.family import Family
from neonlike.backends.nervanacpu import CPUTensor
from neonlike.backends.nervanamkl import MKLTensor, NervanaMKL
from neonlike.backends.util.check_mkl import get_mkl_lib
from neonlike.errors import ArgumentError, BackendUnavailable, DTypeError, NeonlikeError, UnknownArgument
from neonlike.optree.dialect import neon_dialect
from tests.support.engines import BACKEND, current_backend, new_backend, ready

pytestmark = [pytest.mark.backend, pytest.mark.usefixtures("no_backend_left")]


# gen_backend and the registry -----------------------------------------------------------------------------------------


def test_gen_backend_installs_the_backend_with_what_it_was_given() -> None:
    be = gen_backend("cpu", rng_seed=3, datatype=np.float16, batch_size=32, stochastic_round=True, device_id=1)
    assert NervanaObject.be is be
    assert isinstance(be, NervanaCPU)
    assert isinstance(be, Backend)
    assert isinstance(be, AbstractBackend)
    assert (be.default_dtype, be.bsz, be.rng_seed, be.deterministic) == (np.float16, 32, 3, True)
    assert be.empty((1, 1)).dtype == np.float16
    assert gen_backend().deterministic is False


def test_gen_backend_takes_neons_arguments_in_neons_order() -> None:
    names = (
        "backend rng_seed datatype batch_size stochastic_round device_id max_devices compat_mode "
        "deterministic_update deterministic"
    )
    assert list(inspect.signature(gen_backend).parameters)[:10] == names.split()
    be = gen_backend("cpu", 1, np.float64, 8, False, 0, 1, "caffe")
    assert (be.default_dtype, be.bsz, be.compat_mode) == (np.float64, 8, "caffe")


def test_the_next_backend_closes_the_one_before() -> None:
    first = current_backend()
    second = current_backend()
    assert first.closed
    assert not second.closed
    assert NervanaObject.be is second


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"backend": "abacus"}, BackendUnavailable, "'cpu',.* 'mkl'"),
        ({"backend": "abacus"}, ValueError, "abacus"),
        ({"datatype": np.int32}, ValueError, "int32"),
        ({"datatype": "nothing"}, ValueError, "float32"),
        ({"datatype": None}, DTypeError, "None"),
        ({"datatype": np.complex64}, DTypeError, "complex64"),
        ({"compat_mode": "torch"}, ValueError, "caffe"),
        ({"rng_seed": -1}, ArgumentError, "seed"),
        ({"rng_seed": "x"}, ArgumentError, "seed"),
        ({"nonsense": 1}, TypeError, "nonsense"),
        ({"batchsize": 1}, UnknownArgument, "no argument 'batchsize'; did you mean .* The arguments are"),
        ({"batch_size": "x"}, ArgumentError, "batch_size"),
        ({"device_id": "x"}, ArgumentError, "device_id must be the number of a GPU, counted from 0, got 'x'"),
        ({"device_id": -1}, ArgumentError, "device_id"),
        ({"max_devices": "a"}, ArgumentError, "max_devices must be a number of GPUs"),
        ({"stochastic_round": "x"}, ArgumentError, "stochastic_round must be True, False or a number of mantissa bits"),
        ({"rng_seed": 1.5}, ArgumentError, "rng_seed"),
        ({"rng_seed": 2**32}, ArgumentError, "rng_seed"),
        ({"bench": "x.xml"}, ArgumentError, "bench"),
    ],
)
def test_a_backend_that_cannot_be_made_leaves_the_one_there_is(
    arguments: Any, error: type[Exception], words: str
) -> None:
    before = current_backend()
    with pytest.raises(error, match=words) as caught:
        gen_backend(**({"backend": BACKEND} | arguments))
    assert isinstance(caught.value, NeonlikeError)
    assert NervanaObject.be is before
    assert not before.closed


def test_unknown_arguments_come_with_those_there_are() -> None:
    with pytest.raises(UnknownArgument) as caught:
        gen_backend(BACKEND, batchsize=1)
    message = str(caught.value)
    assert message.startswith("gen_backend: there is no argument 'batchsize'; did you mean batch_size")
    for name in ("default_dtype", "num_devices"):  # of the backend's own constructor
        with pytest.raises(UnknownArgument, match=name):
            gen_backend(BACKEND, **{name: None})
    for name in ("rng_seed", "datatype", "batch_size", "bench", "hist_bins"):
        assert re.search(rf"\b{name}\b", message)


def test_attributes_that_are_close_are_named(be: Backend) -> None:
    with pytest.raises(AttributeError, match=r"attribute 'fprop_covn'; did you mean .*fprop_conv") as caught:
        be.fprop_covn  # noqa: B018
    assert isinstance(caught.value, NeonlikeError)
    with pytest.raises(AttributeError, match=r"'xyzzyxyzzy'$"):
        be.xyzzyxyzzy  # noqa: B018
    assert not hasattr(be, "fprop_covn") and getattr(be, "fprop_covn", 3) == 3
    assert hasattr(be, "fprop_conv")


def test_nothing_is_looked_for_when_an_attribute_is_only_asked_for(
    be: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(type(be), "_public_names", lambda self: asked.append("names") or [])
    assert not hasattr(be, "fprop_covn")
    assert asked == []


def test_assignments_probe_no_missing_attribute(be: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def note(self: Any, name: str) -> Any:
        asked.append(name)
        raise AttributeError(name)

    a, out = be.ones((3, 4)), be.empty((3, 4))
    monkeypatch.setattr(Family, "__getattr__", note)
    for _ in range(3):
        out[:] = be.sig(a * 2 + 1) + be.sum(a, axis=1)
        be.assign_many([(out, out + 1)])
    assert asked == []


def test_deprecated_arguments_are_warned_about_and_ignored(caplog: pytest.LogCaptureFixture) -> None:
    be = current_backend(deterministic_update=True, deterministic=True)
    assert "deprecated" in caplog.text
    assert be.deterministic is False


def test_the_current_backend_is_closed_when_the_interpreter_ends() -> None:
    ready()
    script = (
        "import atexit\n"
        "from neonlike.backends import gen_backend\n"
        "made = []\n"
        "atexit.register(lambda: print('closed', made[0].closed, made[1].closed))\n"  # runs after gen_backend's hook
        f"made += [gen_backend({BACKEND!r}), gen_backend({BACKEND!r})]\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "closed True True"


def test_registry() -> None:
    assert {"cpu", "mkl"} <= set(Backend.backend_choices())
    assert Backend.backend_choices() == sorted({*Backend.backends, "gpu"})
    assert Backend.backends["cpu"] is NervanaCPU
    assert (NervanaCPU.backend_name, NervanaMKL.backend_name) == ("cpu", "mkl")
    made = Backend.allocate_backend("mkl", rng_seed=1, default_dtype=np.float64)
    assert isinstance(made, NervanaMKL)
    assert isinstance(made.zeros((1, 1)), MKLTensor)
    assert gen_backend("mkl").is_mkl() is True
    assert new_backend().is_mkl() is False
    assert get_mkl_lib(device_id=None, verbose=True) == 0  # CPU semantics under MKL's name


def test_in_neons_dialect_the_gpu_is_a_choice_only_where_it_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise BackendUnavailable("no driver")

    monkeypatch.setitem(Backend.loaders, "toy", refuse)
    monkeypatch.setitem(Backend.loaders, "gpu", lambda: None)
    assert {"toy", "gpu"} <= set(Backend.backend_choices())
    with neon_dialect():
        assert "toy" not in Backend.backend_choices()
        assert "gpu" in Backend.backend_choices()


def test_a_class_with_a_name_registers_itself() -> None:
    class Toy(NervanaCPU):
        backend_name = "toy"

    try:
        assert isinstance(gen_backend("toy"), Toy)
    finally:
        del Backend.backends["toy"]


# Attributes -----------------------------------------------------------------------------------------------------------


def test_attributes_callers_read_and_write(be: Backend) -> None:
    assert new_backend().bsz is None
    assert (be.bsz, be.default_dtype, be.device_id, be.compat_mode) == (128, np.float32, 0, None)
    kind = {"cpu": (0, False, CPUTensor), "gpu": (1, True, type(be.ones((1, 1))))}[BACKEND]
    assert (be.device_type, be.use_pinned_mem, be.tensor_cls) == kind
    assert isinstance(be.rng, np.random.RandomState)
    assert be.init_rng_state[0] == "MT19937"
    be.enable_winograd = 4
    with neon_dialect():
        be.batch_size = 7
    assert be.iobuf(3).shape == (3, 128)
    be.bsz = 5
    assert be.iobuf(3).shape == (3, 5)
    assert not hasattr(be, "no_such_thing")
    with pytest.raises(AttributeError, match="no_such_thing"):
        be.no_such_thing  # noqa: B018


def test_iobuf_needs_a_batch_size() -> None:
    with pytest.raises(ValueError, match="bsz"):
        new_backend().iobuf(3)


def test_caffe_mode(be: Backend) -> None:
    assert be.check_caffe_compat() is False
    be.set_caffe_compat()
    assert be.check_caffe_compat() is True
    assert current_backend(compat_mode="caffe").check_caffe_compat() is True


def test_hooks_accept_anything_and_do_nothing(be: Backend) -> None:
    t = be.ones((2, 2))
    be.begin(Block.fprop, 1)
    be.end(Block.update, "anything")
    assert [Block.epoch, Block.minibatch, Block.fprop, Block.bprop, Block.update] == [0, 1, 2, 3, 4]
    for made in (
        be.distribute_data(t, "Data"), be.revert_tensor(t), be.convert_data(t, None), be.clean_data(t, None),
        be.relu_layer(), be.batchnorm_layer((1, 2)), be.mergesum_layer(2), be.mergebroadcast_layer(2),
        be.bibnrnn_layer(t, t, t, t, 2, 3),
    ):  # fmt: skip
        assert made is None
    assert be.allocate_new_deltas(t, (2,), None) is t
    assert t.get().tolist() == [[1, 1], [1, 1]]

    class Layer:
        given: Any = None

        def allocate(self, shared_outputs: Any = None) -> None:
            self.given = shared_outputs

    layer = Layer()
    be.allocate_new_outputs(layer, t)
    assert layer.given is t


def test_time_marks_are_milliseconds(be: Backend) -> None:
    start, end = be.init_mark(), be.init_mark()
    assert start is not end
    be.record_mark(start)
    be.record_mark(end)
    be.synchronize_mark(end)
    assert be.get_time(start, end) >= 0


@pytest.mark.cpu_only("what only one of CPU and GPU has")
def test_the_times_of_marks_can_be_set(be: Backend) -> None:
    start, end = be.init_mark(), be.init_mark()
    start["time"], end["time"] = 1.0, 1.5
    assert be.get_time(start, end) == 500


def test_execute_returns_what_is_already_computed(be: Backend) -> None:
    t = be.ones((2, 2))
    assert be.execute(OpTreeNode.build("assign", t, t + 1)) is t
    assert t.get().tolist() == [[2, 2], [2, 2]]
    for nothing in (t + 1, 3, None):
        with pytest.raises(AssertionError, match="execute"):
            be.execute(nothing)


def test_op_collection_names_neons_ops() -> None:
    neon = {
        "zero_operand_ops": "rand onehot",
        "unary_ops": (
            "finite neg abs sgn sqrt sqr exp log exp2 log2 sig sig2 tanh tanh2 transpose safelog rint binarize"
        ),
        "binary_ops": "assign add sub mul div eq ne lt le gt ge pow minimum maximum dot shift",
        "reduction_ops": "sum max min argmax argmin",
    }
    for name, ops in neon.items():
        assert set(ops.split()) <= getattr(OpCollection, name)
    assert OpCollection.float_ops >= OpCollection.unary_ops | OpCollection.binary_ops
    assert OpCollection.ew_ops == OpCollection.float_ops - {"dot", "transpose"}


def test_all_own_errors_share_a_base() -> None:
    with pytest.raises(NeonlikeError):
        gen_backend("abacus")
    assert issubclass(Tensor, object)


@pytest.mark.parametrize("batch_size", ["x", -3, 2.5, True])
def test_a_batch_size_is_a_count(batch_size: object) -> None:
    with pytest.raises(ArgumentError, match="batch_size must be a whole number"):
        current_backend(batch_size=batch_size)


def test_without_pycuda_the_gpu_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pycuda", None)  # an import of it fails
    with pytest.raises(BackendUnavailable, match=r"needs PyCUDA.*pip install neonlike\[gpu\].*neonlike doctor"):
        gen_backend("gpu")
    with pytest.raises(ValueError, match=r"choose one of \['cpu', 'mkl'\]"):  # a name that is not registered, for neon
        gen_backend("gpu")
    module = importlib.import_module("neonlike.backends.nervanagpu")
    with pytest.raises(ImportError, match="needs PyCUDA"):
        module.NervanaGPU  # noqa: B018
    assert not hasattr(module, "NervanaTPU")
