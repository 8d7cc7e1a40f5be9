"""What a stack says, read once: Pulumi.yaml declares every key and its default, the classes here give the types."""

import dataclasses
import difflib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_origin, get_type_hints

import pulumi
import yaml

from workloads.in_pod import contract

PROJECT = Path(__file__).parent.parent
ENGINE_KEYS = ("project", "stack", "aws")
# As many zones as EKS needs, where a stack names none.
DEFAULT_ZONES = 2


@dataclass(frozen=True)
class Workers:
    count: int
    instance_type: str
    capacity: str
    disk_gib: int


@dataclass(frozen=True)
class Job:
    name: str
    namespace: str
    image: str
    command: tuple[str, ...]
    code: str
    config_dir: str
    passes: int
    attempts: int
    peer_timeout_minutes: int
    timeout_minutes: int
    wait: bool
    gpus_per_trainer: int

    @property
    def output_prefix(self) -> str:
        """Where results lie, on the volume and in the bucket alike."""
        return f"{self.name}/{contract.OUTPUT}/"

    @property
    def newest_pass(self) -> str:
        return f"{self.output_prefix}{contract.checkpoint_name(self.passes - 1)}/"

    @property
    def code_files(self) -> dict[str, Path]:
        """The training code by its path within its folder; what Python and editors leave behind is no code."""
        folder = PROJECT / self.code
        files = (path for path in folder.rglob("*") if path.is_file())
        inside = {path.relative_to(folder): path for path in sorted(files)}
        hidden = re.compile(r"\.|__pycache__$")
        return {key.as_posix(): path for key, path in inside.items() if not any(map(hidden.match, key.parts))}


@dataclass(frozen=True)
class Data:
    image: str
    command: tuple[str, ...]
    source: str
    sha256: str
    records: int
    timeout_minutes: int

    @property
    def from_s3(self) -> bool:
        return self.source.startswith("s3://")


@dataclass(frozen=True)
class Pserver:
    nic: str
    port: int
    ports: int
    sparse_ports: int

    @property
    def host_ports(self) -> range:
        return range(self.port, self.port + self.ports + self.sparse_ports)


@dataclass(frozen=True)
class Storage:
    driver: str
    size_gib: int
    claim_gib: int


@dataclass(frozen=True)
class Export:
    enabled: bool
    image: str


@dataclass(frozen=True)
class Settings:
    cluster_name: str
    zone_name: str
    vpc_cidr: str
    availability_zones: tuple[str, ...]
    nat_gateways: str
    kubernetes_version: str
    api_access_cidrs: tuple[str, ...]
    admins: tuple[str, ...]
    workers: Workers
    ssh_public_key: str
    trainers: int
    job: Job
    data: Data
    pserver: Pserver
    storage: Storage
    export: Export
    retain_data: bool
    kubeconfig: str
    tags: Mapping[str, str]
    project: str = ""
    stack: str = ""
    aws: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def region(self) -> str:
        return str(self.aws.get("region", ""))

    @property
    def log_group(self) -> str:
        """Where EKS writes the control plane's logs; it takes no other name."""
        return f"/aws/eks/{self.cluster_name}/cluster"

    @property
    def all_tags(self) -> dict[str, str]:
        return {**self.tags, "project": self.project, "stack": self.stack}


@dataclass(frozen=True)
class Problem:
    """One thing wrong with a stack's settings, told to the person who wrote it."""

    key: str
    value: object
    why: str
    instead: str

    def __str__(self) -> str:
        return f"{self.key}: {json.dumps(self.value, default=list)} {self.why}. {self.instead}."


def load() -> tuple[Settings, list[Problem]]:
    """The settings of the stack that runs, and what is wrong with their names and types."""
    config: dict[str, Any] = pulumi.runtime.get_config_env()

    def namespace(name: str) -> dict[str, Any]:
        return {key.partition(":")[2]: value for key, value in config.items() if key.startswith(name + ":")}

    settings, problems = read(namespace(pulumi.get_project()))
    options = {key: _json(value, value) for key, value in namespace("aws").items()}
    return (
        dataclasses.replace(settings, project=pulumi.get_project(), stack=pulumi.get_stack(), aws=options),
        problems,
    )


