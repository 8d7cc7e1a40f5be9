"""prepare.py: whatever the data, the split, the moment of a kill, the volume holds one complete set or none."""

from __future__ import annotations

import hashlib
import http.server
import io
import json
import os
import random
import re
import shutil
import signal
import ssl
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import prepare
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.in_pod.training_run import TRAINER


class KilledError(BaseException):
    """Stands for SIGKILL: nothing in prepare.py may catch it."""


class KillPoint:
    """Ends the process's life, so to speak, at the n-th touch of the file system."""

    def __init__(self) -> None:
        self.left = -1
        sys.addaudithook(self)

    def __call__(self, event: str, arguments: tuple[object, ...]) -> None:
        if self.left < 0 or event.partition(".")[0] not in ("open", "os", "shutil"):
            return
        self.left -= 1
        if self.left < 0:
            raise KilledError


kill_point = KillPoint()


def run(out: Path, splits: int, file: Path, code: Path) -> None:
    """The data Job, in this process."""
    prepare.prepare(
        prepare.Settings(out=out, splits=splits, code=code, source="s3://b/k", file=file, records=0, sha256="")
    )


def shards(out: Path) -> list[bytes]:
    """The shards on the volume, which must be one complete set."""
    manifest = json.loads((out / "data" / "manifest.json").read_text())
    numbers = sorted(int(path.name) for path in (out / "data").iterdir() if path.is_dir())
    assert numbers == list(range(manifest["splits"]))
    return [(out / "data" / str(number) / "records.txt").read_bytes() for number in numbers]


def count(content: bytes) -> int:
    """Its records: lines, the last one with or without an end."""
    return content.count(b"\n") + (not content.endswith(b"\n") and bool(content))


def assert_even_split(content: bytes, parts: list[bytes]) -> None:
    """Nothing lost, doubled or moved; sizes differ by at most one record; no record is cut in two."""
    assert b"".join(parts) == content
    counts = [count(part) for part in parts]
    assert sum(counts) == count(content)
    assert max(counts) - min(counts) <= 1
    assert all(part.endswith(b"\n") for part in parts[:-1])


lines = st.lists(
    st.one_of(
        st.just(b""),
        st.binary(max_size=40).map(lambda line: line.replace(b"\n", b"")),
        st.text(max_size=20).map(lambda line: line.replace("\n", "").encode("utf-8", "surrogatepass")),
        st.sampled_from(["latin é", "中文", "dos\r"]).map(lambda line: line.encode("gb18030")),
    ),
    min_size=1,
    max_size=60,
)


@settings(max_examples=200, deadline=None)
@given(lines=lines, ending=st.booleans(), splits=st.integers(1, 9), block=st.integers(1, 50))
def test_any_lines_are_split_evenly_and_whole(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], ending: bool, splits: int, block: int
) -> None:
    content = b"\n".join(lines) + (b"\n" if ending else b"")
    folder = tmp_path_factory.getbasetemp() / "any-lines"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    file = folder / "source"
    file.write_bytes(content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prepare, "BLOCK", block)
        if count(content) < splits:
            with pytest.raises(prepare.DataError, match=f"records for {splits} trainers"):
                prepare.cut(file, splits)
            return
        cuts = prepare.cut(file, splits)
        prepare.split(file, folder / "data", {}, splits)
    parts = shards(folder)
    assert_even_split(content, parts)
    assert [records for _, _, records in cuts] == [count(part) for part in parts]


@pytest.fixture
def code(tmp_path: Path) -> Path:
    """Training code as a ConfigMap volume shows it: links into ..data, a subfolder among them."""
    folder = tmp_path / "mount" / "quick_start"
    real = tmp_path / "mount" / "quick_start" / "..2026"
    (real / "sub").mkdir(parents=True)
    (real / "train.py").write_text("print(1)\n")
    (real / "sub" / "words.py").write_text("print(2)\n")
    (folder / "..data").symlink_to("..2026")
    (folder / "train.py").symlink_to("..data/train.py")
    (folder / "sub").symlink_to("..data/sub")
    return folder


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """100 records, no end of line at the last."""
    path = tmp_path / "source"
    path.write_text("\n".join(f"{number % 2}\trecord {number}" for number in range(100)))
    return path


def test_code_is_copied_with_its_subfolders(tmp_path: Path, code: Path, file: Path) -> None:
    run(tmp_path / "out", 3, file, code)
    copied = tmp_path / "out" / "quick_start"
    found = sorted(str(path.relative_to(copied)) for path in copied.rglob("*") if path.is_file())
    assert found == ["sub/words.py", "train.py"]
    assert not (copied / "train.py").is_symlink()


def test_same_input_same_shards_and_another_count_replaces_them(tmp_path: Path, code: Path, file: Path) -> None:
    out = tmp_path / "out"
    run(out, 3, file, code)
    first = shards(out)
    run(out, 3, file, code)
    assert shards(out) == first
    run(out, 7, file, code)
    assert len(shards(out)) == 7
    assert_even_split(file.read_bytes(), shards(out))
    assert sorted(path.name for path in out.iterdir()) == ["data", "output", "quick_start"]


