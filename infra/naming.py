"""Names of the resources inside a component."""

import pulumi


def prefix(name: str, default: str) -> str:
    """The prefix for the names of a component's children. It is empty for the instance that every stack has."""
    return "" if name == default else f"{name}-"


def named_group(component: pulumi.ComponentResource) -> pulumi.ResourceOptions:
    """Options for a security group with a fixed name. A VPC cannot have two groups with the same name."""
    return pulumi.ResourceOptions(
        parent=component,
        # A new description needs a new group, which would have the same name as the old one.
        ignore_changes=["description"],
        # If the VPC or the name changes, the old group is in use until everything in it is replaced.
        delete_before_replace=False,
    )
