"""Every check with an invalid value and the exact message that a person reads."""

import dataclasses
import re
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_type_hints

import pulumi
import pytest
import yaml
from pulumi.runtime import mocks

from settings.checks import check
from settings.checks.jobs import CODE_BYTES
from settings.schema import Declared, camel, code_files, declared, read
from settings.secure import Stored, config_in, stored
from tests.unit.conftest import RunStack
from tests.unit.program import PROJECT, SUBNETS, Aws, Graph, run, stack_files
from workloads.scripts import with_imports

BAD = yaml.safe_load((Path(__file__).parent / "bad_settings.yaml").read_text())


def refusal(program: RunStack, changes: Mapping[str, Any], **how: Any) -> list[str]:
    """The problems that the program reports, one on each line."""
    with pytest.raises(pulumi.RunError) as caught:
        program(changes, **how)
    first, *problems = str(caught.value).splitlines()
    assert first == "Stack dev has invalid settings. Nothing was created in AWS."
    return [problem.strip() for problem in problems]


@pytest.mark.parametrize("case", BAD, ids=lambda case: case["message"].partition(" ")[0])
def test_an_invalid_setting_is_reported(program: RunStack, case: dict[str, Any]) -> None:
    problems = refusal(program, case["given"])
    assert len(problems) == 1
    message = case["message"]
    assert problems[0] == message or (message.endswith(":") and problems[0].startswith(message))


def test_a_stack_file_tells_which_values_are_encrypted(tmp_path: Path) -> None:
    file = tmp_path / "Pulumi.dev.yaml"
    assert stored(config_in(file)) == Stored()
    file.write_text("encryptedkey: abc\n")
    assert stored(config_in(file)) == Stored()
    config = {"p:data": {"source": [{"secure": "v1:a"}, "open"], "records": 3}, "p:data.image": {"secure": "v1:b"}}
    file.write_text(yaml.safe_dump({"config": {**config, "aws:token": {"secure": "v1:c"}}}))
    found = stored(config_in(file))
    assert found == Stored(frozenset({"open", "3"}), frozenset({"data.source[0]", "data.image", "token"}))
    assert found.shows("open")
    assert not found.shows("v1:a")


def test_an_address_in_json_text_is_not_a_secret(program: RunStack) -> None:
    """`pulumi config set data.source '[...]'` stores the list as one text."""
    plain = '["https://host/b?X-Amz-Signature=hush"]'
    _, problem = refusal(program, {"data.source": plain, "data.image": {"secure": "mine/split:1"}})
    assert problem.startswith('data.source[0]: "[secret]" has a query string')


def test_without_the_stack_file_the_engine_alone_tells_what_is_secret() -> None:
    """With `--config-file`, the settings come from another file."""
    signed = "https://host/a?X-Amz-Signature=hush"
    settings = dataclasses.replace(read({})[0], secrets=frozenset({"data"}))
    assert settings.is_secret(signed)
    assert not dataclasses.replace(settings, stored=Stored(plain=frozenset({signed}))).is_secret(signed)
    assert not dataclasses.replace(settings, secrets=frozenset()).is_secret(signed)


def test_a_key_with_a_dot_replaces_the_default_that_pulumi_adds_to_the_map(program: RunStack) -> None:
    (problem,) = refusal(program, {"workers.count": "4", "trainers": 5})
    assert problem.startswith("trainers: 5 is more than the 4 workers")


def test_a_key_with_a_dot_is_a_path() -> None:
    settings, problems = read({"job.code": "my_model", "job": {"passes": 7}, "workers.count": "4", "tags.team": "ml"})
    assert problems == []
    assert (settings.job.code, settings.job.passes, settings.workers.count) == ("my_model", 7, 4)
    assert settings.tags == {"team": "ml"}