def read(given: Mapping[str, Any], folder: Path = PROJECT) -> tuple[Settings, list[Problem]]:
    """Settings from a stack's own keys; a value that cannot be used leaves a problem, and its default in its place."""
    problems: list[Problem] = []
    # An older checkout does not declare every setting of today.
    return _build(Settings, "", given, {**declared(), **declared(folder)}, problems), problems


def declared(folder: Path = PROJECT) -> dict[str, Any]:
    """The default of every key that Pulumi.yaml declares."""
    project = yaml.safe_load((folder / "Pulumi.yaml").read_text())
    return {key: entry["default"] for key, entry in project["config"].items()}


def camel(name: str) -> str:
    """A Python name as it is written in a stack file."""
    head, *rest = name.split("_")
    return head + "".join("GiB" if word == "gib" else word.capitalize() for word in rest)


def _build(cls: type[Any], path: str, given: Mapping[str, Any], defaults: Mapping[str, Any], out: list[Problem]) -> Any:
    values: dict[str, Any] = {}
    hints = get_type_hints(cls)
    names = {camel(f.name): f.name for f in dataclasses.fields(cls) if camel(f.name) not in ENGINE_KEYS}
    for key, name in names.items():
        hint, where = hints[name], path + key
        if dataclasses.is_dataclass(hint):
            group, why = _typed(Mapping, given.get(key, {}))
            if why:
                out.append(Problem(where, _shown(given[key]), why, f"Give it keys, such as {where}.{_first_key(hint)}"))
            values[name] = _build(hint, where + ".", group or {}, defaults, out)  # type: ignore[arg-type]
            continue
        values[name], why = _typed(hint, given.get(key, defaults[where]))
        if why:
            example = json.dumps(defaults[where])
            out.append(Problem(where, _shown(given[key]), why, f"Write it like the default, {example}"))
            values[name], _ = _typed(hint, defaults[where])
    for key in sorted(set(given) - set(names)):
        near = difflib.get_close_matches(key, names, n=1, cutoff=0.4)
        instead = f"Perhaps {path}{near[0]} is meant" if near else f"Known here: {', '.join(sorted(names))}"
        out.append(Problem(path + key, _shown(given[key]), "is no setting of this program", instead))
    return cls(**values)


def _first_key(cls: Any) -> str:
    return camel(dataclasses.fields(cls)[0].name)


def _typed(hint: Any, value: Any) -> tuple[Any, str]:
    """The value as the hint wants it, or why not. The engine hands top-level numbers, lists and maps over as text."""
    kind = get_origin(hint) or hint
    if kind is str:
        return (value, "") if isinstance(value, str) else (None, "is not text")
    if kind is bool:
        literal = {"true": True, "false": False}.get(value, value) if isinstance(value, str) else value
        return (literal, "") if isinstance(literal, bool) else (None, "is neither true nor false")
    if kind is int:
        number = int(value) if isinstance(value, str) and re.fullmatch(r"-?\d+", value) else value
        return (
            (number, "") if isinstance(number, int) and not isinstance(number, bool) else (None, "is no whole number")
        )
    decoded = _json(value, None) if isinstance(value, str) else value
    if kind is tuple:
        if isinstance(decoded, Sequence) and not isinstance(decoded, str) and all(isinstance(v, str) for v in decoded):
            return tuple(decoded), ""
        return None, "is no list of texts"
    if isinstance(decoded, Mapping) and (kind is hint or all(isinstance(v, str) for v in decoded.values())):
        return dict(decoded), ""
    return None, "is no map" if kind is hint else "is no map of texts"


def _shown(value: Any) -> Any:
    """A value as its writer wrote it, where the engine handed it over as text."""
    return _json(value, value) if isinstance(value, str) else value


def _json(text: str, otherwise: Any) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return otherwise
