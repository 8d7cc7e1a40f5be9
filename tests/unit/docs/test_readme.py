"""The two README files: same structure, same commands, and examples that the program really prints."""

import re

import pulumi
import pytest

from settings.schema import PROJECT
from settings.stack_file import stack_settings
from tests.unit.conftest import RunStack
from tools.price.cost import estimate

ENGLISH, CHINESE = ("README.md", "README.zh.md")


def page(name: str) -> str:
    return (PROJECT / name).read_text(encoding="utf-8")


def headings(text: str) -> list[int]:
    """The level of each heading, in order."""
    return [len(marks) for marks in re.findall(r"^(#+) ", text, re.MULTILINE)]


def code_lines(text: str) -> list[str]:
    """The lines of all code blocks; a block is indented by four spaces or more."""
    return [line.strip() for line in re.findall(r"^(?: {4,})(?=\S)(?![-|])(.*)$", text, re.MULTILINE)]


def tables(text: str) -> list[list[int]]:
    """For each table the number of cells in each row."""
    blocks = re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)
    return [[row.count("|") for row in block.splitlines()] for block in blocks]


def names(text: str) -> list[str]:
    """Names in code font, sorted: settings, files, commands and resources."""
    return sorted(re.findall(r"`([^`\n]+)`", text))


def links(text: str) -> list[str]:
    own = {ENGLISH, CHINESE, "https://www.paddlepaddle.org.cn/en", "https://www.paddlepaddle.org.cn/"}
    return [link for link in re.findall(r"\]\(([^)]+)\)", text) if link not in own]


@pytest.mark.parametrize("part", [headings, code_lines, tables, names, links], ids=lambda part: str(part.__name__))
def test_both_languages_have_the_same(part: object) -> None:
    assert callable(part)
    english = part(page(ENGLISH))
    assert len(english) >= 4
    assert part(page(CHINESE)) == english


def test_each_readme_links_to_the_other_in_its_first_lines() -> None:
    assert f"]({CHINESE})" in "".join(page(ENGLISH).splitlines()[:4])
    assert f"]({ENGLISH})" in "".join(page(CHINESE).splitlines()[:4])


@pytest.mark.parametrize("name", [ENGLISH, CHINESE])
def test_every_linked_file_exists(name: str) -> None:
    local = [link for link in re.findall(r"\]\(([^)#]+)\)", page(name)) if not link.startswith("http")]
    assert local
    assert [link for link in local if not (PROJECT / link).exists()] == []


def test_the_first_screen_shows_the_two_local_commands() -> None:
    first = page(ENGLISH).splitlines()[:24]
    commands = [line.split("#")[0].strip() for line in first if line.startswith("    make ")]
    assert commands == ["make sandbox", "make test"]


@pytest.mark.parametrize("stack", ["dev", "prod"])
def test_the_prices_are_those_of_make_price(stack: str) -> None:
    (row,) = re.findall(rf"^\| `{stack}` \|.*\| ([\d.]+) \| (\d+) \|$", page(ENGLISH), re.MULTILINE)
    cost = estimate(stack_settings(stack))
    assert row == (f"{cost.hourly:.2f}", f"{cost.monthly:.0f}")


def test_the_example_of_invalid_settings_is_what_the_program_prints(program: RunStack) -> None:
    with pytest.raises(pulumi.RunError) as caught:
        program({"trainers": 4, "vpcCidr": "8.8.0.0/16"})
    printed = f"error: {caught.value}".splitlines()
    start = page(ENGLISH).index("    error: ")
    shown = page(ENGLISH)[start:].split("\n\n")[0].splitlines()
    assert [line.removeprefix("    ") for line in shown] == printed