def test_a_kill_at_any_point_leaves_a_complete_set_or_none_and_the_next_run_mends_it(
    tmp_path: Path, code: Path, file: Path
) -> None:
    """Every touch of the file system is a kill point, over an empty volume and over an older set."""
    content = file.read_bytes()
    for older in (0, 5):
        point = 0
        while True:
            out = tmp_path / f"out-{older}-{point}"
            if older:
                run(out, older, file, code)
            kill_point.left = point
            try:
                run(out, 3, file, code)
                survived = True
            except KilledError:
                survived = False
            finally:
                kill_point.left = -1
            if (out / "data").exists():
                parts = shards(out)
                assert len(parts) in (3, older)
                assert_even_split(content, parts)
            if (out / "quick_start").exists():
                assert (out / "quick_start" / "sub" / "words.py").read_text() == "print(2)\n"
            if survived:
                break
            run(out, 3, file, code)
            assert len(shards(out)) == 3
            assert sorted(path.name for path in out.iterdir()) == ["data", "output", "quick_start"]
            point += 7 if point > 20 else 1
        assert point > 20, "the kill points were not reached"


def test_sigkill_at_random_moments_of_a_real_run(tmp_path: Path) -> None:
    out = tmp_path / "out"
    environment = {
        **os.environ,
        "OUT_DIR": str(out),
        "TRAIN_CONFIG_DIR": "quick_start",
        "DATA_RECORDS": "30000",
    }
    rng = random.Random(5)
    whole = 0.0
    for attempt in range(8):
        splits = rng.choice([2, 3, 5])
        began = time.monotonic()
        process = subprocess.Popen(
            [sys.executable, TRAINER / "prepare.py"],
            env={**environment, "SPLIT_COUNT": str(splits), "DATA_RECORDS": str(30000 + attempt)},
            stdout=subprocess.DEVNULL,
        )
        if attempt:
            try:
                process.wait(rng.uniform(0, whole))
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
        ended = process.wait()
        whole = whole or time.monotonic() - began
        if (out / "data").exists():
            manifest = json.loads((out / "data" / "manifest.json").read_text())
            assert [count(part) for part in shards(out)] == manifest["records"]
            assert sum(manifest["records"]) == manifest["synthetic records"]
        assert ended in (0, -signal.SIGKILL)


def test_synthetic_data_is_the_same_every_time_and_not_made_twice(
    tmp_path: Path, code: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def synthetic(out: Path, splits: int) -> list[bytes]:
        prepare.prepare(
            prepare.Settings(out=out, splits=splits, code=code, source="synthetic", file=None, records=500, sha256="")
        )
        return shards(out)

    once = synthetic(tmp_path / "a", 3)
    assert synthetic(tmp_path / "b", 3) == once
    assert "already has" not in capsys.readouterr().out
    assert synthetic(tmp_path / "a", 3) == once
    assert "already has this data in 3 shards" in capsys.readouterr().out
    assert b"".join(synthetic(tmp_path / "a", 2)) == b"".join(once)


def test_passes_made_from_other_data_or_code_are_set_aside(tmp_path: Path, code: Path, file: Path) -> None:
    out = tmp_path / "out"
    run(out, 3, file, code)
    (out / "output" / "pass-00000").mkdir()
    run(out, 2, file, code)
    assert (out / "output" / "pass-00000").exists(), "another count of trainers goes on from the same pass"
    (code / "..data" / "train.py").write_text("print(3)\n")
    run(out, 2, file, code)
    assert not (out / "output" / "pass-00000").exists()
    assert (out / "output-before-1" / "pass-00000").exists()


def make_tar(files: dict[str, bytes], mode: str) -> bytes:
    """A tar of these files, and a folder and a link among them."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as tar:  # type: ignore[call-overload]
        folder = tarfile.TarInfo("folder")
        folder.type = tarfile.DIRTYPE
        tar.addfile(folder)
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    return buffer.getvalue()


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2"])
def test_the_files_of_a_tar_are_read_as_one(tmp_path: Path, code: Path, mode: str) -> None:
    archive = tmp_path / "archive"
    archive.write_bytes(make_tar({"folder/a": b"1\n2", "b": b"", "c": b"3\n4\n"}, mode))
    run(tmp_path / "out", 2, archive, code)
    assert shards(tmp_path / "out") == [b"1\n2\n", b"3\n4\n"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"1\n2\n", "the data has 2 records for 3 trainers: each needs at least one"),
        (b"", "the data has 0 records for 3 trainers"),
        ("1\n2\n3\n4\n".encode("utf-16"), "is UTF-16 text: use plain text"),
        (b"\x1f\x8b not a tar", "is gzip: use plain text or a tar"),
    ],
)
def test_data_that_cannot_be_split_is_a_clear_error(tmp_path: Path, code: Path, content: bytes, message: str) -> None:
    (tmp_path / "source").write_bytes(content)
    with pytest.raises(prepare.DataError, match=message):
        run(tmp_path / "out", 3, tmp_path / "source", code)
    assert not (tmp_path / "out" / "data").exists()


@pytest.fixture
def web(tmp_path: Path, certificates: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An https server of the test's folder `web`; `broken` promises more than it sends."""
    (tmp_path / "web").mkdir()

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments: object) -> None:
            super().__init__(*arguments, directory=str(tmp_path / "web"))  # type: ignore[arg-type]

        def do_GET(self) -> None:
            if self.path != "/broken":
                return super().do_GET()
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b"1\n2\n3\n4\n")
            return None

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / "server.crt", certificates / "server.key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates / "ca.crt"))
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield f"https://127.0.0.1:{server.server_address[1]}"
    server.shutdown()


