"""ConfigMaps bring scripts to the pods. Each name contains a hash of the content: a changed script replaces its Job."""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pulumi
import pulumi_kubernetes as k8s

from workloads.in_pod import contract
from workloads.job import Mount, object_options

IN_POD = Path(__file__).parent / "in_pod"
# Not the module `ast`: it would take as long as the rest of the program.
IMPORTED = re.compile(r"^ *(?:from|import) (\w+)", re.MULTILINE)


def key_of(path: str) -> str:
    """The ConfigMap key of a file: its path, or a hash with the file name if the path is not allowed as a key."""
    if re.fullmatch(r"[-._a-zA-Z0-9]+", path):
        return path
    return hashlib.sha256(path.encode()).hexdigest()[:10] + "-" + re.sub(r"[^-._a-zA-Z0-9]", "_", Path(path).name)


def with_imports(*names: str) -> dict[str, Path]:
    """These scripts and all that they import from workloads/in_pod, by file name."""
    found: dict[str, Path] = {}
    queue = list(names)
    while queue:
        name = queue.pop()
        if name in found:
            continue
        found[name] = IN_POD / name
        if name.endswith(".py"):
            modules = IMPORTED.findall(found[name].read_text(encoding="utf-8"))
            queue += [f"{module}.py" for module in modules if (IN_POD / f"{module}.py").is_file()]
    return dict(sorted(found.items()))


def digest(data: Mapping[str, str]) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:10]


@dataclass(frozen=True)
class ScriptsArgs:
    namespace: pulumi.Input[str]
    files: Mapping[str, Path]


class Scripts(pulumi.ComponentResource):
    """`mount` gives the files to a container."""

    mount: Mount

    def __init__(self, name: str, args: ScriptsArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("paddle:workloads:Scripts", name, None, opts)
        data = {key_of(path): source.read_text(encoding="utf-8") for path, source in args.files.items()}
        config_map = k8s.core.v1.ConfigMap(
            name,
            metadata={"name": f"{name}-{digest(data)}", "namespace": args.namespace},
            data=data,
            immutable=True,
            opts=object_options(self),
        )
        volume: k8s.core.v1.VolumeArgsDict = {
            "name": "scripts",
            "config_map": {
                "name": config_map.metadata["name"],
                "items": [{"key": key_of(path), "path": path} for path in args.files],
            },
        }
        self.mount = Mount(volume, contract.SCRIPTS, read_only=True)
        self.register_outputs({"name": config_map.metadata["name"]})
