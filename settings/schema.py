"""The settings of a stack. Pulumi.yaml declares every key with its default; the classes here declare the types."""

import dataclasses
import difflib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import pulumi
import yaml

from settings.problem import Problem, secret_key
from settings.secure import Stored, config_in, stored
from workloads.in_pod import contract

PROJECT = Path(__file__).parent.parent
# EKS needs two zones; this many are used if a stack names none.
DEFAULT_ZONES = 2
# The default quota of EKS for the nodes of one group. The limit of 30 groups needs more addresses than a VPC has.
NODES_PER_GROUP = 450
KUBERNETES_VERSION = r"1\.\d\d"

# S3 allows 63 characters. "paddle-", and the hyphen and the seven digits that Pulumi adds, need 15 of them.
BUCKET_STACK_LENGTH = 40

NatGateways = Literal["none", "single", "perZone"]
Capacity = Literal["onDemand", "spot"]
Driver = Literal["nfs", "efsCsi"]
WorkerZones = Literal["one", "all"]
LogType = Literal["api", "audit", "authenticator", "controllerManager", "scheduler"]

# Former keys, with what to write instead.
RENAMED = {"workers.instanceType": "Write workers.instanceTypes with a list of types, such as [m6i.large]"}

# What is wrong with a value of another type.
SCALARS = {str: "is not text", bool: "is neither true nor false", int: "is not a whole number"}

T = TypeVar("T")


@dataclass(frozen=True)
class Workers:
    count: int
    instance_types: tuple[str, ...]
    capacity: Capacity
    zones: WorkerZones
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
    stall_minutes: int
    timeout_minutes: int
    wait: bool
    gpus_per_trainer: int
    gpu_plugin_image: str
    shared_memory_gib: int

    @property
    def output_prefix(self) -> str:
        """The folder of the results, on the volume and in the bucket."""
        return f"{self.name}/{contract.OUTPUT}/"

    @property
    def runs_launcher(self) -> bool:
        """Whether our launcher runs the training. Other words of the command can be its interpreter and arguments."""
        return contract.LAUNCH_SCRIPT in self.command


@dataclass(frozen=True)
class Data:
    image: str
    command: tuple[str, ...]
    source: str | tuple[str, ...]
    sha256: str
    records: int
    timeout_minutes: int

    @property
    def runs_prepare_script(self) -> bool:
        return contract.PREPARE_SCRIPT in self.command


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
    driver: Driver
    size_gib: int
    claim_gib: int


@dataclass(frozen=True)
class Export:
    enabled: bool
    image: str


@dataclass(frozen=True)
class Notify:
    email: str
    monthly_budget: int


@dataclass(frozen=True)
class Declared:
    """The settings that Pulumi.yaml declares."""

    cluster_name: str
    zone_name: str
    vpc_cidr: str
    availability_zones: tuple[str, ...]
    nat_gateways: NatGateways
    kubernetes_version: str
    control_plane_logs: tuple[LogType, ...]
    api_access_cidrs: tuple[str, ...]
    deployer: str
    admins: tuple[str, ...]
    permissions_boundary: str
    kms_key_arn: str
    workers: Workers
    ssh_public_key: str
    trainers: int
    job: Job
    data: Data
    pserver: Pserver
    storage: Storage
    export: Export
    notify: Notify
    retain_data: bool
    kubeconfig: str
    tags: Mapping[str, str]


