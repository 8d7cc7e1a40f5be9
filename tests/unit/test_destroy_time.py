"""The engine deletes in waves, and each wave waits for its slowest resource. No slow resource has a wave of its own."""

import itertools
from typing import Any

import pytest

from tests.unit.conftest import RunStack
from tests.unit.program import Graph

# Seconds to delete a resource, roughly. Types that are not here take less than half a minute.
SECONDS = {
    "aws:eks/nodeGroup:NodeGroup": 240,
    "aws:eks/cluster:Cluster": 150,
    "aws:ec2/natGateway:NatGateway": 60,
    "aws:efs/mountTarget:MountTarget": 30,
    "aws:route53/zone:Zone": 30,
    "aws:route53/record:Record": 30,
    "kubernetes:batch/v1:Job": 30,
}


def upstream(graph: Graph, urn: str) -> set[str]:
    """What the engine's scheduler counts as dependencies of a resource (ScheduleDeletes, DependenciesOf)."""
    resource = graph.resources[urn]
    return {*resource.dependencies, resource.parent, resource.provider.rpartition("::")[0]} & graph.resources.keys()


def seconds(graph: Graph, urn: str) -> int:
    resource = graph.resources[urn]
    if resource.inputs.get("metadata", {}).get("annotations", {}).get("pulumi.com/skipAwait") == "true":
        return 0
    return SECONDS.get(resource.type, 0)


def waves(graph: Graph) -> list[list[str]]:
    """The URNs in the order of a destroy. The engine puts a resource into the wave of its depth, the deepest first."""
    remaining, found = set(graph.resources), list[list[str]]()
    while remaining:
        found.insert(0, sorted(urn for urn in remaining if not upstream(graph, urn) & remaining))
        remaining -= set(found[0])
    return found


def longest_chain(graph: Graph) -> int:
    """The seconds of a destroy in which each resource waits only for its own dependents."""
    total: dict[str, int] = {}
    for urn in itertools.chain(*reversed(waves(graph))):
        total[urn] = seconds(graph, urn) + max((total[each] for each in upstream(graph, urn)), default=0)
    return max(total.values())


@pytest.mark.parametrize("driver", ["nfs", "efsCsi"])
@pytest.mark.parametrize("nat", ["none", "single", "perZone"])
@pytest.mark.parametrize("stack", ["dev", "prod"])
def test_no_slow_resource_has_a_wave_of_its_own(program: RunStack, stack: str, nat: str, driver: str) -> None:
    network: dict[str, Any] = {"natGateways": nat, "storage": {"driver": driver}}
    graph = program(network, stack=stack)
    slowest = [max(wave, key=lambda urn: seconds(graph, urn)) for wave in waves(graph)]
    shown = {graph.resources[urn].name: seconds(graph, urn) for urn in slowest if seconds(graph, urn)}
    assert sum(seconds(graph, urn) for urn in slowest) == longest_chain(graph), f"the slowest of each wave: {shown}"
