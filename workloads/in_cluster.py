"""How everything inside the cluster is made: by the cluster's provider, and never beside what it replaces."""

import pulumi
import pulumi_kubernetes as k8s


def in_cluster(provider: k8s.Provider) -> pulumi.ResourceOptions:
    """Options that a component hands on to all its children."""
    return pulumi.ResourceOptions(providers=[provider], transformations=[_delete_first])


def _delete_first(resource: pulumi.ResourceTransformationArgs) -> pulumi.ResourceTransformationResult:
    # An engine interrupted in a replacement would else make the new object, and delete it by the old one's name.
    first = pulumi.ResourceOptions(delete_before_replace=True)
    return pulumi.ResourceTransformationResult(resource.props, pulumi.ResourceOptions.merge(resource.opts, first))
