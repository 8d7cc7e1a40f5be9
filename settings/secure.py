"""The encrypted values of a stack file, written as `secure: TEXT`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml


def is_encrypted(value: object) -> bool:
    return isinstance(value, Mapping) and set(value) == {"secure"}


def replaced(value: Any, change: Callable[[str, Any], Any], path: str = "") -> Any:
    """The value with a new value for each text, number and encrypted value. `change` gets its path and itself."""
    if isinstance(value, Mapping) and not is_encrypted(value):
        return {key: replaced(each, change, f"{path}.{key}" if path else key) for key, each in value.items()}
    if isinstance(value, list):
        return [replaced(each, change, f"{path}[{i}]") for i, each in enumerate(value)]
    return change(path, value)


def leaves(value: Any, path: str = "") -> dict[str, Any]:
    """The texts, numbers and encrypted values in a value by path, such as `data.source[1]`."""
    found: dict[str, Any] = {}
    replaced(value, found.__setitem__, path)
    return found


@dataclass(frozen=True)
class Stored:
    """The plain texts of a stack file, and the paths of its encrypted values. The engine passes only their keys."""

    plain: frozenset[str] = frozenset()
    encrypted: frozenset[str] = frozenset()

    def shows(self, text: str) -> bool:
        """Whether everybody who sees the file can read this text. A value can be JSON with the text inside."""
        return any(text in plain for plain in self.plain)


def stored(config: Mapping[str, object]) -> Stored:
    """From the values under `config:` of a stack file."""
    # Two keys can have the same path: `data.source`, and `source` in the map `data`.
    found = [leaf for key, value in config.items() for leaf in leaves(value, key.partition(":")[2] or key).items()]
    return Stored(
        plain=frozenset(str(leaf) for _, leaf in found if not is_encrypted(leaf)),
        encrypted=frozenset(path for path, leaf in found if is_encrypted(leaf)),
    )


def config_in(file: Path) -> Mapping[str, object]:
    """The values in a stack file. Without the file there are none: `--config-file` can name another one."""
    try:
        content = yaml.safe_load(file.read_text()) or {}
    except FileNotFoundError:
        return {}
    return content.get("config") or {}
