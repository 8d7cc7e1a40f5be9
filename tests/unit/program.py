"""Runs the whole program with mocks and records its graph: every resource with inputs, parent and dependencies."""

import asyncio
import contextvars
import json
import runpy
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pulumi
import pytest
import yaml
from pulumi.runtime import mocks, resource, rpc, settings
from pulumi.runtime.proto import source_pb2

from settings.schema import declared
from settings.secure import is_encrypted, replaced

PROJECT = Path(__file__).parents[2]
NAME = "paddle-on-aws"
ACCOUNT = "123456789012"
ENDPOINT = "https://ABCDEF.gr7.example.eks.amazonaws.com"
ISSUER = "https://oidc.eks.example.amazonaws.com/id/ABCDEF"
OFFERED_SERVICES = ("ec2", "efs", "eks", "kms", "s3", "route53", "sns", "sqs")
ZONES = {
    "us-west-2": {"us-west-2a": "usw2-az1", "us-west-2b": "usw2-az2", "us-west-2c": "usw2-az3"},
    "us-west-1": {"us-west-1a": "usw1-az3", "us-west-1b": "usw1-az1", "us-west-1c": "usw1-az2"},
    "cn-north-1": {"cn-north-1a": "cnn1-az1", "cn-north-1b": "cnn1-az2", "cn-north-1d": "cnn1-az4"},
    "us-gov-west-1": {"us-gov-west-1a": "usgw1-az1", "us-gov-west-1b": "usgw1-az2", "us-gov-west-1c": "usgw1-az3"},
    "eu-west-1": {"eu-west-1a": "euw1-az1", "eu-west-1b": "euw1-az2", "eu-west-1c": "euw1-az3"},
}
# The partition and its DNS suffix, by the start of the region's name.
AWS = ("aws", "amazonaws.com")
PARTITIONS = {"cn-": ("aws-cn", "amazonaws.com.cn"), "us-gov-": ("aws-us-gov", "amazonaws.com")}
PLACEHOLDER = "203.0.113.0/24"
SECONDS_FOR_A_RUN = 600
MEMORY_MIB = {"m6i.xlarge": 16384}
GPUS = {"g5.xlarge": 1, "g5.12xlarge": 4}
# The zones of the subnets of a running stack, by the range of the subnet.
SUBNETS = {"10.0.0.0/19": "us-west-2a", "10.0.32.0/19": "us-west-2b"}
EXISTING_KEY = f"arn:aws:kms:us-west-2:{ACCOUNT}:key/1234abcd-12ab-34cd-56ef-1234567890ab"
USABLE_KEY = {
    "keyManager": "CUSTOMER",
    "keyState": "Enabled",
    "keyUsage": "ENCRYPT_DECRYPT",
    "keySpec": "SYMMETRIC_DEFAULT",
}
# These settings create every resource that the program has.
EVERYTHING: dict[str, Any] = {
    "aws:region": "us-west-2",
    "paddle-on-aws:admins": ["arn:aws:iam::123456789012:role/admin"],
    "paddle-on-aws:apiAccessCidrs": ["8.8.8.8/32"],
    "paddle-on-aws:controlPlaneLogs": ["audit"],
    "paddle-on-aws:data": {"source": {"secure": "s3://bucket/data.tar"}},
    "paddle-on-aws:job": {"namespace": "training", "gpusPerTrainer": 1},
    "paddle-on-aws:natGateways": "perZone",
    "paddle-on-aws:notify": {"email": "team@example.com", "monthlyBudget": 400},
    "paddle-on-aws:retainData": True,
    "paddle-on-aws:sshPublicKey": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
    "paddle-on-aws:storage": {"driver": "efsCsi"},
    "paddle-on-aws:workers": {"instanceTypes": ["g5.xlarge"], "diskGiB": 100},
}
# Keys that differ from USABLE_KEY, by the last part of their ARN.
OTHER_KEYS: Mapping[str, Mapping[str, str]] = {
    "disabled": {"keyState": "Disabled"},
    "deleted": {"keyState": "PendingDeletion"},
    "rsa": {"keySpec": "RSA_2048"},
    "hmac": {"keyUsage": "GENERATE_VERIFY_MAC", "keySpec": "HMAC_256"},
    "aws-managed": {"keyManager": "AWS"},
}


