"""Options for all components whose objects are inside the cluster."""

import pulumi
import pulumi_kubernetes as k8s


def in_cluster(provider: k8s.Provider) -> pulumi.ResourceOptions:
    """The cluster's provider, and delete-before-replace for every object."""
    return pulumi.ResourceOptions(providers=[provider], transforms=[_delete_before_replace])


def _delete_before_replace(args: pulumi.ResourceTransformArgs) -> pulumi.ResourceTransformResult:
    # Names are fixed: if a create-before-delete replacement were interrupted, the next run would delete the new object.
    opts = pulumi.ResourceOptions.merge(args.opts, pulumi.ResourceOptions(delete_before_replace=True))
    return pulumi.ResourceTransformResult(args.props, opts)
