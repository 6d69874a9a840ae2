"""The cuBLAS library on a GPU: finding it, both bindings, its refusals, and the end of the process."""

from __future__ import annotations

import importlib
import threading
from typing import Any

import numpy as np
import pytest

from neonlike.backends import cleanup_backend, gen_backend
from neonlike.errors import ArgumentError, DeviceError, DeviceLost, DeviceMemoryError
from neonlike.logger import logger
from tests.support.gpu.gpu_env import run_on_gpu

pytestmark = [pytest.mark.engines("gpu", batch_size=16), pytest.mark.usefixtures("gpu_driver")]


def cublas() -> Any:
    """The module, which imports PyCUDA."""
    return importlib.import_module("neonlike.backends.gpu.products.cublas")


@pytest.fixture
def other_library(monkeypatch: pytest.MonkeyPatch) -> Any:
    """``other_library(setting)``: a backend that looks for cuBLAS as if none had been found yet."""
    module, devices = cublas(), set()
    lasting = module._handles
    monkeypatch.setattr(module, "_handles", {})
    module._say_once.cache_clear()

    def make(setting: str) -> Any:
        monkeypatch.setenv(module.SETTING, setting)
        be = gen_backend("gpu", rng_seed=0, batch_size=16)
        devices.add(be.device)
        return be

    yield make
    cleanup_backend()
    for device in devices:  # captures of other tests are to prepare handles that last
        prepares = device.capture.prepares
        prepares[:] = [prepare for prepare in prepares if prepare.__self__ in lasting.values()]
    module._say_once.cache_clear()


