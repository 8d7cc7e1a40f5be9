"""Every `pulumi` and `aws` command in the documentation has a subcommand and options that the program accepts."""

from __future__ import annotations

import functools
import re
import subprocess

import pytest
from awscli.clidriver import create_clidriver

from sandbox import build
from tests.unit.docs.documented_commands import Command, commands

ALL = commands()


def pulumi_words(command: Command) -> tuple[str, ...] | None:
    """The words after `pulumi`, also in `python -m sandbox pulumi ...`."""
    return command.words[command.words.index("pulumi") + 1 :] if "pulumi" in command.words else None


PULUMI = sorted({words for command in ALL if (words := pulumi_words(command))})
AWS = sorted({command.words[1:] for command in ALL if command.words[0] == "aws"})


@functools.cache
def pulumi_help(words: tuple[str, ...]) -> str:
    run = [str(build.engine() / "pulumi"), *words, "--help"]
    done = subprocess.run(run, capture_output=True, text=True, check=True)
    return done.stdout


@pytest.mark.parametrize("words", PULUMI, ids=" ".join)
def test_pulumi_accepts_the_command(words: tuple[str, ...]) -> None:
    names: tuple[str, ...] = ()
    for word in words:
        # The help of a word that is not a subcommand is the help of the command before it.
        if word.startswith("-") or pulumi_help((*names, word)) == pulumi_help(names):
            break
        names += (word,)
    assert names, "no such subcommand"
    text = pulumi_help(names)
    arguments = [word for word in words[len(names) :] if not word.startswith("-")]
    usage = re.search(r"^Usage:\n  (.*)$", text, re.MULTILINE)
    assert usage
    takes_arguments = re.search(r"[\[<]", usage[1].removesuffix("[flags]"))
    assert takes_arguments or not arguments or words[len(names)].startswith("-"), f"takes no arguments: {usage[1]}"
    for option in (word.partition("=")[0] for word in words if word.startswith("-")):
        assert re.search(rf"(?<![\w-]){re.escape(option)}(?![\w-])", text), f"{option} is not in --help"


@pytest.mark.parametrize("words", AWS, ids=" ".join)
def test_aws_accepts_the_command(words: tuple[str, ...]) -> None:
    service, operation, *rest = words
    command = (
        create_clidriver().create_help_command().command_table[service].create_help_command().command_table[operation]
    )
    known = command.create_help_command().arg_table
    given = [word.removeprefix("--") for word in rest if word.startswith("--")]
    assert set(given) <= set(known)
    assert {name for name, argument in known.items() if argument.required} <= set(given)
