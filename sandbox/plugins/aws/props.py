"""What a property may be, whether what was asked for is what AWS has, and which differences force a replacement."""

from __future__ import annotations

import enum
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

State = dict[str, Any]


class Unknown:
    """A value that the engine cannot know yet, in a preview."""

    def __repr__(self) -> str:
        return "<known after up>"


UNKNOWN = Unknown()


class Is(enum.Flag):
    """How a property behaves, besides its kind."""

    PLAIN = 0
    REQUIRED = enum.auto()
    REPLACES = enum.auto()  # a change forces a replacement
    COMPUTED = enum.auto()  # AWS picks a value when the program gives none
    LOCAL = enum.auto()  # AWS is never told: a setting of the provider itself


PLAIN, REQUIRED, REPLACES, COMPUTED, LOCAL = Is.PLAIN, Is.REQUIRED, Is.REPLACES, Is.COMPUTED, Is.LOCAL

Kind = Literal["text", "number", "flag", "policy", "map", "block", "set", "list"]


@dataclass(frozen=True)
class Prop:
    """One input property: its kind, how it behaves, and what it holds."""

    kind: Kind
    how: Is = PLAIN
    default: Any = None
    members: Mapping[str, Prop] = field(default_factory=dict)
    item: Prop | None = None
    alike: Callable[[Any, Any], bool] | None = None


def text(how: Is = PLAIN, default: str | None = None, alike: Callable[[Any, Any], bool] | None = None) -> Prop:
    return Prop("text", how, default, alike=alike)


def number(how: Is = PLAIN, default: int | None = None) -> Prop:
    return Prop("number", how, default)


def flag(how: Is = PLAIN, default: bool | None = None) -> Prop:
    return Prop("flag", how, default)


def policy(how: Is = PLAIN) -> Prop:
    return Prop("policy", how)


def mapping(how: Is = PLAIN) -> Prop:
    return Prop("map", how)


def texts(how: Is = PLAIN) -> Prop:
    """A set of texts: their order says nothing."""
    return Prop("set", how, item=text())


def numbers(how: Is = PLAIN) -> Prop:
    return Prop("set", how, item=number())


def ordered(how: Is = PLAIN) -> Prop:
    return Prop("list", how, item=text())


def block(members: Mapping[str, Prop], how: Is = PLAIN) -> Prop:
    return Prop("block", how, members=members)


def blocks(members: Mapping[str, Prop], how: Is = PLAIN, kind: Literal["set", "list"] = "set") -> Prop:
    return Prop(kind, how, item=block(members))


class Difference(NamedTuple):
    """One place where what is asked for is not what is there."""

    path: str
    kind: Literal["ADD", "DELETE", "UPDATE"]
    replaces: bool


class Misuse(NamedTuple):
    """One input that cannot be accepted, and why."""

    path: str
    reason: str


def join(path: str, key: str | int) -> str:
    """Extend a property path the way the engine writes one."""
    if isinstance(key, int):
        return f"{path}[{key}]"
    if not key.replace("_", "a").isalnum():
        return f'{path}["{key}"]'
    return f"{path}.{key}" if path else key


def accept(props: Mapping[str, Prop], given: State, path: str = "") -> tuple[State, list[Misuse]]:
    """The inputs with numbers and texts put right and defaults filled in, and whatever is wrong with them."""
    good: State = {}
    bad = [
        Misuse(join(path, name), f"not known to the stand-in, which accepts: {', '.join(sorted(props))}")
        for name in given
        if name not in props
    ]
    for name, prop in props.items():
        value = given.get(name)
        if value is None:
            if REQUIRED in prop.how:
                bad.append(Misuse(join(path, name), "required, and not given"))
            elif prop.default is not None:
                good[name] = prop.default
        else:
            good[name], wrong = _accept_value(prop, value, join(path, name))
            bad += wrong
    return good, bad


def _accept_value(prop: Prop, value: Any, path: str) -> tuple[Any, list[Misuse]]:
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
        try:
            return (value, wrong) if isinstance(value, bool) else (_as_number(value), [])
        except (TypeError, ValueError):
            return value, wrong
    if prop.kind == "policy" and isinstance(value, str):
        try:
            json.loads(value)
        except ValueError as error:
            return value, [Misuse(path, f"not JSON: {error}")]
    return (value, wrong) if isinstance(value, (dict, list)) else (_as_text(value), [])


