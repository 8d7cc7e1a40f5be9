"""docs/architecture.md and its picture show the components of the program."""

import re
from collections import Counter
from html import unescape
from pathlib import Path

import pytest

from docs.draw_graph import drawing, read
from settings.schema import PROJECT
from tests.unit.conftest import RunStack
from tests.unit.program import EVERYTHING, Graph, Resource, run


def test_the_picture_has_a_frame_for_every_component_of_dev(program: RunStack) -> None:
    """It may lack new resources: drawing it needs Graphviz, and the table lists all types."""
    text = (PROJECT / "docs/graph.svg").read_text()
    frames = re.findall(r'class="cluster">.*?<text [^>]*>(.*?)</text>', text, re.DOTALL)
    drawn = [unescape(label).rpartition(" ")[2] for label in frames]
    made = program(stack="dev").resources
    parents = {resource.parent for resource in made.values()}
    components = [resource.name for resource in made.values() if resource.urn in parents]
    assert Counter(drawn) == Counter(components), "docs/architecture.md explains how to draw the picture again"


def component_of(graph: Graph, resource: Resource) -> Resource:
    """The component, without a parent except the stack, that a resource belongs to."""
    parent = graph.resources.get(resource.parent)
    return component_of(graph, parent) if parent else resource


def test_the_table_lists_every_resource_type(monkeypatch: pytest.MonkeyPatch) -> None:
    text = (PROJECT / "docs/architecture.md").read_text()
    rows = re.findall(r"^\| `([\w-]+)` \| `([\w/.]+)` \| (.*) \|$", text, re.MULTILINE)
    listed = {component: {*re.findall(r"\b[A-Z]\w+", resources)} - {"S3"} for component, _, resources in rows}
    expected: dict[str, set[str]] = {}
    graph = run(monkeypatch, EVERYTHING)
    for resource in graph.resources.values():
        if resource.custom and not resource.type.startswith("pulumi:"):
            types = expected.setdefault(component_of(graph, resource).name, set())
            types.add(resource.type.rpartition(":")[2])
    assert listed == expected
    kinds = {r.name: r.type for r in graph.resources.values() if r.parent not in graph.resources}
    for component, file, _ in rows:
        assert f'"{kinds[component]}"' in (PROJECT / file).read_text(), f"{component} is not in {file}"


URN = "urn:pulumi:dev::p::paddle:A$kubernetes:rbac.authorization.k8s.io/v1:{}::{}"
DOT = f"""strict digraph {{
    R0 [label="urn:pulumi:dev::p::pulumi:pulumi:Stack::p-dev"];
    R1 [label="urn:pulumi:dev::p::paddle:A::component"];
    R1 -> R0 [color = "#AA6639"];
    R2 [label="{URN.format("Role", "same")}"];
    R2 -> R1 [color = "#AA6639"];
    R2 -> R3 [color = "#246C60", label = "roleRef"];
    R3 [label="{URN.format("RoleBinding", "same")}"];
    R3 -> R1 [color = "#AA6639"];
    R0 -> R3 [color = "#246C60"];
}}"""


def test_the_drawing_has_frames_boxes_and_arrows() -> None:
    names, parents, dependencies = read(DOT)
    assert parents == {"R1": "R0", "R2": "R1", "R3": "R1"}
    drawn = "\n".join(drawing(names, parents, dependencies))
    assert 'subgraph cluster_R1 { label="component"' in drawn
    assert 'R2 [label="Role same"]\nR3 [label="RoleBinding same"]' in drawn, (
        "resources with the same name must be distinguishable"
    )
    assert re.findall(r"^R\d -> R\d$", drawn, re.MULTILINE) == ["R2 -> R3"], "no arrow to a frame or the stack"


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/architecture.md", "bootstrap/README.md"])
def test_every_file_in_the_pages_exists(page: str) -> None:
    text = (PROJECT / page).read_text()
    linked = [(PROJECT / page).parent / link for link in re.findall(r"\]\(([^)#:]+)\)", text)]
    named = [PROJECT / name for name in re.findall(r"`([\w.-]*/[\w./-]+|[\w-]+\.(?:py|md|yaml))`", text)]
    assert linked
    assert [str(path) for path in [*linked, *named] if not Path(path).exists()] == []


def test_every_make_target_in_the_pages_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (PROJECT / "Makefile").read_text(), re.MULTILINE))
    pages = [*PROJECT.glob("*.md"), *PROJECT.glob("*/*.md")]
    written = [re.findall(r"(?:`|^ {4})make ((?:[a-z-]+ ?)+)", page.read_text(), re.MULTILINE) for page in pages]
    named = {target for commands in written for command in commands for target in command.split()}
    assert {"test", "sandbox", "price", "policy"} <= named <= targets
