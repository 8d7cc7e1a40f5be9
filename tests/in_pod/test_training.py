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
import splitting
import trainer_settings
import training
from state_files import CurrentAttempt

from tests.in_pod.api import make_pod
from tests.in_pod.samples import settings
from tests.in_pod.training_run import TRAINER, TrainingRun


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


@pytest.fixture
def trainer(tmp_path: Path) -> trainer_settings.TrainerSettings:
    """Trainer 2 of three, with its shard and its code on the volume."""
    (tmp_path / "code").mkdir()
    (tmp_path / "lines").write_bytes(b"1\tgood\n" * 30)
    splitting.split(splitting.Lines(tmp_path / "lines", 0, "lines"), tmp_path / "data", {}, 3)
    return replace(settings(2), job_folder=tmp_path, code=tmp_path / "code")


@pytest.mark.parametrize(
    ("content", "trainers", "problem"),
    [
        (b"1\tgood\n" * 9, 3, "has 63 bytes instead of 70"),
        (b"1\tevil\n" * 10, 3, "has the wrong checksum"),
        (None, 3, "is missing"),
        ("", 3, "is missing: the data must be split for 3 trainers"),
        (b"1\tgood\n" * 10, 4, "the data is split for 3 trainers, not for 4"),
        (b"1\tgood\n" * 10, 2, "/data/2 exists: the data is split for more than 2 trainers"),
    ],
    ids=["short", "changed", "lost", "no folder", "fewer shards", "more shards"],
)
def test_wrong_data_is_not_trained_on(
    tmp_path: Path,
    trainer: trainer_settings.TrainerSettings,
    content: bytes | str | None,
    trainers: int,
    problem: str,
) -> None:
    records = tmp_path / "data/2/records.txt"
    records.unlink()
    if isinstance(content, bytes):
        records.write_bytes(content)
    elif content is not None:
        records.parent.rmdir()
    here = replace(trainer, trainers=trainers, trainer=1 if trainers == 2 else 2)
    with pytest.raises(trainer_settings.LaunchError, match=f"{problem}; run the data Job again: pulumi"):
        training.copy_in(here, tmp_path / "work", threading.Event())


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("CONF_PADDLE_NIC", "eth9", "CONF_PADDLE_NIC is 'eth9', but the network interfaces here are"),
        ("PASSES", "many", "PASSES is 'many': it must be a whole number of at least 1"),
        ("JOB_COMPLETION_INDEX", "3", "JOB_COMPLETION_INDEX is 3: it must be less than CONF_PADDLE_GRADIENT_NUM, 3"),
    ],
)
def test_a_wrong_setting_is_named(run: TrainingRun, name: str, value: str, message: str) -> None:
    environment = run.environment(1, make_pod("job", 1, run.address(1)))
    least = {"PASSES": "1", "MAX_ATTEMPTS": "1", "CONF_PADDLE_PORTS_NUM": "1", "PEER_TIMEOUT_SECONDS": "1"}
    assert trainer_settings.read_settings({**environment, **least}, []).trainer == 1
    with pytest.raises(trainer_settings.LaunchError, match=f"^{message}"):
        trainer_settings.read_settings({**environment, name: value}, [])


def test_a_file_name_that_the_output_cannot_encode_is_logged(capfd: pytest.CaptureFixture[str]) -> None:
    trainer_settings.log("\ud800 does not have its 1 bytes")
    assert capfd.readouterr().out.endswith(r"launch: \ud800 does not have its 1 bytes" + "\n")


@pytest.mark.parametrize("folders", [None, ["/old/paddle"]], ids=["no paddle", "the Paddle of 2016"])
def test_an_image_without_a_current_paddle_is_a_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folders: list[str] | None
) -> None:
    package = folders and SimpleNamespace(submodule_search_locations=folders)
    monkeypatch.setattr(training, "find_spec", lambda _: package)
    with pytest.raises(trainer_settings.LaunchError, match="it needs Paddle 2"):
        training.launch_command(settings(1), CurrentAttempt(), tmp_path)
