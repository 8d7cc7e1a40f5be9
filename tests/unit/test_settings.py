"""Each rule with a bad value and the exact words a person then reads."""

import base64
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pulumi
import pytest
import yaml

from infra import settings as settings_module
from infra.checks import CODE_BYTES, check
from infra.settings import declared, read
from tests.unit.conftest import RunStack
from tests.unit.program import PROJECT, Aws, run, stack_files

KEY = (
    "ssh-ed25519 " + base64.b64encode(b"\x00\x00\x00\x0bssh-ed25519\x00\x00\x00\x20" + bytes(32)).decode() + " me@home"
)
NARROW = {"apiAccessCidrs": ["203.0.113.7/32"]}

# What is written in the stack file, and the whole of what is answered.
BAD: list[tuple[Mapping[str, Any], str]] = [
    ({"trainer": 3}, "trainer: 3 is no setting of this program. Perhaps trainers is meant."),
    ({"zzz": 3}, "zzz: 3 is no setting of this program. Known here: "),
    ({"job": {"imgae": "x"}}, 'job.imgae: "x" is no setting of this program. Perhaps job.image is meant.'),
    ({"trainers": "three"}, 'trainers: "three" is no whole number. Write it like the default, 3.'),
    ({"retainData": "maybe"}, 'retainData: "maybe" is neither true nor false. Write it like the default, false.'),
    ({"job": {"image": 3}}, 'job.image: 3 is not text. Write it like the default, "paddlepaddle/paddle:3.3.1".'),
    ({"admins": "me"}, 'admins: "me" is no list of texts. Write it like the default, [].'),
    ({"tags": {"a": 1}}, 'tags: {"a": 1} is no map of texts. Write it like the default, {}.'),
    ({"workers": 3}, "workers: 3 is no map. Give it keys, such as workers.count."),
    (
        {"clusterName": "my cluster"},
        'clusterName: "my cluster" is a name that EKS or a security group refuses. Use up to 90 letters, digits, - and _, and no leading sg-.',
    ),
    (
        {"clusterName": "sg-mine"},
        'clusterName: "sg-mine" is a name that EKS or a security group refuses. Use up to 90 letters, digits, - and _, and no leading sg-.',
    ),
    ({"zoneName": "Paddle_"}, 'zoneName: "Paddle_" is no DNS name. Use lower-case labels, such as paddle.'),
    (
        {"job": {"name": "Job"}},
        'job.name: "Job" is a name that Kubernetes refuses for an indexed Job. Use up to 61 lower-case letters, digits and -.',
    ),
    (
        {"job": {"name": "a" * 62}},
        f'job.name: "{"a" * 62}" is a name that Kubernetes refuses for an indexed Job. Use up to 61 lower-case letters, digits and -.',
    ),
    (
        {"job": {"name": "paddle-data"}},
        'job.name: "paddle-data" is the name of another Job. Use another, such as paddle-cluster-job.',
    ),
    (
        {"job": {"namespace": "kube-system"}},
        'job.namespace: "kube-system" is a namespace that Kubernetes refuses or keeps for itself. Use up to 63 lower-case letters, digits and -.',
    ),
    (
        {"job": {"configDir": "output"}},
        'job.configDir: "output" cannot be a folder beside data and output. Use one plain name, such as quick_start.',
    ),
    ({"pserver": {"nic": "eth 0"}}, 'pserver.nic: "eth 0" is no network interface\'s name. Write one, such as eth0.'),
    ({"trainers": 0}, "trainers: 0 is too few. Write 1 or more."),
    ({"job": {"timeoutMinutes": 0}}, "job.timeoutMinutes: 0 is too few. Write 1 or more."),
    (
        {"workers": {"diskGiB": 8}},
        "workers.diskGiB: 8 is outside what the node image and EBS allow. Write 20 to 16384.",
    ),
    (
        {"trainers": 4},
        "trainers: 4 is more than the 3 workers, and a trainer's host ports allow one on a node. Write 3 or fewer, or workers.count: 4.",
    ),
    ({"data": {"records": 2}}, "data.records: 2 leaves a trainer without data. Write 3 or more."),
    (
        {"storage": {"claimGiB": 200}},
        "storage.claimGiB: 200 is larger than the volume's 100. Claim less, or raise storage.sizeGiB.",
    ),
    ({"natGateways": "two"}, 'natGateways: "two" is no choice here. Write one of none, single, perZone.'),
    ({"workers": {"capacity": "cheap"}}, 'workers.capacity: "cheap" is no choice here. Write one of onDemand, spot.'),
    ({"storage": {"driver": "ebs"}}, 'storage.driver: "ebs" is no choice here. Write one of nfs, efsCsi.'),
    (
        {"kubernetesVersion": "1.3"},
        'kubernetesVersion: "1.3" is no version of EKS. Write it in quotes, such as "1.35".',
    ),
    (
        {"pserver": {"port": 1023}},
        "pserver.port: 1023 makes the host ports 1023 to 1026, which leave 1024 to 65535. Write 1024 to 65532.",
    ),
    (
        {"pserver": {"port": 65533}},
        "pserver.port: 65533 makes the host ports 65533 to 65536, which leave 1024 to 65535. Write 1024 to 65532.",
    ),
    (
        {"pserver": {"port": 10247}},
        "pserver.port: 10247 makes the host ports 10247 to 10250, which overlap 10248 to 10259 of kubelet. Choose a free range, such as from 7164.",
    ),
    (
        {"vpcCidr": "10.0.0.0/99"},
        'vpcCidr: "10.0.0.0/99" is no IPv4 range that starts at its own first address. Write one, such as 10.0.0.0/16.',
    ),
    (
        {"vpcCidr": "10.0.0.1/16"},
        'vpcCidr: "10.0.0.1/16" is no IPv4 range that starts at its own first address. Write one, such as 10.0.0.0/16.',
    ),
    (
        {"vpcCidr": "8.8.0.0/16"},
        'vpcCidr: "8.8.0.0/16" is not private. Write one within 10.0.0.0/8, such as 10.0.0.0/16.',
    ),
    (
        {"vpcCidr": "172.17.0.0/16"},
        'vpcCidr: "172.17.0.0/16" overlaps 172.17.0.0/16, which containers use on each node. Write another, such as 10.0.0.0/16.',
    ),
    (
        {"vpcCidr": "10.0.0.0/24"},
        'vpcCidr: "10.0.0.0/24" is outside the sizes that AWS and the subnet plan allow. Write /16 to /22.',
    ),
    (
        {"vpcCidr": "10.0.0.0/22", "workers": {"count": 16}},
        'vpcCidr: "10.0.0.0/22" has 246 addresses for 16 workers of 16 each. Write a larger range, name more zones, or use fewer workers.',
    ),
    (
        {"apiAccessCidrs": ["here"]},
        'apiAccessCidrs: "here" holds what is no IPv4 range that starts at its own first address. Write one, such as 203.0.113.7/32.',
    ),
    (
        {"apiAccessCidrs": ["10.0.0.0/8"]},
        'apiAccessCidrs: "10.0.0.0/8" is private, and never seen by the public endpoint. Write your public address, or leave the list empty.',
    ),
    (
        {"apiAccessCidrs": ["8.8.0.0/16", "8.8.8.0/24"]},
        'apiAccessCidrs: "8.8.0.0/16" overlaps 8.8.8.0/24. Keep the wider one.',
    ),
    (
        {"apiAccessCidrs": ["8.8.8.8/32", "8.8.8.8/32"]},
        'apiAccessCidrs: ["8.8.8.8/32", "8.8.8.8/32"] names a range twice. Name each once.',
    ),
    (
        {"availabilityZones": ["us-west-2a"]},
        'availabilityZones: ["us-west-2a"] is fewer than the two zones EKS needs. Name two or more, or none.',
    ),
    (
        {"availabilityZones": ["us-west-2a", "us-west-2a", "us-west-2b"]},
        'availabilityZones: ["us-west-2a", "us-west-2a", "us-west-2b"] names a zone twice. Name each once.',
    ),
    (
        {"admins": ["bob"]},
        "admins: \"bob\" holds what is no ARN of an IAM role or user. Write a role's or user's, such as arn:aws:iam::123456789012:role/admin.",
    ),
    (
        {"admins": ["arn:aws:sts::123456789012:assumed-role/a/b"]},
        'admins: "arn:aws:sts::123456789012:assumed-role/a/b" holds what is no ARN of an IAM role or user. Write the role behind the session, such as arn:aws:iam::123456789012:role/admin.',
    ),
    (
        {"admins": ["arn:aws:iam::123456789012:role/a"] * 2},
        'admins: ["arn:aws:iam::123456789012:role/a", "arn:aws:iam::123456789012:role/a"] names somebody twice. Name each once.',
    ),
    (
        {"sshPublicKey": "ssh-dss AAAA", **NARROW},
        'sshPublicKey: "ssh-dss AAAA" is no OpenSSH public key of a kind EC2 takes. Write an ssh-ed25519 or ssh-rsa one, on one line.',
    ),
    (
        {"sshPublicKey": "ssh-rsa AAAA", **NARROW},
        'sshPublicKey: "ssh-rsa AAAA" is no OpenSSH public key of a kind EC2 takes. Write an ssh-ed25519 or ssh-rsa one, on one line.',
    ),
    (
        {"sshPublicKey": KEY},
        'apiAccessCidrs: "0.0.0.0/0" would open SSH to the whole internet, as apiAccessCidrs is. Narrow it, or leave sshPublicKey empty.',
    ),
    (
        {"job": {"image": "No Image"}},
        'job.image: "No Image" is no image reference. Write repository:tag, such as paddlepaddle/paddle:3.3.1.',
    ),
    (
        {"data": {"command": ["python3", ""]}},
        'data.command: ["python3", ""] has an empty word. Write one list item a word, or [] for the image\'s own command.',
    ),
    (
        {"data": {"source": "ftp://x"}},
        'data.source: "ftp://x" is no source of data. Write synthetic, https://host/file or s3://bucket/key.',
    ),
    (
        {"data": {"sha256": "abc"}},
        'data.sha256: "abc" is no SHA-256 in lower-case hex. Write its 64 digits, or leave it empty.',
    ),
    (
        {"job": {"code": "nowhere"}},
        'job.code: "nowhere" holds no train.py. Name a folder with one, by its path from Pulumi.yaml.',
    ),
    (
        {"kubeconfig": "nowhere"},
        'kubeconfig: "nowhere" cannot be read (No such file or directory). Name a kubeconfig file, or leave it empty to use EKS\'s own.',
    ),
    (
        {"kubeconfig": "Pulumi.yaml"},
        'kubeconfig: "Pulumi.yaml" is a file with no current context in it. Name a kubeconfig file, or leave it empty to use EKS\'s own.',
    ),
    (
        {"kubeconfig": "Makefile"},
        'kubeconfig: "Makefile" is a file that is no YAML. Name a kubeconfig file, or leave it empty to use EKS\'s own.',
    ),
    ({"tags": {"stack": "x"}}, 'tags.stack: "x" is a tag that the program sets itself. Use another key.'),
    (
        {"tags": {"aws:x": "x"}},
        'tags.aws:x: "x" has a key that AWS refuses. Use up to 128 letters, digits, spaces and _.:/=+-@.',
    ),
    (
        {"tags": {"x": "{}"}},
        'tags.x: "{}" is a value that AWS refuses. Use up to 256 letters, digits, spaces and _.:/=+-@.',
    ),
    (
        {"tags": {f"k{i}": "" for i in range(41)}},
        "tags: 41 tags are more than AWS allows beside ours. Use 40 or fewer.",
    ),
    # What only the region can tell.
    (
        {"availabilityZones": ["us-west-2a", "us-west-2z"]},
        'availabilityZones: "us-west-2z" is no availability zone of us-west-2 for this account. Choose from us-west-2a, us-west-2b, us-west-2c.',
    ),
    (
        {"workers": {"instanceType": "toaster"}},
        'workers.instanceType: "toaster" is no instance type that us-west-2 offers. Choose another, such as m6i.large.',
    ),
    (
        {"job": {"gpusPerTrainer": 1}},
        'workers.instanceType: "m6i.large" has no NVIDIA GPU, and job.gpusPerTrainer asks for 1. Choose one with enough, such as g5.xlarge for one.',
    ),
    (
        {"job": {"gpusPerTrainer": 2}, "workers": {"instanceType": "g5.xlarge"}},
        'workers.instanceType: "g5.xlarge" has 1 NVIDIA GPUs, and job.gpusPerTrainer asks for 2. Choose one with enough, such as g5.xlarge for one.',
    ),
]


