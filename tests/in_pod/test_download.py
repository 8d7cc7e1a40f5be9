"""download.py: whatever the server and the network do, the file is complete or the data Job ends with one line."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import download
import prepare
import pytest
from contract import HTTPS, DataSource
from progress import DataError

from tests.in_pod.api import HttpsServer

CONTENT = b"".join(b"%d\trecord %d\n" % (n % 2, n) for n in range(20_000))
HALF = len(CONTENT) // 2


def answer(handler: BaseHTTPRequestHandler, status: int, headers: dict[str, object], body: bytes = b"") -> None:
    handler.send_response(status)
    for name, value in headers.items():
        handler.send_header(name, str(value))
    handler.end_headers()
    handler.wfile.write(body)


Answer = Callable[[BaseHTTPRequestHandler], None]


class Web(HttpsServer):
    """An https server with one function for each path."""

    def __init__(self, certificates: Path) -> None:
        self.answers: dict[str, Answer] = {}
        self.ranges: list[str] = []
        super().__init__(certificates, self.find)

    def find(self, handler: BaseHTTPRequestHandler) -> None:
        self.ranges.append(handler.headers.get("Range", ""))
        handler.close_connection = True
        self.answers[handler.path](handler)

    def url(self, path: str) -> str:
        return f"https://127.0.0.1:{self.server_address[1]}{path}"


@pytest.fixture
def web(certificates: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Web]:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates / "ca.crt"))
    monkeypatch.setattr(download, "FIRST_DELAY_SECONDS", 0)
    server = Web(certificates)
    yield server
    server.shutdown()
    server.server_close()


def whole(handler: BaseHTTPRequestHandler) -> None:
    answer(handler, 200, {"Content-Length": len(CONTENT)}, CONTENT)


def cut_off(handler: BaseHTTPRequestHandler) -> None:
    answer(handler, 200, {"Content-Length": len(CONTENT)}, CONTENT[:HALF])


def get(web: Web, file: Path, may_lack_length: bool = False) -> bytes:
    """The file that is downloaded from /data."""
    download.download(web.url("/data"), file, may_lack_length=may_lack_length)
    return file.read_bytes()


def fail(web: Web, out: Path, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The data Job with this address fails."""
    source = DataSource(HTTPS, (web.url(path),)).to_json()
    for name, value in {"OUT_DIR": str(out), "SPLIT_COUNT": "2", "TRAIN_CONFIG_DIR": "quick_start"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("DATA_SOURCE", source)
    assert prepare.main() == 1


def chunked(body: bytes) -> Answer:
    return lambda handler: answer(handler, 200, {"Transfer-Encoding": "chunked"}, body)


def in_chunks(content: bytes) -> bytes:
    return b"%x\r\n%s\r\n0\r\n\r\n" % (len(content), content)


def status(number: int, **headers: object) -> Answer:
    return lambda handler: answer(handler, number, {"Content-Length": 0, **headers})


def redirect(to: str) -> Answer:
    return status(302, Location=to)


def length(value: str) -> Answer:
    return lambda handler: answer(handler, 200, {"Content-Length": value}, CONTENT)


BAD_ANSWERS: dict[str, tuple[Answer, str]] = {
    "/missing": (status(404), "HTTP Error 404"),
    "/broken": (status(500), r"HTTP Error 500.* \(6 tries\)"),
    "/cut-off": (cut_off, rf"it ended after {HALF} of {len(CONTENT)} bytes \(6 tries\)"),
    "/no-length": (lambda handler: answer(handler, 200, {}, CONTENT[:HALF]), "no Content-Length, so nobody can see"),
    "/cut-chunk": (chunked(in_chunks(CONTENT)[:HALF]), r"IncompleteRead\(.* \(6 tries\)"),
    "/partial": (status(206), "the server answered with HTTP 206 instead of 200"),
    "/empty": (status(204), "the server answered with HTTP 204 instead of 200"),
    "/bad-length": (length("many"), "Content-Length 'many', which is not a number"),
    "/negative-length": (length("-5"), "Content-Length '-5', which is not a number"),
    "/to-http": (redirect("http://127.0.0.1/data"), "it redirects to http://127.0.0.1/data, which is not an https"),
    "/to-file": (redirect("file:///etc/passwd"), "HTTP Error 302: .*file:///etc/passwd"),
    "/loop": (redirect("/loop"), "HTTP Error 302: .*infinite loop"),
    "/\u00e9": (whole, "cannot be downloaded: "),
}


@pytest.mark.parametrize("path", BAD_ANSWERS)
def test_a_failed_download_is_one_line_and_exit_status_1(
    web: Web, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    web.answers[path], message = BAD_ANSWERS[path]
    fail(web, tmp_path, path, monkeypatch)
    error = capfd.readouterr().err
    assert error.startswith(f"prepare.py: {web.url(path)} cannot be downloaded: ")
    assert error.splitlines()[1:] == ["To run this Job again: pulumi up --replace '**Job::paddle-data'"]
    with pytest.raises(DataError, match=message):
        download.download(web.url(path), tmp_path / "file", may_lack_length=False)
    assert not (tmp_path / "data").exists()


def test_a_server_that_is_not_trusted_is_an_error_at_once(
    web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSL_CERT_FILE")
    with pytest.raises(DataError, match="CERTIFICATE_VERIFY_FAILED") as error:
        get(web, tmp_path / "file")
    assert "tries" not in str(error.value)


@pytest.mark.parametrize(
    ("answer", "may_lack_length"),
    [
        (whole, False),
        (chunked(in_chunks(CONTENT)), False),
        (lambda handler: answer(handler, 200, {}, CONTENT), True),
    ],
    ids=["length", "chunks", "checksum"],
)
def test_a_complete_answer_is_downloaded(web: Web, tmp_path: Path, answer: Answer, may_lack_length: bool) -> None:
    web.answers = {"/data": redirect(web.url("/there")), "/there": answer}
    assert get(web, tmp_path / "file", may_lack_length) == CONTENT


def in_turn(*answers: Answer) -> Answer:
    """One answer after the other."""
    turns = iter(answers)
    return lambda handler: next(turns)(handler)


def resuming(pieces: Iterator[int], version: str = '"1"', content: bytes = CONTENT) -> Answer:
    """A server that ends each connection after a piece, and sends parts of the same version."""

    def part(handler: BaseHTTPRequestHandler) -> None:
        begin = 0
        if "Range" in handler.headers and handler.headers.get("If-Range") in (None, version):
            begin = int(handler.headers["Range"][len("bytes=") : -1])
        length = next(pieces)
        headers: dict[str, object] = {"Content-Length": len(content) - begin, "ETag": version}
        if begin:
            headers["Content-Range"] = f"bytes {begin}-{len(content) - 1}/{len(content)}"
        answer(handler, 206 if begin else 200, headers, content[begin : begin + length])

    return part


def test_an_interrupted_download_resumes_where_it_ended(web: Web, tmp_path: Path) -> None:
    web.answers["/data"] = resuming(iter([1000] * 10 + [len(CONTENT)]))
    assert get(web, tmp_path / "file") == CONTENT
    assert web.ranges == ["", *(f"bytes={n}000-" for n in range(1, 11))]


def test_a_file_that_changed_meanwhile_is_downloaded_from_the_beginning(web: Web, tmp_path: Path) -> None:
    old, new = resuming(iter([HALF]), '"1"', b"x" * len(CONTENT)), resuming(iter([len(CONTENT)]), '"2"')
    web.answers["/data"] = in_turn(old, new)
    assert get(web, tmp_path / "file") == CONTENT


class UnreliableFile:
    """A file on a volume that fails once, after it has lost what was written."""

    def __init__(self, file: Any, error: int) -> None:
        self.file, self.error = file, error

    def __enter__(self) -> UnreliableFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)

    def write(self, block: bytes) -> int:
        if self.error:
            error, self.error = self.error, 0
            self.file.write(b"?" * len(block))
            raise OSError(error, os.strerror(error))
        return int(self.file.write(block))


@pytest.mark.parametrize("error", [errno.ESTALE, errno.EIO, errno.ENOSPC])
def test_after_an_error_of_the_volume_that_passes_the_download_starts_again(
    web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    web.answers["/data"] = resuming(iter([len(CONTENT)] * 2))
    errors, file = iter([error]), tmp_path / "file"
    opened = Path.open

    def unreliable(path: Path, mode: str = "r", **options: Any) -> Any:
        found = opened(path, mode, **options)
        return UnreliableFile(found, next(errors, 0)) if path == file and mode != "rb" else found

    monkeypatch.setattr(Path, "open", unreliable)
    if error == errno.ENOSPC:
        with pytest.raises(OSError, match="No space left"):
            get(web, file)
        return
    assert get(web, file) == CONTENT
    assert web.ranges == ["", ""], "it does not resume after writes that may be lost"


@pytest.mark.parametrize("sent", ["bytes 5-9/10", "", "bytes */10"])
def test_a_part_that_was_not_asked_for_is_not_used(web: Web, tmp_path: Path, sent: str) -> None:
    def wrong(handler: BaseHTTPRequestHandler) -> None:
        answer(handler, 206, {"Content-Range": sent, "Content-Length": 5}, b"wrong")

    web.answers["/data"] = in_turn(resuming(iter([HALF])), wrong, whole)
    assert get(web, tmp_path / "file") == CONTENT


def test_a_server_that_is_busy_for_a_moment_is_asked_again(web: Web, tmp_path: Path) -> None:
    web.answers["/data"] = in_turn(status(503), status(429), whole)
    assert get(web, tmp_path / "file") == CONTENT


def run(out: Path, code: Path, *urls: str, sha256: str = "") -> list[bytes]:
    """The shards that the data Job makes of these addresses."""
    prepare.prepare(prepare.DataSettings(out, 2, code, DataSource(HTTPS, urls), None, 0, sha256))
    return [(out / "data" / number / "records.txt").read_bytes() for number in "01"]


@pytest.fixture
def code(tmp_path: Path) -> Path:
    folder = tmp_path / "quick_start"
    folder.mkdir()
    (folder / "train.py").touch()
    return folder


def serve(content: bytes) -> Answer:
    return lambda handler: answer(handler, 200, {"Content-Length": len(content)}, content)


def test_https_data_is_read_again_and_checked_against_its_checksum(web: Web, tmp_path: Path, code: Path) -> None:
    web.answers["/data"] = serve(b"1\n2\n")
    assert run(tmp_path / "out", code, web.url("/data")) == [b"1\n", b"2\n"]
    content = b"1\n2\n3\n4\n"
    web.answers["/data"] = serve(content)
    right = hashlib.sha256(content).hexdigest()
    assert run(tmp_path / "out", code, web.url("/data"), sha256=right) == [b"1\n2\n", b"3\n4\n"]
    with pytest.raises(DataError, match=f"/data has SHA-256 {right}, not {'0' * 64}"):
        run(tmp_path / "out", code, web.url("/data"), sha256="0" * 64)
    assert (tmp_path / "out" / "data" / "1").exists(), "the earlier shards stay"


def test_a_list_of_addresses_is_read_in_its_order(web: Web, tmp_path: Path, code: Path) -> None:
    web.answers = {f"/{n}": serve(b"%d\n" % n) for n in range(10)}
    urls = [web.url(f"/{n}") for n in (3, 1, 2, 9, 0, 7, 5, 6)]
    assert b"".join(run(tmp_path / "out", code, *urls)) == b"3\n1\n2\n9\n0\n7\n5\n6\n"
    web.answers["/missing"] = BAD_ANSWERS["/missing"][0]
    with pytest.raises(DataError, match=r"/missing cannot be downloaded: .*404"):
        run(tmp_path / "out", code, web.url("/1"), web.url("/missing"), web.url("/2"))


QUERY = "X-Amz-Credential=me&X-Amz-Signature=hush"


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        ("/refused", status(403)),
        ("/cut-off", cut_off),
        ("/busy", status(503)),
        ("/to-http", redirect(f"http://127.0.0.1/data?{QUERY}")),
        ("/to-file", redirect(f"file:///data?{QUERY}")),
        ("/control\x7f", whole),
        ("/binary", serve(b"\0" * 100)),
    ],
)
def test_no_message_contains_the_query_of_an_address(
    web: Web,
    path: str,
    answer: Answer,
    tmp_path: Path,
    code: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    web.answers[f"{path}?{QUERY}"] = answer
    fail(web, tmp_path, f"{path}?{QUERY}", monkeypatch)
    shown = "".join(capfd.readouterr())
    assert f"{web.url(path)}" in shown
    assert "hush" not in shown


def test_no_file_contains_the_query_of_an_address(
    web: Web, tmp_path: Path, code: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    web.answers = {f"/{n}?{QUERY}": serve(b"%d\n" % n) for n in range(2)}
    run(tmp_path / "out", code, *(web.url(f"/{n}?{QUERY}") for n in range(2)))
    texts = [path.read_text() for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert any(web.url("/0") in text for text in texts)
    assert not [text for text in texts if "hush" in text]
    assert "hush" not in "".join(capfd.readouterr())
