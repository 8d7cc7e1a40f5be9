"""prepare.py: whatever the data, the split, the moment of a kill, the volume holds one complete set or none."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import contract
import prepare
import progress
import pytest
import shards as shards_module
import splitting
from contract import DataSource
from hypothesis import given, settings
from hypothesis import strategies as st
from progress import DataError
from shards import read_manifest, shard_problem

from tests.in_pod.samples import make_tar
from tests.in_pod.training_run import TRAINER


class KilledError(BaseException):
    """Stands for SIGKILL: nothing in prepare.py may catch it."""


class KillPoint:
    """Raises KilledError at the n-th access to the file system."""

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
SYNTHETIC = DataSource(contract.SYNTHETIC, ()).to_json()


def in_s3(address: str) -> str:
    return DataSource(contract.S3, (address,)).to_json()


def environment(out: Path, **settings: object) -> dict[str, str]:
    """What the data Job gives its container; by default for two shards of synthetic data."""
    job = {"OUT_DIR": out, "SPLIT_COUNT": 2, "TRAIN_CONFIG_DIR": "quick_start", "DATA_SOURCE": SYNTHETIC, **settings}
    return {**os.environ, **{name: str(value) for name, value in job.items()}}


def start(variables: Mapping[str, str]) -> subprocess.Popen[bytes]:
    command = [sys.executable, str(TRAINER / "prepare.py")]
    return subprocess.Popen(command, env=variables, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def from_s3(
    out: Path, splits: int, code: Path, objects: Mapping[str, Path], pod: str = "some-pod"
) -> prepare.DataSettings:
    """The settings of a data Job whose init container copied these objects; several are a folder in S3."""
    fetched = contract.fetched_folder(out, pod)
    for name, source in objects.items():
        path = fetched / contract.FETCH_OBJECTS / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        os.link(source, path)
    fetched.mkdir(parents=True, exist_ok=True)
    (fetched / contract.FETCH_DONE).touch()
    key = next(iter(objects)) if len(objects) == 1 else "folder/"
    return prepare.DataSettings(out, splits, code, DataSource(contract.S3, (f"s3://b/{key}",)), fetched, 0, "")


def synthetic(out: Path, code: Path, splits: int = 3) -> prepare.DataSettings:
    """Data that is not made again if it is there."""
    return prepare.DataSettings(out, splits, code, DataSource(contract.SYNTHETIC, ()), None, 500, "")


def run(out: Path, splits: int, file: Path, code: Path) -> list[bytes]:
    """The data Job, in this process. Returns the shards."""
    prepare.prepare(from_s3(out, splits, code, {"source": file}))
    return shards(out)


def names(out: Path) -> list[str]:
    """The folders of the Job on the volume."""
    return sorted(path.name for path in out.iterdir() if path.name != prepare.LOCK_FILE)


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
    assert max(counts) - min(counts) <= 1
    assert all(part.endswith(b"\n") for part in parts[:-1])


lines = st.lists(
    st.one_of(
        st.just(b""),
        st.binary(max_size=40).map(lambda line: line.translate(None, b"\n\0")),
        st.text(max_size=20).map(lambda line: line.encode("utf-8", "surrogatepass").translate(None, b"\n\0")),
        st.sampled_from(["latin é", "中文", "dos\r"]).map(lambda line: line.encode("gb18030")),
    ),
    min_size=1,
    max_size=60,
)


@settings(max_examples=200, deadline=None)
@given(lines=lines, ending=st.booleans(), splits=st.integers(1, 9), block=st.integers(1, 50), piece=st.integers(1, 50))
def test_any_lines_are_split_evenly_and_whole(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], ending: bool, splits: int, block: int, piece: int
) -> None:
    content = b"\n".join(lines) + (b"\n" if ending else b"")
    folder = tmp_path_factory.getbasetemp() / "any-lines"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / "source").write_bytes(content)
    given_lines = splitting.Lines(folder / "source", 0, "source")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(progress, "BLOCK", block)
        patch.setattr(splitting, "PIECE", piece)
        patch.setattr(shards_module, "PIECE", piece)
        if count(content) < splits:
            with pytest.raises(DataError, match=f"records for {splits} trainers"):
                splitting.cut(given_lines, splits)
            return
        splitting.split(given_lines, folder / "data", {}, splits)
        manifest = read_manifest(folder / "data")
        for number, shard in enumerate(manifest["shards"]):
            assert not shard_problem(folder / "data" / str(number), shard)
    parts = shards(folder)
    assert_even_split(content, parts)
    assert manifest["records"] == [count(part) for part in parts]
    assert [shard["bytes"] for shard in manifest["shards"]] == [len(part) for part in parts]
    whole = [hashlib.sha256(content[i : i + piece]).digest() for i in range(0, len(content), piece)]
    assert manifest["digest"] == hashlib.sha256(b"".join(whole)).hexdigest(), "for any number of shards"


class ShortReads(io.FileIO):
    """A file whose raw reads often return less than they were asked for, as the system allows."""

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer)
        return super().readinto(view[: len(view) - len(view) // 3])

    def read(self, size: int | None = -1) -> bytes:
        return super().read(size if not size or size < 2 else size - size // 3)


def test_reads_that_return_less_than_asked_do_not_change_the_split(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def short(path: Path, mode: str = "r", buffering: int = -1, **options: Any) -> Any:
        raw = ShortReads(path) if mode == "rb" else open(path, mode, buffering, **options)  # noqa: PTH123, SIM115
        return io.BufferedReader(raw, 64) if mode == "rb" and buffering else raw

    content = b"".join(b"record %d\n" % number for number in range(1000))
    (tmp_path / "source").write_bytes(content)
    monkeypatch.setattr(Path, "open", short)
    monkeypatch.setattr(progress, "BLOCK", 256)
    splitting.split(splitting.Lines(tmp_path / "source", 0, "source"), tmp_path / "data", {}, 3)
    assert_even_split(content, shards(tmp_path))
    assert read_manifest(tmp_path / "data")["records"] == [334, 333, 333]


@pytest.mark.parametrize("what", ["counting", "splitting"])
def test_a_file_that_changes_while_it_is_split_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    file = tmp_path / "source"
    file.write_bytes(b"1\n" * 30)

    class Meanwhile(progress.Progress):
        def __init__(self, doing: str, total: int) -> None:
            super().__init__(doing, total)
            if doing == "splitting" == what:
                file.write_bytes(b"1\n" * 14 + b"11" + b"1\n" * 15)

        def add(self, count: int) -> None:
            if self.what == "counting" == what:
                file.write_bytes(b"1" * 60)

    monkeypatch.setattr(splitting, "Progress", Meanwhile)
    shard = ": shard 1 has 9 records instead of 10" if what == "splitting" else "$"
    with pytest.raises(DataError, match=f"^source changed while it was read{shard}"):
        splitting.split(splitting.Lines(file, 0, "source"), tmp_path / "data", {}, 3)


@pytest.fixture
def code(tmp_path: Path) -> Path:
    """Training code as a ConfigMap volume shows it: links into ..data, a subfolder among them."""
    folder = tmp_path / "mount" / "quick_start"
    (folder / "..2026" / "sub").mkdir(parents=True)
    (folder / "..2026" / "train.py").write_text("print(1)\n")
    (folder / "..2026" / "sub" / "words.py").write_text("print(2)\n")
    for link, target in {"..data": "..2026", "train.py": "..data/train.py", "sub": "..data/sub"}.items():
        (folder / link).symlink_to(target)
    return folder


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """100 records, no end of line at the last."""
    path = tmp_path / "source"
    path.write_text("\n".join(f"{number % 2}\trecord {number}" for number in range(100)))
    return path


def test_same_input_same_shards_and_another_count_replaces_them(tmp_path: Path, code: Path, file: Path) -> None:
    out = tmp_path / "out"
    assert run(out, 3, file, code) == run(out, 3, file, code)
    assert len(run(out, 7, file, code)) == 7
    assert_even_split(file.read_bytes(), shards(out))
    assert names(out) == ["data", "output", "quick_start"]
    copied = [path for path in (out / "quick_start").rglob("*") if path.is_file() and not path.is_symlink()]
    assert sorted(path.name for path in copied) == ["train.py", "words.py"]
    file.write_bytes(b"\xef\xbb\xbf1\ta\rb\r\n0\tc\r\n")
    assert run(out, 2, file, code) == [b"1\ta\rb\r\n", b"0\tc\r\n"], "no byte order mark; a lone CR ends no record"


@pytest.mark.parametrize("older", [0, 5])
def test_a_kill_at_any_point_leaves_a_complete_set_or_none_and_the_next_run_finishes(
    tmp_path: Path, code: Path, file: Path, older: int
) -> None:
    """Every access to the file system is a kill point, on an empty volume and on an older set."""
    point, survived = 0, False
    while not survived:
        out = tmp_path / f"out-{point}"
        if older:
            run(out, older, file, code)
        job = from_s3(out, 3, code, {"source": file})
        kill_point.left = point
        try:
            prepare.prepare(job)
            survived = True
        except KilledError:
            pass
        finally:
            kill_point.left = -1
        if (out / "data").exists():
            assert len(shards(out)) in (3, older)
            assert_even_split(file.read_bytes(), shards(out))
        if (out / "quick_start").exists():
            assert (out / "quick_start" / "sub" / "words.py").read_text() == "print(2)\n"
        assert len(run(out, 3, file, code)) == 3
        assert names(out) == ["data", "output", "quick_start"]
        point += 7 if point > 20 else 1
    assert point > 27, "the kill points were not reached"


def test_synthetic_data_is_the_same_every_time_and_not_made_twice(
    tmp_path: Path, code: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def made(out: str, splits: int) -> list[bytes]:
        prepare.prepare(synthetic(tmp_path / out, code, splits))
        return shards(tmp_path / out)

    once = made("a", 3)
    assert made("b", 3) == once
    assert "already has" not in capsys.readouterr().out
    assert made("a", 3) == once
    assert "already has this data in 3 shards" in capsys.readouterr().out
    assert b"".join(made("a", 2)) == b"".join(once)


def test_checkpoints_made_from_other_data_or_code_are_set_aside(tmp_path: Path, code: Path, file: Path) -> None:
    out = tmp_path / "out"
    checkpoint = out / "output" / "pass-00000"
    run(out, 3, file, code)
    checkpoint.mkdir()
    run(out, 2, file, code)
    assert checkpoint.exists(), "another number of trainers resumes from the same checkpoint"
    prepare.prepare(from_s3(out, 3, code, {"new name": file}))
    assert checkpoint.exists(), "the same data under another name"
    (code / "..data" / "train.py").write_text("print(3)\n")
    run(out, 2, file, code)
    assert not checkpoint.exists()
    assert (out / "output-before-1" / "pass-00000").exists()
    checkpoint.mkdir()
    file.write_bytes(file.read_bytes().replace(b"record 50", b"record 05"))
    run(out, 2, file, code)
    assert not checkpoint.exists(), "the data changed under the same name"
    assert (out / "output-before-2" / "pass-00000").exists()


@pytest.mark.parametrize("content", ["", "{", "null", "[]", "3", '{"digest": 3}', '{"source": "s3://b/source"}'])
def test_a_stamp_that_something_else_wrote_counts_as_other_data(
    tmp_path: Path, code: Path, file: Path, content: str
) -> None:
    out = tmp_path / "out"
    run(out, 3, file, code)
    (out / "output" / "made-from.json").write_text(content)
    run(out, 3, file, code)
    assert (out / "output-before-1").exists()
    assert set(json.loads((out / "output/made-from.json").read_text())) == {"source", "sha256", "digest", "code", "id"}


def cut_manifest(data: Path) -> None:
    """As an earlier version of prepare.py wrote it."""
    manifest = json.loads((data / "manifest.json").read_text())
    (data / "manifest.json").write_text(json.dumps({name: manifest[name] for name in manifest if name != "shards"}))


DAMAGE: dict[str, Callable[[Path], object]] = {
    "lost folder": lambda data: shutil.rmtree(data / "1"),
    "lost file": lambda data: (data / "1/records.txt").unlink(),
    "short": lambda data: os.truncate(data / "1/records.txt", 500),
    "changed": lambda data: (data / "1/records.txt").write_bytes(
        (data / "1/records.txt").read_bytes()[:-5] + b"good\n"
    ),
    "old manifest": cut_manifest,
    **{
        text: partial(lambda text, data: (data / "manifest.json").write_text(text), text)
        for text in ("", "{", "null", "3")
    },
}


@pytest.mark.parametrize("what", DAMAGE)
def test_lost_or_damaged_shards_are_made_again(tmp_path: Path, code: Path, what: str) -> None:
    out = tmp_path / "out"
    prepare.prepare(synthetic(out, code))
    before = shards(out)
    DAMAGE[what](out / "data")
    prepare.prepare(synthetic(out, code))
    assert shards(out) == before


@pytest.mark.parametrize("moment", ["split", "copy_code"])
def test_of_two_data_jobs_at_once_the_one_that_started_last_wins(
    tmp_path: Path, code: Path, file: Path, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when a node drains: the old pod still works for up to 30 s after the new one started."""
    out, other = tmp_path / "out", tmp_path / "other"
    other.write_text("".join(f"other {number}\n" for number in range(10)))
    old = from_s3(out, 3, code, {"source": file})
    new = from_s3(out, 2, code, {"source": other}, "new-pod")
    original = getattr(prepare, moment)

    def meanwhile(*arguments: object) -> object:
        monkeypatch.setattr(prepare, moment, original)
        prepare.prepare(new)
        return original(*arguments)

    monkeypatch.setattr(prepare, moment, meanwhile)
    with pytest.raises(DataError, match="another data Job started after this one, so this one stops"):
        prepare.prepare(old)
    assert b"".join(shards(out)) == other.read_bytes()
    assert len(shards(out)) == 2
    assert names(out) == ["data", "output", "quick_start"]


