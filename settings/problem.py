"""One invalid setting, as the user reads it."""

import dataclasses
import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

# Stands for a secret value in messages.
HIDDEN = "[secret]"


@dataclass(frozen=True)
class Problem:
    """One invalid setting, with the reason and what to write instead."""

    key: str
    value: object
    why: str
    instead: str

    def hidden(self, secrets: Collection[str]) -> "Problem":
        """The problem without its value, if the setting is a secret."""
        return dataclasses.replace(self, value=HIDDEN) if secret_key(self.key) in secrets else self

    def __str__(self) -> str:
        return f"{self.key}: {json.dumps(self.value, default=list)} {self.why}. {self.instead}."


Problems = Iterator[Problem]


def at_least(limits: Mapping[str, tuple[int, int]]) -> Problems:
    """`limits` maps a key to its value and the smallest valid value."""
    for key, (value, least) in limits.items():
        if value < least:
            yield Problem(key, value, "is too small", f"Write {least} or more")


def secret_key(key: str) -> str:
    """The part of a key for which the engine tells whether it contains a secret."""
    return key if key.startswith("aws:") else key.partition(".")[0]