def test_only_the_provider_is_registered_if_a_setting_is_invalid(
    program: RunStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    registered: list[str] = []

    class Recording(Aws):
        def new_resource(self, args: mocks.MockResourceArgs) -> tuple[str, dict[str, Any]]:
            registered.append(args.typ)
            return super().new_resource(args)

    refusal(program, {"trainers": 0}, aws=Recording())
    assert registered == ["pulumi:providers:aws"]
    registered.clear()
    with pytest.raises(pulumi.RunError, match="is not an option of the AWS provider"):
        run(monkeypatch, {"aws:region": "us-west-2", "aws:regoin": "x"}, aws=Recording())
    assert registered == [], "the provider cannot be configured with these options"


def test_all_problems_are_reported_together(program: RunStack) -> None:
    changes = {"trainers": "x", "vpcCidr": "8.8.0.0/16", "trainer": 1, "availabilityZones": ["us-west-2a", "nowhere"]}
    reported = refusal(program, changes)
    assert [line.partition(":")[0] for line in reported] == ["trainers", "trainer", "vpcCidr", "availabilityZones"]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({}, 'aws:region: "" is not an AWS region. Write one, such as us-west-2.'),
        (
            {"aws:region": "us-west-2", "aws:regoin": "x"},
            'aws:regoin: "x" is not an option of the AWS provider. Remove it.',
        ),
        (
            {"aws:region": "us-west-2", "aws:defaultTags": {"tags": {}}},
            'aws:defaultTags: {"tags": {}} would be ignored. Write the tags in the setting tags.',
        ),
    ],
)
def test_invalid_provider_options_are_reported(
    monkeypatch: pytest.MonkeyPatch, config: dict[str, Any], message: str
) -> None:
    with pytest.raises(pulumi.RunError, match=re.escape(message)):
        run(monkeypatch, config, aws=Aws())


def test_a_service_that_aws_does_not_list_is_a_warning(program: RunStack, monkeypatch: pytest.MonkeyPatch) -> None:
    logged: list[str] = []
    monkeypatch.setattr("pulumi.log.warn", logged.append)
    program({}, aws=Aws())
    assert logged == []
    program({}, aws=Aws(services=("ec2", "eks", "kms", "s3")))
    assert logged == [
        'aws:region: "us-west-2" does not have efs, route53 in AWS\'s list of services. If creating its resources '
        "fails, choose another region."
    ]


def test_a_kubernetes_version_that_eks_does_not_support_is_reported(program: RunStack) -> None:
    (message,) = refusal(program, {"kubernetesVersion": "1.20"})
    assert message.startswith('kubernetesVersion: "1.20" has no version of the add-on vpc-cni in us-west-2: ')
    assert "couldn't find resource" in message
    assert message.endswith("that EKS supports: `aws eks describe-cluster-versions` lists them.")


def test_only_messages_need_sns(program: RunStack, monkeypatch: pytest.MonkeyPatch) -> None:
    warned: list[str] = []
    monkeypatch.setattr("pulumi.log.warn", lambda message, *_: warned.append(message))
    without_sns = Aws(services=("ec2", "efs", "eks", "kms", "s3", "route53"))
    program({}, aws=without_sns)
    assert warned == []
    program({"notify": {"email": "team@example.com"}}, aws=without_sns)
    assert len(warned) == 1
    assert warned[0].startswith('aws:region: "us-west-2" does not have sns in AWS\'s list of services.')


@pytest.mark.parametrize(("region", "partition"), [("cn-north-1", "aws-cn"), ("us-gov-west-1", "aws-us-gov")])
def test_a_budget_is_refused_where_aws_does_not_bill_in_dollars(
    monkeypatch: pytest.MonkeyPatch, region: str, partition: str
) -> None:
    notify = {"email": "team@example.com", "monthlyBudget": 400}
    config = {"aws:region": region, "paddle-on-aws:notify": notify}
    message = (
        f"notify.monthlyBudget: 400 needs AWS Budgets in US dollars, and partition {partition} does not have that."
        " Write 0."
    )
    with pytest.raises(pulumi.RunError, match=re.escape(message)):
        run(monkeypatch, config)
    run(monkeypatch, {**config, "paddle-on-aws:notify": {"email": "team@example.com"}})