def test_many_data_jobs_at_once_leave_one_complete_set(tmp_path: Path) -> None:
    out = tmp_path / "out"
    jobs = [start(environment(out, DATA_RECORDS=2000, SPLIT_COUNT=splits)) for splits in (2, 3, 4, 5)]
    errors = [job.communicate()[1].decode() for job in jobs]
    assert 0 in [job.returncode for job in jobs]
    assert all("another data Job started after" in error for error in errors if error), errors
    manifest = json.loads((out / "data" / "manifest.json").read_text())
    assert [count(part) for part in shards(out)] == manifest["records"]
    assert names(out) == ["data", "output", "quick_start"]


def test_sigterm_ends_the_data_job_at_once(tmp_path: Path) -> None:
    """The first process of a container ignores SIGTERM unless it has a handler."""
    job = start(environment(tmp_path / "out", DATA_RECORDS=100_000_000))
    while not list((tmp_path / "out").glob(".prepare-*/lines")):
        assert job.poll() is None
        time.sleep(0.05)
    job.send_signal(signal.SIGTERM)
    first, last = job.communicate()[1].decode().splitlines()
    assert job.returncode == 128 + signal.SIGTERM
    assert first.startswith("prepare.py: stopped by SIGTERM: ")
    assert last == "To run this Job again: pulumi up --replace '**Job::paddle-data'"


