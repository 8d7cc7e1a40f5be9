"""What the launchers observe, without pods and processes."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path

import contract
import pytest
import trainer0
from decisions import Snapshot
from history import read_history
from launch import Launcher
from state_files import CurrentAttempt, read_attempt, write_attempt
from trainer0 import Trainer0
from trainer_settings import TrainerSettings

from tests.in_pod.samples import settings

ENDED = CurrentAttempt("job-1", 4, 1.0, ended=2.0, reason="trainer 1 ended with status 3")


class NoPods:
    """A cluster that does not answer."""

    problem = ""

    def __init__(self, _: TrainerSettings) -> None:
        self.changed = threading.Event()

    def pods(self) -> None:
        return None


@pytest.fixture
def leader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Trainer0:
    monkeypatch.setattr(trainer0, "PodWatcher", NoPods)
    monkeypatch.setattr(trainer0, "POLL_SECONDS", 0.01)
    (tmp_path / contract.OUTPUT).mkdir()
    (tmp_path / contract.LAUNCHERS).mkdir()
    return Trainer0(replace(settings(0), job_folder=tmp_path, peer_timeout=0.0))


def test_trainer_0_is_not_silent_while_it_verifies_a_checkpoint(
    leader: Trainer0, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checksums of a large checkpoint take longer than the other launchers wait for a sign of life."""
    verified = threading.Event()

    def verify(*_: object) -> str:
        assert verified.wait(60)
        return "pass-00007"

    monkeypatch.setattr(trainer0, "newest_checkpoint", verify)
    for now in (10.0, 20.0):
        assert leader.observe(Snapshot(now=now, attempt=ENDED)).newest_checkpoint is None
        leader.wait(ENDED, now)
        assert read_attempt(tmp_path, "job-1").alive == now
    verified.set()
    assert leader.verification
    leader.verification.found.result(60)
    assert leader.observe(Snapshot(now=30.0, attempt=ENDED)).newest_checkpoint == "pass-00007"
    running = replace(ENDED, ended=0.0, resume="pass-00003")
    assert leader.observe(Snapshot(now=40.0, attempt=running)).newest_checkpoint == "pass-00003"


def test_an_error_of_the_verification_ends_the_launcher(leader: Trainer0, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> str:
        raise OSError("for good")

    monkeypatch.setattr(trainer0, "newest_checkpoint", fail)
    monkeypatch.setattr(trainer0, "POLL_SECONDS", 60)
    with pytest.raises(OSError, match="for good"):
        leader.observe(Snapshot(now=1.0))


def test_the_report_delays_no_decision_and_is_written_at_the_end(leader: Trainer0, tmp_path: Path) -> None:
    page = tmp_path / contract.OUTPUT / contract.REPORT_FILE
    leader.publish(ENDED, 3.0)
    assert read_history(tmp_path / contract.OUTPUT) == [contract.Attempt("job-1", 4, 1.0, "", 2.0, ENDED.reason)]
    assert not page.exists()
    deadline = time.monotonic() + 60
    while not page.exists():
        assert time.monotonic() < deadline, "it is not written during the training"
        time.sleep(0.05)
    leader.publish(replace(ENDED, result=contract.FAILED), 4.0)
    assert "Failed" in page.read_text()


def test_a_report_that_cannot_be_written_ends_no_training(
    leader: Trainer0, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in (contract.REPORT_FILE, contract.HISTORY_FILE):
        (tmp_path / contract.OUTPUT / name).mkdir()
    leader.publish(replace(ENDED, result=contract.FAILED), 4.0)
    assert capfd.readouterr().out.count("report.html cannot be written: IsADirectoryError") == 1
    assert read_attempt(tmp_path, "job-1").has_result


def test_a_launcher_measures_the_silence_of_trainer_0_with_its_own_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("signal.signal", lambda *_: None)
    launcher = Launcher(replace(settings(1), job_folder=tmp_path), tmp_path / "work")
    for alive in (1e9, 1.0, 1e10):
        launcher.last_change -= 1000
        assert launcher.observe().silence >= 1000
        write_attempt(tmp_path, CurrentAttempt("job-1", 1, alive=alive))
        assert launcher.observe().silence < 1000