def test_a_zone_that_eks_cannot_use_is_reported_with_its_id(monkeypatch: pytest.MonkeyPatch) -> None:
    config = {"aws:region": "us-west-1", "paddle-on-aws:availabilityZones": ["us-west-1a", "us-west-1c"]}
    message = (
        '"us-west-1c" cannot be used: us-west-1c is zone usw1-az2, where EKS cannot place a control plane. '
        "Choose from us-west-1a, us-west-1b."
    )
    with pytest.raises(pulumi.RunError, match=re.escape(message)):
        run(monkeypatch, config)


def test_a_region_with_one_usable_zone_is_reported(program: RunStack) -> None:
    reported = refusal(program, {}, aws=Aws(zones={"us-west-2a": "usw2-az1", "us-west-2b": "usw1-az2"}))
    assert reported == [
        'aws:region: "us-west-2" has 1 zones for EKS and 1 of them for workers, and the stack needs 2 and 1. Excluded: '
        "us-west-2b is zone usw1-az2, where EKS cannot place a control plane. Choose another region."
    ]


def zones_of(graph: Graph) -> list[str]:
    """The zones of the workers' subnets, in the order of the subnets."""
    return [graph.named(f"subnet-{i}").inputs["availabilityZone"] for i in range(2)]


@pytest.mark.parametrize(
    ("offered", "types", "zones"),
    [
        ({}, ["m6i.large"], "ab"),
        ({"m6i.large": ["usw2-az2", "usw2-az3"]}, ["m6i.large"], "bc"),
        # EKS rejects a node group if one zone does not offer one of its types.
        ({"m6i.large": ["usw2-az1", "usw2-az3"]}, ["m5.large", "m6i.large"], "ac"),
    ],
)
@pytest.mark.parametrize("capacity", ["onDemand", "spot"])
def test_zones_that_offer_the_instance_types_are_used(
    program: RunStack, offered: Mapping[str, Any], types: list[str], zones: str, capacity: str
) -> None:
    workers = {"instanceTypes": types, "capacity": capacity, "zones": "all"}
    assert zones_of(program({"workers": workers}, aws=Aws(offered_in=offered))) == [
        f"us-west-2{letter}" for letter in zones
    ]


def test_only_the_zone_of_the_workers_must_offer_their_types(program: RunStack) -> None:
    aws = Aws(offered_in={"m6i.large": ["usw2-az3"]})
    assert zones_of(program(aws=aws)) == ["us-west-2c", "us-west-2a"]
    named = ["us-west-2c", "us-west-2b"]
    assert zones_of(program({"availabilityZones": named}, aws=aws)) == named


def test_too_few_zones_with_the_instance_types_are_reported(program: RunStack) -> None:
    aws = Aws(offered_in={"m6i.large": ["usw2-az2"]})
    assert refusal(program, {"workers": {"zones": "all"}}, aws=aws) == [
        'aws:region: "us-west-2" has 3 zones for EKS and 1 of them for workers, and the stack needs 2 and 2. Excluded: '
        "us-west-2a does not offer m6i.large; us-west-2c does not offer m6i.large. Choose another region, or other "
        "types in workers.instanceTypes."
    ]
    assert refusal(program, {"availabilityZones": ["us-west-2a", "us-west-2b"]}, aws=aws) == [
        'availabilityZones: "us-west-2a" cannot be used: us-west-2a does not offer m6i.large. Choose from us-west-2b.'
    ]
    assert len(refusal(program, {}, aws=Aws(offered_in={"m6i.large": []}))) == 1


A, B = "10.0.0.0/19", "10.0.32.0/19"  # the ranges of the first two subnets


@pytest.mark.parametrize(
    ("running", "zones"),
    [
        ({A: "us-west-2c", B: "us-west-2a"}, "ca"),
        # An interrupted first run has created only one of them.
        ({A: "us-west-2b"}, "ba"),
        ({B: "us-west-2a"}, "ba"),
    ],
)
def test_a_running_stack_keeps_its_zones(program: RunStack, running: Mapping[str, str], zones: str) -> None:
    aws = Aws(subnets=running)
    assert zones_of(program({}, aws=aws)) == [f"us-west-2{letter}" for letter in zones]
    named = ["us-west-2b", "us-west-2c"]
    assert zones_of(program({"availabilityZones": named}, aws=aws)) == named


