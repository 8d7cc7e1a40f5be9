"""The output types of the official AWS SDK, and the values that do not match them."""

from __future__ import annotations

import importlib
import inspect
import re
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pulumi import _types


def snake(name: str) -> str:
    return re.sub("(?<!^)(?=[A-Z])", "_", name).lower()


def sdk_module(package: str, name: str) -> types.ModuleType:
    """A module of the SDK, in a package such as `pulumi_aws.ec2`."""
    # The SDK loads a package at the first access. If one of its modules came first, the package would lose its names.
    getattr(importlib.import_module(package), "__all__", None)
    return importlib.import_module(f"{package}.{name}")


def resource_class(token: str) -> Any:
    """The SDK's class of a type: aws:eks/cluster:Cluster is Cluster of pulumi_aws.eks.cluster."""
    _, path, name = token.split(":")
    package, _, module = path.partition("/")
    return getattr(sdk_module(f"pulumi_aws.{package}", snake(module)), name)


def outputs(token: str) -> dict[str, Any]:
    """Every output that the SDK's class declares, with its type."""
    resource = resource_class(token)
    resolved = _types.resource_types(resource)  # resolved, but without Optional
    found = {}
    for name, member in inspect.getmembers(resource, lambda member: isinstance(member, property)):
        hint = typing.get_args(member.fget.__annotations__.get("return"))
        if name not in ("urn", "id", "pulumi_resource_name", "pulumi_resource_type") and hint:
            pulumi_name = getattr(member.fget, "_pulumi_name", name)
            found[pulumi_name] = resolved[pulumi_name] | None if is_optional(hint[0]) else resolved[pulumi_name]
    return found


def function_module(token: str) -> types.ModuleType:
    """The SDK's module of a function: aws:index/getPartition:getPartition is in pulumi_aws.get_partition."""
    module, name = token.split(":")[1].split("/")
    return sdk_module("pulumi_aws" if module == "index" else f"pulumi_aws.{module}", snake(name))


def answers(token: str) -> set[str]:
    """The names of the outputs that the SDK's function expects."""
    classes = inspect.getmembers(function_module(token), inspect.isclass)
    result = next(kind for name, kind in classes if re.fullmatch(r"Get\w+Result", name))
    members = inspect.getmembers(result, lambda member: isinstance(member, property))
    return {getattr(member.fget, "_pulumi_name", name) for name, member in members}


def is_optional(declared: Any) -> bool:
    return type(None) in typing.get_args(declared)


def mismatches(declared: Any, value: Any, path: str) -> Iterator[str]:
    """Where a value does not have the declared type."""
    if typing.get_origin(declared) in (typing.Union, types.UnionType):
        if value is None and is_optional(declared):
            return
        declared = next(each for each in typing.get_args(declared) if each is not type(None))
    origin = typing.get_origin(declared)
    simple: dict[Any, tuple[type, ...]] = {str: (str,), bool: (bool,), int: (int,), float: (int, float)}
    if declared in simple:
        if not isinstance(value, simple[declared]) or (isinstance(value, bool) and declared is not bool):
            yield f"{path} is {value!r}, not {declared.__name__}"
    elif origin in (list, Sequence):
        if not isinstance(value, list):
            yield f"{path} is {value!r}, not a list"
            return
        for at, each in enumerate(value):
            yield from mismatches(typing.get_args(declared)[0], each, f"{path}[{at}]")
    elif origin in (dict, Mapping):
        if not isinstance(value, dict):
            yield f"{path} is {value!r}, not a map"
            return
        for key, each in value.items():
            yield from mismatches(typing.get_args(declared)[1], each, f"{path}.{key}")
    else:
        if not isinstance(value, dict):
            yield f"{path} is {value!r}, not {declared.__name__}"
            return
        members = _types.output_type_types(declared)
        yield from (f"{path}.{name} is not in {declared.__name__}" for name in value.keys() - members.keys())
        for name in value.keys() & members.keys():
            yield from mismatches(members[name], value[name], f"{path}.{name}")