@pytest.fixture(params=["skcuda", "direct"])
def either(request: pytest.FixtureRequest, other_library: Any) -> Any:
    """A backend with each binding of the library."""
    if request.param == "skcuda":
        be = other_library("")
        module, reason = cublas().import_skcuda()
        if module is None:
            pytest.skip(f"scikit-cuda cannot be imported: {reason}")
        assert isinstance(be.products.blas.handle.binding, cublas().SkcudaBinding)
    else:
        be = other_library("direct")
        assert type(be.products.blas.handle.binding) is cublas().Binding
    return be


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Lines of the log: "level: text"."""
    lines: list[str] = []
    for level in ("info", "warning"):
        monkeypatch.setattr(logger, level, lambda text, *args, _level=level: lines.append(f"{_level}: {text % args}"))
    return lines


def multiply(be: Any, rng: np.random.Generator) -> None:
    """Products of each float dtype, transposed and not, and of stacks, against NumPy."""
    for dtype, tolerance in (("float16", 1e-2), ("float32", 1e-5), ("float64", 1e-13)):
        hosts = [rng.normal(size=shape).astype(dtype) for shape in ((6, 5), (5, 7), (6, 7), (3, 5, 6), (3, 6, 7))]
        a, b, c, stack, many = (be.array(host, dtype=dtype) for host in hosts)
        wanted = 2 * (hosts[0].astype(np.float64) @ hosts[1]) + 0.5 * hosts[2]
        be.compound_dot(a, b, c, 2.0, 0.5)
        np.testing.assert_allclose(c.get(), wanted, atol=tolerance)
        turned = be.empty((7, 6), dtype=dtype)
        be.compound_dot(b.T, a.T, turned)
        np.testing.assert_allclose(turned.get(), (hosts[0].astype(np.float64) @ hosts[1]).T, atol=tolerance)
        be.batched_dot(stack.permuted((0, 2, 1)), b, many)
        np.testing.assert_allclose(
            many.get(), hosts[3].transpose(0, 2, 1).astype(np.float64) @ hosts[1], atol=tolerance
        )


# Bindings


def test_each_binding(either: Any, rng: np.random.Generator) -> None:
    handle = either.products.blas.handle
    assert handle.version >= 110000 and either.cublas_handle == handle.value != 0
    stream = cublas().POINTER()
    assert not handle.binding.function("cublasGetStream_v2", *(cublas().POINTER,) * 2)(
        handle.value, cublas().ctypes.byref(stream)
    )
    assert stream.value == either.stream.handle
    multiply(either, rng)
    handle.close()
    assert not handle.value
    handle.close()


def test_refusals_have_a_status_with_each_binding(either: Any) -> None:
    binding = either.products.blas.handle.binding
    with pytest.raises(cublas().Refused, match=r"CUBLAS_STATUS_NOT_INITIALIZED.*doctor") as caught:
        binding.set_stream(0, 0)
    assert caught.value.status == 1


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ModuleNotFoundError("No module named 'skcuda'", name="skcuda"), "No module named 'skcuda'"),
        (ModuleNotFoundError("No module named 'pkg_resources'", name="pkg_resources"), 'pip install "setuptools<81"'),
        (OSError("cublas library not found"), "cublas library not found"),
        (RuntimeError(), "RuntimeError"),
    ],
    ids=["missing", "pkg_resources", "library", "other"],
)
def test_without_scikit_cuda(
    other_library: Any,
    rng: np.random.Generator,
    monkeypatch: pytest.MonkeyPatch,
    said: list[str],
    error: Any,
    words: str,
) -> None:
    module = cublas()

    def refuse(name: str) -> Any:
        assert name == "skcuda.cublas"
        raise error

    be = other_library("")
    monkeypatch.setattr(module.importlib, "import_module", refuse)
    multiply(be, rng)
    assert type(be.products.blas.handle.binding) is module.Binding
    (line,) = [line for line in said if "scikit-cuda" in line]
    assert line.startswith("info: scikit-cuda cannot be imported (") and words in line and "binding of our own" in line


def test_without_cublas(other_library: Any, rng: np.random.Generator, said: list[str]) -> None:
    be = other_library("none")
    assert be.cublas_handle is None
    multiply(be, rng)
    assert [line for line in said if "cuBLAS" in line] == [
        "warning: no cuBLAS (NEONLIKE_CUBLAS=none): matrix products run on kernels of our own, which are slower"
    ]


def test_a_library_that_is_not_there(other_library: Any) -> None:
    be = other_library("/nowhere/libcublas.so.13")
    with pytest.raises(ArgumentError, match=r"NEONLIKE_CUBLAS: cannot load it: /nowhere/libcublas.so.13"):
        be.compound_dot(be.ones((2, 2)), be.ones((2, 2)), be.empty((2, 2)))


def test_libraries_that_do_not_work_are_passed_over(
    other_library: Any, monkeypatch: pytest.MonkeyPatch, said: list[str]
) -> None:
    module = cublas()

    class Old(module.Binding):  # type: ignore[misc, name-defined]
        def create(self) -> int:
            raise module.Refused(module.NOT_INITIALIZED)

    be = other_library("direct")
    good = next(module.bindings())
    other = module.Binding(module.ctypes.CDLL("libm.so.6"), "another library")
    monkeypatch.setattr(module, "bindings", lambda: iter([Old(None, "the old one"), other, good]))
    assert be.products.blas.handle.binding is good
    monkeypatch.setattr(module, "_handles", {})
    monkeypatch.setattr(module, "bindings", lambda: iter([Old(None, "the old one")]))
    be = other_library("direct")
    assert be.cublas_handle is None
    assert "no cuBLAS (the old one: CUBLAS_STATUS_NOT_INITIALIZED; is the library newer" in said[-1]


def test_no_memory_for_a_handle(other_library: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    module = cublas()
    refusals = [1]

    class Full(module.Binding):  # type: ignore[misc, name-defined]
        def create(self) -> int:
            if refusals:
                refusals.pop()
                raise module.Refused(module.ALLOC_FAILED)
            return super().create()

    be = other_library("direct")
    good = next(module.bindings())
    monkeypatch.setattr(module, "bindings", lambda: iter([Full(good.library, "full")]))
    del be.empty((1000, 1000)).array  # memory that can be given back
    assert be.cublas_handle
    be = other_library("direct")
    monkeypatch.setattr(module, "_handles", {})
    refusals += [1, 1]
    with pytest.raises(DeviceMemoryError, match="cuBLAS: full: CUBLAS_STATUS_ALLOC_FAILED; no memory for its"):
        be.compound_dot(be.ones((2, 2)), be.ones((2, 2)), be.empty((2, 2)))


# Errors


def test_refused_products(be: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    a, c = be.ones((4, 4)), be.zeros((4, 4))
    handle = be.products.blas.handle
    arguments = list(be.products.blas.ready(a.array, a.array, c.array).arguments)
    arguments[2] = -1
    with pytest.raises(DeviceError, match=r"matrix product: .*CUBLAS_STATUS_INVALID_VALUE; please report"):
        handle.call(handle.gemm, tuple(arguments))
    statuses: list[int] = []

    def refuse(*arguments: Any) -> int:
        return statuses.pop(0)

    monkeypatch.setattr(handle, "gemm", refuse)
    for status, (name, advice) in cublas().STATUSES.items():
        if status != cublas().ALLOC_FAILED:
            statuses[:] = [status]
            with pytest.raises(DeviceError) as caught:
                be.compound_dot(a, a, c)
            assert f"CUBLAS_STATUS_{name}; {advice}" in str(caught.value)
    statuses[:] = [99]
    with pytest.raises(DeviceError, match="CUBLAS_STATUS_99; NEONLIKE_CUBLAS=none uses kernels of our own"):
        be.compound_dot(a, a, c)
    assert not c.get().any()
    monkeypatch.undo()
    be.compound_dot(a, a, c)
    assert (c.get() == 4).all()


def test_a_workspace_that_is_refused_leaves_graphs_out(be: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error is one that recurrent layers go round by queueing kernel by kernel."""
    a, c = be.ones((4, 4)), be.empty((4, 4))
    be.compound_dot(a, a, c)
    handle = be.products.blas.handle
    monkeypatch.setattr(handle, "capturing", 0)
    function = handle.binding.function

    def refusing(name: str, *types: Any) -> Any:
        return (lambda *arguments: 7) if name == "cublasSetWorkspace_v2" else function(name, *types)

    monkeypatch.setattr(handle.binding, "function", refusing)
    with pytest.raises(DeviceError, match=r"matrix products in a graph: .*CUBLAS_STATUS_INVALID_VALUE"):
        be.device.capture.graph([be.prepare(c, be.dot(a, a))])
    be.compound_dot(a, a, c)
    assert (c.get() == 4).all()