@dataclass(frozen=True)
class Settings(Declared):
    """The settings of one stack, with what Pulumi itself knows about it."""

    project: str = ""
    stack: str = ""
    aws: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    # The keys with a value from `pulumi config set --secret`. Of a nested key, the engine tells only the first part.
    secrets: frozenset[str] = frozenset()
    stored: Stored = dataclasses.field(default_factory=Stored)

    @property
    def data_image(self) -> str:
        return self.data.image or self.job.image

    @property
    def images(self) -> dict[str, str]:
        """All container images, by the key of their setting."""
        return {
            "job.image": self.job.image,
            "job.gpuPluginImage": self.job.gpu_plugin_image,
            "data.image": self.data.image,
            "export.image": self.export.image,
        }

    @property
    def used_images(self) -> dict[str, str]:
        """The container images that this stack runs, by the key of their setting."""
        used = {
            "job.image": True,
            "job.gpuPluginImage": bool(self.job.gpus_per_trainer),
            "data.image": bool(self.data.image),
            "export.image": self.export.enabled or self.data_source.kind == contract.S3,
        }
        return {key: image for key, image in self.images.items() if used[key]}

    @property
    def data_source(self) -> contract.DataSource:
        return contract.DataSource.parse(self.data.source)

    @property
    def data_is_secret(self) -> bool:
        """Whether an address of the data is a secret, for example because it is presigned."""
        return "data" in self.secrets

    def is_secret(self, source: str) -> bool:
        """Whether this address of the data is a secret. Other addresses of the same list can be plain."""
        return self.data_is_secret and not self.stored.shows(source)

    @property
    def paused(self) -> bool:
        """Whether the stack keeps its cluster and its data without any worker."""
        return self.workers.count == 0

    @property
    def pulls_image_early(self) -> bool:
        """Whether a worker needs the image of the trainers that the data Job does not already pull there."""
        return self.workers.count > 1 or (self.workers.count == 1 and self.data_image != self.job.image)

    def worker_zones(self, zones: int) -> int:
        """How many of these zones have workers, the first ones."""
        return 1 if self.workers.zones == "one" else zones

    @property
    def region(self) -> str:
        return str(self.aws.get("region", ""))

    @property
    def role_path(self) -> str:
        """The IAM path of all roles of the stack. The deployer policies allow only this path."""
        return f"/paddle/{self.stack}/"

    @property
    def bucket_name(self) -> str:
        """The name of the bucket. Pulumi adds a hyphen and seven digits. The deployer policies allow only this name."""
        stack = re.sub(r"[^a-z0-9-]", "-", self.stack.lower())
        return f"paddle-{stack[:BUCKET_STACK_LENGTH]}"

    @property
    def log_group(self) -> str:
        """The log group of the control plane. EKS accepts no other name."""
        return f"/aws/eks/{self.cluster_name}/cluster"

    @property
    def encrypted_log_group(self) -> str | None:
        """The log group, if it is encrypted with the key of the stack. The log group stays after `pulumi destroy`."""
        key_stays = self.retain_data or bool(self.kms_key_arn)
        return self.log_group if self.control_plane_logs and key_stays else None

    @property
    def all_tags(self) -> dict[str, str]:
        return {**self.tags, "project": self.project, "stack": self.stack}


def code_files(job: Job) -> dict[str, Path]:
    """The files of the training code by relative path, without hidden files and __pycache__."""
    folder = PROJECT / job.code
    files = (path for path in folder.rglob("*") if path.is_file())
    inside = {path.relative_to(folder): path for path in sorted(files)}
    hidden = re.compile(r"\.|__pycache__$")
    return {key.as_posix(): path for key, path in inside.items() if not any(map(hidden.match, key.parts))}


def load() -> tuple[Settings, list[Problem]]:
    """The settings of the current stack, and the problems with their names and types."""
    config = pulumi.runtime.get_config_env()

    def namespace(name: str) -> dict[str, object]:
        return {key.partition(":")[2]: value for key, value in config.items() if key.startswith(name + ":")}

    project, stack = pulumi.get_project(), pulumi.get_stack()
    written = config_in(PROJECT / f"Pulumi.{stack}.yaml")
    settings, problems = read(namespace(project) | not_maps(written, project))
    options = {key: _decoded(value) for key, value in namespace("aws").items()}
    own = f"{project}:"
    secrets = frozenset(secret_key(key.removeprefix(own)) for key in pulumi.runtime.get_config_secret_keys_env())
    settings = dataclasses.replace(
        settings, project=project, stack=stack, aws=options, secrets=secrets, stored=stored(written)
    )
    return settings, problems


def not_maps(written: Mapping[str, object], project: str) -> dict[str, object]:
    """What a stack file has where a map belongs, such as `workers: 4`. Pulumi passes the default map instead."""
    maps = {key.partition(".")[0] for key in declared() if "." in key}
    values = {key: written.get(f"{project}:{key}") for key in maps}
    return {key: value for key, value in values.items() if value is not None and not isinstance(value, Mapping)}


def read(given: Mapping[str, object], folder: Path = PROJECT) -> tuple[Settings, list[Problem]]:
    """Settings from a stack's own keys. A value that cannot be used adds a problem, and its default is used."""
    problems: list[Problem] = []
    # An older checkout in `folder` may not declare every setting of this version.
    defaults = {**declared(), **declared(folder)}
    given = _with_paths(given, defaults, problems)
    return Settings(**vars(_build(Declared, "", given, defaults, problems))), problems


