"""Gradients that are sent in 16 bits: rounded once for the message, added in float32, the same on every rank."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.distributed.compression import message_dtype
from neonlike.distributed.gradients import RankSum
from neonlike.errors import ArgumentError
from tests.support.ranks import OneOf, run_ranks

PROGRAM = """
import sys
import numpy as np
import ml_dtypes
from neonlike import autograd as ag, distributed
from neonlike.backends import gen_backend
from neonlike.optimizers import GradientDescentMomentum, LossScaling

be = gen_backend(sys.argv[1], batch_size=12, rng_seed=3)
rng = np.random.default_rng(5)
LARGE, SMALL = (131, 200), (3, 4)

class Layer:
    def __init__(self, dtype):
        self.pairs = [(be.zeros(shape, dtype=dtype), be.empty(shape, dtype=dtype)) for shape in (LARGE, SMALL)]
        self.states = [[], []]

    def get_params(self):
        return list(zip(self.pairs, self.states))

def gradients():
    # far smaller ones on rank 0: a sum rounded to 16 bits would lose them
    return [[rng.normal(size=shape).astype("f4") * (1e-3 if rank == 0 else 2) for shape in (LARGE, SMALL)]
            for rank in range(be.num_ranks)]

def expected(given, place, dtype):
    total = 0
    for of_rank in given:
        one = of_rank[place]
        total = total + (one.astype(dtype) if place == 0 else one).astype("f4")
    return total

def stepped(optimizer, dtype, given):
    layer = Layer(dtype)
    for (_, grad), values in zip(layer.pairs, given[be.rank]):
        grad[:] = values
    factor = float(optimizer.scale_errors(be.ones((1, 1))).get()[0, 0]) if hasattr(optimizer, "scale_errors") else 1
    optimizer.optimize([layer], 0)
    values = [param.get() for param, _ in layer.pairs]
    told = be.ranks.tell([value.tobytes() for value in values])
    assert all(other == told[0] for other in told), "ranks differ"
    return layer, values

for name in "bfloat16", "float16":
    be.gradient_compression = name
    dtype = np.dtype(getattr(ml_dtypes, name, np.float16))
    given = gradients()
    found = {}
    for shared in True, False:
        be.shard_optimizer = shared
        layer, values = stepped(GradientDescentMomentum(12.0, 0, gradient_clip_norm=1e9), "f4", given)
        for place in 0, 1:
            wanted = -expected(given, place, dtype)
            assert np.abs(values[place] - wanted).max() < 4e-7 * np.abs(wanted).max(), (name, shared, place)
        if shared and be.tensor_cls.live_host:
            assert np.array_equal(layer.pairs[0][1].get(), given[be.rank][0]), "rounded for the message only"
        found[shared] = values
    assert np.array_equal(found[True][0], found[False][0]), "shared updates"

    p = [ag.param(np.zeros(shape)) for shape in (LARGE, SMALL)]
    for one, values in zip(p, given[be.rank]):
        (ag.const(values) * one).sum().backprop()
    distributed.average_gradients(p)
    for place in 0, 1:
        wanted = expected(given, place, dtype) / be.num_ranks
        assert np.abs(p[place].partial_derivative.get() - wanted).max() < 1e-6, (name, "mean")

    # 16 bits beyond the range of float16 are infinite for all, and the step is skipped
    given[-1][0][7, 7] = 1e6
    scaling = LossScaling(GradientDescentMomentum(0.1, 0), scale=2.0)
    _, values = stepped(scaling, "f4", given)
    assert scaling.skipped_steps == (name == "float16"), scaling.skipped_steps
    assert (not values[0].any()) == (name == "float16")

# without compression, too, a sum may be infinite in float16
be.gradient_compression = None
for of_rank in given:
    of_rank[0][7, 7] = of_rank[1][1, 1] = 6e4
scaling = LossScaling(GradientDescentMomentum(0.1, 0), scale=2.0)
stepped(scaling, "f2", given)
assert scaling.skipped_steps == 1
t = be.array([[6e4]], dtype="f2")
assert np.isinf(be.allreduce(t).get()).all()
print("equal")
"""


@pytest.mark.parametrize("ranks", [2, 3])
def test_gradients_are_rounded_once(ranks: int) -> None:
    done = run_ranks(ranks, PROGRAM, "cpu", timeout=120, PYTHONWARNINGS="error::RuntimeWarning")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "equal\n"


@pytest.mark.gpu
def test_gradients_of_gpus_are_rounded_once(gpu_driver: Any) -> None:
    """Through the host; NCCL adds in 16 bits."""
    done = run_ranks(2, PROGRAM, "gpu", timeout=240, CUEMU_DEVICES="2", CUEMU_THREADS="1", NEONLIKE_NCCL="none")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "equal\n"


class Doubles:
    """Links between two devices with the same values."""

    def __init__(self) -> None:
        self.dtypes: list[str] = []

    def reduces(self, dtype: Any) -> bool:
        """All are."""
        return True

    def reduce(self, tensors: list[Any], op: str = "sum") -> None:
        """Double each."""
        self.dtypes += [tensor.dtype.name for tensor in tensors]
        for tensor in tensors:
            tensor[:] = tensor * 2


@pytest.mark.cpu_only("links are those of the test")
def test_linked_devices_add_in_16_bits(be: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    links = Doubles()
    monkeypatch.setattr(type(be), "links", lambda backend: links)
    wide, narrow = be.array([[1.001]]), be.array([[1.5]], dtype="f2")
    total = RankSum(OneOf(0, 2), [wide, narrow], compression="bfloat16")
    total()
    assert links.dtypes == ["bfloat16", "float16"] and total.nbytes == 4
    assert wide.item() == 2 and narrow.item() == 3


def test_settings(be: Backend) -> None:
    assert be.gradient_compression is None
    be.gradient_compression = np.float16
    assert be.gradient_compression == "float16"
    be.gradient_compression = None
    assert be.gradient_compression is None
    for wrong in "float32", "int16", 16, "nothing":
        with pytest.raises(ArgumentError, match=r"gradient_compression: got .*; expected None, float16 or bfloat16"):
            message_dtype(wrong)
