"""Which checkpoint a training resumes from."""

from __future__ import annotations

import errno
import json
from hashlib import sha256
from pathlib import Path

import checkpoints
import pytest
from checkpoints import newest_checkpoint


def make(output: Path, *names: str) -> None:
    for name in names:
        (output / name).mkdir(parents=True)
        (output / name / "done").write_text("{}")


def test_checkpoints_are_ordered_by_number(tmp_path: Path) -> None:
    make(tmp_path, "pass-9", "pass-10")
    assert newest_checkpoint(tmp_path, print) == "pass-10"
    make(tmp_path, "pass-00011", "pass-99999")
    assert newest_checkpoint(tmp_path, print) == "pass-99999"
    make(tmp_path, "pass-100000")
    assert newest_checkpoint(tmp_path, print) == "pass-100000"


def test_other_folders_are_not_checkpoints(tmp_path: Path) -> None:
    names = "pass-00002-backup pass- pass-00003.old xpass-00004 .pass-00005 pass-1234567890"
    make(tmp_path, "pass-00001", *names.split())
    messages: list[str] = []
    assert newest_checkpoint(tmp_path, messages.append) == "pass-00001"
    assert messages == []


def test_a_checkpoint_that_cannot_be_read_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path, "pass-00001", "pass-00002")
    read = checkpoints.damage

    def damage(checkpoint: Path) -> str:
        if checkpoint.name == "pass-00002":
            raise PermissionError(errno.EACCES, "Permission denied", "model")
        return read(checkpoint)

    monkeypatch.setattr(checkpoints, "damage", damage)
    messages: list[str] = []
    assert newest_checkpoint(tmp_path, messages.append) == "pass-00001"
    assert messages == ["checkpoint pass-00002 is skipped: it cannot be read: [Errno 13] Permission denied: 'model'"]


CAPITALS = json.dumps({"files": {"model": {"bytes": 4, "sha256": sha256(b"good").hexdigest().upper()}}})


@pytest.mark.parametrize(
    "content",
    [
        '{"files": ["model"]}',
        '{"files": {"model": 4}}',
        "null",
        "[1]",
        '{"loss": 1}',
        "\xff",
        "",
        "[" * 99999,
        CAPITALS,
    ],
    ids=["list", "sizes", "null", "array", "other keys", "not text", "empty", "deep", "capital letters"],
)
def test_a_done_file_of_any_form_marks_a_complete_checkpoint(tmp_path: Path, content: str) -> None:
    make(tmp_path, "pass-00000", "pass-00001")
    (tmp_path / "pass-00001" / "model").write_bytes(b"good")
    (tmp_path / "pass-00001" / "done").write_bytes(content.encode("latin-1"))
    assert newest_checkpoint(tmp_path, print) == "pass-00001"


def test_a_file_that_cannot_exist_is_damage(tmp_path: Path) -> None:
    make(tmp_path, "pass-00000")
    (tmp_path / "pass-00000" / "done").write_text('{"files": {"\\ud800": {"bytes": 1, "sha256": ""}}}')
    messages: list[str] = []
    assert newest_checkpoint(tmp_path, messages.append) == ""
    assert messages == ["checkpoint pass-00000 is skipped: \ud800 does not have its 1 bytes"]
