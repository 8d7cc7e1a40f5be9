"""The state files on a volume that fails for a moment."""

from __future__ import annotations

import errno
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import files
import pytest
from state_files import CurrentAttempt, Status, read_attempt, read_json, read_status, write_attempt, write_status


@pytest.mark.parametrize("number", [errno.ESTALE, errno.EIO])
def test_transient_errors_are_retried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    (tmp_path / "file").write_text('{"a": 1}')
    opened, failures = os.open, [number] * 3

    def fail(*arguments: Any) -> int:
        if failures:
            raise OSError(failures.pop(), "transient")
        return opened(*arguments)

    monkeypatch.setattr(os, "open", fail)
    assert read_json(tmp_path / "file") == {"a": 1}
    assert failures == []


def test_other_errors_and_lasting_ones_are_not_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FileNotFoundError):
        read_json(tmp_path / "no" / "folder")

    def fail(*_: Any) -> int:
        raise OSError(errno.EIO, "for good")

    monkeypatch.setattr(files, "RETRY_SECONDS", 0.5)
    monkeypatch.setattr(os, "open", fail)
    with pytest.raises(OSError, match="for good"):
        read_json(tmp_path / "file")


def test_an_attempt_is_read_as_it_was_written(tmp_path: Path) -> None:
    attempt = CurrentAttempt(job="job-1", number=3, members=("a", "b"), addresses=("1", "2"), started=1.5, alive=2.0)
    write_attempt(tmp_path, attempt)
    assert read_attempt(tmp_path, "job-1") == attempt
    assert read_attempt(tmp_path, "another Job") == CurrentAttempt(job="another Job")


@pytest.mark.parametrize(
    "content", [b"\xff{", b"[]", b'{"number": "one"}', b'{"surprise": 1}', b'{"members": 3}', b"[" * 100_000, b""]
)
def test_unreadable_state_files_count_as_absent(tmp_path: Path, content: bytes) -> None:
    (tmp_path / ".launchers").mkdir()
    for name in ("attempt.json", "trainer-1.json"):
        (tmp_path / ".launchers" / name).write_bytes(content)
    assert read_attempt(tmp_path, "job-1") == CurrentAttempt(job="job-1")
    assert read_status(tmp_path, 1) == Status()


def test_two_launchers_can_write_the_same_file_at_once(tmp_path: Path) -> None:
    """A pod that ends and its replacement have the same trainer number."""
    statuses = [Status(uid=f"uid-{number}", attempt=1) for number in range(4)]

    def write(status: Status) -> None:
        for _ in range(100):
            write_status(tmp_path, 1, status)
            assert read_status(tmp_path, 1) in statuses

    with ThreadPoolExecutor(len(statuses)) as pool:
        list(pool.map(write, statuses))
    assert [path.name for path in (tmp_path / ".launchers").iterdir()] == ["trainer-1.json"]
