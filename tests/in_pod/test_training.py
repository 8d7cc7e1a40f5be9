"""What the launcher runs, and that the Python of older images can read all that runs in the pods."""

from __future__ import annotations

import ast
import io
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import processes
import pytest
import trainer_settings
import training
from state_files import CurrentAttempt

from tests.in_pod.samples import settings
from tests.in_pod.training_run import TRAINER


def test_one_process_for_each_gpu_or_one_on_the_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "DEVICES", tmp_path)
    assert training.processes_per_pod() == 1
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()
    assert training.processes_per_pod() == 2


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (1, "ended with status 1"),
        (-9, "was killed by signal 9"),
        (247, "was killed by signal 9"),
        (143, "status 143"),
        (255, "ended with status 255"),
        (254, "ended with status 254"),
    ],
)
def test_a_status_in_words(status: int, words: str) -> None:
    assert words in processes.describe_status(status)


@pytest.mark.parametrize("path", sorted(TRAINER.rglob("*.py")), ids=lambda path: path.name)
def test_the_pods_scripts_suit_python_3_8(path: Path) -> None:
    source = path.read_text()
    ast.parse(source, feature_version=(3, 8))
    assert "from __future__ import annotations" in source, "or `int | None` fails when it is read"


@pytest.mark.parametrize(
    "line",
    [
        "LAUNCH ERROR 2026-01-01 Container failed !!!",
        "  [TimeInfo: *** Aborted at 1700000000 (unix time) try `date -d @1700000000` if you are using GNU date ***]",
        "  [SignalInfo: *** SIGABRT (@0x5e) received by PID 94 (TID 0x7f0) from PID 94 ***]",
        "FatalError: `Process abort signal` is detected by the operating system.",
        "--------------------------------------",
        "C++ Traceback (most recent call last):",
        "Error Message Summary:",
        "I1119 00:56:52.671357    14 tcp_utils.cc:132] Successfully connected to 127.64.1.1:7165",
        "",
    ],
)
def test_what_paddle_prints_after_a_crash_is_not_its_cause(line: str) -> None:
    assert training.possible_cause(line.encode() + b"\n") == ""
    assert training.possible_cause(b"ValueError: the real cause\n") == "ValueError: the real cause"


def test_a_long_line_is_copied_in_small_pieces() -> None:
    stream = io.BytesIO(b"first\n" + b"x" * 1_000_000 + b"\nlast")
    found = list(training.pieces(stream))
    assert max(len(piece) for piece, _ in found) <= 65536
    assert b"".join(piece for piece, _ in found) == stream.getvalue()
    assert [piece[:5] for piece, is_start in found if is_start] == [b"first", b"xxxxx", b"last"]


def test_a_long_copy_ends_when_the_launcher_is_stopped(tmp_path: Path) -> None:
    shard = tmp_path / "data" / "1"
    shard.mkdir(parents=True)
    (shard / "records.txt").write_bytes(b"1\n" * 1000)
    (tmp_path / "code").mkdir()
    here = replace(settings(1), job_folder=tmp_path, code=tmp_path / "code")
    stopped = threading.Event()
    stopped.set()
    with pytest.raises(training.CancelledError):
        training.copy_in(here, tmp_path / "work", stopped)
    training.copy_in(here, tmp_path / "work", threading.Event())
    assert (tmp_path / "work" / "data" / "records.txt").stat().st_size == 2000


@pytest.mark.parametrize("folders", [None, ["/old/paddle"]], ids=["no paddle", "the Paddle of 2016"])
def test_an_image_without_a_current_paddle_is_a_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folders: list[str] | None
) -> None:
    package = folders and SimpleNamespace(submodule_search_locations=folders)
    monkeypatch.setattr(training, "find_spec", lambda _: package)
    with pytest.raises(trainer_settings.LaunchError, match="it needs Paddle 2"):
        training.launch_command(settings(1), CurrentAttempt(), tmp_path)