def refusal(program: RunStack, changes: Mapping[str, Any], **how: Any) -> list[str]:
    """The problems told, a line each, after proof that nothing was registered."""
    with pytest.raises(pulumi.RunError) as caught:
        program(changes, **how)
    first, *problems = str(caught.value).splitlines()
    assert first == "Nothing was made: the settings of stack dev do not hold."
    return [problem.strip() for problem in problems]


@pytest.mark.parametrize(
    ("changes", "message"), BAD, ids=lambda value: json.dumps(value)[:50] if isinstance(value, dict) else ""
)
def test_bad_settings_are_told(program: RunStack, changes: Mapping[str, Any], message: str) -> None:
    problems = refusal(program, changes)
    assert len(problems) == 1
    assert problems[0] == message or (message.endswith(": ") and problems[0].startswith(message))


def test_nothing_is_registered_before_the_settings_hold(program: RunStack, monkeypatch: pytest.MonkeyPatch) -> None:
    registered: list[str] = []
    monkeypatch.setattr("tests.unit.program.Aws.new_resource", lambda _, args: registered.append(args.name))
    refusal(program, {"trainers": 0})
    assert registered == []


def test_all_problems_come_at_once(program: RunStack) -> None:
    changes = {"trainers": "x", "vpcCidr": "8.8.0.0/16", "trainer": 1, "availabilityZones": ["us-west-2a", "nowhere"]}
    told = refusal(program, changes)
    assert [line.partition(":")[0] for line in told] == ["trainers", "trainer", "vpcCidr", "availabilityZones"]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({}, 'aws:region: "" is no AWS region. Write one, such as us-west-2.'),
        (
            {"aws:region": "us-west-2", "aws:regoin": "x"},
            'aws:regoin: "x" is no option of the AWS provider. Remove it.',
        ),
        (
            {"aws:region": "us-west-2", "aws:defaultTags": {"tags": {}}},
            'aws:defaultTags: {"tags": {}} would be lost. Write the tags under tags.',
        ),
    ],
)
def test_bad_provider_options_are_told(monkeypatch: pytest.MonkeyPatch, config: dict[str, Any], message: str) -> None:
    with pytest.raises(pulumi.RunError, match=re.escape(message)):
        run(monkeypatch, config, aws=Aws("us-west-2"))


