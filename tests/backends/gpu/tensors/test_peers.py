"""Memory shared with CuPy, PyTorch and JAX: needs a real GPU and the library, and is skipped without."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytestmark = [pytest.mark.engines("gpu", batch_size=16), pytest.mark.usefixtures("gpu_driver")]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "int32", "uint8", "int64"])
def test_torch(be: Any, dtype: str) -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("PyTorch sees no GPU")
    t = be.array(np.arange(12).reshape(3, 4), dtype=dtype)
    for view in (t, t.T, t[:, ::2]):
        theirs = torch.from_dlpack(view)
        assert (theirs.data_ptr(), tuple(theirs.shape), theirs.stride()) == (view.ptr, view.shape, view.strides)
        theirs += 1
    assert t.get().tolist() == (np.arange(12).reshape(3, 4) + 2 + np.array([1, 0, 1, 0])).tolist()
    other = torch.ones(5, 6, dtype=theirs.dtype, device="cuda")
    ours = be.from_dlpack(other.T)
    ours[:] = ours * 3
    assert other.sum().item() == 90
    if dtype != "bfloat16":  # for which __cuda_array_interface__ has no name
        assert be.wrap(other).ptr == other.data_ptr()


def test_cupy(be: Any) -> None:
    cupy = pytest.importorskip("cupy")
    try:
        cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError:
        pytest.skip("CuPy sees no GPU")
    t = be.array(np.arange(12.0).reshape(3, 4))
    for theirs in (cupy.asarray(t), cupy.from_dlpack(t)):
        assert theirs.data.ptr == t.ptr
        theirs *= 2
    assert t.get().tolist() == (4 * np.arange(12.0).reshape(3, 4)).tolist()
    other = cupy.ones((4, 5), cupy.float32)
    for ours in (be.wrap(other), be.from_dlpack(other)):
        ours[:] = ours + 1
    assert float(other.sum()) == 60


def test_jax(be: Any) -> None:
    jax = pytest.importorskip("jax")
    if jax.default_backend() != "gpu":
        pytest.skip("JAX sees no GPU")
    t = be.array(np.arange(12.0).reshape(3, 4))
    theirs = jax.dlpack.from_dlpack(t)
    assert theirs.unsafe_buffer_pointer() == t.ptr
    assert float(theirs.sum()) == 66
    ours = be.from_dlpack(jax.numpy.ones((4, 5)))
    assert ours.get().sum() == 20
