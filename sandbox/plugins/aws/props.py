"""Property tables: which inputs are accepted, how they differ from the state in AWS, and what forces a replacement."""

from __future__ import annotations

import enum
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from sandbox.plugins.wire import State, Unknown, Value


class Is(enum.Flag):
    """How a property behaves."""

    PLAIN = 0
    REQUIRED = enum.auto()
    REPLACES = enum.auto()  # a change forces a replacement
    COMPUTED = enum.auto()  # AWS chooses a value when the program gives none
    LOCAL = enum.auto()  # an option of the provider, not sent to AWS


PLAIN, REQUIRED, REPLACES, COMPUTED, LOCAL = Is.PLAIN, Is.REQUIRED, Is.REPLACES, Is.COMPUTED, Is.LOCAL

Kind = Literal["text", "number", "flag", "policy", "map", "block", "set", "list"]


@dataclass(frozen=True)
class Prop:
    """One input property."""

    kind: Kind
    how: Is = PLAIN
    default: Value = None
    members: Mapping[str, Prop] = field(default_factory=dict)
    item: Prop | None = None
    same: Callable[[str, str], bool] | None = None  # whether two different texts mean the same


def text(how: Is = PLAIN, default: str | None = None, same: Callable[[str, str], bool] | None = None) -> Prop:
    return Prop("text", how, default, same=same)


def number(how: Is = PLAIN, default: int | None = None) -> Prop:
    return Prop("number", how, default)


def flag(how: Is = PLAIN, default: bool | None = None) -> Prop:
    return Prop("flag", how, default)


def policy(how: Is = PLAIN) -> Prop:
    return Prop("policy", how)


def mapping() -> Prop:
    return Prop("map")


def texts(how: Is = PLAIN) -> Prop:
    """A set of texts; their order has no meaning."""
    return Prop("set", how, item=text())


def ordered(how: Is = PLAIN) -> Prop:
    return Prop("list", how, item=text())


def block(members: Mapping[str, Prop], how: Is = PLAIN) -> Prop:
    return Prop("block", how, members=members)


def blocks(members: Mapping[str, Prop], how: Is = PLAIN, kind: Literal["set", "list"] = "set") -> Prop:
    return Prop(kind, how, item=block(members))


class Difference(NamedTuple):
    """One property whose requested value is not the value in AWS."""

    path: str
    kind: Literal["ADD", "DELETE", "UPDATE"]
    replaces: bool


UNKNOWN_INPUT = "is not supported by the emulated AWS provider, because no program has sent it"


class Misuse(NamedTuple):
    """One input that is not accepted, and the reason."""

    path: str
    reason: str


def with_place(misuses: Iterable[Misuse], table: str) -> list[Misuse]:
    """Unknown inputs get the place to add them."""
    reason = f"{UNKNOWN_INPUT}. Add it to {table}"
    return [each._replace(reason=reason) if each.reason == UNKNOWN_INPUT else each for each in misuses]


def join(path: str, key: str | int) -> str:
    """Extend a property path the way the engine writes one."""
    if isinstance(key, int):
        return f"{path}[{key}]"
    if not key.replace("_", "a").isalnum():
        return f'{path}["{key}"]'
    return f"{path}.{key}" if path else key


def accept(props: Mapping[str, Prop], given: State, path: str = "") -> tuple[State, list[Misuse]]:
    """The inputs with converted values and defaults, and the list of what is wrong with them."""
    good: State = {}
    bad = [Misuse(join(path, name), UNKNOWN_INPUT) for name in given if name not in props]
    for name, prop in props.items():
        value = given.get(name)
        if value is None:
            if REQUIRED in prop.how:
                bad.append(Misuse(join(path, name), "is required"))
            elif prop.default is not None:
                good[name] = prop.default
        else:
            good[name], wrong = _accept_value(prop, value, join(path, name))
            bad += wrong
    return good, bad


def _accept_value(prop: Prop, value: Value, path: str) -> tuple[Value, list[Misuse]]:
    wrong = [Misuse(path, f"{value!r} is not a {prop.kind}")]
    if isinstance(value, Unknown):
        return value, []
    if prop.kind == "block":
        return accept(prop.members, value, path) if isinstance(value, dict) else (value, wrong)
    if prop.kind == "map":
        return ({k: _as_text(v) for k, v in value.items()}, []) if isinstance(value, dict) else (value, wrong)
    if prop.item:
        if not isinstance(value, list):
            return value, wrong
        pairs = [_accept_value(prop.item, each, join(path, at)) for at, each in enumerate(value)]
        return [each for each, _ in pairs], [misuse for _, found in pairs for misuse in found]
    if prop.kind == "flag":
        value = {"true": True, "false": False}.get(value, value) if isinstance(value, str) else value
        return value, [] if isinstance(value, bool) else wrong
    if prop.kind == "number":
        number = _as_number(value)
        return (value, wrong) if number is None else (number, [])
    if prop.kind == "policy" and isinstance(value, str):
        try:
            json.loads(value)
        except ValueError as error:
            return value, [Misuse(path, f"not JSON: {error}")]
    return (value, wrong) if isinstance(value, (dict, list)) else (_as_text(value), [])