@dataclass(frozen=True)
class Resource:
    urn: str
    type: str
    name: str
    inputs: Mapping[str, Any]
    secrets: frozenset[str]
    parent: str
    provider: str
    dependencies: frozenset[str]
    protect: bool
    custom: bool
    options: Any


@dataclass
class Graph:
    """All resources that a run registered, by URN, the providers that answered its questions, and its outputs."""

    resources: dict[str, Resource] = field(default_factory=dict)
    asked_providers: set[str] = field(default_factory=set)
    outputs: dict[str, Any] = field(default_factory=dict)
    secret_outputs: dict[str, Any] = field(default_factory=dict)

    def all(self, type_: str) -> list[Resource]:
        """Resources of one type, sorted by URN because the order of registration varies."""
        return sorted((r for r in self.resources.values() if r.type == type_), key=lambda r: r.urn)

    def one(self, type_: str, name: str = "") -> Resource:
        found = [r for r in self.all(type_) if not name or r.name == name]
        assert len(found) == 1, f"{type_} {name}: {[r.urn for r in found] or sorted(self.resources)}"
        return found[0]

    def named(self, name: str) -> Resource:
        found = [r for r in self.resources.values() if r.name == name and r.custom]
        assert len(found) == 1, f"{name}: {[r.urn for r in found] or sorted(self.resources)}"
        return found[0]

    def leads(self, start: Resource, end: Resource) -> bool:
        """Whether `start` depends on `end`, directly, through other resources or through its provider."""
        seen, front = set[str](), [start.urn]
        while front:
            urn = front.pop()
            if urn == end.urn:
                return True
            if urn in seen or urn not in self.resources:
                continue
            seen.add(urn)
            resource = self.resources[urn]
            front += [*resource.dependencies, resource.provider.rpartition("::")[0]]
        return False


# The role of a session has a path, which the ARN of the session does not contain.
ROLE_OF_SESSION = ("assumed-role/ci/run-1", "role/team/ci")


class ProviderError(Exception):
    """An error of the AWS provider."""


