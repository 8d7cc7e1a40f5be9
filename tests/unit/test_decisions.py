"""The decision pages are listed, short, of one form, and name files that exist."""

import re
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
FOLDER = PROJECT / "docs/decisions"
PAGES = sorted(path.name for path in FOLDER.glob("*.md") if path.name != "README.md")
HEADINGS = ["Context", "Decision", "Consequences", "Alternatives", "When to reconsider"]


def test_the_table_of_contents_has_each_page_once() -> None:
    listed = re.findall(r"^- \[.+\]\(([^)]+)\): ", (FOLDER / "README.md").read_text(), re.MULTILINE)
    assert sorted(listed) == PAGES


@pytest.mark.parametrize("page", PAGES)
def test_a_page_has_five_parts_and_fits_on_one_screen(page: str) -> None:
    lines = (FOLDER / page).read_text().splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 100
    assert [line.removeprefix("## ") for line in lines if line.startswith("## ")] == HEADINGS


@pytest.mark.parametrize("page", ["README.md", *PAGES])
def test_links_and_folders_on_a_page_exist(page: str) -> None:
    text = (FOLDER / page).read_text()
    links = [FOLDER / link for link in re.findall(r"\]\(([^)#:]+)\)", text)]
    folders = [PROJECT / folder for folder in re.findall(r"`([a-z_]+/[\w./]*)`", text)]
    assert [str(path) for path in links + folders if not path.exists()] == []
