"""The live view of a training."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from neonlike.__main__ import main
from neonlike.callbacks.callbacks import Callback
from neonlike.errors import MissingExtra
from neonlike.report import watch
from neonlike.report.watch import HOST, make_server
from tests import ROOT
from tests.report.reader import Page

pytestmark = pytest.mark.cpu_only("a page is the same for any backend")


@contextlib.contextmanager
def served(*files: Path) -> Iterator[str]:
    """The address of the live view of some files."""
    with make_server(files, 0) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://{HOST}:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join(10)


def get(address: str, **headers: str) -> str:
    request = urllib.request.Request(address, headers=headers)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return str(answer.read().decode())


def test_the_page_follows_a_training(training: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "SHARE", 0)
    path, seen = tmp_path / "run.h5", []

    class Look(Callback):
        """Asks for the page while the training holds the file open."""

        def on_epoch_begin(self, callback_data: Any, model: Any, epoch: int) -> None:
            callback_data.flush()
            seen.append((get(f"{address}/state"), Page(get(f"{address}/"))))

    with served(path) as address:
        waiting = get(f"{address}/")
        assert "Waiting for a run" in waiting and "run.h5" in waiting
        callbacks = training.callbacks(output_file=str(path))
        callbacks.add_callback(Look())
        training.fit(callbacks, 3)
        after = get(f"{address}/"), get(f"{address}/state")
    assert len({state for state, _ in seen}) == 3, "it grows"
    assert [page.has(f"{epoch} of 3") for epoch, (_, page) in enumerate(seen)] == [True] * 3
    page = Page(after[0])
    assert page.faults == [] and page.has("3 of 3")
    (began,) = re.findall(r'const began = "(.*)"', after[0])
    assert began == after[1] != seen[-1][0], "the page knows which state it shows"


def test_a_file_with_a_name_outside_of_unicode(tmp_path: Path) -> None:
    with served(tmp_path / "run-\udcff.h5") as address:
        assert "run-?.h5: waiting" in get(f"{address}/")


@pytest.mark.usefixtures("undrawn")
def test_a_file_that_is_being_written_keeps_what_was_read(run_file: Path) -> None:
    with served(run_file) as address:
        assert Page(get(f"{address}/")).has("4 of 4")
        run_file.write_bytes(run_file.read_bytes()[:3000])
        assert Page(get(f"{address}/")).has("4 of 4")
        run_file.unlink()
        assert Page(get(f"{address}/")).has("4 of 4")


@pytest.mark.usefixtures("undrawn")
def test_an_open_page_is_seldom_made_again(run_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "SHARE", 1e6)
    with served(run_file) as address:
        get(f"{address}/")
        state = get(f"{address}/state")
        run_file.touch()
        assert get(f"{address}/state") == state
        monkeypatch.setattr(watch, "SHARE", 0)
        get(f"{address}/")
        assert get(f"{address}/state") != state


def test_a_fault_of_the_report_leaves_a_page_that_looks_again(run_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> str:
        raise IndexError("planted")

    with served(run_file) as address:
        monkeypatch.setattr(watch, "report_text", fail)
        page = get(f"{address}/")
        assert "IndexError: planted" in page and "location.reload" in page
        monkeypatch.setattr(watch, "read_file", fail)
        run_file.touch()
        assert "location.reload" in get(f"{address}/")


@pytest.mark.parametrize("package", ["h5py", "matplotlib"])
def test_a_missing_package_is_told_before_anything_is_served(
    package: str, run_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtra, match=f"{package}.*pip install"):
        make_server([run_file], 0)


def test_only_this_machine_is_answered(run_file: Path) -> None:
    with served(run_file) as address:
        port = int(address.rpartition(":")[2])
        with pytest.raises(urllib.error.HTTPError, match="403"):
            get(f"{address}/", Host="example.org")
        with pytest.raises(urllib.error.HTTPError, match="404"):
            get(f"{address}/etc/passwd")
        assert get(f"{address}/state", Host=f"localhost:{port}")
        others = {info[4][0] for info in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)} - {HOST}
        for other in others:
            with pytest.raises(OSError):
                socket.create_connection((other, port), timeout=2)


def test_ctrl_c_ends_the_command(run_file: Path) -> None:
    command = [sys.executable, "-m", "neonlike", "report", "--watch", "--port", "0", str(run_file)]
    # A shell starts programs in the background without Ctrl-C.
    child = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    try:
        assert child.stdout is not None
        address = child.stdout.readline().split()[0]
        assert Page(get(address)).has("4 of 4")
        os.kill(child.pid, signal.SIGINT)
        _, said = child.communicate(timeout=60)
    finally:
        child.kill()
        child.wait()
    assert (child.returncode, said) == (0, "")


@pytest.mark.parametrize(
    ("options", "message"),
    [(["--port", "70000"], "0 to 65535"), (["-o", "x.html"], "exclude each other")],
)
def test_options_that_make_no_sense(
    options: list[str], message: str, run_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", "--watch", *options, str(run_file)]) == 1
    assert message in capsys.readouterr().err


def test_a_port_that_is_taken(run_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert main(["report", "--watch", "--port", str(port), str(run_file)]) == 1
    assert f"port {port} cannot be used" in capsys.readouterr().err