def _as_text(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return str(_as_number(value))
    return value


def _as_number(value: Any) -> int | float:
    return int(value) if float(value).is_integer() else float(value)


def differences(props: Mapping[str, Prop], asked: State, actual: State, path: str = "") -> Iterator[Difference]:
    """Every place where `actual`, the state read from AWS, is not what is asked for."""
    for name, prop in props.items():
        yield from _differ(prop, asked.get(name), actual.get(name), join(path, name), False)


def _differ(prop: Prop, asked: Any, actual: Any, path: str, replaces: bool) -> Iterator[Difference]:
    replaces = replaces or REPLACES in prop.how
    if asked is None:
        if COMPUTED not in prop.how and not _empty(prop, actual):
            yield Difference(path, "DELETE", replaces)
    elif isinstance(asked, Unknown):
        yield Difference(path, "ADD" if actual is None else "UPDATE", replaces)
    elif actual is None:
        if not _empty(prop, asked):
            yield Difference(path, "ADD", replaces)
    elif prop.kind == "block":
        for name, member in prop.members.items():
            yield from _differ(member, asked.get(name), actual.get(name), join(path, name), replaces)
    elif prop.kind == "map":
        for key in sorted(asked.keys() | actual.keys()):
            yield from _differ(text(), asked.get(key), actual.get(key), join(path, key), replaces)
    elif prop.kind == "list" and prop.item and len(asked) == len(actual):
        for at, (one, other) in enumerate(zip(asked, actual, strict=True)):
            yield from _differ(prop.item, one, other, join(path, at), replaces)
    elif not _same(prop, asked, actual):
        yield Difference(path, "UPDATE", replaces)


def _same(prop: Prop, asked: Any, actual: Any) -> bool:
    if prop.kind == "set" and prop.item:
        left = list(actual)
        for each in asked:
            twin = next(
                (at for at, other in enumerate(left) if not any(_differ(prop.item, each, other, "", False))), None
            )
            if twin is None:
                return False
            del left[twin]
        return not left
    if prop.kind == "policy":
        return same_policy(asked, actual)
    return asked == actual or bool(prop.alike and prop.alike(asked, actual))


def _empty(prop: Prop, value: Any) -> bool:
    """Whether a value says no more than its absence."""
    if prop.kind == "block" and isinstance(value, dict):
        return all(_empty(prop.members[name], v) for name, v in value.items() if name in prop.members)
    return value in (None, "", False, 0, [], {}) or (value == prop.default and prop.default is not None)


def same_policy(one: str, other: str) -> bool:
    """Whether two policy documents say the same: IAM keeps neither spacing nor the order within a list of names."""
    return bool(_settled(json.loads(one or "{}")) == _settled(json.loads(other or "{}")))


def _settled(document: Any, key: str = "") -> Any:
    if isinstance(document, dict):
        return {k: _settled(v, k) for k, v in document.items()}
    if isinstance(document, list):
        items = [_settled(each) for each in document]
        if key == "Statement":
            return items
        return items[0] if len(items) == 1 else sorted(items, key=_order)
    return str(document).lower() if isinstance(document, bool) else document


def aligned(props: Mapping[str, Prop], state: State, before: State) -> State:
    """The state with sets in one order and policies in one spelling: as before while they say the same."""
    out = dict(state)
    for name, prop in props.items():
        value, was = state.get(name), before.get(name)
        if prop.kind == "block" and isinstance(value, dict):
            out[name] = aligned(prop.members, value, was if isinstance(was, dict) else {})
        elif prop.kind in ("set", "policy") and value:
            plain = prop.kind == "policy" or (prop.item and prop.item.kind != "block")
            same = plain and was is not None and not isinstance(was, Unknown) and _same(prop, was, value)
            out[name] = was if same else sorted(value, key=_order) if prop.kind == "set" else value
    return out


def _order(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def as_inputs(props: Mapping[str, Prop], state: State, before: State) -> State:
    """The inputs that would ask for `state`: those asked before, brought up to date, and whatever else AWS now has."""
    inputs = {}
    for name, prop in props.items():
        value, was = state.get(name), before.get(name)
        if was is None:
            if value is not None and COMPUTED not in prop.how and not _empty(prop, value):
                inputs[name] = _shown(prop, value, None)
        elif not any(_differ(prop, was, value, name, False)):
            inputs[name] = was
        elif value is not None:
            inputs[name] = _shown(prop, value, was)
    return inputs


def _shown(prop: Prop, value: Any, before: Any) -> Any:
    if prop.kind == "block" and isinstance(value, dict):
        return as_inputs(prop.members, value, before or {})
    if prop.item and prop.item.kind == "block" and isinstance(value, list):
        return [as_inputs(prop.item.members, each, {}) for each in value]
    return value
