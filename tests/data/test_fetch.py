"""Downloads from a server on this machine: whole, resumed, wrong, cut off, and none."""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import io
import os
import tarfile
import threading
import zipfile

import pytest

from neonlike.data import Dataset
from neonlike.data import fetch as fetching
from neonlike.data.datasets import unpack
from neonlike.data.fetch import DownloadFailed, WrongChecksum, fetch
from neonlike.errors import ArgumentError

CONTENT = bytes(range(256)) * 2000


class Server(http.server.ThreadingHTTPServer):
    """Serves ``files``; breaks connections after ``cuts`` bytes, one cut for each request."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files = {"data.bin": CONTENT}
        self.cuts = []
        self.tags = True
        self.ranges = True
        self.shift = 0
        self.asked = []

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        server, name = self.server, self.path.strip("/")
        server.asked.append(self.headers.get("Range"))
        if name not in server.files:
            self.send_error(404)
            return
        content = server.files[name]
        tag = f'"{hashlib.md5(content).hexdigest()}"'
        first = 0
        asked = self.headers.get("Range")
        if asked and server.ranges and self.headers.get("If-Range") == tag:
            first = int(asked.removeprefix("bytes=").rstrip("-")) - server.shift
            if first >= len(content):
                self.send_error(416)
                return
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {first}-{len(content) - 1}/{len(content)}")
        else:
            self.send_response(200)
        if server.tags:
            self.send_header("ETag", tag)
        self.send_header("Content-Length", str(len(content) - first))
        self.end_headers()
        rest = content[first:]
        cut = server.cuts.pop(0) if server.cuts else len(rest)
        with contextlib.suppress(OSError):
            self.wfile.write(rest[:cut])

    def log_message(self, *args):
        pass


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    made = Server()
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


@pytest.fixture
def target(tmp_path):
    return str(tmp_path / "data.bin")


def read(path):
    with open(path, "rb") as file:
        return file.read()


def test_a_file_is_downloaded_once(server, target):
    for _ in range(2):
        assert fetch(f"{server.url}/data.bin", target) == target
    assert read(target) == CONTENT and server.asked == [None]
    assert os.listdir(os.path.dirname(target)) == ["data.bin"]


def test_a_broken_connection_is_resumed(server, target):
    server.cuts = [100_000, 0, 200_000, 0]
    fetch(f"{server.url}/data.bin", target)
    assert read(target) == CONTENT
    assert server.asked == [None, "bytes=100000-", "bytes=100000-", "bytes=300000-", "bytes=300000-"]


def test_a_later_call_goes_on_where_an_earlier_one_ended(server, target):
    server.cuts = [100_000] + [0] * fetching.RETRIES
    with pytest.raises(DownloadFailed, match="the next call goes on from there"):
        fetch(f"{server.url}/data.bin", target)
    assert not os.path.exists(target) and os.path.getsize(f"{target}.part") == 100_000
    server.asked.clear()
    fetch(f"{server.url}/data.bin", target)
    assert server.asked == ["bytes=100000-"] and read(target) == CONTENT
    assert os.listdir(os.path.dirname(target)) == ["data.bin"]


@pytest.mark.parametrize("how", ["changed", "no ranges", "no tags"])
def test_a_part_that_cannot_be_continued_is_downloaded_anew(server, target, how):
    server.tags = how != "no tags"
    server.cuts = [100_000] + [0] * fetching.RETRIES
    with pytest.raises(DownloadFailed):
        fetch(f"{server.url}/data.bin", target)
    server.ranges = how != "no ranges"
    if how == "changed":
        server.files["data.bin"] = CONTENT[::-1]
    fetch(f"{server.url}/data.bin", target)
    assert read(target) == server.files["data.bin"]


def test_a_server_that_sends_another_part_is_asked_for_all(server, target):
    server.cuts = [100_000]
    server.shift = 500
    fetch(f"{server.url}/data.bin", target)
    assert read(target) == CONTENT and server.asked == [None, "bytes=100000-", None]


def test_a_part_longer_than_the_file_is_downloaded_anew(server, target):
    server.cuts = [100_000] + [0] * fetching.RETRIES
    with pytest.raises(DownloadFailed):
        fetch(f"{server.url}/data.bin", target)
    with open(f"{target}.part", "ab") as part:
        part.write(CONTENT)
    fetch(f"{server.url}/data.bin", target)
    assert read(target) == CONTENT and server.asked[-1] is None


@pytest.mark.parametrize("method", ["md5", "sha256"])
def test_checksums(server, target, method):
    digest = f"{method}:{hashlib.new(method, CONTENT).hexdigest()}"
    fetch(f"{server.url}/data.bin", target, digest=digest)
    os.unlink(target)
    server.files["data.bin"] = CONTENT[:-1] + b"?"
    with pytest.raises(WrongChecksum, match=f"has the {method} .*it was removed"):
        fetch(f"{server.url}/data.bin", target, digest=digest)
    assert os.listdir(os.path.dirname(target)) == []


def test_another_size_is_said_but_no_error(server, target, caplog):
    fetch(f"{server.url}/data.bin", target, size=7)
    assert "512000 bytes, where 7 were expected" in caplog.text


def test_what_the_server_lacks_is_named(server, target):
    with pytest.raises(DownloadFailed, match=r"404 .*put the file at .*data\.bin by hand") as raised:
        fetch(f"{server.url}/none.bin", target)
    assert isinstance(raised.value, OSError) and not os.path.exists(target)


def test_without_a_network_the_message_says_what_to_do(server, target):
    url = server.url
    server.server_close()  # nobody listens there
    with pytest.raises(DownloadFailed, match=r"Without a network, put the file at .*data\.bin by hand"):
        fetch(f"{url}/data.bin", target)
    with pytest.raises(ArgumentError, match="no address of http"):
        fetch("file:///etc/passwd", target)


def test_two_processes_do_not_download_into_one_file(server, target):
    with fetching._locked(f"{target}.part"), pytest.raises(DownloadFailed, match="another process"):
        fetch(f"{server.url}/data.bin", target)


def test_progress_is_shown_on_a_terminal_only(server, target, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setattr("sys.stderr", screen := Terminal())
    fetch(f"{server.url}/data.bin", target)
    assert "\r0.5 of 0.5 MB" in screen.getvalue() and screen.getvalue().endswith("\n")
    os.unlink(target)
    monkeypatch.setattr("sys.stderr", quiet := io.StringIO())
    fetch(f"{server.url}/data.bin", target)
    assert "MB" not in quiet.getvalue()


# Data sets ------------------------------------------------------------------------------------------------------------


class Letters(Dataset):
    """One file in an archive."""

    def __init__(self, url, path, subset_pct=100):
        super().__init__("letters.zip", url, 0, path=path, subset_pct=subset_pct)
        self.made = 0

    def load_data(self):
        return read(self.find("deep/letters.txt", "letters.zip"))

    def gen_iterators(self):
        self.made += 1
        return {"train": self.load_data(), "valid": b"none"}


def zipped(**files):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in files.items():
            archive.writestr(name.replace("__", "/") + ".txt", content)
    return buffer.getvalue()


def test_a_data_set_downloads_and_unpacks_when_it_is_asked_for(server, tmp_path):
    server.files["letters.zip"] = zipped(deep__letters="abc", other="x")
    data = Letters(server.url, str(tmp_path / "new" / "folder"))
    assert not (tmp_path / "new").exists()
    assert data.train_iter == b"abc" and data.valid_iter == b"none" and data.made == 1
    (tmp_path / "new" / "folder" / "letters.zip").unlink()
    assert Letters("http://nowhere.invalid", str(tmp_path / "new" / "folder")).load_data() == b"abc"
    with pytest.raises(AssertionError, match="no part 'test'; expected 'train' or 'valid'"):
        _ = data.test_iter


def test_what_an_archive_lacks_is_named(server, tmp_path):
    server.files["letters.zip"] = zipped(other="x")
    with pytest.raises(OSError, match=r"letters\.zip has no file deep/letters\.txt"):
        Letters(server.url, str(tmp_path)).load_data()


def test_bases_of_data_sets(tmp_path):
    data = Dataset("a.bin", "http://nowhere.invalid", 3, path=str(tmp_path))
    for call in (data.load_data, data.gen_iterators):
        with pytest.raises(NotImplementedError, match="Dataset does not define"):
            call()
    assert data.serialize()["config"]["filename"] == "a.bin"
    assert Dataset._valid_path_append(tmp_path / "new") == str(tmp_path / "new") and (tmp_path / "new").is_dir()
    assert data._valid_path_append(tmp_path, "a") == str(tmp_path / "a")
    assert data._valid_path_append(tmp_path, "a", "b") == [str(tmp_path / "a"), str(tmp_path / "b")]
    (tmp_path / "file").write_text("")
    with pytest.raises(ArgumentError, match="is a file"):
        data._valid_path_append(tmp_path / "file")
    with pytest.raises(AssertionError, match="subset_pct=50; expected 100"):
        Letters("", ".", subset_pct=50)


def test_fetch_dataset_is_usable_by_itself(server, target):
    assert Dataset.fetch_dataset(server.url + "/", "data.bin", target, len(CONTENT)) == target
    assert read(target) == CONTENT


@pytest.mark.parametrize("name", ["../outside.txt", "/tmp/neonlike-outside.txt", "deep/../../outside.txt"])
@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_an_archive_cannot_write_outside_of_its_folder(tmp_path, name, kind):
    folder = tmp_path / "in"
    folder.mkdir()
    path = str(folder / f"x.{kind}")
    if kind == "zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(name, "x")
    else:
        with tarfile.open(path, "w") as archive:
            member = tarfile.TarInfo(name)
            member.size = 1
            archive.addfile(member, io.BytesIO(b"x"))
    with pytest.raises(OSError, match="outside of its folder"):
        unpack(path)
    assert os.listdir(tmp_path) == ["in"] and not os.path.exists("/tmp/neonlike-outside.txt")


def test_links_in_an_archive_are_left_out(tmp_path):
    with tarfile.open(tmp_path / "x.tar", "w") as archive:
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    unpack(str(tmp_path / "x.tar"))
    assert os.listdir(tmp_path) == ["x.tar"]


def test_damaged_archives_and_other_files(tmp_path):
    content = zipped(letters="abc" * 1000)
    (tmp_path / "x.zip").write_bytes(content[:-30])
    with pytest.raises(OSError, match=r"x\.zip is a damaged archive"):
        unpack(str(tmp_path / "x.zip"))
    (tmp_path / "x.gz").write_bytes(b"anything")
    unpack(str(tmp_path / "x.gz"))
    assert sorted(os.listdir(tmp_path)) == ["x.gz", "x.zip"]
