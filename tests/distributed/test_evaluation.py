"""Evaluation over several ranks: each returns what a process alone does on the whole data set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.distributed import evaluating
from tests.support.ranks import run_ranks

PROGRAM = Path(evaluating.__file__).read_text(encoding="utf-8")
STATISTICS = ("own ", "all ", "tuned ", "mean", "variance")
"""Beginnings of the names of what differs: each rank normalizes by its share of a batch."""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[int, list[dict[str, Any]]]:
    """The values that each rank found, by the number of ranks."""
    by_count = {}
    for count in (1, 2, 3):
        folder = tmp_path_factory.mktemp(f"of{count}")
        run = run_ranks(count, PROGRAM, folder, timeout=120)
        assert run.returncode == 0, run.stderr
        by_count[count] = [dict(np.load(folder / f"{rank}.npz")) for rank in range(count)]
    return by_count


@pytest.mark.parametrize("count", [2, 3])
def test_each_rank_finds_what_a_process_alone_finds(found: Any, count: int) -> None:
    alone = found[1][0]
    assert [(one["rank"], one["share"]) for one in found[count]] == [(i, 12 // count) for i in range(count)]
    names = [name for name in alone if name not in ("rank", "share") and not name.startswith(STATISTICS)]
    assert len(names) > 40
    for one in found[count]:
        for name in names:
            np.testing.assert_allclose(one[name], alone[name], rtol=2e-6, atol=1e-6, err_msg=name)


def test_all_ranks_find_the_same_to_the_bit(found: Any) -> None:
    first, *others = found[3]
    for other in others:
        for name in first.keys() - {"rank", "own mean", "own variance"}:
            np.testing.assert_array_equal(other[name], first[name], err_msg=name)


def test_samples_are_in_the_order_of_the_data(found: Any) -> None:
    for one in found[3]:
        for count in evaluating.COUNTS:
            assert one[f"outputs {count} True"].shape == (count, evaluating.NCLASS)
        assert one["sequences"].shape == (31, evaluating.STEPS, evaluating.NCLASS)
        assert one["beams 2"].shape == (29, evaluating.STEPS)


@pytest.mark.parametrize("name", ["mean", "variance"])
def test_running_statistics_become_their_means(found: Any, name: str) -> None:
    for ranks in (found[2], found[3]):
        each = [one[f"own {name}"] for one in ranks]
        assert not np.allclose(each[0], each[1])
        for one in ranks:
            np.testing.assert_array_equal(one[f"all {name}s"], each)
            np.testing.assert_allclose(one[name], np.mean(each, axis=0), rtol=1e-6)
        np.testing.assert_allclose(ranks[0]["mean of both ways"], (len(ranks) - 1) / 2)
    np.testing.assert_array_equal(found[1][0][name], found[1][0][f"own {name}"])


def test_tuned_statistics_are_those_of_all_ranks(found: Any) -> None:
    """The mean is that of the data; the variance within a share is smaller than that of a batch."""
    alone = found[1][0]
    for ranks in (found[2], found[3]):
        np.testing.assert_allclose(ranks[0]["tuned mean"], alone["tuned mean"], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(ranks[0]["tuned variance"], alone["tuned variance"], rtol=0.4)


def test_callbacks_decide_the_same(found: Any) -> None:
    assert [one["epochs"].item() for ranks in found.values() for one in ranks] == [3] * 6
    assert {one["minibatches"].item() for ranks in found.values() for one in ranks} == {40}
