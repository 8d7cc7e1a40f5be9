"""The launchers' agreement, by real launcher processes: every fault ends in a complete model or a clear error."""

from __future__ import annotations

import os
import signal

from tests.trainer.gang import Gang

ALL = ["pass-00000", "pass-00001", "pass-00002"]


def test_three_trainers_find_each_other_and_finish(gang: Gang) -> None:
    for index in range(3):
        gang.start(index)
    gang.wait(gang.ended)
    assert gang.statuses() == [0, 0, 0]
    assert gang.passes() == ALL
    for index in range(3):
        log = (gang.root / "output" / f"node_{index}" / "train.log").read_text()
        assert f"stub: job-1 rank {index} master 127.64.1.1:7165 resumes nothing" in log
        assert f"shard-{index}.txt" in log
