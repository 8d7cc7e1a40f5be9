"""Differences between a live object and the program's inputs, and which of them force a replacement."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sandbox.plugins.wire import UNKNOWN, Unknown

Path = tuple[str | int, ...]


@dataclass(frozen=True)
class Change:
    """One difference, at one path."""

    path: Path
    kind: Literal["ADD", "DELETE", "UPDATE"]
    new: Any = None

    def __str__(self) -> str:
        return format_path(self.path)


def replaces(change: Change, replacing: Sequence[str]) -> bool:
    """Whether this change forces a replacement, because it is in one of these fields or contains one."""
    for field in ["metadata.name", "metadata.namespace", *replacing]:
        keys = tuple(field.split("."))
        if change.path[: len(keys)] == keys:
            return True
        if keys[: len(change.path)] == change.path and _holds(change.new, keys[len(change.path) :]):
            return True
    return False


def _holds(value: Any, keys: Sequence[str]) -> bool:
    for key in keys:
        if not isinstance(value, dict) or key not in value:
            return False
        value = value[key]
    return True


def format_path(path: Path) -> str:
    """A path in Pulumi's notation."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif any(mark in part for mark in '."[]'):
            text += '["' + part.replace('"', '\\"') + '"]'
        else:
            text += f".{part}" if text else part
    return text


def prune(live: Any, inputs: Any) -> Any:
    """The live value reduced to the fields in the inputs, because the cluster adds fields of its own."""
    if isinstance(live, dict) and isinstance(inputs, dict):
        unwritten = {key: value for key, value in inputs.items() if key not in live and _is_zero(value)}
        return {key: prune(value, inputs[key]) for key, value in live.items() if key in inputs} | unwritten
    if isinstance(live, list) and isinstance(inputs, list):
        return [prune(value, inputs[at]) for at, value in enumerate(live[: len(inputs)])]
    return live


def changes(pruned: Any, new: Any, live: Any, path: Path = ()) -> list[Change]:
    """The differences from the pruned live object to the new inputs; `live` is the unpruned one."""
    if isinstance(new, Unknown):
        if isinstance(pruned, dict) and pruned:
            # As in the official provider: each field may change, so each one is a difference.
            return [change for key in pruned for change in changes(pruned[key], UNKNOWN, None, (*path, key))]
        return [Change(path, "UPDATE", new)]
    if isinstance(pruned, dict) and isinstance(new, dict):
        found = []
        full = live if isinstance(live, dict) else {}
        for key in sorted(pruned.keys() | new.keys()):
            here = (*path, key)
            if key not in new:
                found += [Change(here, "DELETE")] if key in full else []
            elif key in pruned:
                found += changes(pruned[key], new[key], full.get(key), here)
            elif not (_is_zero(new[key]) and key not in full):
                found.append(Change(here, "ADD", new[key]))
        return found
    if isinstance(pruned, list) and isinstance(new, list):
        found = []
        for at in range(max(len(pruned), len(new))):
            here = (*path, at)
            if at >= len(new):
                found.append(Change(here, "DELETE"))
            elif at >= len(pruned):
                found.append(Change(here, "ADD", new[at]))
            else:
                full_item = live[at] if isinstance(live, list) and at < len(live) else None
                found += changes(pruned[at], new[at], full_item, here)
        return found
    if pruned == new or same_quantity(path, pruned, new):
        return []
    return [Change(path, "UPDATE", new)]


def _is_zero(value: Any) -> bool:
    """Whether the API server may omit the value: it returns `env: [{value: ""}]` without the value."""
    return value is None or value is False or value in ("", 0, [], {})


_QUANTITY = re.compile(r"([0-9.]+)([numkMGTPE]|[KMGTPE]i)?")
_SCALE = {"n": 1e-9, "u": 1e-6, "m": 1e-3, "": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
_SCALE |= {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50, "Ei": 2.0**60}


def same_quantity(path: Path, one: Any, other: Any) -> bool:
    """Whether two resource quantities are equal: the API server writes 1024Mi as 1Gi."""
    if not {"limits", "requests", "capacity"} & set(path[-2:-1]):
        return False
    amounts = []
    for value in (one, other):
        match = _QUANTITY.fullmatch(str(value))
        if not match:
            return False
        amounts.append(float(match[1]) * _SCALE[match[2] or ""])
    return abs(amounts[0] - amounts[1]) <= 1e-9 * abs(amounts[0])


def without_nulls(value: Any) -> Any:
    """The value without nulls: for the API server null means "not set"."""
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in value]
    return value
