"""The fields of resources and the outputs for given settings, and every field of the tutorial."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.conftest import RunStack
from tests.unit.program import Graph

ONLY_ABSENT = {"NodeGroup workers-3", "Role paddle-data", "Role paddle-image-pull"}
CASES = yaml.safe_load(Path(__file__).with_name("fields.yaml").read_text())


def at(value: Any, path: str) -> Any:
    """What a path leads to. A list of named items is entered by name."""
    if isinstance(value, list):
        value = {item["name"]: item for item in value}
    if not isinstance(value, dict) or path in value:
        return value[path] if isinstance(value, dict) else None
    head, _, rest = path.partition(".")
    return at(value.get(head), rest) if rest else None


def differences(wanted: Any, ours: Any, path: str) -> list[str]:
    """The fields that are missing or different. A map can have additional fields."""
    if isinstance(wanted, dict) and ours is not None:
        return [each for key, value in wanted.items() for each in differences(value, at(ours, key), f"{path}.{key}")]
    is_variable = isinstance(wanted, str) and isinstance(ours, dict)
    found = ours.get("value") if is_variable else ours
    return [] if wanted == found else [f"{path}: {found!r} instead of {wanted!r}"]


def inputs(graph: Graph, kind_and_name: str) -> dict[str, Any] | None:
    kind, name = kind_and_name.split()
    found = [r for r in graph.resources.values() if r.custom and (r.type.rpartition(":")[2], r.name) == (kind, name)]
    if not found:
        return None
    (resource,) = found
    return (
        {**resource.inputs, "pod": resource.inputs["spec"]["template"]["spec"]}
        if kind == "Job"
        else {**resource.inputs}
    )


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.get('stack', 'dev')} {case.get('given', '')}"[:100])
def test_the_settings_give_these_fields(program: RunStack, case: dict[str, Any]) -> None:
    graph = program(case.get("given"), case.get("stack", "dev"))
    found = {name: inputs(graph, name) for name in case.get("resources", {})}
    assert differences(case.get("resources", {}), found, "") == []
    assert differences(case.get("outputs", {}), graph.outputs, "outputs") == []


def test_every_absent_resource_exists_with_other_settings() -> None:
    """A misspelt name would be absent too."""
    named = [item for case in CASES for item in case.get("resources", {}).items()]
    assert {name for name, fields in named if not fields} - {name for name, fields in named if fields} == ONLY_ABSENT
