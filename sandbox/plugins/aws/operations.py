"""The operations on a resource: check, diff, create, read, update, delete. Each type's row supplies the API calls."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping

from botocore.exceptions import ClientError

from sandbox.plugins.aws.cloud import Cloud, GoneError, gone
from sandbox.plugins.aws.props import (
    COMPUTED,
    LOCAL,
    Difference,
    Misuse,
    Prop,
    accept,
    aligned,
    differences,
    mapping,
    with_place,
)
from sandbox.plugins.aws.rows import Autoname, Row
from sandbox.plugins.servicer import InitFailedError, ProviderError
from sandbox.plugins.wire import UNKNOWN, State, Value, write

# The errors with which AWS refuses to delete what another resource still uses.
IN_USE = {"DependencyViolation", "ResourceInUse", "ResourceInUseException", "DeleteConflict", "FileSystemInUse"}
IN_USE_SECONDS = 60


def comparable(row: Row) -> dict[str, Prop]:
    """The properties that are compared: the inputs, and the tags that the provider adds."""
    return {**row.inputs, **({"tagsAll": mapping()} if "tags" in row.inputs else {})}


def check(row: Row, cloud: Cloud, urn: str, olds: State, news: State, seed: bytes) -> tuple[State, list[Misuse]]:
    """Complete the inputs (generated name, defaults, default tags) and list what is wrong with them."""
    defaults: list[str] = []
    news = {name: value for name, value in news.items() if value is not None}
    auto = row.autoname
    if auto and auto.property not in news:
        kept = auto.property in _defaulted(olds)
        news[auto.property] = olds[auto.property] if kept else _generated(auto, urn.rsplit("::", 1)[1], seed)
        defaults.append(auto.property)
    inputs, misuses = accept(row.inputs, news)
    defaults += [name for name in inputs if name not in news]
    misuses = with_place(misuses, f"{row.token} in {row.read.__module__.replace('.', '/')}.py") or row.check(inputs)
    if "tags" in row.inputs:
        tags = inputs.get("tags") or {}
        inputs["tagsAll"] = {**cloud.settings.default_tags, **tags} if isinstance(tags, dict) else UNKNOWN
    return {**inputs, "__defaults": [*sorted(defaults)]}, misuses


def _defaulted(inputs: State) -> list[Value]:
    """The names of the inputs that the program did not give."""
    names = inputs.get("__defaults")
    return names if isinstance(names, list) else []


def _generated(auto: Autoname, logical: str, seed: bytes) -> str:
    stem = f"{auto.prefix}{logical}"[: auto.limit - 8]
    digits = "".join(random.Random(seed or None).choices("0123456789abcdef", k=7))
    return f"{stem.lower() if auto.lower else stem}-{digits}"


def deletes_first(row: Row, olds: State, news: State) -> bool:
    """Whether a replacement deletes the old resource first, because both would have the same name."""
    auto = row.autoname.property if row.autoname else ""
    same_name = bool(auto) and auto not in _defaulted(news) and news.get(auto) == olds.get(auto)
    return same_name or row.delete_first


def find_differences(row: Row, state: State, want: State) -> list[Difference]:
    forced = row.forces(state, want)
    found = differences(comparable(row), want, state)
    return [d._replace(replaces=d.replaces or top(d.path) in forced) for d in found]


def top(path: str) -> str:
    return path.split(".")[0].split("[")[0]


def planned(row: Row, want: State) -> State:
    """The state that a preview of a creation shows: the inputs, and unknown outputs."""
    outputs: State = dict.fromkeys(row.outputs, UNKNOWN)
    return {**outputs, **_guess(row.inputs, want), **{k: want[k] for k in ("tagsAll",) if k in want}}


def planned_update(row: Row, olds: State, want: State) -> State:
    """The state that a preview of an update shows."""
    kept = {name: value for name, value in olds.items() if name not in row.inputs or COMPUTED in row.inputs[name].how}
    renewed: State = {name: UNKNOWN for name in row.renewed if _changed(row, olds, want)}
    return {**kept, **_keep_computed(row.inputs, olds, _asked(row, want)), **renewed}


def _keep_computed(inputs: Mapping[str, Prop], olds: State, asked: State) -> State:
    """The inputs, together with the values that AWS had chosen inside their blocks."""
    state = dict(asked)
    for name, prop in inputs.items():
        new, old = asked.get(name), olds.get(name)
        if prop.kind == "block" and isinstance(new, dict) and isinstance(old, dict):
            state[name] = {**old, **_keep_computed(prop.members, old, new)}
    return state


def _guess(inputs: Mapping[str, Prop], want: State) -> State:
    state: State = {}
    for name, prop in inputs.items():
        value = want.get(name)
        if isinstance(value, dict) and prop.kind == "block":
            state[name] = _guess(prop.members, value)
        elif value is not None:
            state[name] = value
        elif COMPUTED in prop.how:
            state[name] = UNKNOWN
    return state


def look(row: Row, cloud: Cloud, identity: str, before: State) -> State | None:
    """The current state in AWS, with the names of the SDK; None if the resource does not exist."""
    raw = None if not identity else _ask(row, cloud, identity, before)
    return None if raw is None else _shape(row, cloud, identity, raw, before)


def _ask(row: Row, cloud: Cloud, identity: str, before: State) -> State | None:
    try:
        return row.read(cloud, identity, before)
    except (ClientError, GoneError) as error:
        if gone(error):
            return None
        raise


def _shape(row: Row, cloud: Cloud, identity: str, raw: State, before: State) -> State:
    state = {**{name: raw.get(name) for name in row.outputs}, **_pruned(row.inputs, raw), "id": identity}
    state.update({name: before.get(name, prop.default) for name, prop in row.inputs.items() if LOCAL in prop.how})
    if "tags" in row.inputs:
        own, defaults = before.get("tags"), cloud.settings.default_tags
        given = own if isinstance(own, dict) else {}
        real = raw.get("tagsAll")
        tags = real if isinstance(real, dict) else {}
        state["tagsAll"] = tags
        state["tags"] = {k: v for k, v in tags.items() if k in given or defaults.get(k) != v}
    return aligned(row.inputs, _without_nulls(state), before)


def _pruned(inputs: Mapping[str, Prop], raw: State) -> State:
    state: State = {}
    for name, prop in inputs.items():
        value = raw.get(name)
        if isinstance(value, dict) and prop.kind == "block":
            state[name] = _without_nulls(_pruned(prop.members, value))
        elif isinstance(value, list) and prop.item and prop.item.kind == "block":
            members = prop.item.members
            state[name] = [_without_nulls(_pruned(members, each)) for each in value if isinstance(each, dict)]
        else:
            state[name] = value
    return state


def _without_nulls(state: State) -> State:
    return {name: value for name, value in state.items() if value is not None}


def create(row: Row, cloud: Cloud, want: State, seconds: float) -> tuple[str, State]:
    identity = row.create(cloud, want)
    try:
        if row.finish:
            row.finish(cloud, identity)
        state = _await_ready(row, cloud, identity, want, seconds)
        if missing := _changed(row, state, want):
            state = change(row, cloud, identity, state, want, missing, seconds)
    except Exception as error:  # whatever it is, the engine must store what exists
        raise _init_failed(row, cloud, identity, want, error) from error
    return identity, state


def change(
    row: Row, cloud: Cloud, identity: str, have: State, want: State, changed: frozenset[str], seconds: float
) -> State:
    """Change these properties, and check that AWS now has the new values."""
    remote = {name for name in changed if name not in row.inputs or LOCAL not in row.inputs[name].how}
    if remote and row.update is None:
        raise ProviderError(f"AWS has other values for {', '.join(sorted(remote))}, and they cannot be changed")
    if remote and row.update:
        row.update(cloud, identity, have, want, frozenset(remote))
    state = _await_ready(row, cloud, identity, want, seconds)
    if still := _changed(row, state, want):
        details = "; ".join(f"{name}: asked {want.get(name)!r}, has {state.get(name)!r}" for name in sorted(still))
        raise ProviderError(f"AWS did not store the requested values: {details}")
    return state


def _changed(row: Row, state: State, want: State) -> frozenset[str]:
    return frozenset(top(each.path) for each in find_differences(row, state, want))


def _await_ready(row: Row, cloud: Cloud, identity: str, want: State, seconds: float) -> State:
    def ready() -> State | None:
        raw = _ask(row, cloud, identity, want)
        return _shape(row, cloud, identity, raw, want) if raw is not None and row.ready(raw) else None

    return cloud.until(ready, f"{row.token} {identity} to be ready", seconds)


def _init_failed(row: Row, cloud: Cloud, identity: str, want: State, error: Exception) -> InitFailedError:
    try:
        state = look(row, cloud, identity, want)
    except (ClientError, ProviderError):
        state = None
    stored = _asked(row, want) if state is None else state
    return InitFailedError([explain(error)], identity, write(stored), write(want))


def _asked(row: Row, want: State) -> State:
    return {name: value for name, value in want.items() if name in comparable(row)}


def update(row: Row, cloud: Cloud, identity: str, olds: State, want: State, seconds: float) -> State:
    try:
        return change(row, cloud, identity, olds, want, _changed(row, olds, want), seconds)
    except (ClientError, ProviderError) as error:
        raise _init_failed(row, cloud, identity, want, error) from error


def delete(row: Row, cloud: Cloud, identity: str, state: State, seconds: float) -> None:
    """Delete, retry while another resource still uses this one, and wait until it is gone."""
    retry_until = time.monotonic() + min(IN_USE_SECONDS, seconds)

    def tried() -> bool | None:
        try:
            row.delete(cloud, identity, state)
        except GoneError:
            return True
        except ClientError as error:
            if error.response["Error"]["Code"] in IN_USE and time.monotonic() < retry_until:
                return None
            if not gone(error):
                raise
        return True

    cloud.until(tried, f"{row.token} {identity} to be free", seconds)
    if row.vanishes:
        cloud.until(
            lambda: True if look(row, cloud, identity, state) is None else None,
            f"{row.token} {identity} to be deleted",
            seconds,
        )


def explain(error: Exception) -> str:
    if isinstance(error, ClientError):
        reported = error.response["Error"]
        return f"{error.operation_name}: {reported['Code']}: {' '.join(reported.get('Message', '').split())}"
    return str(error)