def test_a_region_without_a_service_is_told(program: RunStack) -> None:
    told = refusal(program, {}, aws=Aws("us-west-2", services=("ec2", "eks", "kms", "s3", "route53")))
    assert told == [
        'aws:region: "us-west-2" does not offer efs. Choose a region with all of ec2, efs, eks, kms, s3, route53.'
    ]


def test_a_zone_that_eks_cannot_use_is_told_by_its_id(monkeypatch: pytest.MonkeyPatch) -> None:
    config = {"aws:region": "us-west-1", "paddle-on-aws:availabilityZones": ["us-west-1a", "us-west-1c"]}
    message = 'availabilityZones: "us-west-1c" is usw1-az2, where EKS runs no control plane. Choose from us-west-1a, us-west-1b.'
    with pytest.raises(pulumi.RunError, match=re.escape(message)):
        run(monkeypatch, config)


def test_a_region_with_one_usable_zone_is_told(program: RunStack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.unit.program.ZONES", {"us-west-2": {"us-west-2a": "usw2-az1", "us-west-2b": "usw1-az2"}})
    told = refusal(program, {})
    assert told == [
        'aws:region: "us-west-2" leaves 1 usable zones of the two that EKS needs. Choose a region with more.'
    ]


def test_an_aws_that_does_not_answer_is_told(program: RunStack) -> None:
    told = refusal(program, {"trainers": 0}, aws=Aws("us-west-2", refuse="getCallerIdentity"))
    assert told[0] == "trainers: 0 is too few. Write 1 or more."
    assert told[1].startswith('aws:region: "us-west-2" could not be asked what it offers: ')
    assert "ExpiredToken: the token has expired" in told[1]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("big.txt", b"x" * CODE_BYTES, f"more than the {CODE_BYTES} that travel in a ConfigMap"),
        ("image.bin", b"\xff\xfe\x00", "holds image.bin, which is no UTF-8 text"),
    ],
)
def test_code_that_cannot_travel_is_told(
    tmp_path: Path, program: RunStack, name: str, content: bytes, message: str
) -> None:
    (tmp_path / "train.py").write_text("pass")
    (tmp_path / name).write_bytes(content)
    told = refusal(program, {"job": {"code": str(tmp_path)}})
    assert len(told) == 1
    assert message in told[0]
    assert "docs/training-code.md shows how" in told[0]


