"""The state of a stack whose engine was killed, and the types of the resources that recover must know."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.program import EVERYTHING, run

DEFAULT_PROVIDER = {
    "urn": "urn:pulumi:dev::paddle-on-aws::pulumi:providers:aws::default_7_51_1",
    "type": "pulumi:providers:aws",
    "id": "0",
    "inputs": {"region": "us-west-2"},
}
PROVIDER = {
    "urn": "urn:pulumi:dev::paddle-on-aws::pulumi:providers:aws::aws",
    "type": "pulumi:providers:aws",
    "id": "1",
    "inputs": {"region": "us-west-2", "defaultTags": '{"tags": {"project": "paddle-on-aws", "stack": "dev"}}'},
}

TAGS = {"project": "paddle-on-aws", "stack": "dev"}


def operation(urn: str, type_: str, kind: str = "creating", **inputs: Any) -> dict[str, Any]:
    return {"type": kind, "resource": {"urn": urn, "type": type_, "custom": True, "inputs": inputs}}


def deployment(*operations: dict[str, Any]) -> dict[str, Any]:
    return {"resources": [DEFAULT_PROVIDER, PROVIDER], "pending_operations": list(operations)}


def types_of_the_program(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    types = {each.type for each in run(monkeypatch, EVERYTHING).resources.values() if each.custom}
    return {each for each in types if each.startswith("aws:")}
