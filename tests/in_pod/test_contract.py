"""The formats that two sides share: what one side writes, the other side reads."""

from __future__ import annotations

from dataclasses import replace

import contract
import pytest
from contract import Attempt, CheckpointLine

ATTEMPT = Attempt("job-1", 2, 1.5, "pass-00001", 9.0, 'trainer 1 said "\u00e9]"', contract.FAILED)


def test_the_lines_of_the_log_are_read_as_they_were_printed() -> None:
    attempts = [ATTEMPT, replace(ATTEMPT, number=3, ended=0.0, reason="", result="")]
    line = contract.launcher_line(contract.attempts_message(attempts))
    assert contract.read_attempts_line(line) == attempts
    assert contract.read_checkpoint_line(line) is None
    reached = CheckpointLine(3, 5, {"loss": 0.5, "records per second": 1e6}, 1_800_000_000.0)
    line = contract.launcher_line(reached.message())
    assert contract.read_checkpoint_line(line) == reached
    assert contract.read_attempts_line(line) is None


def test_entries_that_are_not_understood_are_left_out_and_null_is_a_default() -> None:
    entries = [1, {}, {"number": "1"}, {"number": 1, "started": 10**400}, {"number": 7, "ended": None, "new": 1}]
    assert contract.parse_attempts(entries) == [Attempt(number=7)]


@pytest.mark.parametrize(
    ("attempt", "states"),
    [(Attempt(), ""), (Attempt("a", 1, 1.0), "running"), (Attempt("a", 1, 1.0, ended=2.0), "over")],
)
def test_the_states_of_an_attempt(attempt: Attempt, states: str) -> None:
    assert (attempt.is_running, attempt.is_over, attempt.has_result) == (states == "running", states == "over", False)
    assert replace(attempt, result=contract.FAILED).has_result
