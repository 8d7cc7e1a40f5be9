"""The commands in the code blocks of all Markdown pages."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from settings.schema import PROJECT

# A code block is fenced, or indented by four spaces or more.
FENCE, INDENTED = re.compile(r"^ *```"), re.compile(r"^ {4,}\S")
LANGUAGES = ("", "bash", "sh", "shell")
# The first word of a line that shows output instead of a command.
OUTPUT = re.compile(r"[\d{].*|.*:$")
OPERATORS = ("&&", "||", "|", ";")


@dataclass(frozen=True)
class Command:
    """One command of a page, as the shell splits it."""

    page: str
    line: int
    words: tuple[str, ...]
    in_subshell: bool = False

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {shlex.join(self.words)}"


def pages() -> list[Path]:
    hidden = re.compile(r"\.|node_modules$")
    found = (path.relative_to(PROJECT) for path in PROJECT.rglob("*.md"))
    skipped = ("tests", "reference")
    return sorted(path for path in found if path.parts[0] not in skipped and not any(map(hidden.match, path.parts)))


def blocks(page: Path) -> Iterator[tuple[int, list[str]]]:
    """Each code block with its first line number; a line that ends with a backslash includes the next one."""
    block: list[str] = []
    fence, start = "", 0
    for number, line in enumerate([*(PROJECT / page).read_text(encoding="utf-8").splitlines(), ""], 1):
        if FENCE.match(line):
            opened = "shell" if line.strip("` ") in LANGUAGES else "other"
            fence = "" if fence else opened
            continue
        if fence == "shell" or (not fence and INDENTED.match(line)):
            start = start if block else number
            if block and block[-1].endswith("\\"):
                block[-1] = block[-1][:-1] + line.strip()
            else:
                block.append(line.strip())
        elif block:
            yield start, block
            block = []


def commands() -> list[Command]:
    """Every command of every page, without comments. The commands in `$(...)` come before the line that contains it."""
    found = []
    for page in pages():
        for start, block in blocks(page):
            for number, line in enumerate(block, start):
                for inner in re.findall(r"\$\(([^()]*)\)", line):
                    found += [Command(str(page), number, words, in_subshell=True) for words in _split(inner)]
                outer = re.sub(r"\$\([^()]*\)", "RESULT", line)
                found += [Command(str(page), number, words) for words in _split(outer)]
    return [command for command in found if not OUTPUT.match(command.words[0])]


def _split(text: str) -> Iterator[tuple[str, ...]]:
    """The commands of a line, without variable assignments and redirections."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars="&|;<>")
    lexer.whitespace_split = True
    words: list[str] = []
    tokens = iter([*lexer, ";"])
    for token in tokens:
        if token in OPERATORS:
            if words:
                yield tuple(words)
            words = []
        elif token[0] in "<>":
            next(tokens)
        elif words or not re.match(r"\w+=", token):
            words.append(token)
