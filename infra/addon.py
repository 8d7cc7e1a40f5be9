"""An EKS add-on in the version that EKS recommends for the cluster."""

import json
from collections.abc import Mapping

import pulumi
import pulumi_aws as aws


def addon(
    logical_name: str,
    cluster: aws.eks.Cluster,
    name: str,
    version: str,
    opts: pulumi.ResourceOptions,
    role_arn: pulumi.Input[str] | None = None,
    configuration: Mapping[str, str] | None = None,
) -> aws.eks.Addon:
    """Installs the add-on, or takes over its self-managed copy. It is updated after the cluster."""
    return aws.eks.Addon(
        logical_name,
        cluster_name=cluster.name,
        addon_name=name,
        addon_version=version,
        service_account_role_arn=role_arn,
        configuration_values=json.dumps(configuration) if configuration else None,
        resolve_conflicts_on_create="OVERWRITE",
        resolve_conflicts_on_update="OVERWRITE",
        # In a replacement of the cluster, the old nodes need the old network plugin until they are deleted.
        opts=pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(delete_before_replace=False)),
    )
