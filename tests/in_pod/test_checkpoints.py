"""Which checkpoint a training resumes from."""

from __future__ import annotations

from pathlib import Path

from checkpoints import newest_checkpoint


def make(output: Path, *names: str) -> None:
    """Complete checkpoints of these names."""
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
    make(tmp_path, "pass-00001", "pass-00002-backup", "pass-", "pass-00003.old", "xpass-00004", ".pass-00005")
    messages: list[str] = []
    assert newest_checkpoint(tmp_path, messages.append) == "pass-00001"
    assert messages == []
