"""Dependencies that no input implies. Without one of them, a destroy can fail."""

import itertools
import json

import pytest

from tests.unit.conftest import RunStack, Shape
from tests.unit.program import Graph, Resource, config_of, run, with_workers

JOBS = ("paddle-data", "paddle-cluster-job", "paddle-export")
POLICIES = "aws:iam/rolePolicyAttachment:RolePolicyAttachment"


def one(graph: Graph, name: str) -> Resource:
    """The Job with this name, or the only resource with this name."""
    jobs = [job for job in graph.all("kubernetes:batch/v1:Job") if job.name == name]
    return jobs[0] if jobs else graph.named(name)


def edges(graph: Graph) -> list[tuple[Resource, Resource]]:
    """Pairs of resources: the first must depend on the second. They are found by type, not from the code."""
    nodes, cluster, provider = graph.named("workers"), graph.named("eks"), graph.named("kubernetes")
    volume, claim = graph.named("efsvol"), graph.named("efsvol-claim")
    jobs = [job for name in JOBS for job in graph.all("kubernetes:batch/v1:Job") if job.name == name]
    found = [
        (nodes, r)
        for kind in ("route:Route", "routeTableAssociation:RouteTableAssociation")
        for r in graph.all(f"aws:ec2/{kind}")
    ]
    nats, addresses = graph.all("aws:ec2/natGateway:NatGateway"), graph.all("aws:ec2/eip:Eip")
    found += [(nodes, nat) for nat in nats]
    found += [(nat, graph.named(f"public-subnet-{i}-routes")) for i, nat in enumerate(nats)]
    found += [(r, graph.named("to-internet")) for r in (*nats, *addresses)]
    found += [
        (nodes, rule)
        for rule in graph.resources.values()
        if "securityGroup" in rule.type and "Rule" in rule.type and "efs" not in rule.name
    ]
    found += [(nodes, policy) for policy in graph.all(POLICIES) if policy.name.startswith("worker-")]
    found += [(cluster, policy) for policy in graph.all(POLICIES) if policy.name.startswith("cluster-")]
    found += [(cluster, logs) for logs in graph.all("aws:cloudwatch/logGroup:LogGroup")]
    found += [(nodes, graph.named(addon)) for addon in ("vpc-cni", "kube-proxy")]
    found += [(graph.named("coredns"), nodes), (provider, graph.named("coredns"))]
    found += [(provider, nodes)]
    found += [(provider, r) for r in graph.resources.values() if r.type.startswith("aws:eks/access")]
    found += [(r, provider) for r in graph.resources.values() if r.type.startswith("kubernetes:")]
    found += [(volume, mount) for mount in graph.all("aws:efs/mountTarget:MountTarget")]
    found += [(volume, graph.named("efs-from-workers"))]
    found += [
        (volume, r) for r in graph.all("aws:eks/addon:Addon") + graph.all("aws:efs/fileSystemPolicy:FileSystemPolicy")
    ]
    found += [(claim, volume), *((job, claim) for job in jobs), *itertools.pairwise(reversed(jobs))]
    return found


def test_every_edge_is_there(graph_of_shape: Graph) -> None:
    graph = graph_of_shape
    missing = [f"{start.name} -> {end.name}" for start, end in edges(graph) if not graph.leads(start, end)]
    assert not missing, f"these dependencies are missing: {missing}"