def test_a_running_stack_keeps_a_zone_that_aws_does_not_list_any_more(program: RunStack) -> None:
    aws = Aws(subnets={A: "us-west-2d", B: "us-west-2e"}, offered_in={"m6i.large": []})
    assert zones_of(program({}, aws=aws)) == ["us-west-2d", "us-west-2e"]


def test_types_that_the_zones_of_a_running_stack_do_not_offer_are_reported(program: RunStack) -> None:
    offered = {"g5.xlarge": ["usw2-az1", "usw2-az3"], "g4dn.xlarge": ["usw2-az2", "usw2-az3"]}
    aws = Aws(subnets=SUBNETS, offered_in=offered)
    assert refusal(program, {"workers": {"instanceTypes": ["g4dn.xlarge"]}}, aws=aws) == [
        'workers.instanceTypes: ["g4dn.xlarge"] contains types that us-west-2a, a zone of this stack, does not offer: '
        "g4dn.xlarge. Write types that it offers. To use other zones, run `pulumi destroy` first."
    ]
    # If the settings name the zones, the same problem is reported once.
    named = {"availabilityZones": ["us-west-2a", "us-west-2b"], "workers": {"instanceTypes": ["g4dn.xlarge"]}}
    assert len(refusal(program, named, aws=aws)) == 1
    # The second zone has no workers by default, and a paused stack has none at all.
    program({"workers": {"instanceTypes": ["g5.xlarge"]}}, aws=aws)
    assert len(refusal(program, {"workers": {"instanceTypes": ["g5.xlarge"], "zones": "all"}}, aws=aws)) == 1
    program({"workers": {"instanceTypes": ["g4dn.xlarge"], "count": 0}}, aws=aws)


@pytest.mark.parametrize("named", [[], ["us-west-2b", "us-west-2c"]])
def test_a_new_stack_without_workers_is_reported(program: RunStack, named: list[str]) -> None:
    paused = {"workers": {"count": 0}, "availabilityZones": named}
    assert refusal(program, paused) == [
        "workers.count: 0 would create a stack that is already paused, and its training needs workers. "
        "Write at least as many workers as trainers. After the training, write 0 to pause the stack."
    ]
    # Without the permission to ask, nobody knows.
    program(paused, aws=Aws(refuse="getSubnet"))
    program(paused, aws=Aws(subnets={A: "us-west-2b"}))


STANDARD, GPU, STANDARD_SPOT = "L-1216C47A", "L-DB2E81BA", "L-34B43A08"


def test_too_few_vcpus_are_reported(program: RunStack) -> None:
    assert refusal(program, {}, aws=Aws(quotas={STANDARD: 5.0})) == [
        "workers.count: 3 is more than the 2 workers that the vCPU quotas of your account allow: "
        '"Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances" is 5, and m6i.large has 2. '
        "Request a higher quota in the console of Service Quotas, or use fewer or smaller workers."
    ]


@pytest.mark.parametrize(
    ("quotas", "workers", "accepted"),
    [
        ({STANDARD: 6.0}, {}, True),
        ({STANDARD: 6.0}, {"instanceTypes": ["m6i.xlarge"]}, False),
        # The quota of another kind of capacity, or of another family, does not count.
        ({STANDARD: 0.0, STANDARD_SPOT: 6.0}, {"capacity": "spot"}, True),
        ({STANDARD: 99.0, STANDARD_SPOT: 5.0}, {"capacity": "spot"}, False),
        ({STANDARD: 99.0, GPU: 8.0}, {"instanceTypes": ["g5.xlarge"]}, False),
        # Without an answer, and for families that are not in the table, nothing is checked.
        ({GPU: 0.0}, {}, True),
        ({STANDARD: 0.0}, {"instanceTypes": ["m6i.large", "u7i.large"]}, True),
        # Types in the same group share the quota; types in two groups add up.
        ({STANDARD: 5.0}, {"instanceTypes": ["m6i.xlarge", "m5.large"]}, False),
        ({STANDARD: 6.0}, {"instanceTypes": ["m6i.xlarge", "m5.large"]}, True),
        ({STANDARD: 4.0, "L-7295265B": 2.0}, {"instanceTypes": ["m6i.large", "x2.large"]}, True),
        ({STANDARD: 2.0, "L-7295265B": 2.0}, {"instanceTypes": ["m6i.large", "x2.large"]}, False),
    ],
)
def test_the_quota_of_the_capacity_and_the_family_counts(
    program: RunStack, quotas: Mapping[str, float], workers: Mapping[str, Any], accepted: bool
) -> None:
    aws = Aws(quotas=quotas)
    if accepted:
        program({"workers": workers}, aws=aws)
    else:
        (problem,) = refusal(program, {"workers": workers}, aws=aws)
        assert problem.startswith("workers.count: ")


