"""The command and the environment variables of a container, resolved as a kubelet does."""

from __future__ import annotations

import re

from sandbox.cluster.objects import Container
from sandbox.node.pod_context import NotReadyError, PodContext, UnsupportedError
from tools.kubernetes_client import CONFIG_MAP, SECRET, Api, Object

# The sandbox pulls no images, so it must know the ENTRYPOINT of an image that is used without a command.
ENTRYPOINTS = {"aws-cli": ["aws"]}


def command(container: Container, env: dict[str, str]) -> list[str]:
    """The command and its arguments with $(VAR) replaced; without a command, the entry point of the image."""
    given = container.get("command")
    if not given:
        image = container["image"]
        given = ENTRYPOINTS.get(image.split("@")[0].rpartition("/")[2].split(":")[0])
        if given is None:
            raise UnsupportedError(
                f"the sandbox pulls no images and does not know the entry point of {image}: set `command`"
            )
    return [expand(part, env) for part in [*given, *(container.get("args") or [])]]


def variables(context: PodContext, container: Container) -> dict[str, str]:
    """The variables of the API server and of the container. A variable may refer to those above it."""
    found = api_server_variables(context.api)
    for source in container.get("envFrom") or []:
        found |= _all_entries(context, source)
    for variable in container.get("env") or []:
        if "valueFrom" in variable:
            value = _value_from(context, variable["valueFrom"])
            if value is None:
                continue
        else:
            value = expand(variable.get("value") or "", found)
        found[variable["name"]] = value
    return found


def api_server_variables(api: Api) -> dict[str, str]:
    """The variables of the service `kubernetes`, with the API server's own address: services have no route here."""
    host, port = api.url.hostname or "127.0.0.1", str(api.url.port or 443)
    tcp = f"KUBERNETES_PORT_{port}_TCP"
    return {
        "KUBERNETES_SERVICE_HOST": host,
        "KUBERNETES_SERVICE_PORT": port,
        "KUBERNETES_SERVICE_PORT_HTTPS": port,
        "KUBERNETES_PORT": f"tcp://{host}:{port}",
        tcp: f"tcp://{host}:{port}",
        f"{tcp}_PROTO": "tcp",
        f"{tcp}_PORT": port,
        f"{tcp}_ADDR": host,
    }


_REFERENCE = re.compile(r"\$\$|\$\(([^()]*)\)")


def expand(text: str, env: dict[str, str]) -> str:
    """Replace $(VAR) and turn $$ into $; a reference to an unknown variable stays as it is."""
    return _REFERENCE.sub(lambda m: "$" if m[0] == "$$" else env.get(m[1], m[0]), text)


def _value_from(context: PodContext, source: Object) -> str | None:
    if "fieldRef" in source:
        return context.field(source["fieldRef"]["fieldPath"])
    for key, kind in (("configMapKeyRef", CONFIG_MAP), ("secretKeyRef", SECRET)):
        if key in source:
            reference = source[key]
            found = context.entries(kind, reference["name"], bool(reference.get("optional")))
            if reference["key"] in found:
                return found[reference["key"]].decode()
            if reference.get("optional"):
                return None
            raise NotReadyError(f"{kind.kind} {reference['name']} has no key {reference['key']}")
    raise UnsupportedError(f"valueFrom {', '.join(source)} is not supported")


def _all_entries(context: PodContext, source: Object) -> dict[str, str]:
    for key, kind in (("configMapRef", CONFIG_MAP), ("secretRef", SECRET)):
        if key in source:
            found = context.entries(kind, source[key]["name"], bool(source[key].get("optional")))
            return {source.get("prefix", "") + name: value.decode() for name, value in found.items()}
    raise UnsupportedError(f"envFrom {', '.join(source)} is not supported")