def test_first_preview_shows_every_resource(
    shape: Shape, graph_of_shape: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack, config = shape
    unknown = run(monkeypatch, config, stack, preview=True)
    assert set(unknown.resources) == set(graph_of_shape.resources), "a resource is created inside an apply"


def test_every_resource_belongs_to_a_component_of_its_folder(program: RunStack) -> None:
    graph = program({"admins": ["arn:aws:iam::123456789012:role/a"]}, stack="prod")
    for resource in graph.resources.values():
        if resource.custom and resource.type != "pulumi:providers:aws":
            folder = "infra" if resource.type.startswith(("aws:", "pulumi:")) else "workloads"
            parent = graph.resources[resource.parent]
            assert parent.type.startswith(f"paddle:{folder}:"), f"{resource.urn} belongs to {parent.urn}"


def test_the_provider_of_the_resources_answers_all_questions(program: RunStack) -> None:
    """The default provider of Pulumi would be a second process of the AWS plugin, which needs a second to start."""
    settings = {
        "admins": ["arn:aws:iam::123456789012:role/a", "arn:aws:iam::123456789012:user/b"],
        "controlPlaneLogs": ["audit"],
        "kmsKeyArn": "arn:aws:kms:us-west-2:123456789012:key/usable",
        "notify": {"email": "team@example.com"},
    }
    graph = program(settings)
    assert graph.asked_providers == {graph.one("pulumi:providers:aws").urn}


def test_more_trainers_add_only_node_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = (3, 450, 1000)
    few, some, many = (set(run(monkeypatch, with_workers(config_of("dev"), each)).resources) for each in counts)
    assert few == some
    assert {urn.partition("$")[2] for urn in few ^ many} == {
        "aws:eks/nodeGroup:NodeGroup::workers-1",
        "aws:eks/nodeGroup:NodeGroup::workers-2",
    }


@pytest.mark.parametrize(
    ("name", "upstream"),
    [
        ("efsvol-claim", "efsvol"),
        ("paddle-data", "efsvol-claim"),
        ("paddle-cluster-job", "paddle-data"),
        ("paddle-export", "paddle-cluster-job"),
    ],
)
def test_replacing_a_resource_replaces_the_next_one(dev: Graph, name: str, upstream: str) -> None:
    """The engine replaces a dependent resource only if an input contains the dependency; dependsOn is not enough."""
    spec = one(dev, name).options.propertyDependencies["spec"]
    assert one(dev, upstream).urn in spec.urns, f"{name} would keep running while {upstream} is replaced"


def test_retain_data_protects_the_data_from_destroy(program: RunStack) -> None:
    kept = ("efs", "key")
    for retain in (True, False):
        graph = program({"retainData": retain})
        bucket = graph.one("aws:s3/bucket:Bucket")
        assert {r.name for r in graph.resources.values() if r.protect} == ({*kept, "paddle-dev"} if retain else set())
        assert bucket.inputs["forceDestroy"] is not retain
        assert graph.named("key").inputs["deletionWindowInDays"] == (30 if retain else 7)
        backups = [r.inputs["backupPolicy"]["status"] for r in graph.all("aws:efs/backupPolicy:BackupPolicy")]
        assert backups == (["ENABLED"] if retain else [])


def test_the_provider_tags_everything(program: RunStack) -> None:
    graph = program({"tags": {"team": "nlp"}})
    tags = {"team": "nlp", "project": "paddle-on-aws", "stack": "dev"}
    assert json.loads(graph.named("aws").inputs["defaultTags"]) == {"tags": tags}
    provider = graph.named("aws").urn
    for resource in graph.resources.values():
        if resource.type.startswith("aws:"):
            assert resource.provider.startswith(f"{provider}::"), (
                f"{resource.urn} does not use the provider with the tags"
            )
    by_ec2 = graph.named("worker-template").inputs["tagSpecifications"]
    worker = {**tags, "Name": "paddle-cluster-worker"}
    assert by_ec2 == [{"resourceType": kind, "tags": worker} for kind in ("instance", "volume")]


def test_resources_with_fixed_names_are_deleted_before_replacement(program: RunStack) -> None:
    """Old and new would have the same id, so after an interruption the engine would delete the new one."""
    graph = program({"storage": {"driver": "efsCsi"}})
    found = [r for r in graph.resources.values() if r.custom and r.type.startswith("kubernetes:")]
    assert found
    found += program({"notify": {"email": "team@example.com", "monthlyBudget": 400}}).all("aws:budgets/budget:Budget")
    assert [r.urn for r in found if not r.options.deleteBeforeReplace] == []


def test_what_the_old_cluster_needs_is_deleted_after_it(program: RunStack) -> None:
    """With a new `clusterName`: its nodes need the network plugin, and the engine needs access to its objects."""
    graph = program({"admins": ["arn:aws:iam::123456789012:role/admin"], "storage": {"driver": "efsCsi"}})
    needed = ("aws:eks/addon", "aws:eks/accessEntry", "aws:eks/accessPolicyAssociation", "aws:ec2/securityGroup:")
    found = [r for r in graph.resources.values() if r.custom and r.type.startswith(needed)]
    assert {r.type.partition(":")[2].partition("/")[0] for r in found} == {"eks", "ec2"}
    assert all(r.options.deleteBeforeReplaceDefined for r in found)
    assert [r.urn for r in found if r.options.deleteBeforeReplace] == []