def fetch(out: Path, url: str, code: Path, sha256: str = "") -> None:
    """The data Job with an https source."""
    prepare.prepare(prepare.Settings(out=out, splits=2, code=code, source=url, file=None, records=0, sha256=sha256))


def test_https_data_is_downloaded_and_checked(tmp_path: Path, web: str, code: Path) -> None:
    content = b"1\n2\n3\n4\n"
    (tmp_path / "web" / "data").write_bytes(content)
    right = hashlib.sha256(content).hexdigest()
    fetch(tmp_path / "out", f"{web}/data", code, right)
    assert shards(tmp_path / "out") == [b"1\n2\n", b"3\n4\n"]
    with pytest.raises(prepare.DataError, match=f"has SHA-256 {right}, not {'0' * 64}"):
        fetch(tmp_path / "out", f"{web}/data", code, "0" * 64)
    assert len(shards(tmp_path / "out")) == 2, "the set that was there stays"


def test_a_source_without_a_checksum_is_read_again(tmp_path: Path, web: str, code: Path) -> None:
    (tmp_path / "web" / "data").write_bytes(b"1\n2\n")
    fetch(tmp_path / "out", f"{web}/data", code)
    (tmp_path / "web" / "data").write_bytes(b"3\n4\n")
    fetch(tmp_path / "out", f"{web}/data", code)
    assert shards(tmp_path / "out") == [b"3\n", b"4\n"]


@pytest.mark.parametrize(
    ("path", "message"), [("missing", "cannot be downloaded: .*404"), ("broken", "ended after 8 of 1000")]
)
def test_a_failed_download_is_a_clear_error(tmp_path: Path, web: str, code: Path, path: str, message: str) -> None:
    with pytest.raises(prepare.DataError, match=message):
        fetch(tmp_path / "out", f"{web}/{path}", code)
    assert not (tmp_path / "out" / "data").exists()


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("SPLIT_COUNT", "0", "SPLIT_COUNT is '0': it must be a whole number of at least 1"),
        ("DATA_SOURCE", "http://x", "DATA_SOURCE is 'http://x': it must be synthetic, https://... or s3://"),
        ("DATA_SOURCE", "s3://b/k", "DATA_FILE is not set"),
        ("TRAIN_CONFIG_DIR", "", "TRAIN_CONFIG_DIR is not set"),
        ("TRAIN_CONFIG_DIR", "nowhere", "TRAIN_CONFIG_DIR: the training code "),
    ],
)
def test_a_wrong_setting_is_one_line_that_names_it(tmp_path: Path, name: str, value: str, message: str) -> None:
    environment = {"OUT_DIR": str(tmp_path / "out"), "SPLIT_COUNT": "2", "TRAIN_CONFIG_DIR": "quick_start", name: value}
    result = subprocess.run(
        [sys.executable, TRAINER / "prepare.py"], env={**os.environ, **environment}, capture_output=True, text=True
    )
    assert result.returncode == 1
    assert result.stderr.startswith(f"prepare.py: {message}")
    assert result.stderr.count("\n") == 1


def test_a_big_file_needs_little_memory(tmp_path: Path, code: Path) -> None:
    big = tmp_path / "big"
    block = b"".join(b"%d\ta review of some length, such as people write\n" % (n % 2) for n in range(20000))
    with big.open("wb") as out:
        for _ in range(400):
            out.write(block)
    assert big.stat().st_size > 350e6
    script = "import prepare; print(prepare.main()); print(open('/proc/self/status').read())"
    environment = {
        **os.environ,
        "PYTHONPATH": str(TRAINER),
        "OUT_DIR": str(tmp_path / "out"),
        "SPLIT_COUNT": "3",
        "TRAIN_CONFIG_DIR": "quick_start",
        "DATA_SOURCE": "s3://b/k",
        "DATA_FILE": str(big),
    }
    printed = subprocess.run([sys.executable, "-c", script], env=environment, check=True, capture_output=True).stdout
    pattern = r"splitting: 100%  [\d.]+ MB  [\d.]+ MB/s\n.*\n0\n.*VmHWM:\s+(\d+) kB"
    match = re.search(pattern, printed.decode(), re.DOTALL)
    assert match, printed
    assert int(match[1]) * 1024 < min(200e6, big.stat().st_size / 3)
