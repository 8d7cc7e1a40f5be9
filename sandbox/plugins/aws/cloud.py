"""The AWS API: provider settings, calls with parameters shaped by botocore's models, waits, tags."""

from __future__ import annotations

import base64
import datetime
import json
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeVar
from urllib.parse import urlparse

import botocore.session
from botocore import xform_name
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, ParamValidationError
from botocore.parsers import ResponseParserError

from sandbox.cloud.services import BOTOCORE_NAMES, EMULATED_SERVICES
from sandbox.plugins.servicer import ProviderError
from sandbox.plugins.wire import State, Unknown

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


@dataclass(frozen=True)
class ProviderSettings:
    """The provider's configuration."""

    region: str
    access_key: str
    secret_key: str
    token: str | None
    endpoints: Mapping[str, str]
    default_tags: Mapping[str, str]
    s3_path_style: bool
    knows_account: bool


def read_settings(given: State) -> ProviderSettings:
    """Check the provider's configuration; refuse settings that would be ignored."""
    values = {name: _parsed(value) for name, value in given.items() if value not in (None, "")}
    if unknown := sorted(values.keys() - SETTINGS):
        raise ProviderError(
            f"aws:{unknown[0]} is not supported by the emulated AWS provider; it accepts: {', '.join(sorted(SETTINGS))}"
        )
    for name in ("region", "accessKey", "secretKey", "endpoints"):
        if not values.get(name):
            raise ProviderError(f"aws:{name} is not set; the emulated AWS provider does not read your AWS profiles")
    lists = values["endpoints"] if isinstance(values["endpoints"], list) else [values["endpoints"]]
    endpoints: dict[str, str] = {}
    for service, url in ((service, url) for each in lists for service, url in each.items()):
        if service not in EMULATED_SERVICES:
            raise ProviderError(
                f"aws:endpoints has {service!r}, which is not one of {', '.join(sorted(EMULATED_SERVICES))}"
            )
        if service in endpoints:
            raise ProviderError(f"aws:endpoints has {service!r} twice")
        if urlparse(url).hostname not in ("127.0.0.1", "localhost", "::1"):
            raise ProviderError(
                f"aws:endpoints has {service}={url}: the emulated AWS provider only connects to this machine"
            )
        endpoints[service] = url
    tags = (values.get("defaultTags") or {}).get("tags") or {}
    return ProviderSettings(
        region=values["region"],
        access_key=values["accessKey"],
        secret_key=values["secretKey"],
        token=values.get("token"),
        endpoints=endpoints,
        default_tags=tags,
        s3_path_style=bool(values.get("s3UsePathStyle")),
        knows_account=not values.get("skipRequestingAccountId"),
    )


def _parsed(value: Any) -> Any:
    """The engine sends values that are not texts as JSON in a text."""
    if isinstance(value, str) and (value[:1] in "[{" or value in ("true", "false")):
        return json.loads(value)
    return value


