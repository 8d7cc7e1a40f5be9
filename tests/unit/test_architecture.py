"""The picture of the graph shows what the program makes."""

import re
from collections import Counter
from html import unescape
from pathlib import Path

import pytest

from docs.graph import drawing, read
from settings.schema import PROJECT
from tests.unit.conftest import RunStack

AGAIN = "draw it again: docs/architecture.md says how"


def picture() -> tuple[dict[str, str], set[tuple[str, str]]]:
    """The boxes' words by node, and the arrows between nodes."""
    text = (PROJECT / "docs/graph.svg").read_text()
    boxes = re.findall(r'class="node">\s*<title>(\w+)</title>.*?<text [^>]*>(.*?)</text>', text, re.DOTALL)
    arrows = re.findall(r'class="edge">\s*<title>(.*?)</title>', text)
    ends = [unescape(arrow).partition("->") for arrow in arrows]
    return {node: unescape(words) for node, words in boxes}, {(first, then) for first, _, then in ends}


def test_the_picture_shows_every_resource_of_dev(program: RunStack) -> None:
    text = (PROJECT / "docs/graph.svg").read_text()
    drawn = [unescape(words).rpartition(" ")[2] for words in re.findall(r"<text [^>]*>(.*)</text>", text)]
    made = [resource.name for resource in program(stack="dev").resources.values()]
    assert Counter(drawn) == Counter(made), AGAIN


def test_the_arrows_are_the_dependencies_of_dev(program: RunStack) -> None:
    boxes, arrows = picture()
    made = {r.urn: r for r in program(stack="dev").resources.values() if r.custom}
    waits = {urn: set(r.dependencies & made.keys()) for urn, r in made.items()}
    behind: dict[str, set[str]] = {}

    def all_behind(urn: str) -> set[str]:
        if urn not in behind:
            behind[urn] = waits[urn].union(*map(all_behind, waits[urn]))
        return behind[urn]

    def words(urn: str) -> str:
        """As the box says it, where its name alone is another's too."""
        kind = made[urn].type.rpartition(":")[2]
        return made[urn].name if made[urn].name in boxes.values() else f"{kind} {made[urn].name}"

    said_by_two = {urn: set().union(*map(all_behind, waits[urn])) for urn in made}
    expected = {(words(first), words(urn)) for urn in made for first in waits[urn] - said_by_two[urn]}
    assert {(boxes[first], boxes[then]) for first, then in arrows} == expected, AGAIN


URN = "urn:pulumi:dev::p::paddle:A$kubernetes:rbac.authorization.k8s.io/v1:{}::{}"
DOT = f"""strict digraph {{
    R0 [label="urn:pulumi:dev::p::pulumi:pulumi:Stack::p-dev"];
    R1 [label="urn:pulumi:dev::p::paddle:A::room"];
    R1 -> R0 [color = "#AA6639"];
    R2 [label="{URN.format("Role", "same")}"];
    R2 -> R1 [color = "#AA6639"];
    R2 -> R3 [color = "#246C60", label = "roleRef"];
    R3 [label="{URN.format("RoleBinding", "same")}"];
    R3 -> R1 [color = "#AA6639"];
    R0 -> R3 [color = "#246C60"];
}}"""


def test_frames_boxes_and_arrows_are_those_of_the_stack() -> None:
    names, parents, dependencies = read(DOT)
    assert parents == {"R1": "R0", "R2": "R1", "R3": "R1"}
    drawn = "\n".join(drawing(names, parents, dependencies))
    assert 'subgraph cluster_R1 { label="room"' in drawn
    assert 'R2 [label="Role same"]\nR3 [label="RoleBinding same"]' in drawn, "one name twice is told apart"
    assert re.findall(r"^R\d -> R\d$", drawn, re.MULTILINE) == ["R2 -> R3"], "no arrow to a frame or the stack"


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/architecture.md", "bootstrap/README.md"])
def test_every_file_that_the_pages_name_is_there(page: str) -> None:
    text = (PROJECT / page).read_text()
    linked = [(PROJECT / page).parent / link for link in re.findall(r"\]\(([^)#:]+)\)", text)]
    named = [PROJECT / name for name in re.findall(r"`([\w.-]*/[\w./-]+|[\w-]+\.(?:py|md|yaml))`", text)]
    assert linked
    assert [str(path) for path in [*linked, *named] if not Path(path).exists()] == []


def test_every_make_target_that_the_pages_name_is_there() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (PROJECT / "Makefile").read_text(), re.MULTILINE))
    pages = [*PROJECT.glob("*.md"), *PROJECT.glob("*/*.md")]
    said = [re.findall(r"(?:`|^ {4})make ((?:[a-z-]+ ?)+)", page.read_text(), re.MULTILINE) for page in pages]
    named = {target for commands in said for command in commands for target in command.split()}
    assert {"test", "sandbox", "price", "policy"} <= named <= targets
