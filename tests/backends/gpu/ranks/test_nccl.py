"""The NCCL library in one process: finding it, its refusals, and whether ranks agree to use it."""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neonlike.backends.gpu import doctor
from neonlike.backends.gpu.device import libraries
from neonlike.backends.gpu.ranks import agreement, nccl
from neonlike.backends.gpu.ranks.agreement import Offer, obstacle
from neonlike.distributed.ranks import Ranks
from neonlike.errors import DeviceError

SYSTEM_ERROR = 2

emulated = pytest.mark.emulator


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """No library is found."""
    monkeypatch.delenv(nccl.SETTING, raising=False)
    monkeypatch.setattr(nccl, "nccl_libraries", lambda: iter(()))


# Finding it ---------------------------------------------------------------------------------------------------------


def test_there_is_none(nowhere: None, monkeypatch: pytest.MonkeyPatch) -> None:
    found, why = nccl.find()
    assert found is None and why == f"it is not installed: {nccl.ADVICE}"
    monkeypatch.setenv(nccl.SETTING, "none")
    assert nccl.find() == (None, "NEONLIKE_NCCL=none")
    monkeypatch.setenv(nccl.SETTING, "/nowhere/libnccl.so.2")
    found, why = nccl.find()
    assert found is None and why.startswith("NEONLIKE_NCCL: cannot load it: /nowhere/libnccl.so.2")


def test_a_library_that_lacks_functions_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(nccl.SETTING, raising=False)
    monkeypatch.setattr(nccl, "nccl_libraries", lambda: iter([("this.so", ctypes.CDLL("libm.so.6"))]))
    found, why = nccl.find()
    assert found is None and why.startswith("this.so: ") and "ncclGetVersion" in why


def test_where_it_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Loaded already, in the system, in a package of pip."""
    folder = tmp_path / "nvidia" / "nccl" / "lib"
    folder.mkdir(parents=True)
    (folder / "libnccl.so.2").touch()
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    monkeypatch.setattr(libraries, "MAPS", str(tmp_path / "maps"))
    (tmp_path / "maps").write_text("7f00-7f01 r--p 00000000 08:01 42 /torch/lib/libnccl.so.2\n")
    monkeypatch.setattr(libraries.ctypes, "CDLL", lambda name: name)
    found = [name for name, _ in libraries.nccl_libraries()]
    assert found[:2] == ["/torch/lib/libnccl.so.2", "libnccl.so.2"] and found[-1] == str(folder / "libnccl.so.2")


@pytest.mark.parametrize(("version", "text"), [(22703, "2.27.3"), (21000, "2.10.0"), (2708, "2.7.8")])
def test_versions_in_words(version: int, text: str) -> None:
    assert nccl.text_of(version) == text


@emulated
def test_the_library_there_is(emulator: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(nccl.SETTING, raising=False)
    found, why = nccl.find()
    assert found is not None and not why and found.version == 22703
    path = str(emulator.folder / "lib" / "libnccl.so.2")
    monkeypatch.setenv(nccl.SETTING, path)
    found, why = nccl.find()
    assert found is not None and found.name == path
    first, second = found.new_id(), found.new_id()
    assert len(first) == 128 and first != second
    with pytest.raises(nccl.Refused, match=r"ncclGroupEnd: invalid usage: .* \(ncclResult_t 5\)"):
        found.call("ncclGroupEnd")
    monkeypatch.setenv("CUEMU_NCCL_VERSION", "2904")
    assert nccl.find() == (None, f"{path} is too old: version 2.9.4, 2.10 is needed")


def test_what_the_doctor_says(nowhere: None, monkeypatch: pytest.MonkeyPatch) -> None:
    finding = doctor._nccl()
    assert (finding.part, finding.name, finding.good) == ("extra", "NCCL", False)
    assert finding.text.startswith("it is not installed") and finding.fix == nccl.ADVICE
    monkeypatch.setenv(nccl.SETTING, "none")
    assert doctor._nccl().text == "NEONLIKE_NCCL=none"
    assert any(finding.name == "mpi4py" for finding in doctor.findings())


# Agreement ----------------------------------------------------------------------------------------------------------


def offers(*changes: dict[str, Any]) -> list[Offer]:
    """Offers of ranks on a machine with a GPU each, but for these changes."""
    return [
        Offer("", 22703, "here", f"0000:0{rank}:00.0")._replace(**change) for rank, change in enumerate(changes)
    ]


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (offers({}, {}, {}), ""),
        (offers({}, {"machine": "there", "bus": "0000:00:00.0"}), ""),
        (offers({}, {"lack": "it is away", "version": 0}, {}), "rank 1 has no NCCL (it is away)"),
        (offers({}, {}, {"version": 21805}), "rank 2 has NCCL 2.18.5, rank 0 2.27.3"),
        (offers({}, {}, {"bus": "0000:01:00.0"}), "ranks 1 and 2 share the GPU 0000:01:00.0, which NCCL "),
    ],
)
def test_obstacles(found: list[Offer], said: str) -> None:
    assert bool(obstacle(found)) == bool(said) and obstacle(found).startswith(said)


def test_the_name_of_a_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = agreement.machine()
    assert here == agreement.machine() and here.strip()
    monkeypatch.setattr(agreement, "BOOT_ID", tmp_path / "boot")
    without = agreement.machine()
    (tmp_path / "boot").write_text("7e1f\n")
    assert agreement.machine() == f"{without}7e1f"


# A communicator of one rank -----------------------------------------------------------------------------------------


@pytest.fixture
def alone(be: Any, emulator: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A communicator of this process alone."""
    monkeypatch.delenv(nccl.SETTING, raising=False)
    module = importlib.import_module("neonlike.backends.gpu.ranks.communicator")
    made = module.connect(be.device, Ranks())
    yield made
    made.close()


