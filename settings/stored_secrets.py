"""Which values of a stack file are encrypted. The engine tells a program only the first part of each encrypted key."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml


@dataclass(frozen=True)
class Stored:
    """The plain texts of a stack file, and the paths of its encrypted values, such as `data.source[1]`."""

    plain: frozenset[str] = frozenset()
    encrypted: frozenset[str] = frozenset()

    def shows(self, text: str) -> bool:
        """Whether everybody who sees the file can read this text. A value can be JSON with the text inside."""
        return any(text in plain for plain in self.plain)


def stored(config: Mapping[str, object]) -> Stored:
    """From the values under `config:` of a stack file."""
    values = [found for key, value in config.items() for found in _values(key.partition(":")[2] or key, value)]
    return Stored(
        plain=frozenset(text for _, text in values if text is not None),
        encrypted=frozenset(path for path, text in values if text is None),
    )


def config_in(file: Path) -> Mapping[str, object]:
    """The values in a stack file. Without the file there are none: `--config-file` can name another one."""
    try:
        content = yaml.safe_load(file.read_text()) or {}
    except FileNotFoundError:
        return {}
    return content.get("config") or {}


def _values(path: str, value: object) -> Iterator[tuple[str, str | None]]:
    """Each text with its path. None stands for an encrypted one."""
    if isinstance(value, Mapping):
        if set(value) == {"secure"}:
            yield path, None
            return
        for key, each in value.items():
            yield from _values(f"{path}.{key}", each)
    elif isinstance(value, list):
        for i, each in enumerate(value):
            yield from _values(f"{path}[{i}]", each)
    else:
        yield path, str(value)