def test_images_that_china_cannot_reach_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    monkeypatch.setattr("pulumi.log.warn", lambda text, *_: shown.append(text))
    ours = "123456789012.dkr.ecr.cn-north-1.amazonaws.com.cn"
    changes = {
        "job": {"gpusPerTrainer": 1},
        "workers": {"instanceTypes": ["g5.xlarge"], "diskGiB": 100},
        "export": {"image": f"{ours}/aws-cli:2"},
    }
    keyed = {f"paddle-on-aws:{key}": value for key, value in changes.items()}
    run(monkeypatch, {"aws:region": "us-west-2", **keyed})
    assert shown == []
    run(monkeypatch, {"aws:region": "cn-north-1", **keyed})
    copy = "which a region in China usually cannot reach. Write the address of a copy, for example in Amazon ECR of"
    assert shown == [
        f'job.image: "paddlepaddle/paddle:3.3.1" is on docker.io, {copy} cn-north-1.',
        f'job.gpuPluginImage: "nvcr.io/nvidia/k8s-device-plugin:v0.17.4" is on nvcr.io, {copy} cn-north-1.',
    ]


def test_a_stack_that_keeps_its_data_should_pin_its_images(program: RunStack, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    monkeypatch.setattr("pulumi.log.warn", lambda text, *_: shown.append(text))
    program()
    assert shown == []
    program({}, stack="prod")
    why = "has no digest, so its owner can replace it by another image. Write"
    tail = "@sha256: and the digest that its registry shows."
    assert shown == [
        f'{key}: "{image}" {why} {image}{tail}'
        for key, image in (
            ("job.image", "paddlepaddle/paddle:3.3.1"),
            ("export.image", "public.ecr.aws/aws-cli/aws-cli:2.35.5"),
        )
    ]
    shown.clear()
    digest = f"@sha256:{'0' * 64}"
    images = {"job": {"image": f"paddlepaddle/paddle:3.3.1{digest}"}, "export": {"image": f"aws/cli{digest}"}}
    program({**images, "retainData": True})
    assert shown == []


def test_an_identity_that_eks_does_not_accept_is_reported(program: RunStack) -> None:
    assert refusal(program, {}, aws=Aws(session="root")) == [
        'deployer: "" is empty, and this session is arn:aws:iam::123456789012:root, which EKS does not accept as an '
        "administrator. Run Pulumi with the credentials of an IAM role or user."
    ]


def test_a_role_of_the_session_that_cannot_be_read_is_reported(program: RunStack) -> None:
    aws = Aws(refuse="getSessionContext")
    (problem,) = refusal(program, {}, aws=aws)
    assert problem.startswith('deployer: "" is empty, and the role of this session could not be read: ')
    program({"deployer": "arn:aws:iam::123456789012:role/ci"}, aws=aws)


def test_others_can_preview_the_stack_of_the_deployer(program: RunStack) -> None:
    program({"deployer": "arn:aws:iam::123456789012:role/ci"}, preview=True)


def test_iam_that_does_not_answer_is_no_problem(program: RunStack) -> None:
    program({"admins": ["arn:aws:iam::123456789012:role/nobody"]}, aws=Aws(refuse="iam/getRole"))
    program({"admins": ["arn:aws:iam::999999999999:role/nobody"]})


def test_an_aws_that_does_not_answer_is_reported(program: RunStack) -> None:
    reported = refusal(program, {"trainers": 0}, aws=Aws(refuse="getCallerIdentity"))
    assert reported[0] == "trainers: 0 is too small. Write 1 or more."
    assert reported[1].startswith('aws:region: "us-west-2" could not be checked with AWS: ')
    assert "ExpiredToken: the token has expired" in reported[1]


def test_a_refused_question_about_a_service_is_not_a_missing_service(program: RunStack) -> None:
    reported = refusal(program, {}, aws=Aws(refuse="getParameter"))
    assert len(reported) == 1
    assert reported[0].startswith('aws:region: "us-west-2" could not be checked with AWS: ')


class OverlappingAws(Aws):
    """Answers the first call only after three more calls have arrived."""

    arrived = 0
    changed = threading.Condition()

    def call(self, args: mocks.MockCallArgs) -> tuple[dict[str, Any], list[tuple[str, str]]]:
        with self.changed:
            self.arrived += 1
            self.changed.notify_all()
            assert self.changed.wait_for(lambda: self.arrived > 3, timeout=30), "the calls run one after the other"
        return super().call(args)


def test_aws_is_asked_about_the_region_side_by_side(program: RunStack) -> None:
    program({}, aws=OverlappingAws())


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("big.txt", b"x" * CODE_BYTES, f"only {CODE_BYTES} fit into the ConfigMap"),
        ("image.bin", b"\xff\xfe\x00", "contains image.bin, which is not UTF-8 text"),
    ],
)
def test_code_that_does_not_fit_into_a_config_map_is_reported(
    tmp_path: Path, program: RunStack, name: str, content: bytes, message: str
) -> None:
    (tmp_path / "train.py").write_text("pass")
    (tmp_path / name).write_bytes(content)
    reported = refusal(program, {"job": {"code": str(tmp_path)}})
    assert len(reported) == 1
    assert message in reported[0]
    assert "docs/training-code.md shows how" in reported[0]


