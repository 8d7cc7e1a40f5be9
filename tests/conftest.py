"""The order of the test files: long files first, for `pytest -n 4 --dist loadfile --no-loadscope-reorder`.

All tests of a file run in one process, because they share a checkout or a cluster.
"""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from sandbox import build

ROOT = Path(__file__).resolve().parent.parent
LONGEST_FIRST = (
    "tests/sandbox/test_recovery.py",
    "tests/sandbox/test_changed_settings.py",
    "tests/sandbox/test_training_faults.py",
    "tests/sandbox/test_running_training.py",
    "tests/sandbox/test_mission.py",
    "tests/in_pod/test_launch.py",
    "tests/sandbox/test_lifecycle.py",
    "tests/sandbox/test_pause.py",
    "tests/sandbox/test_two_stacks.py",
    "tests/sandbox/test_notifications.py",
    "tests/in_pod/test_export.py",
    "tests/sandbox/test_existing_key.py",
    "tests/sandbox/test_preview.py",
    "tests/sandbox/test_recover.py",
    "tests/in_pod/test_train.py",
    "tests/sandbox/test_earlier_stacks.py",
    "tests/in_pod/test_prepare.py",
    "tests/sandbox/test_zones.py",
    "tests/emulator/node/test_pods.py",
    "tests/emulator/plugins/test_kubernetes_plugin.py",
    "tests/sandbox/test_permissions.py",
    "tests/sandbox/test_bootstrap.py",
    "tests/emulator/plugins/test_aws_lifecycle.py",
    "tests/sandbox/test_many_workers.py",
    "tests/sandbox/test_log_group.py",
    "tests/sandbox/test_policy_pack.py",
    "tests/emulator/plugins/test_aws_provider.py",
)


# The provider SDKs are millions of objects. With the default, Python searches them for garbage all the time.
gc.set_threshold(100_000)


@pytest.fixture(scope="session")
def cached() -> None:
    """Build the tools with the user's own home, before any test replaces it."""
    build.tools()
    build.engine()  # also if another `pulumi` is on PATH


def pytest_sessionfinish() -> None:
    # pytest-xdist interrupts a process that is still busy with this at its end.
    gc.collect()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=_order)


def _order(item: pytest.Item) -> int:
    file = item.path.relative_to(ROOT).as_posix()
    return LONGEST_FIRST.index(file) if file in LONGEST_FIRST else len(LONGEST_FIRST)