@emulated
@pytest.mark.engines("gpu", batch_size=16)
class TestAlone:
    """Calls that need no other rank."""

    def test_elements_stay(self, be: Any, alone: Any) -> None:
        values = np.arange(24, dtype="f4").reshape(4, 6)
        for view in (lambda t: t, lambda t: t.T, lambda t: t[1:3, ::2]):
            t = be.array(values.copy())
            for op in nccl.OPERATIONS:
                alone.reduce([view(t)], op)
            alone.broadcast(view(t))
            assert np.array_equal(t.get(), values)

    def test_dtypes(self, alone: Any) -> None:
        assert [name for name in ("f2", "f4", "f8", "bfloat16", "i4", "u1") if alone.reduces(np.dtype(name))] == [
            "f2", "f4", "f8", "bfloat16",
        ]  # fmt: skip

    def test_a_refusal_ends_it(self, be: Any, alone: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        t = be.ones((4, 6))
        monkeypatch.setenv("CUEMU_NCCL_FAIL", str(SYSTEM_ERROR))
        with pytest.raises(DeviceError, match="GPU 0, sum of 1 tensors by NCCL: ncclGroupEnd: unhandled system error"):
            alone.reduce([t])
        monkeypatch.delenv("CUEMU_NCCL_FAIL")
        with pytest.raises(DeviceError, match="NCCL has ended here"):
            alone.reduce([t])
        assert (t.get() == 1).all()

    def test_a_refusal_within_a_group(self, be: Any, alone: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(nccl.OPERATIONS, "sum", 99)
        with pytest.raises(DeviceError, match="ncclAllReduce: invalid argument"):
            alone.reduce([be.ones((4, 6))])
        found, _ = nccl.find()
        assert found is not None
        with pytest.raises(nccl.Refused, match="no group was started"):
            found.call("ncclGroupEnd")

    def test_not_within_a_graph(self, be: Any, alone: Any) -> None:
        t = be.ones((4, 6))
        with pytest.raises(DeviceError, match="a graph is being captured"):
            be.device.capture.graph([lambda: alone.reduce([t])])
        alone.reduce([t])

    def test_after_its_end(self, be: Any, alone: Any) -> None:
        alone.close()
        alone.close()
        with pytest.raises(DeviceError, match="NCCL has ended here"):
            alone.broadcast(be.ones((4, 6)))

    def test_refused_start(self, be: Any, alone: Any) -> None:
        module = importlib.import_module("neonlike.backends.gpu.ranks.communicator")
        library, _ = nccl.find()
        with pytest.raises(DeviceError, match="start of NCCL: ncclCommInitRank: invalid argument"):
            module.Communicator(be.device, Ranks(), library, b"/no-such-id".ljust(128, b"\0"))