def test_hidden_files_and_caches_are_not_training_code(tmp_path: Path) -> None:
    for path in ("train.py", "lib/model.py", "__pycache__/train.pyc", "lib/.hidden", ".git/config"):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text("")
    settings, _ = read({"job": {"code": str(tmp_path)}})
    assert list(code_files(settings.job)) == ["lib/model.py", "train.py"]


def test_the_scripts_of_the_data_job_fit_next_to_the_code() -> None:
    shipped = with_imports("prepare.py").values()
    assert sum(path.stat().st_size for path in shipped) <= 1024 * 1024 - CODE_BYTES


def test_every_default_is_valid() -> None:
    settings, problems = read({})
    assert not problems
    with_region = dataclasses.replace(settings, aws={"region": "us-west-2"})
    assert check(with_region) == []


def test_every_setting_is_described_and_every_description_is_a_setting() -> None:
    """`read` fails if a setting is not declared, so this test checks the other direction."""
    project = yaml.safe_load((PROJECT / "Pulumi.yaml").read_text())
    assert all(entry["description"] for entry in project["config"].values())

    def keys(cls: Any, path: str = "") -> set[str]:
        found = set[str]()
        for name, hint in get_type_hints(cls).items():
            key = path + camel(name)
            found |= keys(hint, key + ".") if dataclasses.is_dataclass(hint) else {key}
        return found

    assert keys(Declared) == set(declared())


def test_numbers_and_flags_may_come_as_text() -> None:
    """Pulumi passes top-level values as text, and `pulumi config set` stores text."""
    settings, problems = read({"trainers": "2", "retainData": "true", "admins": '["a"]', "workers": '{"count": "2"}'})
    assert not problems
    assert (settings.trainers, settings.retain_data, settings.admins, settings.workers.count) == (2, True, ("a",), 2)


@pytest.mark.parametrize("stack", stack_files())
def test_a_stack_file_contains_only_what_differs(stack: str) -> None:
    text = yaml.safe_load((PROJECT / f"Pulumi.{stack}.yaml").read_text())["config"]
    defaults = declared()
    for key, value in text.items():
        name = key.removeprefix("paddle-on-aws:")
        leaves = {f"{name}.{leaf}": v for leaf, v in value.items()} if isinstance(value, dict) else {name: value}
        assert not {leaf for leaf, v in leaves.items() if defaults.get(leaf, ...) == v}, f"{stack} repeats a default"