@dataclass(eq=False)
class Aws(mocks.Mocks):
    """Answers like a small AWS: ids, ARNs, and what it offers. An error text is the one of the official provider."""

    region: str = "us-west-2"
    # A part of the name of a function. AWS refuses every call of such a function.
    refuse: str = ""
    services: Collection[str] = OFFERED_SERVICES
    session: str = "user/deployer"
    # The tags of every access entry. Without tags, there are no entries.
    entry_tags: Mapping[str, str] | None = None
    # Zone ids by zone name, if they are not those of the region.
    zones: Mapping[str, str] = field(default_factory=dict)
    # Instance types that only some zones offer: the ids of those zones.
    offered_in: Mapping[str, Sequence[str]] = field(default_factory=dict)
    log_groups: Collection[str] = ()
    # The zones of the subnets that the stack already has, by the range of the subnet.
    subnets: Mapping[str, str] = field(default_factory=dict)
    # The vCPUs of a quota by its code. Service Quotas does not answer for the others.
    quotas: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.zones = self.zones or ZONES[self.region]
        self.partition = next((names for part, names in PARTITIONS.items() if self.region.startswith(part)), AWS)
        self.session = f"arn:{self.partition[0]}:iam::{ACCOUNT}:{self.session}"

    def new_resource(self, args: mocks.MockResourceArgs) -> tuple[str, dict[str, Any]]:
        state = dict(args.inputs)
        kind = args.typ.partition(":")[2]
        arn = f"arn:aws:mock:{self.region}:{ACCOUNT}:{args.name}"
        state.setdefault("arn", arn)
        state.setdefault("name", args.name)
        computed: dict[str, dict[str, Any]] = {
            "eks/cluster:Cluster": {
                "endpoint": ENDPOINT,
                "certificateAuthority": {"data": "Q0E="},
                "identities": [{"oidcs": [{"issuer": ISSUER}]}],
            },
            "efs/fileSystem:FileSystem": {"dnsName": f"fs-1.efs.{self.region}.{self.partition[1]}"},
            "s3/bucket:Bucket": {"bucket": "bucket-1a2b3c4"},
            "kms/key:Key": {"keyId": "key-1"},
            "ec2/launchTemplate:LaunchTemplate": {"latestVersion": 1},
            "ec2/keyPair:KeyPair": {"keyName": "worker-key-1a2b3c4"},
            "route53/zone:Zone": {"zoneId": "Z1"},
        }
        return f"{args.name}-id", {**state, **computed.get(kind, {})}

    def call(self, args: mocks.MockCallArgs) -> tuple[dict[str, Any], list[tuple[str, str]]]:
        questions: Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
            "aws:index/getCallerIdentity:getCallerIdentity": lambda _: {"accountId": ACCOUNT, "arn": self.session},
            "aws:index/getPartition:getPartition": lambda _: dict(
                zip(("partition", "dnsSuffix"), self.partition, strict=True)
            ),
            "aws:index/getAvailabilityZones:getAvailabilityZones": lambda _: {
                "names": list(self.zones),
                "zoneIds": list(self.zones.values()),
            },
            "aws:iam/getSessionContext:getSessionContext": lambda _: {
                "issuerArn": self.session.replace(*ROLE_OF_SESSION)
            },
            "aws:iam/getRole:getRole": lambda given: self._principal("role", given["name"]),
            "aws:iam/getUser:getUser": lambda given: self._principal("user", given["userName"]),
            "aws:eks/getAccessEntry:getAccessEntry": self._access_entry,
            "aws:eks/getAddonVersion:getAddonVersion": self._addon,
            "aws:ssm/getParameter:getParameter": self._parameter,
            "aws:kms/getKey:getKey": self._key,
            "aws:cloudwatch/getLogGroups:getLogGroups": lambda given: {
                "logGroupNames": [name for name in self.log_groups if name.startswith(given["logGroupNamePrefix"])],
                "arns": [],
            },
            "aws:ec2/getInstanceType:getInstanceType": self._instance_type,
            "aws:ec2/getInstanceTypeOfferings:getInstanceTypeOfferings": self._offerings,
            "aws:ec2/getSubnet:getSubnet": self._subnet,
            "aws:servicequotas/getServiceQuota:getServiceQuota": self._quota,
        }
        if self.refuse and self.refuse in args.token:
            return {}, [("", "operation error STS: GetCallerIdentity, ExpiredToken: the token has expired")]
        try:
            return questions[args.token](args.args), []
        except ProviderError as error:
            return {}, [("", str(error))]

    def _principal(self, kind: str, name: str) -> dict[str, Any]:
        if name == "nobody":
            raise ProviderError(f"reading IAM {kind.title()} ({name}): couldn't find resource")
        return {"arn": f"arn:{self.partition[0]}:iam::{ACCOUNT}:{kind}/{name}"}

    def _access_entry(self, given: Mapping[str, Any]) -> dict[str, Any]:
        if self.entry_tags is None:
            raise ProviderError(f"reading EKS Access Entry ({given['principalArn']}): couldn't find resource")
        return {"tags": self.entry_tags}

    def _addon(self, given: Mapping[str, Any]) -> dict[str, Any]:
        if given["kubernetesVersion"] == "1.20":
            raise ProviderError("couldn't find resource")
        return {"version": f"{given['addonName']} for {given['kubernetesVersion']}"}

    def _parameter(self, given: Mapping[str, Any]) -> dict[str, Any]:
        if given["name"].rpartition("/")[2] not in self.services:
            raise ProviderError(f"reading SSM Parameter ({given['name']}): couldn't find resource")
        return {"name": given["name"]}

    def _key(self, given: Mapping[str, Any]) -> dict[str, Any]:
        key = given["keyId"].rpartition("/")[2]
        if key == "missing":
            raise ProviderError(f"reading KMS Key ({given['keyId']}): couldn't find resource")
        if key == "forbidden":
            raise ProviderError(f"reading KMS Key ({given['keyId']}): AccessDeniedException: not authorized")
        return {**USABLE_KEY, **OTHER_KEYS.get(key, {})}

    def _instance_type(self, given: Mapping[str, Any]) -> dict[str, Any]:
        name = given["instanceType"]
        if "." not in name:
            raise ProviderError(f"InvalidInstanceType: {name} does not exist")
        gpu = {"count": GPUS.get(name, 0), "manufacturer": "NVIDIA", "memorySize": 1, "name": "A10G"}
        return {
            "supportedArchitectures": ["arm64" if name.startswith("m7g") else "x86_64"],
            "gpuses": [gpu] if name in GPUS else [],
            "defaultVcpus": 4 if name.endswith(".xlarge") else 2,
            "memorySize": MEMORY_MIB.get(name, 8192),
        }

    def _offerings(self, given: Mapping[str, Any]) -> dict[str, Any]:
        names = [name for each in given["filters"] for name in each["values"]]
        offers = [(name, zone) for name in names for zone in self.offered_in.get(name, self.zones.values())]
        return {"instanceTypes": [name for name, _ in offers], "locations": [zone for _, zone in offers]}

    def _subnet(self, given: Mapping[str, Any]) -> dict[str, Any]:
        if given["tags"].keys() != {"project", "stack"} or given["cidrBlock"] not in self.subnets:
            raise ProviderError("no matching EC2 Subnet found")
        return {"availabilityZone": self.subnets[given["cidrBlock"]]}

    def _quota(self, given: Mapping[str, Any]) -> dict[str, Any]:
        if given["quotaCode"] not in self.quotas:
            raise ProviderError("operation error Service Quotas: GetServiceQuota, AccessDeniedException")
        return {"value": self.quotas[given["quotaCode"]]}


