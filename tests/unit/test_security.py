"""Exact security group rules and IAM statements of every stack."""

import base64
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.conftest import RunStack
from tests.unit.program import ACCOUNT, Aws, Graph, config_of, run, stack_files

RULES = (
    "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule",
    "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule",
)
ADMIN = "arn:aws:iam::123456789012:role/admin"
STATEMENTS = yaml.safe_load(Path(__file__).with_name("iam_statements.yaml").read_text())
# The default statement of key policies: IAM policies of the account decide.
ACCOUNT_DECIDES = {
    "Sid": "EnableIamPolicies",
    "Effect": "Allow",
    "Action": ["kms:*"],
    "Resource": "*",
    "Principal": {"AWS": f"arn:aws:iam::{ACCOUNT}:root"},
}
# In a key policy, the resource "*" means the key itself.
RESOURCE_STAR_ALLOWED = {"key"}


def rules(graph: Graph) -> set[tuple[str, str, str, str, str]]:
    """Every security group rule: group, direction, protocol, ports, and the other side."""
    groups = {f"{group.name}-id": group.name for group in graph.all("aws:ec2/securityGroup:SecurityGroup")}
    found = set[tuple[str, str, str, str, str]]()
    for direction, kind in zip(("in", "out"), RULES, strict=True):
        for rule in graph.all(kind):
            i = rule.inputs
            other = groups.get(i.get("referencedSecurityGroupId", ""), i.get("cidrIpv4", ""))
            ports = "all" if i["ipProtocol"] == "-1" else f"{i['fromPort']:.0f}-{i['toPort']:.0f}"
            found.add((groups[i["securityGroupId"]], direction, i["ipProtocol"], ports, other))
    return found


BASE_RULES = {
    ("control-plane-group", "in", "tcp", "443-443", "worker-group"),
    ("control-plane-group", "out", "tcp", "443-443", "worker-group"),
    ("control-plane-group", "out", "tcp", "10250-10250", "worker-group"),
    ("worker-group", "in", "tcp", "443-443", "control-plane-group"),
    ("worker-group", "in", "tcp", "10250-10250", "control-plane-group"),
    ("worker-group", "in", "-1", "all", "worker-group"),
    ("worker-group", "out", "-1", "all", "0.0.0.0/0"),
    ("efs-group", "in", "tcp", "2049-2049", "worker-group"),
}


@pytest.mark.parametrize("stack", stack_files())
def test_security_groups_allow_exactly_this(shipped: Callable[[str], Graph], stack: str) -> None:
    graph = shipped(stack)
    assert rules(graph) == {
        *BASE_RULES,
        ("control-plane-group", "in", "tcp", "443-443", graph.named("vpc").inputs["cidrBlock"]),
    }
    for group in graph.all("aws:ec2/securityGroup:SecurityGroup"):
        assert not {"ingress", "egress"} & set(group.inputs), f"{group.urn} also has inline rules"


def test_ssh_is_open_only_to_the_given_addresses(program: RunStack, dev: Graph) -> None:
    key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
    graph = program({"sshPublicKey": key, "apiAccessCidrs": ["8.8.8.8/32", "9.9.9.0/24"]})
    cidrs = ("8.8.8.8/32", "9.9.9.0/24")
    ssh = {("worker-group", "in", "tcp", "22-22", cidr) for cidr in cidrs}
    assert ssh == {rule for rule in rules(graph) - BASE_RULES if rule[0] == "worker-group"}
    assert graph.named("worker-key").inputs["publicKey"] == key
    assert graph.named("worker-template").inputs["keyName"] == "worker-key-1a2b3c4"
    assert "AmazonSSMManagedInstanceCore" not in policies(graph, "worker")
    assert "AmazonSSMManagedInstanceCore" in policies(dev, "worker")


def policies(graph: Graph, role: str) -> set[str]:
    attached = graph.all("aws:iam/rolePolicyAttachment:RolePolicyAttachment")
    return {p.inputs["policyArn"].rpartition("/")[2] for p in attached if p.inputs["role"] == f"{role}-role"}


def test_no_other_managed_policies_are_attached(shipped: Callable[[str], Graph]) -> None:
    graph = shipped("prod")
    assert policies(graph, "cluster") == {"AmazonEKSClusterPolicy"}
    ours = {"AmazonEC2ContainerRegistryPullOnly", "AmazonEKSWorkerNodePolicy", "AmazonEKS_CNI_Policy"}
    assert policies(graph, "worker") == {*ours, "AmazonSSMManagedInstanceCore"}
    assert policies(graph, "efs-driver") == {"AmazonEFSCSIDriverPolicy"}


