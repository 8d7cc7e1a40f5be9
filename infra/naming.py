"""Names of the resources inside a component."""

import pulumi


def prefix(name: str, default: str) -> str:
    """What the names of a component's children start with: nothing in the instance that every stack has."""
    return "" if name == default else f"{name}-"


def named_group(component: pulumi.ComponentResource) -> pulumi.ResourceOptions:
    """Options for a security group with a fixed name, which is unique in its VPC."""
    return pulumi.ResourceOptions(
        parent=component,
        # AWS cannot change a description, and the new group would have the name of the old one.
        ignore_changes=["description"],
        # The old group of another VPC or name is in use until everything in it is replaced.
        delete_before_replace=False,
    )
