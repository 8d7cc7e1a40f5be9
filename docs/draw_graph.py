"""Draws docs/graph.svg from an existing stack, with Graphviz (`apt-get install graphviz`):

pulumi stack graph stack.dot --stack dev && python3 docs/draw_graph.py stack.dot
"""

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

PICTURE = Path(__file__).with_name("graph.svg")
# Pulumi draws the two kinds of edges in these colours.
PARENT, DEPENDENCY = "#AA6639", "#246C60"
STYLE = """
  graph [rankdir=LR, fontname=Helvetica, fontsize=15, nodesep=0.12, ranksep=0.5, compound=true, bgcolor=white]
  node [shape=box, style="rounded,filled", fillcolor=white, color="#5f6b7a", fontname=Helvetica, fontsize=12,
        height=0.28, margin="0.09,0.03"]
  edge [color="#8a94a3", arrowsize=0.6]
"""


def read(dot: str) -> tuple[dict[str, str], dict[str, str], set[tuple[str, str]]]:
    """The names of the resources, the parent of each one, and the dependencies."""
    urns = re.findall(r'^\s*(\w+) \[label="(.*)"\];$', dot, re.MULTILINE)
    edges = re.findall(r'^\s*(\w+) -> (\w+) \[color = "(#\w+)"', dot, re.MULTILINE)
    parents = {child: parent for child, parent, colour in edges if colour == PARENT}
    names = {node: urn.rpartition("::")[2] for node, urn in urns}
    shared = Counter(names[node] for node in names if node not in parents.values())
    # A service account and its role have the same name, so their labels also need the type.
    names |= {node: f"{_kind(urn)} {names[node]}" for node, urn in urns if shared[names[node]] > 1}
    return names, parents, {(first, then) for first, then, colour in edges if colour == DEPENDENCY}


def _kind(urn: str) -> str:
    return urn.split("::")[-2].rpartition(":")[2]


def drawing(names: dict[str, str], parents: dict[str, str], dependencies: set[tuple[str, str]]) -> Iterator[str]:
    """The lines of the Graphviz file: components are frames, resources are boxes, dependencies are arrows."""
    children: dict[str, list[str]] = {}
    for child, parent in parents.items():
        children.setdefault(parent, []).append(child)

    def frame(node: str, depth: int) -> Iterator[str]:
        if node not in children:
            yield f'{node} [label="{names[node]}"]'
            return
        yield f'subgraph cluster_{node} {{ label="{names[node]}"; style="rounded,filled"; color="#c3cad4"'
        yield f'fillcolor="{"#f2f5f9" if depth == 1 else "#e3e9f1"}"'
        for each in children[node]:
            yield from frame(each, depth + 1)
        yield "}"

    yield f"digraph {{ {STYLE}"
    (root,) = set(parents.values()) - set(parents)
    for each in children[root]:
        yield from frame(each, 1)
    drawn = {node for node in names if node not in children}
    yield from (f"{first} -> {then}" for first, then in sorted(dependencies) if {first, then} <= drawn)
    yield "}"


def main() -> None:
    if len(sys.argv) != 2:
        raise SystemExit("Write the file from `pulumi stack graph` as argument: python3 docs/draw_graph.py stack.dot")
    source = "\n".join(drawing(*read(Path(sys.argv[1]).read_text())))
    # tred removes the arrows that a path of other arrows implies.
    reduced = subprocess.run(["tred"], input=source, capture_output=True, text=True, check=True).stdout
    subprocess.run(["dot", "-Tsvg", "-o", PICTURE], input=reduced, text=True, check=True)


if __name__ == "__main__":
    main()
