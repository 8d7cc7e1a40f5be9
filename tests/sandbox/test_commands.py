"""What the command line prints if the user makes a mistake."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sandbox.checkout import Checkout


@pytest.fixture
def checkout(cached: None, tmp_path: Path) -> Iterator[Checkout]:
    created = Checkout.make(tmp_path)
    yield created
    created.run("down")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["status"], "The sandbox is not running. To start it, run `make sandbox`."),
        (["--stack", "nope", "up"], "Pulumi.nope.yaml does not exist. Use the name of a stack that has a file."),
        (["pulumi", "preview"], "stack local was not started in this checkout. Run `make sandbox` first."),
        (["--stack", "empty", "up"], "Pulumi.empty.yaml: aws:region is missing. Add it"),
        (["up"], "workers.count: 255 is too many. The sandbox can run up to 254."),
        (["upp"], "invalid choice: 'upp'"),
        (["run", "aws"], "stack local was not started in this checkout. Run `make sandbox` first."),
        (["pulumi", "config", "refresh"], "`pulumi config refresh` does not work in the sandbox. Run `"),
        (["pulumi", "config", "set", "--secret", "a", "b"], "--secret: the sandbox cannot read secrets"),
        (["pulumi", "up", "--config", "a=b"], "--config: the next `up` would forget this value. Run `"),
        (["pulumi", "up", "-ca=b"], "--config: the next `up` would forget this value. Run `"),
    ],
)
def test_a_mistake_is_reported_without_a_traceback(checkout: Checkout, arguments: list[str], says: str) -> None:
    checkout.set(workers={"count": 255})
    (checkout.project / "Pulumi.empty.yaml").write_text("config: {}\n")
    assert says in checkout.refused(*arguments)


def test_down_without_a_sandbox_succeeds(checkout: Checkout) -> None:
    done = checkout.run("down")
    assert (done.returncode, done.stdout) == (0, "There is no sandbox in this checkout. Nothing to stop.\n")
    assert not checkout.sandbox.exists()


def test_a_second_command_is_refused_while_one_is_running(checkout: Checkout) -> None:
    checkout.sandbox.mkdir()
    with (checkout.sandbox / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        shown = checkout.refused("up")
    assert "another sandbox command is running in this checkout. Wait until it ends." in shown
