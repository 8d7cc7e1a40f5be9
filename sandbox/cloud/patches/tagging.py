"""Resource Groups Tagging patch: GetResources also lists EKS and the EC2 types that moto leaves out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from moto.core.resource_tagging import TaggedResource, make_tag_matcher
from moto.ec2.models import ec2_backends
from moto.eks.models import eks_backends
from moto.resourcegroupstaggingapi.models import ResourceGroupsTaggingAPIBackend

# ID prefixes of EC2 resources, and how their ARNs name the type.
EC2_TYPES = {
    "eipalloc": "elastic-ip",
    "lt": "launch-template",
    "sgr": "security-group-rule",
    "vpce": "vpc-endpoint",
}
_get_resources = ResourceGroupsTaggingAPIBackend._get_resources_generator


def _get_resources_generator(
    self: ResourceGroupsTaggingAPIBackend,
    tag_filters: list[dict[str, Any]] | None = None,
    resource_type_filters: list[str] | None = None,
    resource_arn_list: list[str] | None = None,
) -> Iterator[TaggedResource]:
    yield from _get_resources(self, tag_filters, resource_type_filters, resource_arn_list)
    matches = make_tag_matcher(tag_filters)
    yield from (each for each in _missing(self.account_id, self.region_name) if matches(each.tags))


def _missing(account: str, region: str) -> Iterator[TaggedResource]:
    for cluster in eks_backends[account][region].clusters.values():
        yield TaggedResource(cluster.arn, dict(cluster.tags or {}), "eks:cluster")
        for group in cluster.nodegroups.values():
            yield TaggedResource(group.arn, dict(group.tags or {}), "eks:nodegroup")
    ec2 = ec2_backends[account][region]
    # moto keeps the tags of deleted resources.
    exist = {
        *(address.allocation_id for address in ec2.addresses),
        *ec2.launch_templates,
        *(point.id for point in ec2.vpc_end_points.values() if point.state != "deleted"),
        *(
            rule.id
            for groups in ec2.groups.values()
            for group in groups.values()
            for rule in (*group.ingress_rules, *group.egress_rules)
        ),
    }
    for identity, tags in list(ec2.tags.items()):
        kind = EC2_TYPES.get(identity.rpartition("-")[0])
        if kind and identity in exist:
            arn = f"arn:{ec2.partition}:ec2:{region}:{account}:{kind}/{identity}"
            yield TaggedResource(arn, dict(tags), f"ec2:{kind}")


def apply() -> None:
    ResourceGroupsTaggingAPIBackend._get_resources_generator = _get_resources_generator  # type: ignore[method-assign]