def _with_paths(given: Mapping[str, object], defaults: Mapping[str, object], out: list[Problem]) -> dict[str, object]:
    """The keys with dots, as `pulumi config set job.code my_model` writes them, moved into their maps."""
    nested = {key: value for key, value in given.items() if "." not in key}
    for key in sorted(set(given) - set(nested)):
        group, _, name = key.partition(".")
        try:
            entries = _mapping(nested.get(group, {}))
        except ValueError:
            out.append(Problem(key, _decoded(given[key]), f"is below {group}, which is not a map", "Remove this key"))
            continue
        # Pulumi adds the defaults to each map.
        if entries.get(name, defaults.get(key)) != defaults.get(key):
            out.append(Problem(key, _decoded(given[key]), f"is also set in the map {group}", "Remove one of the two"))
        nested[group] = {**entries, name: given[key]}
    return nested


def declared(folder: Path = PROJECT) -> dict[str, object]:
    """The default of every key that Pulumi.yaml declares."""
    return _defaults((folder / "Pulumi.yaml").read_text())


@cache
def _defaults(project: str) -> dict[str, object]:
    return {key: entry["default"] for key, entry in yaml.safe_load(project)["config"].items()}


def camel(name: str) -> str:
    """The name of a field as it is written in a stack file."""
    head, *rest = name.split("_")
    return head + "".join("GiB" if word == "gib" else word.capitalize() for word in rest)


def _build(
    cls: Callable[..., T], path: str, given: Mapping[str, object], defaults: Mapping[str, object], out: list[Problem]
) -> T:
    """One settings class from the keys below `path`. Problems are added to `out`."""
    values: dict[str, object] = {}
    hints = {camel(name): (name, hint) for name, hint in get_type_hints(cls).items()}
    for key, (name, hint) in hints.items():
        where = path + key
        if isinstance(hint, type) and dataclasses.is_dataclass(hint):
            group: Mapping[str, object] = {}
            try:
                group = _mapping(given.get(key, {}))
            except ValueError as why:
                first = camel(dataclasses.fields(hint)[0].name)
                out.append(
                    Problem(where, _decoded(given[key]), str(why), f"Write keys below it, such as {where}.{first}")
                )
            values[name] = _build(hint, where + ".", group, defaults, out)
            continue
        try:
            values[name] = _parse(hint, given.get(key, defaults[where]))
        except ValueError as why:
            out.append(Problem(where, _decoded(given[key]), str(why), _instead(hint, defaults[where])))
            values[name] = _parse(hint, defaults[where])
    for key in sorted(set(given) - set(hints)):
        if path + key in RENAMED:
            out.append(Problem(path + key, _decoded(given[key]), "has been renamed", RENAMED[path + key]))
            continue
        near = difflib.get_close_matches(key, hints, n=1, cutoff=0.4)
        instead = f"Perhaps you mean {path}{near[0]}" if near else f"Settings here: {', '.join(sorted(hints))}"
        out.append(Problem(path + key, _decoded(given[key]), "is not a setting of this program", instead))
    return cls(**values)


def _instead(hint: object, default: object) -> str:
    if get_origin(hint) is Literal:
        return f"Write one of {', '.join(get_args(hint))}"
    items = [item for item in get_args(hint) if get_origin(item) is Literal]
    if items:
        return f"Write a list of {', '.join(get_args(items[0]))}"
    return f"Write it like the default, {json.dumps(default)}"


def _parse(hint: object, given: object) -> object:
    """The value in the type of the hint; ValueError says why not. Pulumi passes top-level values as JSON text."""
    kind = get_origin(hint) or hint
    if kind is UnionType:
        text, texts = get_args(hint)
        try:
            return _parse(texts if isinstance(_decoded(given), list) else text, given)
        except ValueError:
            raise ValueError("is neither text nor a list of texts") from None
    if kind is Literal:
        if given not in get_args(hint):
            raise ValueError("is not one of the choices")
        return given
    value = given if kind is str else _decoded(given)
    if kind in SCALARS:
        # True is an int for isinstance.
        if type(value) is not kind:
            raise ValueError(SCALARS[kind])
        return value
    if kind is tuple:
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise ValueError("is not a list of texts")
        choices = get_args(get_args(hint)[0])
        if choices and not set(value) <= set(choices):
            raise ValueError("contains a value that is not one of the choices")
        return tuple(value)
    entries = _mapping(value)
    if not all(isinstance(entry, str) for entry in entries.values()):
        raise ValueError("is not a map from text to text")
    return entries


def _mapping(given: object) -> dict[str, object]:
    value = _decoded(given)
    if not isinstance(value, Mapping):
        raise ValueError("is not a map")
    return dict(value)


def _decoded(value: object) -> object:
    """A value as its author wrote it: JSON text is decoded, other text stays."""
    if not isinstance(value, str):
        return value
    try:
        decoded: object = json.loads(value)
    except ValueError:
        return value
    return decoded
