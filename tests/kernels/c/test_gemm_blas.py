"""Products by blocks of NumPy's BLAS library on worker threads (kernels/c/gemm_blas.py)."""

from __future__ import annotations

import ctypes
import itertools
import os
import subprocess
import sys
import textwrap
import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from neonlike.backends.backend import Backend
from neonlike.kernels.c import gemm as gemm_module
from neonlike.kernels.c import gemm_blas
from neonlike.kernels.c import numpy_blas as blas_module
from neonlike.kernels.c.gemm_blas import find_blas_launch
from neonlike.kernels.c.numpy_blas import openblas
from neonlike.kernels.c.routine import address
from neonlike.kernels.c.toolchain import find_compiler
from neonlike.kernels.run import forks

pytestmark = [
    pytest.mark.engines("c"),
    pytest.mark.skipif(find_compiler() is None, reason="there is no C compiler on this machine"),
    pytest.mark.skipif(openblas() is None, reason="NumPy has another BLAS library"),
    pytest.mark.cpu_only("NumPy's BLAS library"),
]
SHAPES = [
    (512, 33, 300), (97, 500, 131), (128, 1024, 16), (16, 1024, 200), (300, 300, 300), (600, 400, 1), (1, 400, 600),
]  # fmt: skip


def matrix(rng: Any, rows: int, columns: int, dtype: str, turned: bool) -> Any:
    shape = (columns, rows) if turned else (rows, columns)
    host = rng.standard_normal(shape).astype(dtype)
    return host.T if turned else host


def library_threads() -> int:
    found = openblas()
    assert found is not None
    return int(ctypes.CFUNCTYPE(ctypes.c_int)(found.functions["get_num_threads"])())


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("turned", list(itertools.product([False, True], repeat=3)))
@pytest.mark.parametrize("shape", SHAPES)
def test_agrees_with_float64(rng: Any, shape: tuple[int, ...], turned: tuple[bool, ...], dtype: str) -> None:
    m, k, n = shape
    a, b, c = (matrix(rng, *s, dtype, flag) for s, flag in zip(((m, k), (k, n), (m, n)), turned))
    launch = find_blas_launch(a, b, c)
    assert launch is not None
    tolerance = 2e-4 if dtype == "float32" else 1e-12
    for alpha, beta in ((1.0, 0.0), (0.5, -2.0)):
        expected = alpha * (a.astype("f8") @ b.astype("f8")) + beta * c.astype("f8")
        launch(address(a), address(b), address(c), alpha, beta)
        np.testing.assert_allclose(c, expected, rtol=tolerance, atol=tolerance * k**0.5)


def test_what_was_in_the_result_is_not_read(rng: Any) -> None:
    a, b = matrix(rng, 300, 300, "float32", False), matrix(rng, 300, 300, "float32", False)
    c = np.full((300, 300), np.nan, np.float32)
    launch = find_blas_launch(a, b, c)
    assert launch is not None
    launch(address(a), address(b), address(c))
    assert np.isfinite(c).all()


def test_rows_and_columns_of_larger_matrices(rng: Any) -> None:
    """Factors and results that are parts of others, with gaps between their rows."""
    a, b, c = (matrix(rng, 700, 700, "float32", False) for _ in range(3))
    left, right, out = a[10:400, 5:305], b.T[7:307, 100:500], c[3:393, 9:409]
    before = c.copy()
    launch = find_blas_launch(left, right, out)
    assert launch is not None
    launch(address(left), address(right), address(out))
    np.testing.assert_allclose(out, left.astype("f8") @ right.astype("f8"), rtol=1e-3, atol=1e-3)
    before[3:393, 9:409] = out
    assert (c == before).all()


def test_what_is_left_to_numpy(rng: Any) -> None:
    plain = matrix(rng, 300, 300, "float32", False)
    small, gaps = plain[:60, :60], matrix(rng, 600, 600, "float32", False)[::2, ::2]
    half, repeated = plain.astype(np.float16), np.broadcast_to(plain[:1], (300, 300))
    assert find_blas_launch(small, small, small.copy()) is None
    for factor in (gaps, repeated, half, plain.astype(np.float64)):
        assert find_blas_launch(factor, plain, np.empty_like(plain)) is None
    assert find_blas_launch(plain, gaps, np.empty_like(plain)) is None
    assert find_blas_launch(plain, plain, gaps) is None
    assert find_blas_launch(plain[:0], plain, plain[:0]) is None