@pytest.mark.parametrize("objects", [0, 1, 3], ids=["synthetic", "one object", "several objects"])
def test_errors_of_the_volume_that_pass_do_not_fail_the_data_job(tmp_path: Path, code: Path, objects: int) -> None:
    out = tmp_path / "volume" / "job"
    contents = [b"1\tgood %d\n" % number * 1000 for number in range(objects)]
    for number, content in enumerate(contents):
        (tmp_path / str(number)).write_bytes(content)
    from_s3(out, 3, code, {str(number): tmp_path / str(number) for number in range(objects)})
    variables = environment(
        out,
        PYTHONPATH=f"{Path(__file__).parent / 'unreliable'}{os.pathsep}{TRAINER}",
        UNRELIABLE_VOLUME=tmp_path / "volume",
        SPLIT_COUNT=3,
        DATA_SOURCE=in_s3(f"s3://bucket/{'folder/' if objects > 1 else '0'}") if objects else SYNTHETIC,
        DATA_RECORDS=100,
        POD_UID="some-pod",
    )
    command = [sys.executable, "-c", "import prepare, sys; sys.exit(prepare.main())"]
    for _ in range(1 if objects else 2):
        done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert names(out) == ["data", "output", "quick_start"]
        assert b"".join(shards(out)) == b"".join(contents) or not objects


