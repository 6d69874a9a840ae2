"""Files and output of several ranks: those of a process alone, written by rank 0; its errors are met by all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np
import pytest

from neonlike.util.persist import load_obj
from tests.distributed import writing
from tests.support.ranks import run_ranks

PROGRAM = Path(writing.__file__).read_text(encoding="utf-8")


class Run(NamedTuple):
    """A run of the program: its folder, what each rank saw, and what was printed."""

    folder: Path
    seen: list[dict[str, Any]]
    stdout: str
    stderr: str


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Run]:
    """The runs by the number of ranks; each goes on from the file of another number of them, or its own."""
    base = tmp_path_factory.mktemp("runs")
    made = {}
    for count, before in ((2, 2), (1, 2), (3, 1)):
        folder = base / str(count)
        folder.mkdir()
        started_from = base / str(before) / "two.prm"
        run = run_ranks(count, PROGRAM, folder, started_from, timeout=120, NEONLIKE_MPI_CHECK="1")
        assert run.returncode == 0, run.stderr
        seen = [json.loads((folder / f"{rank}.json").read_text()) for rank in range(count)]
        made[count] = Run(folder, seen, run.stdout, run.stderr)
    return made


@pytest.mark.parametrize("count", [2, 3])
class TestFiles:
    """The files in the folder, and what the ranks read there."""

    def test_the_files_are_those_of_a_process_alone(self, runs: Any, count: int) -> None:
        names = {path.name for path in runs[count].folder.iterdir()}
        assert names == {path.name for path in runs[1].folder.iterdir()} | {f"{rank}.json" for rank in range(count)}
        assert {"m.prm", "m_2.prm", "m_3.prm", "best.prm", "log0.txt"} < names
        first, *others = runs[count].seen
        assert first["written"] == runs[1].seen[0]["written"] and len(first["written"]) > 5
        assert [one["written"] for one in others] == [[]] * (count - 1)

    def test_models_are_those_of_a_process_alone(self, runs: Any, count: int) -> None:
        for name in ("m.prm", "m_2.prm", "best.prm", "two.prm"):
            ours, alone = (load_obj(runs[k].folder / name) for k in (count, 1))
            for entry in ("epoch", "ndata", "batch_size", "data_id", "minibatches"):
                assert ours["progress"][entry] == alone["progress"][entry], (name, entry)
            assert ours["progress"]["batch_size"] == 12 and ours["epoch_index"] == alone["epoch_index"]
            kept, expected = (dict(one["progress"]["callbacks"]["callbacks"]) for one in (ours, alone))
            assert kept.keys() == expected.keys()
            losses = (one["progress"]["callbacks"]["records"]["cost/loss"] for one in (ours, alone))
            np.testing.assert_allclose(*losses, rtol=1e-5)

    def test_every_rank_reads_what_was_just_written(self, runs: Any, count: int) -> None:
        for one in runs[count].seen:
            assert one["read back"] == one["exchanged"] == one["weights"]
            for name in ("weights", "after two", "resumed", "losses"):
                np.testing.assert_allclose(one[name], runs[1].seen[0][name], rtol=1e-4, atol=1e-5, err_msg=name)

    def test_training_goes_on_from_the_file_of_another_number_of_ranks(self, runs: Any, count: int) -> None:
        for run in (runs[1], runs[count]):
            for one in run.seen:
                np.testing.assert_allclose(one["resumed"], one["weights"], rtol=1e-4, atol=1e-5)
                np.testing.assert_allclose(one["resumed losses"], one["losses"], rtol=1e-5)

    def test_rank_0_keeps_the_records(self, runs: Any, count: int) -> None:
        assert [one["kept"] for one in runs[count].seen] == ["File"] + ["MemoryStore"] * (count - 1)
        with h5py.File(runs[count].folder / "records.h5") as ours, h5py.File(runs[1].folder / "records.h5") as alone:
            np.testing.assert_allclose(ours["cost/loss"][...], alone["cost/loss"][...], rtol=1e-5)
            np.testing.assert_array_equal(ours["time_markers/minibatch"][...], [4, 8, 12, 16])
            assert ours["cost/train"].shape == alone["cost/train"].shape == (16,)
        assert {one["page"] for one in runs[count].seen} == {runs[count].seen[0]["page"]}


@pytest.mark.parametrize("count", [2, 3])
class TestErrors:
    """All ranks meet an error of rank 0, and none waits for ever."""

    def test_all_ranks_raise_it(self, runs: Any, count: int) -> None:
        alone = runs[1].seen[0]
        for one in runs[count].seen:
            for name in ("save", "folder", "store", "callback", "best", "interrupt"):
                assert one[name] == alone[name] != "", name
        assert [one["another"] for one in runs[count].seen] == ["ValueError"] + ["RankError"] * (count - 1)

    def test_work_of_rank_0_has_its_result_there(self, runs: Any, count: int) -> None:
        assert [one["work"] for one in runs[count].seen] == [1] + [None] * (count - 1)


@pytest.mark.parametrize("count", [1, 2, 3])
class TestOutput:
    """Output is that of a process alone; each rank logs its errors."""

    def test_rank_0_alone_prints(self, runs: Any, count: int) -> None:
        lines = [line for line in runs[count].stdout.splitlines() if line.startswith("Epoch")]
        assert [line.split()[1] for line in lines] == ["0", "1", "2", "3"]

    def test_rank_0_alone_logs_but_for_errors(self, runs: Any, count: int) -> None:
        logged = (runs[count].folder / "log0.txt").read_text(encoding="utf-8")
        assert logged.count("a warning of all ranks") == logged.count("shown by all ranks") == 1
        assert logged.count("an error of 100%") == 1 and "Epoch 3 complete" in logged
        shown = runs[count].stderr
        assert shown.count("shown by all ranks") == 1
        errors = {line for line in shown.splitlines() if line.endswith("an error of 100%")}
        others = {f"ERROR: rank {rank}: an error of 100%" for rank in range(1, count)}
        assert errors == {"ERROR: an error of 100%"} | others
