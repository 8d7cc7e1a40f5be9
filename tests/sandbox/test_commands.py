"""What the command line says to a person's mistakes."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sandbox.checkout import Checkout


@pytest.fixture
def checkout(cached: None, tmp_path: Path) -> Iterator[Checkout]:
    made = Checkout.make(tmp_path)
    yield made
    made.run("down")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["status"], "nothing runs here; `make sandbox` starts it"),
        (["--stack", "nope", "up"], "there is no Pulumi.nope.yaml"),
        (["pulumi", "preview"], "local was not started here: run `make sandbox` first"),
        (["upp"], "invalid choice: 'upp'"),
    ],
)
def test_mistakes_get_one_line(checkout: Checkout, arguments: list[str], says: str) -> None:
    done = checkout.run(*arguments)
    assert done.returncode != 0
    assert says in done.stdout
    assert "Traceback" not in done.stdout


def test_down_of_nothing_is_no_mistake(checkout: Checkout) -> None:
    done = checkout.run("down")
    assert (done.returncode, done.stdout) == (0, "no sandbox here: nothing to stop\n")
    assert not checkout.sandbox.exists()


def test_stack_without_region_is_told_where_to_write_it(checkout: Checkout) -> None:
    (checkout.project / "Pulumi.local.yaml").write_text("config: {}\n")
    done = checkout.run("up")
    assert done.returncode == 1
    assert "Pulumi.local.yaml names no aws:region" in done.stdout


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (
            {"workers": {"count": "many"}, "availabilityZones": 3, "pserver": 4},
            "has invalid settings. Nothing was created.",
        ),
        ({"workers": {"count": 255}}, "workers.count: 255 is more than the 254 nodes that a machine can be"),
    ],
)
def test_a_wrong_setting_gets_no_traceback(checkout: Checkout, settings: dict[str, object], says: str) -> None:
    checkout.set(**settings)
    done = checkout.run("up")
    assert done.returncode == 1
    assert says in done.stdout
    assert "Traceback" not in done.stdout


def test_two_commands_at_once_do_not_meet(checkout: Checkout) -> None:
    checkout.sandbox.mkdir()
    with (checkout.sandbox / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = checkout.run("up")
    assert done.returncode == 1
    assert "runs in this checkout: wait for it" in done.stdout
    assert "Traceback" not in done.stdout
