"""How the tests share several processes (`make test`): a group runs in one process, and the longest groups start first.

A group is a file, unless a test has a mark `xdist_group` or the file is listed here.
"""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
# The files of a group share one Kubernetes cluster.
GROUPS = {
    "tests/sandbox/cluster/test_api.py": "kubernetes",
    "tests/sandbox/cluster/test_control_plane.py": "kubernetes",
    "tests/sandbox/node/test_pods.py": "kubernetes",
    "tests/sandbox/node/test_protected_files.py": "kubernetes",
    "tests/sandbox/plugins/test_kubernetes_plugin.py": "kubernetes",
}
LONGEST_FIRST = (
    "tests/sandbox/test_recovery.py",
    "tests/sandbox/test_training_faults.py",
    "tests/sandbox/test_mission.py",
    "tests/sandbox/test_preview.py",
    "tests/sandbox/test_permissions.py",
    "tests/sandbox/test_two_stacks.py",
    "kubernetes",
    "tests/in_pod/test_launch.py",
    "tests/in_pod/test_train.py",
)


def pytest_itemcollected(item: pytest.Item) -> None:
    # xdist reads the marks before any pytest_collection_modifyitems of a conftest.py runs.
    if item.get_closest_marker("xdist_group") is None:
        file = item.path.relative_to(ROOT).as_posix()
        item.add_marker(pytest.mark.xdist_group(GROUPS.get(file, file)))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=_order)


def _order(item: pytest.Item) -> int:
    mark = item.get_closest_marker("xdist_group")
    assert mark is not None
    return LONGEST_FIRST.index(mark.args[0]) if mark.args[0] in LONGEST_FIRST else len(LONGEST_FIRST)
