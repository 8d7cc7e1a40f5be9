"""What the launcher runs, and that the Python of older images can read all that runs in the pods."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import training

from tests.in_pod.job import TRAINER


def test_one_process_for_each_gpu_or_one_on_the_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "DEVICES", tmp_path)
    assert training.processes_per_pod() == 1
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()
    assert training.processes_per_pod() == 2


@pytest.mark.parametrize(
    ("status", "words"),
    [(1, "ended with status 1"), (-9, "was killed by signal 9"), (247, "was killed by signal 9"), (143, "status 143")],
)
def test_a_status_in_words(status: int, words: str) -> None:
    assert words in training.describe_status(status)


@pytest.mark.parametrize("path", sorted(TRAINER.rglob("*.py")), ids=lambda path: path.name)
def test_the_pods_scripts_suit_python_3_8(path: Path) -> None:
    source = path.read_text()
    ast.parse(source, feature_version=(3, 8))
    assert "from __future__ import annotations" in source, "or `int | None` fails when it is read"
