"""Records the API calls to the emulated AWS: one line of JSON per call, with its operation, parameters and tags."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from moto.core.parse import PROTOCOL_PARSERS
from moto.core.request import Request, determine_request_protocol
from moto.core.routing import get_service_router
from moto.core.utils import get_service_model
from moto.ec2.models import ec2_backends
from moto.iam.models import iam_backends
from moto.sns.models import sns_backends

Environment = dict[str, Any]
Application = Callable[[Environment, Callable[..., Any]], Iterable[bytes]]

# Service names in request signatures that differ from botocore's names.
MODELS = {
    "elasticfilesystem": "efs",
    "servicequotas": "service-quotas",
    "tagging": "resourcegroupstaggingapi",
}
ACCOUNT = "123456789012"
EC2_ID = re.compile(r"[a-z]+(-[a-z]+)*-[0-9a-f]{8,17}")
SIGNED = re.compile(r"Credential=([^/,]+)/\d+/([^/,]+)/([^/,]+)/aws4_request")


def recorded(application: Application, file: Path) -> Application:
    """The application, with each signed call written to the file before it is answered. Needs `one_at_a_time`."""

    def answer(environ: Environment, start_response: Callable[..., Any]) -> Iterable[bytes]:
        if signed := SIGNED.search(environ.get("HTTP_AUTHORIZATION", "")):
            body = b""
            # A body without a length is an object for S3. It contains no parameters.
            if length := environ.get("CONTENT_LENGTH"):
                body = environ["wsgi.input"].read(int(length))
                environ["wsgi.input"] = io.BytesIO(body)
            key, region, service = signed.groups()
            call = {"key": key, "region": region, **_call(region, service, environ, body)}
            line = json.dumps(call, default=str)
            with file.open("a") as lines:
                lines.write(line + "\n")
        return application(environ, start_response)

    return answer


def _call(region: str, service: str, environ: Environment, body: bytes) -> dict[str, Any]:
    name = MODELS.get(service, service)
    request = Request({**environ, "wsgi.input": io.BytesIO(body)})
    operation, in_path = get_service_router(name).match(request)
    parse = PROTOCOL_PARSERS[determine_request_protocol(get_service_model(name), request.content_type)](operation).parse
    parameters = parse(
        {
            "method": request.method,
            "values": request.values,
            "headers": request.headers,
            "body": body,
            "url_path": request.path,
            "url_params": in_path,
        }
    )
    call = {"service": service, "operation": operation.name, "parameters": parameters}
    if service == "ec2":
        tags = ec2_backends[ACCOUNT][region].tags
        call["tags"] = {text: dict(tags.get(text, {})) for text in _texts(parameters) if EC2_ID.fullmatch(text)}
    elif service in ("iam", "sns"):
        # A caller can know these ARNs before the resource exists.
        tags = _topic_tags(region) if service == "sns" else _identity_provider_tags()
        call["tags"] = {text: tags[text] for text in _texts(parameters) if text in tags}
    return call


def _topic_tags(region: str) -> dict[str, dict[str, str]]:
    return {arn: dict(topic._tags) for arn, topic in sns_backends[ACCOUNT][region].topics.items()}


def _identity_provider_tags() -> dict[str, dict[str, str]]:
    found = iam_backends[ACCOUNT]["aws"].open_id_providers
    return {arn: {tag["Key"]: tag["Value"] for tag in each.tag_list_type} for arn, each in found.items()}


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for member in value.values() if isinstance(value, dict) else value:
            yield from _texts(member)
