"""The environment variables and the command of a container, as a kubelet works them out."""

from __future__ import annotations

import re

from sandbox.cluster.api import CONFIG_MAP, SECRET, Api, Object
from sandbox.node.place import NotYetError, Place, UnsupportedError, contents, field

# Images are not pulled, so what their ENTRYPOINT would be is said here, by the last part of the image's name.
ENTRYPOINTS = {"aws-cli": ["aws"]}


def command(container: Object, env: dict[str, str]) -> list[str]:
    """What to run: command and args with $(VAR) filled in, or the image's entry point."""
    given = container.get("command")
    if not given:
        image = container["image"].split("@")[0].rpartition("/")[2].split(":")[0]
        given = ENTRYPOINTS.get(image)
        if given is None:
            image = container["image"]
            raise UnsupportedError(f"images are not pulled, so what {image} would run is not known: give a command")
    return [expand(part, env) for part in [*given, *(container.get("args") or [])]]


def variables(place: Place, container: Object) -> dict[str, str]:
    """The service variables and the container's own, which may refer to those before them."""
    found = service_variables(place.api)
    for source in container.get("envFrom") or []:
        found |= _whole(place, source)
    for variable in container.get("env") or []:
        if "valueFrom" in variable:
            value = _value_from(place, variable["valueFrom"])
            if value is None:
                continue
        else:
            value = expand(variable.get("value") or "", found)
        found[variable["name"]] = value
    return found


def service_variables(api: Api) -> dict[str, str]:
    """What tells a pod where the API server is. The service `kubernetes` has no address that this machine routes to."""
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
    """Fill in $(VAR); a name that is not there stays as written, and $$ is a dollar."""
    return _REFERENCE.sub(lambda m: "$" if m[0] == "$$" else env.get(m[1], m[0]), text)


def _value_from(place: Place, source: Object) -> str | None:
    if "fieldRef" in source:
        return field(place, source["fieldRef"]["fieldPath"])
    for key, kind in (("configMapKeyRef", CONFIG_MAP), ("secretKeyRef", SECRET)):
        if key in source:
            found = contents(place, kind, source[key]["name"], bool(source[key].get("optional")))
            if source[key]["key"] in found:
                return found[source[key]["key"]].decode()
            if source[key].get("optional"):
                return None
            raise NotYetError(f"{kind.kind} {source[key]['name']} has no key {source[key]['key']}")
    raise UnsupportedError(f"valueFrom {', '.join(source)} is not supported")


def _whole(place: Place, source: Object) -> dict[str, str]:
    for key, kind in (("configMapRef", CONFIG_MAP), ("secretRef", SECRET)):
        if key in source:
            found = contents(place, kind, source[key]["name"], bool(source[key].get("optional")))
            return {source.get("prefix", "") + name: value.decode() for name, value in found.items()}
    raise UnsupportedError(f"envFrom {', '.join(source)} is not supported")
