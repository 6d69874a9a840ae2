"""The live view of runs in training: a server for this machine alone, whose page follows the files of the runs."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from neonlike.logger import logger
from neonlike.markup import page
from neonlike.report.charts import require_matplotlib
from neonlike.report.run import Run, read_file, require_h5py
from neonlike.report.write import report_text

HOST = "127.0.0.1"
"""The only address that is served: reports tell of the machine, its user and his data."""
NAMES = {HOST, "localhost"}
"""Host names that a request may ask for; others are those of web pages that try to read the report."""
SECONDS = 2
"""Seconds between two looks of the page whether the runs have grown."""
SHARE = 10
"""An open page is made again after so many times the seconds that it took: the training needs the processor."""

SCRIPT = """
const began = %s;
setInterval(async () => {
  try {
    const state = await (await fetch("/state", { cache: "no-store" })).text();
    if (state !== began) location.reload();
  } catch { document.title = "ended: " + document.title.replace(/^(ended: )+/, ""); }
}, %d);
"""


class View:
    """The page of some files of runs, made again when they have grown.

    Parameters
    ----------
    files : sequence of paths
    """

    def __init__(self, files: Sequence[str | os.PathLike[str]]) -> None:
        self.files = [os.fspath(file) for file in files]
        self._lock = threading.Lock()
        self._made, self._due = ("", ""), 0.0
        self._known: dict[str, Run] = {}

    def state(self) -> str:
        """A text that changes when a file does, but seldom where the page takes long to make."""
        return self._made[0] if time.monotonic() < self._due else self._stamps()

    def text(self) -> str:
        """The page as it is now. A file that is being written keeps what was read of it before."""
        with self._lock:
            state = self._stamps()
            if self._made[0] != state:
                start = time.monotonic()
                self._made = state, self._page(state)
                now = time.monotonic()
                self._due = now + SHARE * (now - start)
            return self._made[1]

    def _stamps(self) -> str:
        return " ".join(_stamp(file) for file in self.files)

    def _page(self, state: str) -> str:
        script = SCRIPT % (f'"{state}"', 1000 * SECONDS)
        faults = []
        for file in self.files:
            try:
                self._known[file] = read_file(file)
            except Exception as error:  # a file that is being written can raise any
                if file not in self._known:
                    faults.append(f"{file}: waiting for the first epoch of a run ({error})")
        runs = [self._known[file] for file in self.files if file in self._known]
        if runs:
            try:
                return report_text(runs, script)
            except Exception as error:  # the page looks again when the file has grown
                logger.error("the report of %s cannot be made: %s: %s", self.files, type(error).__name__, error)
                faults.append(f"the report cannot be made ({type(error).__name__}: {error})")
        return page("Waiting for a run", "", faults, script=script)


def _stamp(file: str) -> str:
    try:
        found = os.stat(file)
    except OSError:
        return "-"
    return f"{found.st_size}.{found.st_mtime_ns}"


def serve(files: Sequence[str | os.PathLike[str]], port: int, started: Callable[[str], None]) -> None:
    """Serve the live view until Ctrl-C.

    Parameters
    ----------
    port : int
        0: any that is free.
    started : callable
        Called with the page's address once it can be opened.

    Raises
    ------
    OSError
        If the port is taken.
    MissingExtra
        If matplotlib or h5py is not installed.
    """
    with make_server(files, port) as server:
        started(f"http://{HOST}:{server.server_address[1]}/")
        try:
            server.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            pass


def make_server(files: Sequence[str | os.PathLike[str]], port: int) -> ThreadingHTTPServer:
    """The server of the live view, ready to serve on :data:`HOST`.

    Raises
    ------
    MissingExtra
        If matplotlib or h5py is not installed.
    """
    require_matplotlib()
    require_h5py()
    view = View(files)

    class Handler(BaseHTTPRequestHandler):
        """Answers with the page, or the state of its files."""

        def do_GET(self) -> None:
            """Answer a request for ``/`` or ``/state``."""
            if self.headers.get("Host", "").partition(":")[0] not in NAMES:
                self.send_error(HTTPStatus.FORBIDDEN, "this server is for its own machine alone")
            elif self.path == "/":
                self._answer(view.text(), "text/html")
            elif self.path == "/state":
                self._answer(view.state(), "text/plain")
            else:
                self.send_error(HTTPStatus.NOT_FOUND)

        def _answer(self, text: str, kind: str) -> None:
            content = text.encode("utf-8", "replace")
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer((HOST, port), Handler)
    server.daemon_threads = True
    return server