def test_the_librarys_number_of_threads_is_put_back(rng: Any) -> None:
    before = library_threads()
    a = matrix(rng, 512, 512, "float32", False)
    wrong: list[float] = []

    def work() -> None:
        c = np.empty_like(a)
        launch = find_blas_launch(a, a, c)
        assert launch is not None
        expected = a.astype("f8") @ a.astype("f8")
        for _ in range(10):
            launch(address(a), address(a), address(c))
            for found in (c, a @ a):
                if not np.allclose(found, expected, rtol=1e-3, atol=1e-2):
                    wrong.append(float(np.abs(found - expected).max()))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert library_threads() == before


def test_products_of_the_program_keep_their_threads(rng: Any) -> None:
    """The program may have set these threads by threadpoolctl or OPENBLAS_NUM_THREADS."""
    code = """
    import numpy as np
    from neonlike.backends import gen_backend
    from neonlike.kernels.c.numpy_blas import openblas
    import ctypes
    threads = ctypes.CFUNCTYPE(ctypes.c_int)(openblas().functions["get_num_threads"])
    before = threads()
    be = gen_backend("cpu")
    a = be.array(np.ones((512, 512)))
    out = be.empty((512, 512))
    out[:] = be.dot(a, a)
    assert (out.get() == 512).all() and (np.ones((512, 512)) @ np.ones((512, 512)) == 512).all()
    print(before, threads())
    """
    for count in ("1", "3"):
        shown = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code)],
            env={**os.environ, "OPENBLAS_NUM_THREADS": count}, capture_output=True, text=True, check=True,
        ).stdout.split()  # fmt: skip
        assert shown[0] == shown[1]


