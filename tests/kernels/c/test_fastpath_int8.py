"""Products of quantized weights that the extension makes again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.errors import AliasError
from neonlike.kernels.c import fastpath
from tests.support.replaying import extension, fast  # noqa: F401

pytestmark = [
    pytest.mark.skipif(bool(fastpath.obstacle()), reason=fastpath.obstacle()),
    pytest.mark.cpu_only("GPUs do not multiply int8"),
]


def test_weights_are_told_apart_and_held(fast: Backend) -> None:
    """Weights of one layout, which are made and dropped, may lie where others were."""
    x, out, table = fast.array([[2.0], [3.0], [-1.0]]), fast.empty((2, 1)), fast.executor.replay.table
    for turn in range(20):
        weights = fast.int8_weights(fast.array([[turn, 127, 0], [127, 0, -turn]]), 1.0)
        calls = table.calls
        for _ in range(3):
            out[:] = 0
            fast.int8_product(weights, x, out)
            assert out.tolist() == [[2 * turn + 381], [254 + turn]]
        assert table.calls == calls + 2
        del weights


def test_views_that_share_memory_are_refused_each_time(fast: Backend) -> None:
    """Rows of a view lie farther apart than its bytes tell: results may lie between them, or on one."""
    weights = fast.int8_weights(fast.array(np.eye(4, 3) * 127), 1.0)
    flat = fast.zeros(64)
    x = flat[:12].reshape(3, 4)[:, :2]
    apart, on_a_row = flat[16:24].reshape(4, 2), flat[8:16].reshape(4, 2)
    x[:] = [[1, 2], [3, 4], [5, 6]]
    for _ in range(3):
        fast.int8_product(weights, x, apart)
        assert apart.tolist() == [[127, 254], [381, 508], [635, 762], [0, 0]]
        with pytest.raises(AliasError, match="out shares memory with x"):
            fast.int8_product(weights, x, on_a_row)


def test_options_count(fast: Backend, rng: Any) -> None:
    weights = fast.int8_weights(fast.array([[127.0], [-127.0]]), 1.0)
    x, bias, out = fast.array([[2.0]]), fast.array([[1.0], [2.0]]), fast.empty((2, 1))
    calls: list[tuple[dict[str, Any], Any]] = [
        ({}, [[254], [-254]]), ({"bias": bias}, [[255], [-252]]), ({"relu": True}, [[254], [0]]),
        ({"relu": True, "slope": 0.5}, [[254], [-127]]), ({"slope": 0.5}, [[254], [-254]]),
        ({"bias": bias, "relu": True, "slope": 0.25}, [[255], [-63]]),
    ]  # fmt: skip
    for _ in range(3):
        for options, wanted in calls:
            assert fast.int8_product(weights, x, out, **options).tolist() == wanted
