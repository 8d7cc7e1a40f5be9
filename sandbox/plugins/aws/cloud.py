"""AWS as the provider is told to reach it: settings, calls shaped by botocore's models, waits, tags."""

from __future__ import annotations

import base64
import datetime
import json
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, TypeVar
from urllib.parse import urlparse

import botocore.session
from botocore import xform_name
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, ParamValidationError
from botocore.parsers import ResponseParserError

from sandbox.cloud.services import SERVICES
from sandbox.plugins.aws.props import State, Unknown

T = TypeVar("T")

FLAGS = frozenset(
    {
        "s3UsePathStyle",
        "skipCredentialsValidation",
        "skipMetadataApiCheck",
        "skipRegionValidation",
        "skipRequestingAccountId",
    }
)
SETTINGS = FLAGS | {"accessKey", "defaultTags", "endpoints", "region", "secretKey", "token", "version"}


class StandInError(Exception):
    """Something a person has to put right, said in one line."""


@dataclass(frozen=True)
class Settings:
    """The provider's configuration, checked."""

    region: str
    access_key: str
    secret_key: str
    token: str | None
    endpoints: Mapping[str, str]
    default_tags: Mapping[str, str]
    s3_path_style: bool


def read_settings(given: State) -> Settings:
    """Check the provider's configuration as a whole; refuse what would be passed over in silence."""
    values = {name: _parsed(value) for name, value in given.items() if value not in (None, "")}
    if unknown := sorted(values.keys() - SETTINGS):
        raise StandInError(
            f"aws:{unknown[0]} is not a setting that the stand-in knows; it has: {', '.join(sorted(SETTINGS))}"
        )
    for name in ("region", "accessKey", "secretKey", "endpoints"):
        if not values.get(name):
            raise StandInError(f"aws:{name} is not set: the stand-in reads no AWS credentials or profiles of yours")
    lists = values["endpoints"] if isinstance(values["endpoints"], list) else [values["endpoints"]]
    endpoints: dict[str, str] = {}
    for service, url in ((service, url) for each in lists for service, url in each.items()):
        if service not in SERVICES:
            raise StandInError(
                f"aws:endpoints has {service!r}, which the stand-in does not use: {', '.join(sorted(SERVICES))}"
            )
        if service in endpoints:
            raise StandInError(f"aws:endpoints has {service!r} twice")
        if urlparse(url).hostname not in ("127.0.0.1", "localhost", "::1"):
            raise StandInError(
                f"aws:endpoints has {service}={url}: the stand-in talks to an emulator on this machine only"
            )
        endpoints[service] = url
    tags = (values.get("defaultTags") or {}).get("tags") or {}
    return Settings(
        region=values["region"],
        access_key=values["accessKey"],
        secret_key=values["secretKey"],
        token=values.get("token"),
        endpoints=endpoints,
        default_tags=tags,
        s3_path_style=bool(values.get("s3UsePathStyle")),
    )


def _parsed(value: Any) -> Any:
    """The engine sends what is not a text as JSON within a text."""
    if isinstance(value, str) and (value[:1] in "[{" or value in ("true", "false")):
        return json.loads(value)
    return value