def test_what_tools_leave_behind_is_no_code(tmp_path: Path) -> None:
    for path in ("train.py", "lib/model.py", "__pycache__/train.pyc", "lib/.hidden", ".git/config"):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text("")
    settings, _ = read({"job": {"code": str(tmp_path)}})
    assert list(settings.job.code_files) == ["lib/model.py", "train.py"]


def test_the_data_jobs_script_fits_beside_the_code() -> None:
    assert (PROJECT / "workloads/trainer/prepare.py").stat().st_size <= 1024 * 1024 - CODE_BYTES


def test_every_default_holds() -> None:
    settings, problems = read({})
    assert not problems
    with_region = settings_module.dataclasses.replace(settings, aws={"region": "us-west-2"})
    assert check(with_region) == []


def test_every_setting_is_described_and_every_description_is_a_setting() -> None:
    """`read` looks each key up among the declared ones, so that only the other direction can go wrong."""
    project = yaml.safe_load((PROJECT / "Pulumi.yaml").read_text())
    assert all(entry["description"] for entry in project["config"].values())

    def keys(cls: Any, path: str = "") -> set[str]:
        found = set[str]()
        for name, hint in settings_module.get_type_hints(cls).items():
            key = path + settings_module.camel(name)
            found |= keys(hint, key + ".") if settings_module.dataclasses.is_dataclass(hint) else {key}
        return found - set(settings_module.ENGINE_KEYS)

    assert keys(settings_module.Settings) == set(declared())


@pytest.mark.parametrize("stack", stack_files())
def test_numbers_and_flags_may_come_as_text(stack: str) -> None:
    """The engine hands top-level values over as text, `pulumi config set` stores what it is given."""
    settings, problems = read({"trainers": "2", "retainData": "true", "admins": '["a"]', "workers": '{"count": "2"}'})
    assert not problems
    assert (settings.trainers, settings.retain_data, settings.admins, settings.workers.count) == (2, True, ("a",), 2)


@pytest.mark.parametrize("stack", stack_files())
def test_a_stack_states_only_what_differs(stack: str) -> None:
    text = yaml.safe_load((PROJECT / f"Pulumi.{stack}.yaml").read_text())["config"]
    defaults = declared()
    for key, value in text.items():
        name = key.removeprefix("paddle-on-aws:")
        leaves = {f"{name}.{leaf}": v for leaf, v in value.items()} if isinstance(value, dict) else {name: value}
        assert not {leaf for leaf, v in leaves.items() if defaults.get(leaf, ...) == v}, f"{stack} repeats a default"
