"""The bootstrap program with mocks, and the names that its documents contain."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bootstrap import policies
from tests.unit.program import ACCOUNT, NAME, PROJECT, Graph, run

CONFIG = {
    "aws:region": "us-west-2",
    f"{NAME}:repository": "octo/paddle",
    f"{NAME}:repositoryId": "456",
    f"{NAME}:ownerId": "123",
    f"{NAME}:stacks": ["dev", "prod"],
}
ROLE = f"arn:aws:iam::{ACCOUNT}:role/paddle-deploy-dev"
DATA = ("arn:aws:s3:::data", "arn:aws:s3:::data/*")
NAMES = policies.Names(ACCOUNT, "cluster-1", "amazonaws.com", "aws", "us-west-2", "dev", "zone", (ROLE,), DATA)


def bootstrap(monkeypatch: pytest.MonkeyPatch, **config: Any) -> Graph:
    changed = {f"{NAME}:{key}": value for key, value in config.items()}
    return run(monkeypatch, {**CONFIG, **changed}, program=PROJECT / "bootstrap/__main__.py")


def statements(graph: Graph, name: str, key: str = "policy") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(graph.named(name).inputs[key])["Statement"]
    return found
