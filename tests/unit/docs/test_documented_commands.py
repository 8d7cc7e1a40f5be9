"""Every command in the documentation uses targets, modules, files and settings that exist."""

import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
import yaml

from settings.schema import PROJECT
from tests.unit.docs.documented_commands import Command, commands

ALL = commands()
# Programs that are not part of this project, with the subcommands that the pages use.
FOREIGN = {
    "curl": None,
    "docker": {"build", "push"},
    "export": None,
    "gh": {"api", "auth", "variable"},
    "git": {"clone"},
    "go": {"clean"},
    "kubectl": None,
    "pip": {"install"},
    "pre-commit": {"install"},
    "rm": None,
}
# test_documented_commands.py in tests/sandbox checks these with the programs themselves.
CHECKED_IN_SANDBOX = {"aws", "pulumi"}
VENV = ".venv/bin/"


def of(*programs: str) -> list[Command]:
    return [command for command in ALL if command.words[0] in programs]


def test_the_pages_contain_commands() -> None:
    assert len(ALL) > 100
    assert {"README.md", "bootstrap/README.md", "sandbox/README.md"} <= {command.page for command in ALL}


def test_every_program_is_known() -> None:
    own = {"cd", "make", "python3", *(VENV + name for name in ("pip", "pytest", "python"))}
    unknown = [str(c) for c in ALL if c.words[0] not in own | FOREIGN.keys() | CHECKED_IN_SANDBOX]
    assert unknown == []


def test_subcommands_of_foreign_programs_are_known() -> None:
    for command in of(*FOREIGN):
        known = FOREIGN[command.words[0]]
        assert known is None or command.words[1] in known, command


def test_every_make_target_exists() -> None:
    makefile = (PROJECT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    variables = set(re.findall(r"^([A-Z]+) \?=", makefile, re.MULTILINE))
    for command in of("make"):
        given = {word for word in command.words[1:] if "=" not in word}
        assert given <= targets, command
        assert {word.partition("=")[0] for word in command.words[1:] if "=" in word} <= variables, command


def folders() -> dict[Command, Path]:
    """The folder in which each command runs. A page starts in the folder of the project and has `cd` in its blocks."""
    found, page, folder = {}, "", PROJECT
    for command in ALL:
        if command.page != page:
            page, folder = command.page, PROJECT
        here = folder
        if command.words[0] == "cd" and not command.in_subshell and command.words[1] != "paddle-on-aws":
            folder = (folder / command.words[1]).resolve()
            assert folder.is_dir(), f"{command}: there is no folder {folder}"
        found[command] = here
    return found


def test_the_page_changes_only_to_folders_that_exist() -> None:
    assert all(PROJECT in (folder, *folder.parents) for folder in folders().values())


def test_every_named_file_exists() -> None:
    for command, folder in folders().items():
        if command.words[0] in ("python3", VENV + "pytest"):
            files = [word for word in command.words[1:] if re.search(r"\.py$|/$", word)]
            assert files, command
            assert [file for file in files if not (folder / file).exists()] == [], command


@cache
def help_of(module: str) -> str:
    command = [sys.executable, "-m", module, "--help"]
    return subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("command", [c for c in of("python3", VENV + "python") if "-m" in c.words], ids=str)
def test_modules_accept_their_options(command: Command) -> None:
    module, *rest = command.words[command.words.index("-m") + 1 :]
    text = help_of(module)
    # The words after `pulumi` and `run` belong to another program.
    end = next((number for number, word in enumerate(rest, 1) if word in ("pulumi", "run")), len(rest))
    own = rest[:end]
    for word in own:
        if word.startswith("-") or word == own[-1]:
            assert re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", text), f"{command}: {word} is not in --help"


def declared(folder: Path) -> set[str]:
    return set(yaml.safe_load((folder / "Pulumi.yaml").read_text())["config"])


def test_every_setting_exists() -> None:
    settings = [(c, folder) for c, folder in folders().items() if c.words[:3] == ("pulumi", "config", "set")]
    assert settings
    for command, folder in settings:
        key = next(word for word in command.words[3:] if not word.startswith("-"))
        if key.startswith("aws:"):
            assert key in ("aws:region", "aws:profile"), command
            continue
        name = re.sub(r"\[\d+\]$", "", key)
        known = declared(folder)
        if "--path" not in command.words:
            assert name == key, f"{command}: add --path to set an element of a list"
            assert "." not in name, f"{command}: add --path to set a part of a setting"
        # A setting that is a map, such as deployers, has keys that no file declares.
        assert name in known or name.partition(".")[0] in known, command
