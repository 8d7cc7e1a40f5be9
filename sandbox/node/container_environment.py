"""The command and the environment variables of a container, resolved as a kubelet does."""

from __future__ import annotations

import re

from sandbox.cluster.objects import Container
from sandbox.node.pod_context import NotReadyError, PodContext, UnsupportedError, refuse_others
from tools.kubernetes_client import SECRET, Api, Object


def command(container: Container, env: dict[str, str]) -> list[str]:
    """The command with $(VAR) replaced."""
    if not container.get("command"):
        raise UnsupportedError(
            f"the sandbox pulls no images and does not know the entry point of {container['image']}: set `command`"
        )
    return [expand(part, env) for part in container["command"]]


def variables(context: PodContext, container: Container) -> dict[str, str]:
    """The variables of the API server and of the container. A variable may refer to those above it."""
    found = api_server_variables(context.api)
    for variable in container.get("env") or []:
        found[variable["name"]] = (
            _value_from(context, variable["valueFrom"])
            if "valueFrom" in variable
            else expand(variable.get("value") or "", found)
        )
    return found


def api_server_variables(api: Api) -> dict[str, str]:
    """The variables of the service `kubernetes`, with the API server's own address: services have no route here."""
    port = str(api.url.port or 443)
    return {
        "KUBERNETES_SERVICE_HOST": api.url.hostname or "127.0.0.1",
        "KUBERNETES_SERVICE_PORT": port,
        "KUBERNETES_SERVICE_PORT_HTTPS": port,
    }


_REFERENCE = re.compile(r"\$\$|\$\(([^()]*)\)")


def expand(text: str, env: dict[str, str]) -> str:
    """Replace $(VAR) and turn $$ into $; a reference to an unknown variable stays as it is."""
    return _REFERENCE.sub(lambda m: "$" if m[0] == "$$" else env.get(m[1], m[0]), text)


def _value_from(context: PodContext, source: Object) -> str:
    refuse_others("valueFrom", source, {"fieldRef", "secretKeyRef"})
    if "fieldRef" in source:
        return context.field(source["fieldRef"]["fieldPath"])
    reference = source["secretKeyRef"]
    refuse_others("secretKeyRef", reference, {"name", "key"})
    found = context.entries(SECRET, reference["name"])
    if reference["key"] not in found:
        raise NotReadyError(f"Secret {reference['name']} has no key {reference['key']}")
    return found[reference["key"]].decode()