def test_all_objects_of_an_s3_folder_are_read_in_the_order_of_s3(tmp_path: Path, code: Path) -> None:
    objects = {
        "a/10": b"2\n",
        "a/9.gz": gzip.compress(b"3"),
        "a-b": b"\xef\xbb\xbf1\n",
        "b.tar": make_tar({"x": b"4\n", "y.bz2": bz2.compress(b"5\n")}),
        "\u00e9": b"6\r\n",
        "empty": b"",
    }
    files = {name: tmp_path / f"object-{number}" for number, name in enumerate(objects)}
    for name, path in files.items():
        path.write_bytes(objects[name])
    prepare.prepare(from_s3(tmp_path / "out", 3, code, files))
    assert b"".join(shards(tmp_path / "out")) == b"1\n2\n3\n4\n5\n6\r\n"
    assert names(tmp_path / "out") == ["data", "output", "quick_start"], "the copy of the objects is deleted"


@pytest.mark.parametrize(("lost", "message"), [("done", "is missing or incomplete"), ("objects", "has no objects")])
def test_an_incomplete_copy_of_an_s3_source_is_not_used(
    tmp_path: Path, code: Path, file: Path, lost: str, message: str
) -> None:
    job = from_s3(tmp_path / "out", 2, code, {"source": file})
    assert job.fetched
    (job.fetched / lost).rename(tmp_path / "lost")
    with pytest.raises(DataError, match=message):
        prepare.prepare(job)
    assert not job.fetched.exists(), "the next try copies again"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"1\n2\n", "the data has 2 records for 3 trainers: each needs at least one"),
        (b"", "the data has 0 records for 3 trainers"),
        ("1\n2\n3\n4\n".encode("utf-16"), "^s3://b/source is UTF-16 text: use UTF-8 text"),
        (b"1\n2\n3\n\0\n", "^s3://b/source contains NUL bytes"),
        (b"\x1f\x8b\x08 and no gzip", "^s3://b/source: the gzip data is damaged"),
    ],
)
def test_data_that_cannot_be_split_is_a_clear_error(tmp_path: Path, code: Path, content: bytes, message: str) -> None:
    (tmp_path / "source").write_bytes(content)
    with pytest.raises(DataError, match=message):
        run(tmp_path / "out", 3, tmp_path / "source", code)
    assert not (tmp_path / "out" / "data").exists()


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("SPLIT_COUNT", "0", "SPLIT_COUNT is '0': it must be a whole number of at least 1"),
        ("DATA_SOURCE", "", "DATA_SOURCE is not set"),
        ("DATA_SOURCE", "http://x", "DATA_SOURCE is not the JSON text that the data Job sets"),
        ("DATA_SOURCE", in_s3("s3://b/k"), "POD_UID is not set"),
        ("DATA_SHA256", "0" * 64, "DATA_SHA256 is set, but DATA_SOURCE is more than one file"),
        ("TRAIN_CONFIG_DIR", "", "TRAIN_CONFIG_DIR is not set"),
        ("TRAIN_CONFIG_DIR", "nowhere", "TRAIN_CONFIG_DIR: the training code "),
    ],
)
def test_a_wrong_setting_is_one_line_that_names_it(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
    value: str,
    message: str,
) -> None:
    source = in_s3("s3://b/folder/") if name == "DATA_SHA256" else SYNTHETIC
    monkeypatch.setattr(os, "environ", environment(tmp_path / "out", **{"DATA_SOURCE": source, name: value}))
    assert prepare.main() == 1
    first, last = capsys.readouterr().err.splitlines()
    assert first.startswith(f"prepare.py: {message}")
    assert last == "To run this Job again: pulumi up --replace '**Job::paddle-data'"