@dataclass(frozen=True)
class Cloud:
    """Calls to AWS in one region: `cloud("ec2:CreateVpc", want)`."""

    settings: Settings
    stopping: threading.Event = field(default_factory=threading.Event)
    clients: dict[tuple[str, str], Any] = field(default_factory=dict)
    facts: dict[str, str] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def region(self) -> str:
        return self.settings.region

    def within(self, region: str | None) -> Cloud:
        """The same cloud seen from another region."""
        return replace(self, settings=replace(self.settings, region=region)) if region else self

    def client(self, service: str) -> Any:
        if service not in self.settings.endpoints:
            raise StandInError(
                f"aws:endpoints has no {service!r}: the stand-in talks to an emulator on this machine only"
            )
        with self.lock:
            key = (service, self.region)
            if key not in self.clients:
                style = {"addressing_style": "path" if self.settings.s3_path_style else "auto"}
                self.clients[key] = _session().create_client(
                    service,
                    region_name=self.region,
                    endpoint_url=self.settings.endpoints[service],
                    aws_access_key_id=self.settings.access_key,
                    aws_secret_access_key=self.settings.secret_key,
                    aws_session_token=self.settings.token,
                    config=Config(
                        s3=style,
                        proxies={},
                        connect_timeout=5,
                        max_pool_connections=64,
                        retries={"mode": "standard", "total_max_attempts": 4},
                    ),
                )
            return self.clients[key]

    def __call__(self, action: str, want: State | None = None, /, **parameters: Any) -> Any:
        """Call an action named as IAM names it; members of `want` go where the service's model has a place for them."""
        service, operation = action.split(":")
        client = self.client(service)
        shape = client.meta.service_model.operation_model(operation).input_shape
        if want and shape:
            parameters = {**_shaped(shape, {k: v for k, v in want.items() if k != "tags"}), **parameters}
        return self._told(action, lambda: getattr(client, xform_name(operation))(**parameters))

    def pages(self, action: str, key: str, /, **parameters: Any) -> Iterator[Any]:
        """Every item of a listing, all its pages."""
        service, operation = action.split(":")
        paginator = self.client(service).get_paginator(xform_name(operation))
        pages = iter(paginator.paginate(**parameters))
        while (page := self._told(action, lambda: next(pages, None))) is not None:
            yield from page.get(key, [])

    def _told(self, action: str, call: Callable[[], T]) -> T:
        try:
            return call()
        except ParamValidationError as error:
            raise StandInError(f"{action}: {' '.join(str(error).split())}") from error
        except ResponseParserError as error:
            raise StandInError(f"{action}: AWS answered what cannot be read; its log tells why") from error
        except BotoCoreError as error:
            raise StandInError(f"{action}: AWS cannot be reached: {' '.join(str(error).split())}") from error

    def until(self, done: Callable[[], T | None], what: str, seconds: float) -> T:
        """Ask until there is an answer; stop at once when the engine says so."""
        deadline, pause = time.monotonic() + seconds, 0.05
        while (answer := done()) is None:
            if self.stopping.wait(pause):
                raise StandInError(f"stopped while waiting for {what}")
            if time.monotonic() > deadline:
                raise StandInError(f"{what}: not so after {seconds:.0f} s")
            pause = min(pause * 2, 5)
        return answer

    def account(self) -> str:
        """Asked once: most ARNs are made with it."""
        if "account" not in self.facts:
            self.facts["account"] = str(self("sts:GetCallerIdentity")["Account"])
        return self.facts["account"]

    def partition(self) -> tuple[str, str]:
        """The name of the region's partition, and the end of its services' names."""
        name = str(_session().get_partition_for_region(self.region))
        suffix = _session().get_component("endpoint_resolver").get_partition_dns_suffix(name)
        return name, str(suffix)

    def arn(self, service: str, resource: str) -> str:
        return f"arn:{self.partition()[0]}:{service}:{self.region}:{self.account()}:{resource}"


@cache
def _session() -> Any:
    return botocore.session.Session()


class GoneError(Exception):
    """The thing is not there."""


def only(items: Iterable[Mapping[str, Any]]) -> Any:
    """The one item asked for by its id; some listings answer nothing instead of an error."""
    for item in items:
        return item
    raise GoneError


def first(items: Iterable[Mapping[str, Any]] | None) -> Mapping[str, Any]:
    return next(iter(items or []), {})


def gone(error: Exception) -> bool:
    """Whether AWS says that the thing itself is not there."""
    if not isinstance(error, ClientError):
        return isinstance(error, GoneError)
    code = error.response["Error"]["Code"]
    return "NotFound" in code or code.startswith("NoSuch") or code == "404"


def _shaped(shape: Any, value: Any) -> Any:
    """Turn a property's value into what botocore's shape wants; a structure takes only the members it knows."""
    if shape.type_name == "structure":
        found = {name: value.get(plain_name(name)) for name in shape.members}
        return {
            name: _shaped(shape.members[name], each)
            for name, each in found.items()
            if each is not None and not isinstance(each, Unknown)
        }
    if shape.type_name == "list":
        return [_shaped(shape.member, each) for each in value]
    if shape.type_name == "map":
        return dict(value)
    if shape.type_name == "string":
        return str(value)
    return value


def plain_name(name: str) -> str:
    """AWS's name of a member as the SDK writes it: VpcId -> vpcId, SSEAlgorithm -> sseAlgorithm, ID -> id."""
    name = re.sub("ID$", "Id", name)
    return re.sub("^[A-Z]+(?=[A-Z][a-z]|$)|^[A-Z]", lambda found: found[0].lower(), name)


def plain(value: Any) -> Any:
    """An answer of AWS with the names and values that properties have."""
    if isinstance(value, dict):
        return {plain_name(k): plain(v) for k, v in value.items() if k != "ResponseMetadata"}
    if isinstance(value, list):
        return [plain(each) for each in value]
    if isinstance(value, datetime.datetime):
        return value.astimezone(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def pairs(tags: Mapping[str, str], key: str = "Key", value: str = "Value") -> list[dict[str, str]]:
    return [{key: k, value: v} for k, v in sorted(tags.items())]


def unpaired(tags: Iterable[Mapping[str, str]] | None, key: str = "Key", value: str = "Value") -> dict[str, str]:
    return {each[key]: each[value] for each in tags or () if not each[key].startswith("aws:")}
