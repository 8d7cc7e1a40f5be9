"""The workers of the cluster: node groups, and what their machines are made from."""

from collections.abc import Sequence

import pulumi
import pulumi_aws as aws

from infra.encryption import Encryption
from infra.limited_role import service_role
from settings.aws_facts import AwsFacts, InstanceType
from settings.schema import NODES_PER_GROUP, Settings

POLICIES = ("AmazonEC2ContainerRegistryPullOnly", "AmazonEKSWorkerNodePolicy", "AmazonEKS_CNI_Policy")
SESSION_MANAGER_POLICY = "AmazonSSMManagedInstanceCore"


def ami_type(kind: InstanceType) -> str:
    """The EKS name of the Amazon Linux 2023 image for an instance type."""
    family = "ARM_64" if kind.architecture == "arm64" else "x86_64"
    return f"AL2023_{family}_{'NVIDIA' if kind.gpus else 'STANDARD'}"


def group_sizes(count: int) -> list[int]:
    """Sizes of the fewest node groups that EKS allows for this many workers. They differ by at most one."""
    groups = max(1, -(-count // NODES_PER_GROUP))
    return [count // groups + (i < count % groups) for i in range(groups)]


def workers(
    component: pulumi.ComponentResource,
    settings: Settings,
    facts: AwsFacts,
    encryption: Encryption,
    cluster: aws.eks.Cluster,
    group: aws.ec2.SecurityGroup,
    subnets: Sequence[aws.ec2.Subnet],
    needs: Sequence[pulumi.Resource],
) -> list[aws.eks.NodeGroup]:
    """The node groups. Nodes need `needs` to join the cluster and to drain, so the nodes must be deleted first."""
    policies = POLICIES if settings.ssh_public_key else (*POLICIES, SESSION_MANAGER_POLICY)
    # The service principal of EC2 depends on the partition, that of EKS does not.
    service = f"ec2.{facts.dns_suffix}"
    role, attachments = service_role("worker", settings, service, facts.partition, policies, component)
    template = _launch_template(component, settings, encryption, group)
    opts = pulumi.ResourceOptions(
        parent=component,
        depends_on=[*attachments, *needs],
        # Without NAT, workers need a public address. A running worker cannot get or lose one, so replace it.
        replacement_trigger="public" if settings.nat_gateways == "none" else "private",
    )
    return [
        aws.eks.NodeGroup(
            # The first group has no number: a stack with one group keeps its name.
            f"workers-{i}" if i else "workers",
            cluster_name=cluster.name,
            node_role_arn=role.arn,
            version=cluster.version,
            subnet_ids=[subnet.id for subnet in subnets[: settings.worker_zones(len(subnets))]],
            ami_type=ami_type(facts.instance_type),
            capacity_type="SPOT" if settings.workers.capacity == "spot" else "ON_DEMAND",
            instance_types=list(settings.workers.instance_types),
            # EKS allows 0 for the other sizes, but not for the maximum.
            scaling_config={"desired_size": size, "min_size": size, "max_size": max(size, 1)},
            update_config={"max_unavailable": 1},
            launch_template={"id": template.id, "version": template.latest_version.apply(str)},
            opts=opts,
        )
        for i, size in enumerate(group_sizes(settings.workers.count))
    ]


def _launch_template(
    component: pulumi.ComponentResource, settings: Settings, encryption: Encryption, group: aws.ec2.SecurityGroup
) -> aws.ec2.LaunchTemplate:
    child, key = pulumi.ResourceOptions(parent=component), settings.ssh_public_key
    key_pair = aws.ec2.KeyPair("worker-key", public_key=key, opts=child) if key else None
    tags = {**settings.all_tags, "Name": f"{settings.cluster_name}-worker"}
    return aws.ec2.LaunchTemplate(
        "worker-template",
        update_default_version=True,
        key_name=key_pair.key_name if key_pair else None,
        vpc_security_group_ids=[group.id],
        # With a hop limit of 1, pods cannot get the credentials of the node.
        metadata_options={"http_endpoint": "enabled", "http_tokens": "required", "http_put_response_hop_limit": 1},
        block_device_mappings=[
            {
                "device_name": "/dev/xvda",
                "ebs": {
                    "volume_type": "gp3",
                    "volume_size": settings.workers.disk_gib,
                    "encrypted": "true",
                    "kms_key_id": encryption.key_arn,
                    "delete_on_termination": "true",
                },
            }
        ],
        # EC2 creates instances and volumes from the template, so the provider cannot tag them.
        tag_specifications=[{"resource_type": kind, "tags": tags} for kind in ("instance", "volume")],
        opts=child,
    )
