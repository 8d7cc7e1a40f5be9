"""The files, headings, make targets and modules that the code's texts name exist."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from settings.schema import PROJECT

FOLDERS = sorted(each.name for each in PROJECT.iterdir() if each.is_dir() and not each.name.startswith((".", "_")))
PLACEHOLDER = "\0"  # an expression inside an f-string

ANY_FOLDER = f"(?:{'|'.join(FOLDERS)})"
FILE = re.compile(
    rf"(?<![\w/.:$-])({ANY_FOLDER}/[\w./-]*\.\w+|[A-Z]\w*(?:\.zh)?\.md)(#[\w-]+)?(?![\w*{{<{PLACEHOLDER}])"
    rf"|`({ANY_FOLDER}/[\w./-]*)`"
)
TARGET = re.compile(r"`make ([a-z-]+)|\bmake ([a-z-]+) [A-Z]+=")
MODULE = re.compile(rf"python3? -m ((?:{'|'.join(FOLDERS)})[\w.]*)(?![\w{PLACEHOLDER}])")


def texts(tree: ast.AST) -> Iterator[str]:
    """The string literals of a module; an f-string is one text with placeholders."""
    if isinstance(tree, ast.JoinedStr):
        yield "".join(str(part.value) if isinstance(part, ast.Constant) else PLACEHOLDER for part in tree.values)
    elif isinstance(tree, ast.Constant) and isinstance(tree.value, str):
        yield tree.value
    else:
        for child in ast.iter_child_nodes(tree):
            yield from texts(child)


def headings(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub writes them."""
    titles = re.findall(r"^#+ +(.+)$", page.read_text(), re.MULTILINE)
    return {"#" + re.sub(r"[^\w -]", "", title).strip().lower().replace(" ", "-") for title in titles}


def is_module(name: str) -> bool:
    path = PROJECT / name.replace(".", "/")
    return path.with_suffix(".py").exists() or (path / "__main__.py").exists()


def missing(text: str) -> list[str]:
    """What the text names and the checkout does not have."""
    makefile = (PROJECT / "Makefile").read_text()
    found = []
    for file, anchor, quoted in FILE.findall(text):
        name = file or quoted
        if not (PROJECT / name).exists():
            found.append(name)
        elif anchor and anchor not in headings(PROJECT / name):
            found.append(name + anchor)
    targets = [one or other for one, other in TARGET.findall(text)]
    found += [f"make {each}" for each in targets if not re.search(rf"^{each}:", makefile, re.MULTILINE)]
    return found + [f"python -m {each}" for each in MODULE.findall(text) if not is_module(each)]


def sources() -> list[Path]:
    return [
        file
        for file in sorted(PROJECT.rglob("*.py"))
        if not any(part.startswith(".") or part == "tests" for part in file.relative_to(PROJECT).parts)
    ]


@pytest.mark.parametrize("file", sources(), ids=lambda file: str(file.relative_to(PROJECT)))
def test_names_in_texts_exist(file: Path) -> None:
    assert [name for text in texts(ast.parse(file.read_text())) for name in missing(text)] == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("see docs/none.md for more", ["docs/none.md"]),
        ("it is in `sandbox/nothing`", ["sandbox/nothing"]),
        ("see README.md#no-such-heading", ["README.md#no-such-heading"]),
        ("run `make nothing` first", ["make nothing"]),
        ("make nothing STACK=dev", ["make nothing"]),
        ("run `python -m sandbox.nothing`", ["python -m sandbox.nothing"]),
        ("README.md, docs/architecture.md, `make sandbox`, `python -m sandbox up`, make room", []),
        (f"docs/{PLACEHOLDER}.md, docs/*.md", []),
    ],
)
def test_missing_names_are_found(text: str, expected: list[str]) -> None:
    assert missing(text) == expected
