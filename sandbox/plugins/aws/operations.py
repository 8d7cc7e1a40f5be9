"""The steps of a resource's life, the same for every type: what differs is told by its row."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from typing import Any

from botocore.exceptions import ClientError

from sandbox.plugins.aws.cloud import Cloud, GoneError, StandInError, gone
from sandbox.plugins.aws.props import (
    COMPUTED,
    LOCAL,
    UNKNOWN,
    Difference,
    Misuse,
    Prop,
    State,
    Unknown,
    accept,
    aligned,
    differences,
    mapping,
)
from sandbox.plugins.aws.rows import Autoname, Row

# What AWS answers to a deletion while something else still holds on to the thing.
HELD = {"DependencyViolation", "ResourceInUse", "ResourceInUseException", "DeleteConflict", "FileSystemInUse"}
HELD_SECONDS = 60

_EMPTY: dict[str, Any] = {"text": "", "flag": False, "number": 0, "set": [], "list": [], "policy": "", "map": {}}


class UnfinishedError(Exception):
    """The thing is there, and not all that was asked of it is done: the engine must remember it."""

    def __init__(self, identity: str, state: State, inputs: State, reason: str) -> None:
        super().__init__(reason)
        self.identity, self.state, self.inputs, self.reason = identity, state, inputs, reason


def comparable(row: Row) -> dict[str, Prop]:
    """The properties a difference can be in: what is asked for, and the tags that the provider adds."""
    return {**row.inputs, **({"tagsAll": mapping()} if "tags" in row.inputs else {})}


def check(row: Row, cloud: Cloud, urn: str, olds: State, news: State, seed: bytes) -> tuple[State, list[Misuse]]:
    """Inputs made whole: names made up, defaults filled in, tags merged; and what is wrong with them."""
    defaults = []
    news = {name: value for name, value in news.items() if value is not None}
    auto = row.autoname
    if auto and auto.property not in news:
        kept = auto.property in olds.get("__defaults", ())
        news[auto.property] = olds[auto.property] if kept else _made_up(auto, urn.rsplit("::", 1)[1], seed)
        defaults.append(auto.property)
    inputs, misuses = accept(row.inputs, news)
    defaults += [name for name in inputs if name not in news]
    if not misuses:
        misuses = row.check(inputs)
    if "tags" in row.inputs:
        tags = inputs.get("tags") or {}
        inputs["tagsAll"] = UNKNOWN if isinstance(tags, Unknown) else {**cloud.settings.default_tags, **tags}
    return {**inputs, "__defaults": sorted(defaults)}, misuses


def _made_up(auto: Autoname, logical: str, seed: bytes) -> str:
    stem = f"{auto.prefix}{logical}"[: auto.limit - 8]
    digits = "".join(random.Random(seed or None).choices("0123456789abcdef", k=7))
    return f"{stem.lower() if auto.lower else stem}-{digits}"


def find_differences(row: Row, state: State, want: State) -> list[Difference]:
    forced = row.forces(state, want)
    found = differences(comparable(row), want, state)
    return [d._replace(replaces=d.replaces or top(d.path) in forced) for d in found]


def top(path: str) -> str:
    return path.split(".")[0].split("[")[0]


def planned(row: Row, want: State) -> State:
    """The state that a preview of a creation shows: what is asked for, the rest unknown."""
    return {**_guess(row.inputs, row.outputs, want), **{k: want[k] for k in ("tagsAll",) if k in want}}


def planned_update(row: Row, olds: State, want: State) -> State:
    """The state that a preview of an update shows."""
    kept = {name: value for name, value in olds.items() if name not in row.inputs or COMPUTED in row.inputs[name].how}
    renewed = {name: UNKNOWN for name in row.renewed if _changed(row, olds, want)}
    return {**kept, **_kept_computed(row.inputs, olds, _asked(row, want)), **renewed}


def _kept_computed(inputs: Mapping[str, Prop], olds: State, asked: State) -> State:
    """What is asked for, with the members of a block that AWS had picked."""
    state = dict(asked)
    for name, prop in inputs.items():
        if prop.kind == "block" and isinstance(asked.get(name), dict) and isinstance(olds.get(name), dict):
            state[name] = {**olds[name], **_kept_computed(prop.members, olds[name], asked[name])}
    return state


def _guess(inputs: Mapping[str, Prop], outputs: Sequence[str], want: State) -> State:
    state: State = {name.split(".")[0]: UNKNOWN for name in outputs if "." not in name}
    for name, prop in inputs.items():
        inner = [each.split(".", 1)[1] for each in outputs if each.startswith(f"{name}.")]
        if isinstance(want.get(name), dict) and prop.kind == "block":
            state[name] = _guess(prop.members, inner, want[name])
        elif want.get(name) is not None:
            state[name] = want[name]
        elif COMPUTED in prop.how:
            state[name] = UNKNOWN
    return state


def look(row: Row, cloud: Cloud, identity: str, before: State) -> State | None:
    """The state as AWS has it, under the names of the SDK; None when the thing is not there."""
    raw = _ask(row, cloud, identity, before)
    return None if raw is None else _shape(row, cloud, raw, before)


def _ask(row: Row, cloud: Cloud, identity: str, before: State) -> State | None:
    try:
        return row.read(cloud, identity, before)
    except (ClientError, GoneError) as error:
        if gone(error):
            return None
        raise


def _shape(row: Row, cloud: Cloud, raw: State, before: State) -> State:
    state = _pruned(row.inputs, row.outputs, raw)
    state.update({name: before.get(name, prop.default) for name, prop in row.inputs.items() if LOCAL in prop.how})
    if "tags" in row.inputs:
        own, defaults = before.get("tags") or {}, cloud.settings.default_tags
        state["tagsAll"] = raw.get("tagsAll") or {}
        state["tags"] = {k: v for k, v in state["tagsAll"].items() if k in own or defaults.get(k) != v}
    if "region" in row.inputs:
        state["region"] = cloud.region
    return aligned(row.inputs, {name: value for name, value in state.items() if value is not None}, before)


def _pruned(inputs: Mapping[str, Prop], outputs: Sequence[str], raw: State) -> State:
    state: State = {name: "" if raw.get(name) is None else raw[name] for name in outputs if "." not in name}
    for name, prop in inputs.items():
        value = raw.get(name)
        inner = [each.split(".", 1)[1] for each in outputs if each.startswith(f"{name}.")]
        if value is None:
            state[name] = _EMPTY.get(prop.kind) if COMPUTED in prop.how else None
        elif prop.kind == "block":
            state[name] = {k: v for k, v in _pruned(prop.members, inner, value).items() if v is not None}
        elif prop.item and prop.item.kind == "block":
            items = [_pruned(prop.item.members, inner, each) for each in value]
            state[name] = [{k: v for k, v in each.items() if v is not None} for each in items]
        else:
            state[name] = value
    return state


def create(row: Row, cloud: Cloud, want: State, seconds: float) -> tuple[str, State]:
    identity = row.create(cloud, want)
    try:
        if row.finish:
            row.finish(cloud, identity)
        state = _settle(row, cloud, identity, want, seconds)
        if missing := _changed(row, state, want):
            state = change(row, cloud, identity, state, want, missing, seconds)
    except Exception as error:  # whatever it is, what exists must not be lost
        raise _unfinished(row, cloud, identity, want, error) from error
    return identity, state


def change(
    row: Row, cloud: Cloud, identity: str, have: State, want: State, changed: frozenset[str], seconds: float
) -> State:
    """Bring `changed` to what is wanted, and see that AWS has it so."""
    told = {name for name in changed if name not in row.inputs or LOCAL not in row.inputs[name].how}
    if told and row.update is None:
        raise StandInError(f"AWS has {', '.join(sorted(told))} otherwise than asked, and it cannot be changed")
    if told and row.update:
        row.update(cloud, identity, have, want, frozenset(told))
    state = _settle(row, cloud, identity, want, seconds)
    if still := _changed(row, state, want):
        details = "; ".join(f"{name}: asked {want.get(name)!r}, has {state.get(name)!r}" for name in sorted(still))
        raise StandInError(f"AWS did not take what was asked: {details}")
    return state


def _changed(row: Row, state: State, want: State) -> frozenset[str]:
    return frozenset(top(each.path) for each in find_differences(row, state, want))


def _settle(row: Row, cloud: Cloud, identity: str, want: State, seconds: float) -> State:
    def settled() -> State | None:
        raw = _ask(row, cloud, identity, want)
        return _shape(row, cloud, raw, want) if raw is not None and row.settled(raw) else None

    return cloud.until(settled, f"{row.token} {identity} to be ready", seconds)


def _unfinished(row: Row, cloud: Cloud, identity: str, want: State, error: Exception) -> UnfinishedError:
    try:
        state = look(row, cloud, identity, want)
    except (ClientError, StandInError):
        state = None
    return UnfinishedError(identity, _asked(row, want) if state is None else state, want, explain(error))


def _asked(row: Row, want: State) -> State:
    return {name: value for name, value in want.items() if name in comparable(row)}


def update(row: Row, cloud: Cloud, identity: str, olds: State, want: State, seconds: float) -> State:
    try:
        return change(row, cloud, identity, olds, want, _changed(row, olds, want), seconds)
    except (ClientError, StandInError) as error:
        raise _unfinished(row, cloud, identity, want, error) from error


def delete(row: Row, cloud: Cloud, identity: str, state: State, seconds: float) -> None:
    """Delete, as often as something else still holds on to it, and see it gone."""
    if state.get("skipDestroy"):
        return
    patience = time.monotonic() + min(HELD_SECONDS, seconds)

    def tried() -> bool | None:
        try:
            row.delete(cloud, identity, state)
        except GoneError:
            return True
        except ClientError as error:
            if error.response["Error"]["Code"] in HELD and time.monotonic() < patience:
                return None
            if not gone(error):
                raise
        return True

    cloud.until(tried, f"{row.token} {identity} to be free", seconds)
    if row.vanishes:
        cloud.until(
            lambda: True if look(row, cloud, identity, state) is None else None,
            f"{row.token} {identity} to go",
            seconds,
        )


def explain(error: Exception) -> str:
    if isinstance(error, ClientError):
        told = error.response["Error"]
        return f"{error.operation_name}: {told['Code']}: {' '.join(told.get('Message', '').split())}"
    return str(error)