@pytest.fixture
def met(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Has products go to the library's kernels on every machine; which shapes did."""
    seen: list[Any] = []
    real = gemm_blas.find_blas_launch

    def noted(a: Any, b: Any, c: Any, compiler: Any) -> Any:
        launch = real(a, b, c, compiler)
        if launch is not None:
            seen.append((*a.shape, b.shape[1]))
        return launch

    monkeypatch.setattr(gemm_module, "pays", lambda *sizes: False)
    monkeypatch.setattr(gemm_module, "find_blas_launch", noted)
    return seen


def test_expressions_and_primitives_go_to_it(be: Backend, rng: Any, met: list[Any]) -> None:
    a, b = rng.standard_normal((200, 150)), rng.standard_normal((150, 100))
    x, y, out = be.array(a), be.array(b), be.empty((200, 100))
    out[:] = be.dot(x, y) + 1
    np.testing.assert_allclose(out.get(), a @ b + 1, rtol=1e-3, atol=1e-3)
    be.compound_dot(x, y, out, alpha=2.0, relu=True)
    np.testing.assert_allclose(out.get(), np.maximum(2 * (a @ b), 0), rtol=1e-3, atol=1e-3)
    step = be.prepare(out, be.dot(x, y))
    step()
    np.testing.assert_allclose(out.get(), a @ b, rtol=1e-3, atol=1e-3)
    assert met and set(met) == {(200, 150, 100)}
    assert "the BLAS library's kernels" in be.explain(be.dot(x, y))


def test_nan_where_factors_hold_it(be: Backend, met: list[Any]) -> None:
    host = np.zeros((300, 300), np.float32)
    host[3, 4] = np.nan
    out = be.empty((300, 300))
    out[:] = be.dot(be.array(host), be.array(np.zeros((300, 300))))
    assert met
    assert np.isnan(out.get()[3]).all() and not np.isnan(out.get()[[2, 4]]).any()


def test_another_library(monkeypatch: pytest.MonkeyPatch, be: Backend, rng: Any) -> None:
    """MKL, Accelerate or the reference BLAS: products are NumPy's."""
    monkeypatch.setattr(blas_module, "openblas", lambda: None)
    monkeypatch.setattr(gemm_blas, "openblas", lambda: None)
    gemm_blas._functions.cache_clear()
    try:
        a = matrix(rng, 300, 300, "float32", False)
        assert find_blas_launch(a, a, np.empty_like(a)) is None
        assert not gemm_module.half_vectors()
        out = be.empty((300, 300))
        out[:] = be.dot(be.array(a), be.array(a))
        np.testing.assert_allclose(out.get(), a.astype("f8") @ a, rtol=1e-3, atol=1e-3)
    finally:
        gemm_blas._functions.cache_clear()


def test_an_openblas_on_openmps_threads_is_left_to_numpy(monkeypatch: pytest.MonkeyPatch, rng: Any) -> None:
    """Each of our threads would start as many as there are cores: their number is not the process's there."""
    found = openblas()
    assert found is not None and not found.openmp
    monkeypatch.setattr(gemm_blas, "openblas", lambda: replace(found, openmp=True))
    gemm_blas._functions.cache_clear()
    try:
        a = matrix(rng, 300, 300, "float32", False)
        assert find_blas_launch(a, a, np.empty_like(a)) is None
    finally:
        gemm_blas._functions.cache_clear()


def test_steps_that_the_librarys_integers_do_not_hold(monkeypatch: pytest.MonkeyPatch, rng: Any) -> None:
    found = openblas()
    assert found is not None
    a = matrix(rng, 300, 300, "float32", False)
    far = np.lib.stride_tricks.as_strided(a, strides=(4 << 31, 4))
    for integer, taken in (("int64_t", True), ("int", False)):
        monkeypatch.setattr(gemm_blas, "openblas", lambda integer=integer: replace(found, integer=integer))
        sources = [gemm_blas.blas_source(x, a, a.copy()) for x in (far, a)]
        assert [source is not None for source in sources] == [taken, True]


def test_steps_that_are_no_whole_number_of_elements(rng: Any) -> None:
    """Fields of records without gaps."""
    a = matrix(rng, 600, 400, "float32", False)
    records = np.zeros((600, 400 * 4 + 2), np.uint8)
    odd = np.ndarray((600, 400), np.float32, records, strides=(402 * 4 - 6, 4))
    column = np.ndarray((400, 1), np.float32, np.zeros(400 * 6, np.uint8), strides=(6, 4))
    assert find_blas_launch(odd, a.T, np.empty((600, 600), np.float32)) is None
    assert find_blas_launch(a, column, np.empty((600, 1), np.float32)) is None


def test_what_was_in_a_vector_is_not_read(rng: Any) -> None:
    a, b = matrix(rng, 600, 400, "float32", False), matrix(rng, 400, 1, "float32", False)
    c = np.full((600, 1), np.nan, np.float32)
    launch = find_blas_launch(a, b, c)
    assert launch is not None
    launch(address(a), address(b), address(c))
    assert np.isfinite(c).all()


@pytest.mark.parametrize("alpha", [0.0, 1e-60])
def test_nan_times_an_alpha_of_0(be: Backend, met: list[Any], alpha: float) -> None:
    """BLAS libraries leave such a product out."""
    host = np.zeros((300, 300), np.float32)
    host[3, 4] = np.nan
    out = be.ones((300, 300))
    be.compound_dot(be.array(host), be.array(np.zeros((300, 300))), out, alpha=alpha, beta=1.0)
    assert np.isnan(out.get()[3]).all() and (out.get()[[2, 4]] == 1).all()


def test_without_workers_on_the_librarys_threads() -> None:
    shown = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(
            """
            import numpy as np
            from neonlike.kernels.c import gemm_blas
            from neonlike.kernels.c import workers
            from neonlike.kernels.c.routine import address
            workers._asked = True  # and none was found
            a, c = np.ones((500, 500)), np.empty((500, 500))
            gemm_blas.find_blas_launch(a, a, c)(address(a), address(a), address(c))
            print(set(c.ravel().tolist()))
            """
        )], capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert shown.strip() == "{500.0}"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_fork_made_during_a_product_has_the_librarys_threads() -> None:
    """The thread that would put the number back is its parent's."""
    code = """
    import ctypes, os, signal, warnings
    warnings.simplefilter("ignore", DeprecationWarning)
    import numpy as np
    from neonlike.kernels.c import gemm_blas
    from neonlike.kernels.c import workers
    from neonlike.kernels.c.numpy_blas import openblas
    from neonlike.kernels.c.routine import address
    a, c = np.ones((500, 500)), np.empty((500, 500))
    launch = gemm_blas.find_blas_launch(a, a, c)
    threads = ctypes.CFUNCTYPE(ctypes.c_int)(openblas().functions["get_num_threads"])
    ctypes.CFUNCTYPE(None, ctypes.c_int)(openblas().functions["set_num_threads"])(2)
    share, limit, lift = (ctypes.c_void_p * 3).in_dll(workers._library, "nl_the_workers")
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(limit)(ctypes.addressof(launch.library) + 16)
    assert threads() == 1
    child = os.fork()
    if child == 0:
        signal.alarm(60)  # ends a child that waits for a lock for ever
        before = threads()
        launch(address(a), address(a), address(c))
        os._exit(7 if (before, threads()) == (2, 2) and (c == 500).all() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    launch(address(a), address(a), address(c))
    assert threads() == 1
    ctypes.CFUNCTYPE(None)(lift)()
    assert threads() == 2
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_in_a_fork_on_one_thread(monkeypatch: pytest.MonkeyPatch, rng: Any) -> None:
    a = matrix(rng, 300, 300, "float32", False)
    c = np.empty_like(a)
    launch = find_blas_launch(a, a, c)
    assert launch is not None and launch.serial[-1] == 1
    monkeypatch.setattr(forks, "forked", True)
    launch(address(a), address(a), address(c))
    np.testing.assert_allclose(c, a.astype("f8") @ a, rtol=1e-3, atol=1e-3)