@dataclass(frozen=True)
class Cloud:
    """AWS in one region; `cloud("ec2:CreateVpc", want)` calls an action."""

    settings: ProviderSettings
    stopping: threading.Event = field(default_factory=threading.Event)
    clients: dict[str, Any] = field(default_factory=dict)
    facts: dict[str, str] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def region(self) -> str:
        return self.settings.region

    def client(self, service: str) -> Any:
        if service not in self.settings.endpoints:
            raise ProviderError(
                f"aws:endpoints has no {service!r}: the emulated AWS provider only connects to this machine"
            )
        with self.lock:
            if service not in self.clients:
                style = {"addressing_style": "path" if self.settings.s3_path_style else "auto"}
                self.clients[service] = _session().create_client(
                    BOTOCORE_NAMES.get(service, service),
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
            return self.clients[service]

    def __call__(self, action: str, want: Mapping[str, Any] | None = None, /, **parameters: Any) -> Any:
        """Call an action by its IAM name. Members of `want` that the service's model knows become parameters."""
        service, operation = action.split(":")
        client = self.client(service)
        shape = client.meta.service_model.operation_model(operation).input_shape
        if want and shape:
            parameters = {**_shaped(shape, {k: v for k, v in want.items() if k != "tags"}), **parameters}
        return self._report(action, lambda: getattr(client, xform_name(operation))(**parameters))

    def pages(self, action: str, key: str, /, **parameters: Any) -> Iterator[Any]:
        """Every item of a listing, all its pages."""
        service, operation = action.split(":")
        paginator = self.client(service).get_paginator(xform_name(operation))
        pages = iter(paginator.paginate(**parameters))
        while (page := self._report(action, lambda: next(pages, None))) is not None:
            yield from page.get(key, [])

    def _report(self, action: str, call: Callable[[], T]) -> T:
        try:
            return call()
        except ParamValidationError as error:
            raise ProviderError(f"{action}: {' '.join(str(error).split())}") from error
        except ResponseParserError as error:
            raise ProviderError(f"{action}: the answer cannot be read; see the log of the emulated AWS") from error
        except BotoCoreError as error:
            raise ProviderError(f"{action}: AWS cannot be reached: {' '.join(str(error).split())}") from error

    def until(self, done: Callable[[], T | None], what: str, seconds: float) -> T:
        """Ask until there is an answer; stop when the engine cancels."""
        deadline, pause = time.monotonic() + seconds, 0.05
        while (answer := done()) is None:
            if self.stopping.wait(pause):
                raise ProviderError(f"cancelled while waiting for {what}")
            if time.monotonic() > deadline:
                raise ProviderError(f"timed out after {seconds:.0f} s while waiting for {what}")
            pause = min(pause * 2, 5)
        return answer

    def account(self) -> str:
        """The account's ID, requested once."""
        if "account" not in self.facts:
            self.facts["account"] = str(self("sts:GetCallerIdentity")["Account"])
        return self.facts["account"]

    def partition(self) -> tuple[str, str]:
        """The region's partition and its DNS suffix."""
        name = str(_session().get_partition_for_region(self.region))
        suffix = _session().get_component("endpoint_resolver").get_partition_dns_suffix(name)
        return name, str(suffix)

    @property
    def dns_suffix(self) -> str:
        return self.partition()[1]

    def arn(self, service: str, resource: str) -> str:
        return f"arn:{self.partition()[0]}:{service}:{self.region}:{self.account()}:{resource}"


@cache
def _session() -> Any:
    return botocore.session.Session()


class GoneError(Exception):
    """The resource does not exist."""


def only(items: Iterable[Mapping[str, Any]]) -> Any:
    """The only item; some listings return nothing instead of an error."""
    for item in items:
        return item
    raise GoneError


def first(items: Iterable[Mapping[str, Any]] | None) -> Mapping[str, Any]:
    return next(iter(items or []), {})


def gone(error: Exception) -> bool:
    """Whether the error means that the resource does not exist."""
    if not isinstance(error, ClientError):
        return isinstance(error, GoneError)
    code = error.response["Error"]["Code"]
    return "NotFound" in code or code.startswith("NoSuch") or code == "404"


def _shaped(shape: Any, value: Any) -> Any:
    """Convert a value to botocore's shape; members that a structure does not know are left out."""
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
    """The SDK's name of an AWS member: VpcId -> vpcId, SSEAlgorithm -> sseAlgorithm, ID -> id."""
    name = re.sub("ID$", "Id", name)
    return re.sub("^[A-Z]+(?=[A-Z][a-z]|$)|^[A-Z]", lambda found: found[0].lower(), name)


def plain(value: Any) -> Any:
    """An answer of AWS with the names and values of properties."""
    if isinstance(value, dict):
        return {plain_name(k): plain(v) for k, v in value.items() if k != "ResponseMetadata"}
    if isinstance(value, list):
        return [plain(each) for each in value]
    if isinstance(value, datetime.datetime):
        return value.astimezone(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def pairs(tags: Mapping[str, str], key: str = "Key", value: str = "Value") -> list[dict[str, str]]:
    return [{key: k, value: v} for k, v in sorted(tags.items())]


def unpaired(tags: Iterable[Mapping[str, str]] | None, key: str = "Key", value: str = "Value") -> dict[str, Any]:
    return {each[key]: each[value] for each in tags or () if not each[key].startswith("aws:")}
