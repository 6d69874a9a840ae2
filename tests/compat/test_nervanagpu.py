"""Programs for nervanagpu, neon's GPU library before it had ``gen_backend``, run by the alias."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from neonlike import settings
from neonlike.backends.layer_gpu import DataLayer, FullLayer
from neonlike.compat.cuda_events import Context, Event
from neonlike.errors import ArgumentError
from tests.support.gpu.gpu_env import run_on_gpu

NETWORK = """
import numpy as np
import pycuda.autoinit
import pycuda.driver as drv
from nervanagpu import NervanaGPU
from nervanagpu.layers import ConvLayer, DataLayer, FullLayer, Inception, Layer, PoolLayer
import nervanagpu.nervanagpu

ng = NervanaGPU(bench=False, rng_seed=1)
conv3 = {"R": 3, "S": 3, "pad_h": 1, "pad_w": 1, "relu": True}
network = [
    {"layer": DataLayer, "N": 32, "C": 3, "H": 8, "W": 8},
    {"layer": ConvLayer, "common": conv3, "K": 16},
    {"layer": PoolLayer, "op": "max", "R": 2, "S": 2, "str_h": 2, "str_w": 2},
    {"layer": Inception, "partitions": [
        [{"layer": ConvLayer, "common": conv3, "K": 16}],
        [{"layer": ConvLayer, "K": 16, "R": 1, "S": 1}, {"layer": ConvLayer, "common": conv3, "K": 16}]]},
    {"layer": FullLayer, "nOut": 16, "relu": True},
]
layers = []
for conf in network:
    layers.append(Layer.create(ng, conf, layers[-1] if layers else None, np.float32))
for before, layer in zip([None] + layers, layers):
    layer.init_activations()
    layer.init_weights()
    if before is not None:
        layer.connect(before)
        layer.init_deltas()
layers[0].init_data(np.random.RandomState(0).randn(3 * 8 * 8, 32))
start, end = drv.Event(), drv.Event()
start.record()
for layer in layers:
    layer.fprop()
error = ng.array(np.ones((16, 32)), dtype=np.float32)
for layer in layers[:0:-1]:
    error = layer.bprop(error)
    layer.grad_descent()
end.record()
end.synchronize()
assert end.time_since(start) > 0
assert layers[-1].get_activation_max() > 0 and layers[1].get_update_max() > 0

b, c = ng.zeros((8, 32), dtype=np.float32), ng.empty((16, 32), dtype=np.float32)
a = ng.array(np.arange(128).reshape(16, 8), dtype=np.float32)
b[:] = 2
ng.dot(a, b, c)
assert np.allclose(c.get(), a.get().dot(b.get()))

conv = ng.conv_layer(np.float32, 32, 4, 16, 1, 5, 5, 1, 3, 3, 0, 1, 1, 1, 1, 1)
I, F = ng.ones(conv.dimI, dtype=np.float32), ng.ones(conv.dimF, dtype=np.float32)
O, B, U = (ng.empty(size, dtype=np.float32) for size in (conv.dimO, conv.dimI, conv.dimF))
ng.fprop_conv(conv, I, F, O, alpha=2.0, relu=True, repeat=2)
assert O.get().max() == 2 * 4 * 9
ng.bprop_conv(conv, F, O, B, alpha=1.0, repeat=1)
ng.update_conv(conv, I, O, U, alpha=1.0, repeat=1)
assert B.get().max() > 0 and U.get().max() > 0
print(type(ng).__name__)
"""


def run(folder: Path, backend: str) -> subprocess.CompletedProcess[str]:
    (folder / "net.py").write_text(NETWORK)
    command = [sys.executable, "-m", "neonlike.compat", "net.py"]
    environment = settings.for_a_child(NEONLIKE_BACKEND=backend)
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment)


def test_a_network_runs_on_the_cpu(tmp_path: Path) -> None:
    result = run(tmp_path, "cpu")
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == ["NervanaCPU"]


@pytest.mark.engines("gpu", batch_size=16)
@pytest.mark.usefixtures("gpu_driver")
def test_a_network_runs_on_the_gpu() -> None:
    result = run_on_gpu("import neonlike.compat.neon\n" + NETWORK)
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == ["NervanaGPU"]
    assert "fprop_conv" in result.stderr, "with repeat, the time of a run is told"


@pytest.mark.parametrize(("backend", "answered"), [("cpu", True), ("gpu", False), ("", False)])
def test_names_of_pycuda_are_answered_on_the_cpu_alone(tmp_path: Path, backend: str, answered: bool) -> None:
    code = (
        "from neonlike.compat.neon import AliasFinder\n"
        "find = lambda name: AliasFinder().find_spec(name, None) is not None\n"
        "print({find('pycuda' + end) for end in ('', '.driver', '.autoinit', '.autoprimaryctx')})\n"
        "assert find('nervanagpu.layers') and not find('pycuda.unicorns') and not find('nervanagpu.unicorns')\n"
    )
    environment = settings.for_a_child(NEONLIKE_BACKEND=backend)
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=environment)
    assert (result.stdout, result.stderr) == (f"{{{answered}}}\n", "")


def test_the_stand_in_is_no_gpu(tmp_path: Path) -> None:
    code = "import neonlike.compat.neon\nfrom neon.backends import gen_backend\ngen_backend('gpu')"
    command = [sys.executable, "-c", code]
    environment = settings.for_a_child(NEONLIKE_BACKEND="cpu")
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=environment)
    assert "switched off by NEONLIKE_BACKEND=cpu" in result.stderr


def test_events_have_times() -> None:
    start, end = Event(), Event()
    with pytest.raises(RuntimeError, match="call record"):
        end.time_since(start)
    start.record()
    end.record().synchronize()
    assert end.query() and end.time_since(start) == start.time_till(end) >= 0
    assert Context.get_current().get_device().name() == "CPU"


@pytest.mark.engines("numpy", "c")
def test_layers_of_other_sizes_do_not_connect(be) -> None:
    data = DataLayer(be, np.float32, 4, 3)
    with pytest.raises(ArgumentError, match="sizes that agree"):
        FullLayer(be, np.float32, 4, 5, 2).connect(data)
