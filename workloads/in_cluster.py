"""Options for the objects inside the cluster."""

from collections.abc import Sequence

import pulumi


def object_options(
    component: pulumi.ComponentResource, needs: Sequence[pulumi.Resource] = ()
) -> pulumi.ResourceOptions:
    """Options for an object that belongs to a component."""
    # Names are fixed: if a create-before-delete replacement were interrupted, the next run would delete the new object.
    return pulumi.ResourceOptions(parent=component, depends_on=list(needs), delete_before_replace=True)
