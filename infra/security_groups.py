"""Security groups with fixed names, and their rules."""

from typing import Literal

import pulumi
import pulumi_aws as aws

Direction = Literal["from", "to"]


def security_group(
    component: pulumi.ComponentResource, logical_name: str, name: str, description: str, vpc: aws.ec2.Vpc
) -> aws.ec2.SecurityGroup:
    """A security group without rules. A VPC cannot have two groups with the same name."""
    return aws.ec2.SecurityGroup(
        logical_name,
        name=name,
        description=description,
        vpc_id=vpc.id,
        tags={"Name": name},
        opts=pulumi.ResourceOptions(
            parent=component,
            # A new description needs a new group, which would have the same name as the old one.
            ignore_changes=["description"],
            # If the VPC or the name changes, the old group is in use until everything in it is replaced.
            delete_before_replace=False,
        ),
    )


def rule(
    name: str,
    group: aws.ec2.SecurityGroup,
    direction: Direction,
    peer: aws.ec2.SecurityGroup | str,
    port: int | None,
    opts: pulumi.ResourceOptions,
) -> pulumi.Resource:
    """Allow traffic from or to a security group or an IPv4 range: to one TCP port, or without `port` all traffic."""
    kind = aws.vpc.SecurityGroupIngressRule if direction == "from" else aws.vpc.SecurityGroupEgressRule
    return kind(
        name,
        security_group_id=group.id,
        referenced_security_group_id=None if isinstance(peer, str) else peer.id,
        cidr_ipv4=peer if isinstance(peer, str) else None,
        ip_protocol="tcp" if port else "-1",
        from_port=port,
        to_port=port,
        opts=opts,
    )