def test_the_smallest_numbers_are_allowed(tmp_path: Path) -> None:
    found = prepare.read_settings(environment(tmp_path, SPLIT_COUNT=1, DATA_RECORDS=1))
    assert (found.splits, found.records) == (1, 1)


def test_progress_is_printed_every_two_seconds_and_at_the_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    times = iter([100.0, 101.9, 102.0, 102.5])
    monkeypatch.setattr("progress.time", SimpleNamespace(monotonic=lambda: next(times)))
    shown = progress.Progress("copying", 4_000_000)
    for count in (1_000_000, 1_000_000, 2_000_000):
        shown.add(count)
    assert capsys.readouterr().out.splitlines() == [
        "copying:  50%  2.0 MB  1.0 MB/s",
        "copying: 100%  4.0 MB  1.6 MB/s",
    ]


def test_a_big_file_needs_little_memory(tmp_path: Path, code: Path) -> None:
    big = tmp_path / "big"
    block = b"".join(b"%d\ta review of some length, such as people write\n" % (n % 2) for n in range(20000))
    with big.open("wb") as out:
        for _ in range(400):
            out.write(block)
    assert big.stat().st_size > 350e6
    script = "import prepare; print(prepare.main()); print(open('/proc/self/status').read())"
    job = from_s3(tmp_path / "out", 3, code, {"k": big})
    variables = environment(
        job.out, PYTHONPATH=TRAINER, SPLIT_COUNT=3, DATA_SOURCE=in_s3("s3://b/k"), POD_UID="some-pod"
    )
    printed = subprocess.run([sys.executable, "-c", script], env=variables, check=True, capture_output=True).stdout
    match = re.search(rb"splitting: 100%  [\d.]+ MB  [\d.]+ MB/s\n.*\n0\n.*VmHWM:\s+(\d+) kB", printed, re.DOTALL)
    assert match, printed
    assert int(match[1]) * 1024 < min(200e6, big.stat().st_size / 3)