def _as_text(value: Value) -> Value:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return str(_as_number(value))
    return value


def _as_number(value: Value) -> int | float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        number = float(value)
    except ValueError:
        return None
    return int(number) if number.is_integer() else number


def differences(props: Mapping[str, Prop], asked: State, actual: State) -> Iterator[Difference]:
    """Every difference between the requested values and `actual`, the state read from AWS."""
    for name, prop in props.items():
        yield from _differ(prop, asked.get(name), actual.get(name), name, False)


def _differ(prop: Prop, asked: Value, actual: Value, path: str, replaces: bool) -> Iterator[Difference]:
    replaces = replaces or REPLACES in prop.how
    if asked is None:
        if COMPUTED not in prop.how and not _empty(prop, actual):
            yield Difference(path, "DELETE", replaces)
    elif isinstance(asked, Unknown):
        yield Difference(path, "ADD" if actual is None else "UPDATE", replaces)
    elif actual is None:
        if not _empty(prop, asked):
            yield Difference(path, "ADD", replaces)
    elif isinstance(asked, dict) and isinstance(actual, dict):
        members = prop.members if prop.kind == "block" else dict.fromkeys(sorted(asked.keys() | actual.keys()), text())
        for name, member in members.items():
            yield from _differ(member, asked.get(name), actual.get(name), join(path, name), replaces)
    elif prop.kind == "list" and prop.item and _equally_long(asked, actual):
        for at, (one, other) in enumerate(zip(_items(asked), _items(actual), strict=True)):
            yield from _differ(prop.item, one, other, join(path, at), replaces)
    elif not _same(prop, asked, actual):
        yield Difference(path, "UPDATE", replaces)


def _items(value: Value) -> list[Value]:
    return value if isinstance(value, list) else []


def _equally_long(one: Value, other: Value) -> bool:
    return isinstance(one, list) and isinstance(other, list) and len(one) == len(other)


def _same(prop: Prop, asked: Value, actual: Value) -> bool:
    if prop.kind == "set" and prop.item:
        left = list(_items(actual))
        for each in _items(asked):
            equal = next(
                (at for at, other in enumerate(left) if not any(_differ(prop.item, each, other, "", False))), None
            )
            if equal is None:
                return False
            del left[equal]
        return not left
    if isinstance(asked, str) and isinstance(actual, str):
        if prop.kind == "policy":
            return same_policy(asked, actual)
        return asked == actual or bool(prop.same and prop.same(asked, actual))
    return asked == actual


def _empty(prop: Prop, value: Value) -> bool:
    """Whether a value means the same as no value."""
    if prop.kind == "block" and isinstance(value, dict):
        return all(_empty(prop.members[name], v) for name, v in value.items() if name in prop.members)
    return value in (None, "", False, 0, [], {}) or (value == prop.default and prop.default is not None)


def same_policy(one: str, other: str) -> bool:
    """Whether two policy documents are equal: IAM changes spacing and the order of names in a list."""
    return bool(_normalized(json.loads(one or "{}")) == _normalized(json.loads(other or "{}")))


def _normalized(document: Any, key: str = "") -> Any:
    if isinstance(document, dict):
        return {k: _normalized(v, k) for k, v in document.items()}
    if isinstance(document, list):
        items = [_normalized(each) for each in document]
        if key == "Statement":
            return items
        return items[0] if len(items) == 1 else sorted(items, key=_order)
    return str(document).lower() if isinstance(document, bool) else document


def aligned(props: Mapping[str, Prop], state: State, before: State) -> State:
    """The state with sorted sets; sets and policies that mean the same as before keep their old form."""
    out = dict(state)
    for name, prop in props.items():
        value, was = state.get(name), before.get(name)
        if prop.kind == "block" and isinstance(value, dict):
            out[name] = aligned(prop.members, value, was if isinstance(was, dict) else {})
        elif prop.kind in ("set", "policy") and value:
            plain = prop.kind == "policy" or (prop.item and prop.item.kind != "block")
            same = plain and was is not None and not isinstance(was, Unknown) and _same(prop, was, value)
            out[name] = was if same else sorted(value, key=_order) if isinstance(value, list) else value
    return out


def _order(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def as_inputs(props: Mapping[str, Prop], state: State, before: State) -> State:
    """The inputs that describe `state`: the former inputs with current values, and what else AWS now has."""
    inputs: State = {}
    for name, prop in props.items():
        value, was = state.get(name), before.get(name)
        if was is None:
            if value is not None and COMPUTED not in prop.how and not _empty(prop, value):
                inputs[name] = _as_input(prop, value, None)
        elif not any(_differ(prop, was, value, name, False)):
            inputs[name] = was
        elif value is not None:
            inputs[name] = _as_input(prop, value, was)
    return inputs


def _as_input(prop: Prop, value: Value, before: Value) -> Value:
    if prop.kind == "block" and isinstance(value, dict):
        return as_inputs(prop.members, value, before if isinstance(before, dict) else {})
    if prop.item and prop.item.kind == "block" and isinstance(value, list):
        return [as_inputs(prop.item.members, each, {}) for each in value if isinstance(each, dict)]
    return value
