"""The settings of a stack, read from its file. For programs that run outside the Pulumi engine."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from settings.schema import PROJECT, Settings, read
from settings.secure import is_encrypted, replaced


class StackFileError(Exception):
    """A stack file that is missing or has an invalid setting. The message is one line for the user."""


def stack_settings(stack: str, folder: Path = PROJECT) -> Settings:
    """The settings of a stack of the checkout in `folder`."""
    file = folder / f"Pulumi.{stack}.yaml"
    try:
        config: Mapping[str, Any] = yaml.safe_load(file.read_text())["config"]
    except FileNotFoundError:
        known = sorted(path.name.split(".")[1] for path in folder.glob("Pulumi.*.yaml"))
        raise StackFileError(f'stack: "{stack}" has no file {file.name}. Write one of {", ".join(known)}.') from None
    own = {key.partition(":")[2]: value for key, value in config.items() if key.startswith("paddle-on-aws:")}
    aws = {key.partition(":")[2]: value for key, value in config.items() if key.startswith("aws:")}
    # Only Pulumi can decrypt secrets.
    without_secrets = replaced(own, lambda _, leaf: "" if is_encrypted(leaf) else leaf)
    settings, problems = read(without_secrets, folder)
    if problems:
        raise StackFileError(f"{file.name}: {problems[0]}")
    return dataclasses.replace(settings, stack=stack, aws=aws)