class Recorder(mocks.MockMonitor):
    """A monitor that records each request. In a first preview, values that AWS computes are unknown."""

    def __init__(self, aws: mocks.Mocks, preview: bool) -> None:
        super().__init__(aws)
        self.graph, self.preview = Graph(), preview

    def RegisterResource(self, request: Any) -> Any:  # noqa: N802 (the SDK's name)
        response = super().RegisterResource(request)  # type: ignore[no-untyped-call]
        if request.type == "pulumi:pulumi:Stack":
            return response
        assert response.urn not in self.graph.resources, f"{response.urn} is registered twice"
        inputs = rpc.deserialize_properties(request.object, keep_unknowns=True)
        self.graph.resources[response.urn] = Resource(
            urn=response.urn,
            type=request.type,
            name=request.name,
            inputs={key: rpc.unwrap_rpc_secret(value) for key, value in inputs.items()},
            secrets=frozenset(key for key, value in inputs.items() if rpc.is_rpc_secret(value)),
            parent=request.parent,
            provider=request.provider,
            dependencies=frozenset(request.dependencies),
            protect=request.protect,
            custom=request.custom,
            options=request,
        )
        if self.preview and request.custom:
            response.id = ""
            response.object.CopyFrom(request.object)
        return response

    def Invoke(self, request: Any) -> Any:  # noqa: N802 (the SDK's name)
        self.graph.asked_providers.add(request.provider.rpartition("::")[0])
        return super().Invoke(request)  # type: ignore[no-untyped-call]

    def RegisterResourceOutputs(self, request: Any) -> Any:  # noqa: N802 (the SDK's name)
        if "::pulumi:pulumi:Stack::" in request.urn:
            for key, value in rpc.deserialize_properties(request.outputs, keep_unknowns=True).items():
                kept = self.graph.secret_outputs if rpc.is_rpc_secret(value) else self.graph.outputs
                kept[key] = rpc.unwrap_rpc_secret(value)
        return super().RegisterResourceOutputs(request)  # type: ignore[no-untyped-call]