def statements(graph: Graph) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every IAM statement of the program, with the name of its resource."""
    for resource in graph.resources.values():
        for name in ("policy", "assumeRolePolicy"):
            if resource.type.startswith("aws:") and name in resource.inputs:
                for statement in json.loads(resource.inputs[name])["Statement"]:
                    yield resource.name, statement


@pytest.mark.parametrize("stack", stack_files())
def test_no_wildcards(monkeypatch: pytest.MonkeyPatch, stack: str) -> None:
    config = {**config_of(stack), "paddle-on-aws:data": {"source": "s3://bucket/data.tar"}}
    for name, statement in statements(run(monkeypatch, config, stack)):
        if statement["Effect"] == "Allow" and statement != ACCOUNT_DECIDES:
            assert not [action for action in statement["Action"] if "*" in action], f"{name}: {statement}"
            if name not in RESOURCE_STAR_ALLOWED and "Resource" in statement:
                assert statement["Resource"] != "*", f"{name}: {statement}"


@pytest.mark.parametrize("case", STATEMENTS, ids=lambda case: str(case["given"]))
def test_policies_have_exactly_these_statements(program: RunStack, case: dict[str, Any]) -> None:
    found: dict[str, list[dict[str, Any]]] = {}
    for name, statement in statements(program(case["given"])):
        found.setdefault(name, []).append(statement)
    every = case is STATEMENTS[0]
    assert {name: each for name, each in found.items() if every or name in case["statements"]} == case["statements"]


@pytest.mark.parametrize(
    ("region", "partition", "ec2", "logs"),
    [
        ("us-west-2", "aws", "ec2.amazonaws.com", "logs.us-west-2.amazonaws.com"),
        ("cn-north-1", "aws-cn", "ec2.amazonaws.com.cn", "logs.cn-north-1.amazonaws.com.cn"),
        ("us-gov-west-1", "aws-us-gov", "ec2.amazonaws.com", "logs.us-gov-west-1.amazonaws.com"),
    ],
)
def test_names_follow_the_partition(
    monkeypatch: pytest.MonkeyPatch, region: str, partition: str, ec2: str, logs: str
) -> None:
    config = {
        "aws:region": region,
        "paddle-on-aws:controlPlaneLogs": ["audit"],
        "paddle-on-aws:retainData": True,
        "paddle-on-aws:storage": {"driver": "efsCsi"},
        "paddle-on-aws:data": {"source": "s3://bucket/data.tar"},
        "paddle-on-aws:admins": [f"arn:{partition}:iam::{ACCOUNT}:role/admin"],
    }
    graph = run(monkeypatch, config)
    found = list(statements(graph))
    services = {name: s["Principal"]["Service"] for name, s in found if "Service" in s.get("Principal", {})}
    # EKS has the same name and its tokens the same audience in all partitions.
    assert services == {"key": logs, "cluster-role": "eks.amazonaws.com", "worker-role": ec2}
    assert graph.named("service-accounts").inputs["clientIdLists"] == ["sts.amazonaws.com"]
    assert graph.named("s3-endpoint").inputs["serviceName"] == f"com.amazonaws.{region}.s3"
    arns = re.findall(r"arn:(?!aws:mock:)[^:]+:", json.dumps([s for _, s in found]))
    inputs = [json.dumps(r.inputs, default=str) for r in graph.resources.values() if r.type.startswith("aws:")]
    arns += re.findall(r"arn:(?!aws:mock:)[^:]+:", "".join(inputs))
    assert set(arns) == {f"arn:{partition}:"}


DEPLOYER = "arn:aws:iam::123456789012:user/deployer"


def administrators(graph: Graph) -> list[str]:
    return [entry.inputs["principalArn"] for entry in graph.all("aws:eks/accessEntry:AccessEntry")]


def test_the_deployer_and_the_admins_get_access_entries(program: RunStack) -> None:
    graph = program({"admins": [ADMIN]})
    access = graph.named("eks").inputs["accessConfig"]
    assert access == {"authenticationMode": "API", "bootstrapClusterCreatorAdminPermissions": False}
    assert administrators(graph) == [ADMIN, DEPLOYER]
    for arn in (ADMIN, DEPLOYER):
        policy = graph.named(f"admin-{arn.rpartition(':')[2]}-policy").inputs
        assert policy["policyArn"] == "arn:aws:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy"
        assert (policy["principalArn"], policy["accessScope"]) == (arn, {"type": "cluster"})


def test_each_administrator_has_one_access_entry(program: RunStack) -> None:
    """EKS refuses a second entry for a role or user."""
    assert administrators(program({"admins": [DEPLOYER, ADMIN]})) == [ADMIN, DEPLOYER]
    assert administrators(program({"deployer": ADMIN, "admins": [ADMIN, DEPLOYER]})) == [ADMIN, DEPLOYER]
    of_role = program({}, aws=Aws(session="assumed-role/ci/run-1"))
    assert administrators(of_role) == ["arn:aws:iam::123456789012:role/team/ci"], "the role with its path"


def test_a_role_of_another_account_has_its_own_name(program: RunStack) -> None:
    graph = program({"admins": [ADMIN, ADMIN.replace("123456789012", "999999999999")]})
    assert {entry.name for entry in graph.all("aws:eks/accessEntry:AccessEntry")} == {
        "admin-user/deployer",
        "admin-role/admin",
        "admin-role/admin-999999999999",
    }


def test_an_access_entry_of_somebody_else_is_refused_before_it_is_created(program: RunStack) -> None:
    """EKS makes the creator of a cluster an administrator, unless told otherwise. It does not tag this entry."""

    def refused(tags: dict[str, str] | None) -> list[str]:
        graph = program({"admins": [ADMIN]}, aws=Aws(entry_tags=tags))
        assert administrators(graph) == [ADMIN, DEPLOYER], "an entry that is not registered would be deleted"
        entries = graph.all("aws:eks/accessEntry:AccessEntry")
        return [entry.name for entry in entries if list(entry.options.hooks.before_create)]

    assert refused(None) == []
    assert refused({"project": "paddle-on-aws"}) == []
    assert refused({}) == ["admin-role/admin", "admin-user/deployer"]
    assert refused({"project": "other"}) == ["admin-role/admin", "admin-user/deployer"]


def test_a_running_cluster_is_not_replaced_because_of_its_creator(dev: Graph) -> None:
    assert "accessConfig.bootstrapClusterCreatorAdminPermissions" in dev.named("eks").options.ignoreChanges


def test_access_entries_have_the_names_of_earlier_versions_as_aliases(program: RunStack) -> None:
    graph = program({"admins": ["arn:aws:iam::123456789012:user/first", ADMIN]})
    for name in ("admin-role/admin", "admin-role/admin-policy"):
        (alias,) = graph.named(name).options.aliases
        assert alias.spec.name == name.replace("role/admin", "1")


SIGNED = "https://host.example:8443/data.tar?X-Amz-Signature=0123456789"


def plain_inputs(graph: Graph) -> str:
    """All inputs and outputs that the engine stores as plain text."""
    inputs = {r.urn: {k: v for k, v in r.inputs.items() if k not in r.secrets} for r in graph.resources.values()}
    return json.dumps([inputs, graph.outputs], default=str)


@pytest.mark.parametrize(
    ("source", "addresses"),
    [({"secure": SIGNED}, [SIGNED]), (["https://host/open", {"secure": SIGNED}], ["https://host/open", SIGNED])],
)
def test_a_secret_data_source_is_only_in_a_kubernetes_secret(
    program: RunStack, source: Any, addresses: list[str]
) -> None:
    graph = program({"data": {"source": source}})
    secret = graph.one("kubernetes:core/v1:Secret", "paddle-data-source")
    assert secret.secrets == {"data"}
    assert json.loads(base64.b64decode(secret.inputs["data"]["DATA_SOURCE"]))["addresses"] == addresses
    name = secret.inputs["metadata"]["name"]
    (container,) = graph.one("kubernetes:batch/v1:Job", "paddle-data").inputs["spec"]["template"]["spec"]["containers"]
    (variable,) = [entry for entry in container["env"] if entry["name"] == "DATA_SOURCE"]
    assert variable["valueFrom"] == {"secretKeyRef": {"name": name, "key": "DATA_SOURCE"}}
    assert not re.search("Signature|host.example", plain_inputs(graph))
    other = program({"data": {"source": {"secure": SIGNED + "a"}}}).one("kubernetes:core/v1:Secret")
    assert other.inputs["metadata"]["name"] != name, "the Job would not be replaced"


def test_a_secret_s3_source_is_not_in_a_plain_policy(program: RunStack) -> None:
    graph = program({"data": {"source": {"secure": "s3://hidden-bucket/data/"}}})
    assert graph.named("data-policy").secrets == {"policy"}
    assert "hidden-bucket" not in plain_inputs(graph)


def test_a_plain_data_source_needs_no_secret(program: RunStack) -> None:
    assert not program({"data": {"source": "https://host/data.tar"}}).all("kubernetes:core/v1:Secret")


def test_a_secret_option_of_the_provider_stays_secret(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text("{clusters: [here], current-context: here}")
    config = {**config_of("dev"), "aws:token": {"secure": "hush"}, "paddle-on-aws:kubeconfig": str(kubeconfig)}
    graph = run(monkeypatch, config, "dev")
    assert graph.one("pulumi:providers:aws").secrets == {"token"}
    assert "hush" not in plain_inputs(graph)


@pytest.mark.parametrize("stack", stack_files())
def test_no_secret_is_in_a_plain_output(shipped: Callable[[str], Graph], stack: str) -> None:
    graph = shipped(stack)
    assert set(graph.secret_outputs) == {"kubeconfig"}
    assert "certificate-authority-data" not in json.dumps(graph.outputs)
    assert graph.named("kubernetes").secrets == {"kubeconfig"}