def test_a_product_without_memory_gives_back_what_is_kept(be: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    a, c = be.ones((4, 4)), be.empty((4, 4))
    handle = be.products.blas.handle
    real, refusals = handle.gemm, [1]

    def full(*arguments: Any) -> int:
        return cublas().ALLOC_FAILED if refusals and refusals.pop() else int(real(*arguments))

    monkeypatch.setattr(handle, "gemm", full)
    be.empty((1000, 1000))
    be.compound_dot(a, a, c)
    assert (c.get() == 4).all() and not refusals
    be.release_memory()
    refusals += [1, 1]
    with pytest.raises(DeviceMemoryError, match="CUBLAS_STATUS_ALLOC_FAILED"):
        be.compound_dot(a, a, c)


def test_a_lost_context_is_said_to_be_lost(be: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost() -> None:
        raise DeviceLost("GPU 0 was lost")

    a = be.ones((4, 4))
    monkeypatch.setattr(be.products.blas.handle, "gemm", lambda *arguments: cublas().EXECUTION_FAILED)
    monkeypatch.setattr(be.device, "synchronize", lost)
    with pytest.raises(DeviceLost):
        be.compound_dot(a, a, be.empty((4, 4)))
    monkeypatch.undo()


def test_the_context_is_current_before_the_library_is_called(be: Any, other_library: Any) -> None:
    from neonlike.backends.gpu.device import contexts

    be = other_library("direct")
    contexts.leave()
    assert be.products.blas.handle and contexts.here.device is be.device
    c = be.empty((4, 4))
    call = be.products.blas.ready(be.ones((4, 4)).array, be.ones((4, 4)).array, c.array)
    contexts.leave()
    call()
    assert contexts.here.device is be.device and (c.get() == 4).all()


def test_threads_share_a_handle(be: Any, rng: np.random.Generator) -> None:
    hosts = [rng.normal(size=(20, 20)).astype(np.float32) for _ in range(4)]
    wrong: list[int] = []

    def work(number: int) -> None:
        t = be.array(hosts[number])
        c = be.empty((20, 20))
        for _ in range(20):
            be.compound_dot(t, t, c)
            if not np.allclose(c.get(), hosts[number] @ hosts[number], atol=1e-4):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# The end

START = """
import os
from neonlike.backends import cleanup_backend, gen_backend
from neonlike.backends.gpu.products import cublas
be = gen_backend("gpu")
class Loud(cublas.Binding):
    def destroy(self, handle):
        print("destroyed", flush=True)
        super().destroy(handle)
cublas.bindings = lambda real=cublas.bindings: (Loud(b.library, b.name) for b in real())
a = be.ones((8, 8))
c = be.empty((8, 8))
be.compound_dot(a, a, c)
print(int(c.get()[0, 0]), flush=True)
"""


@pytest.mark.parametrize(
    ("end", "status", "output"),
    [
        ("", 0, "8 destroyed"),
        ("cleanup_backend(); del be", 0, "8 destroyed"),
        ("call = be.products.ready(a.array, a.array, c.array, a.dtype); call(); del a, c", 0, "8 destroyed"),
        ("raise SystemExit(3)", 3, "8 destroyed"),
        ("import sys; sys.excepthook = lambda *_: None; 1 / 0", 1, "8 destroyed"),
        ("handle = be.products.blas.handle; handle.close(); handle.close()", 0, "8 destroyed"),
        ("import atexit; atexit.register(lambda: print(be.compound_dot(a, a, c).get().sum()))", 0, "8 512.0 destroyed"),
        ("from neonlike.errors import DeviceLost; be.device._give_up(DeviceLost, 'lost')", 0, "8"),
    ],
    ids=["plain", "cleanup", "a call kept", "exit", "error", "twice", "at exit", "lost"],
)
def test_the_handle_goes_before_the_context(end: str, status: int, output: str) -> None:
    done = run_on_gpu(START + end)
    assert (done.returncode, done.stdout.split(), done.stderr) == (status, output.split(), "")


def test_children_of_a_fork_refuse() -> None:
    done = run_on_gpu(
        START
        + """
child = os.fork()
if not child:
    try:
        be.compound_dot(a, a, c)
    except RuntimeError as error:
        print("refused" if "forked" in str(error) else error, flush=True)
        os._exit(0)
assert os.waitpid(child, 0)[1] == 0
be.compound_dot(a, c, c)
print(int(c.get()[0, 0]), flush=True)
"""
    )
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, ["8", "refused", "64", "destroyed"], "")