def stack_files() -> list[str]:
    return sorted(path.name.split(".")[1] for path in PROJECT.glob("Pulumi.*.yaml"))


def config_of(stack: str) -> dict[str, Any]:
    """The configuration in a stack file, with a usable range instead of the placeholder of prod."""
    config = dict(yaml.safe_load((PROJECT / f"Pulumi.{stack}.yaml").read_text())["config"])
    if config.get("paddle-on-aws:apiAccessCidrs") == [PLACEHOLDER]:
        config["paddle-on-aws:apiAccessCidrs"] = ["8.8.8.0/24"]
    return config


def decrypted(value: Any) -> Any:
    """A value of a stack file with its secrets as plain text. The tests do not encrypt them."""
    return replaced(value, lambda _, leaf: leaf["secure"] if is_encrypted(leaf) else leaf)


def with_workers(config: Mapping[str, Any], count: int) -> dict[str, Any]:
    """As many trainers and workers, in all zones."""
    workers = {**config.get(f"{NAME}:workers", {}), "count": count, "zones": "all"}
    return {**config, f"{NAME}:trainers": count, f"{NAME}:workers": workers}


def with_defaults(config: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The configuration with the defaults of Pulumi.yaml. As in the engine, a key with a dot is always a path."""
    filled = dict(config)
    for path, default in declared(folder).items():
        group, dot, name = path.partition(".")
        key = f"{NAME}:{group}"
        if not dot:
            filled.setdefault(key, default)
            continue
        # The engine replaces a value that is not a map.
        entries = filled[key] if isinstance(filled.get(key), Mapping) else {}
        filled[key] = {name: default, **entries}
    return filled


def run(
    monkeypatch: pytest.MonkeyPatch,
    config: Mapping[str, Any],
    stack: str = "test",
    preview: bool = False,
    aws: Aws | None = None,
    program: Path = PROJECT / "__main__.py",
) -> Graph:
    """One new run of a program, with the configuration in the form in which the engine passes it."""
    plain = {key: decrypted(value) for key, value in config.items()}
    folder = program.parent if (program.parent / "Pulumi.yaml").exists() else PROJECT
    passed = with_defaults(plain, folder)
    texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in passed.items()}
    monkeypatch.setenv("PULUMI_CONFIG", json.dumps(texts))
    # The engine lists the keys that contain a secret, without the path to it.
    secret = [key for key, value in config.items() if value != plain[key]]
    monkeypatch.setenv("PULUMI_CONFIG_SECRET_KEYS", json.dumps(secret))
    monkeypatch.setattr("settings.schema.config_in", lambda _: config)
    monkeypatch.chdir(program.parent)
    # For each resource, the SDK would describe all frames of pytest: a fifth of the time.
    monkeypatch.setattr(resource, "_get_stack_trace", source_pb2.StackTrace)
    recorder = Recorder(aws or Aws(texts.get("aws:region", "us-west-2")), preview)
    # The SDK keeps its state in context variables, so each run gets a new context.
    contextvars.copy_context().run(_run, recorder, program, stack, preview)
    return recorder.graph


def _run(recorder: Recorder, path: Path, stack: str, preview: bool) -> None:
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    mocks.set_mocks(recorder.mocks, project=NAME, stack=stack, preview=preview, monitor=recorder)
    # The mocks set a root resource, but run_in_stack creates the real one.
    settings.ROOT.set(None)

    def program() -> None:
        runpy.run_path(str(path), run_name="__main__")

    try:
        # Without a time limit, the SDK would wait forever for a program that failed.
        loop.run_until_complete(asyncio.wait_for(pulumi.runtime.run_in_stack(program), SECONDS_FOR_A_RUN))
    finally:
        loop.close()
