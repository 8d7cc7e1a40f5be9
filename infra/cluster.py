"""The EKS cluster, its workers, and the Kubernetes provider that connects to it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pulumi
import pulumi_aws as aws
import pulumi_kubernetes as k8s

from infra.access import administrators
from infra.addon import addon
from infra.encryption import Encryption
from infra.iam import allow, document
from infra.kubeconfig import kubeconfig
from infra.limited_role import service_role
from infra.network import Network
from infra.pause import addon_options
from infra.refusal import refusal
from infra.security_groups import Direction, rule, security_group
from infra.workers import workers
from settings.aws_facts import AwsFacts
from settings.credentials import cli_credentials
from settings.problem import Problem
from settings.schema import Settings

LOG_DAYS = 30
# Without this, the cluster accepts network policies and ignores them.
ADDON_CONFIGURATION = {"vpc-cni": {"enableNetworkPolicy": "true"}}
CREATOR_ADMIN = "accessConfig.bootstrapClusterCreatorAdminPermissions"
POLICIES = ("AmazonEKSClusterPolicy",)
# EKS uses the key for Kubernetes secrets with the cluster role, for example when it updates the control plane.
SECRETS_ACTIONS = ("kms:Decrypt", "kms:DescribeKey", "kms:Encrypt", "kms:ListGrants")
ANYWHERE = "0.0.0.0/0"


def log_group_exists(name: str, settings: Settings) -> Problem:
    """The log group belongs to another stack, or EKS created it."""
    why = f"needs the log group {settings.log_group}, which exists and does not belong to this stack"
    flags = "--protect=false --generate-code=false"
    importing = f"pulumi import aws:cloudwatch/logGroup:LogGroup {name} {settings.log_group} {flags}"
    deleting = f"aws logs delete-log-group --region {settings.region} --log-group-name {settings.log_group}"
    instead = f"To keep its logs, run `{importing}`. To delete them, run `{deleting}`"
    return Problem("controlPlaneLogs", settings.control_plane_logs, why, instead)


def moved(args: pulumi.ResourceHookArgs, settings: Settings, facts: AwsFacts) -> Problem | None:
    """EKS cannot move a cluster to other subnets."""
    old, new = ((inputs or {})["vpcConfig"]["subnetIds"] for inputs in (args.old_inputs, args.new_inputs))
    if all(subnet in old for subnet in new):
        return None
    why = "needs other subnets than those of the running cluster, and EKS cannot change them"
    instead = "Write the former value, or run `pulumi destroy` first"
    # If the VPC has another range, AWS has no subnet of the stack in it.
    if facts.is_new:
        return Problem("vpcCidr", settings.vpc_cidr, why, instead)
    return Problem("availabilityZones", facts.zones_for(settings), why, instead)


@dataclass(frozen=True)
class ClusterArgs:
    settings: Settings
    facts: AwsFacts
    network: Network
    encryption: Encryption


class Cluster(pulumi.ComponentResource):
    """`kubernetes` is the provider of all objects in the cluster."""

    cluster: aws.eks.Cluster
    worker_group: aws.ec2.SecurityGroup
    coredns: aws.eks.Addon
    identity_provider: aws.iam.OpenIdConnectProvider
    issuer: pulumi.Output[str]
    kubeconfig: pulumi.Output[str]
    kubernetes: k8s.Provider

    def __init__(self, name: str, args: ClusterArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("paddle:infra:Cluster", name, None, opts)
        self._args = args
        settings, facts, network, encryption = args.settings, args.facts, args.network, args.encryption
        control_plane_group = self._group("control-plane")
        self.worker_group = self._group("worker")
        rules = self._rules(control_plane_group, self.worker_group)
        self.cluster = self._control_plane(control_plane_group)
        self.issuer = self.cluster.identities[0].oidcs[0].issuer
        self.identity_provider = aws.iam.OpenIdConnectProvider(
            "service-accounts",
            url=self.issuer,
            client_id_lists=["sts.amazonaws.com"],
            opts=pulumi.ResourceOptions(parent=self),
        )
        # Nodes need a network plugin to become ready. Delete the nodes before it, otherwise network interfaces remain.
        plugins = [self._addon(name) for name in ("vpc-cni", "kube-proxy")]
        needs = [*rules, *network.routes, *plugins]
        subnets = network.worker_subnets
        nodes = workers(self, settings, facts, encryption, self.cluster, self.worker_group, subnets, needs)
        # The pods of CoreDNS need nodes to become ready.
        self.coredns = self._addon("coredns", nodes, addon_options("coredns", settings.paused))
        admins = administrators(self, settings, facts, self.cluster)
        self.kubeconfig = pulumi.Output.secret(self._kubeconfig())
        self.kubernetes = k8s.Provider(
            "kubernetes",
            kubeconfig=self.kubeconfig,
            # Replace the objects only with the cluster. A new cluster has a new endpoint, even with the same name.
            cluster_identifier=self.cluster.endpoint,
            # Pods need nodes, and the provider needs its access entry until all objects are deleted.
            opts=pulumi.ResourceOptions(parent=self, depends_on=[*nodes, self.coredns, *admins]),
        )
        self.register_outputs({"name": self.cluster.name, "endpoint": self.cluster.endpoint})

    def _control_plane(self, group: aws.ec2.SecurityGroup) -> aws.eks.Cluster:
        settings, facts, key_arn = self._args.settings, self._args.facts, self._args.encryption.key_arn
        role, attachments = service_role("cluster", settings, "eks.amazonaws.com", facts.partition, POLICIES, self)
        key_policy = aws.iam.RolePolicy(
            "cluster-key-policy",
            role=role.name,
            policy=document(allow("Secrets", SECRETS_ACTIONS, key_arn)),
            opts=pulumi.ResourceOptions(parent=self),
        )
        logs = [self._log_group()] if settings.control_plane_logs else []
        move = refusal("eks-moves", lambda hook_args: moved(hook_args, settings, facts))
        return aws.eks.Cluster(
            "eks",
            name=settings.cluster_name,
            role_arn=role.arn,
            version=settings.kubernetes_version,
            enabled_cluster_log_types=list(settings.control_plane_logs) or None,
            # The program installs the same add-ons itself, so that they are updated together with the cluster.
            bootstrap_self_managed_addons=False,
            # EKS then upgrades the cluster when standard support ends. Otherwise the price would be six times as high.
            upgrade_policy={"support_type": "STANDARD"},
            access_config={"authentication_mode": "API", "bootstrap_cluster_creator_admin_permissions": False},
            encryption_config={"provider": {"key_arn": key_arn}, "resources": ["secrets"]},
            vpc_config={
                "subnet_ids": [subnet.id for subnet in self._args.network.worker_subnets],
                "security_group_ids": [group.id],
                "endpoint_private_access": True,
                "endpoint_public_access": bool(settings.api_access_cidrs),
                "public_access_cidrs": list(settings.api_access_cidrs) or None,
            },
            opts=pulumi.ResourceOptions(
                parent=self,
                depends_on=[*attachments, key_policy, *logs],
                # EKS reads these only when it creates a cluster. A new value would replace a running cluster.
                ignore_changes=["bootstrapSelfManagedAddons", CREATOR_ADMIN],
                hooks=pulumi.ResourceHookBinding(before_update=[move]),
            ),
        )

    def _addon(
        self, name: str, after: Sequence[pulumi.Resource] = (), opts: pulumi.ResourceOptions | None = None
    ) -> aws.eks.Addon:
        return addon(
            name,
            self.cluster,
            name,
            self._args.facts.addon_versions[name],
            pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(parent=self, depends_on=after)),
            configuration=ADDON_CONFIGURATION.get(name),
        )

    def _log_group(self) -> aws.cloudwatch.LogGroup:
        settings, name = self._args.settings, "cluster-logs"
        # Only the engine knows whether the group belongs to the stack. It calls the hook only before it creates it.
        existing = self._args.facts.has_log_group
        refuse = refusal(f"{name}-exists", log_group_exists(name, settings))
        hooks = pulumi.ResourceHookBinding(before_create=[refuse]) if existing else None
        return aws.cloudwatch.LogGroup(
            name,
            name=settings.log_group,
            retention_in_days=LOG_DAYS,
            # The logs must stay readable. Without retainData, the key of the stack is deleted with the stack.
            kms_key_id=self._args.encryption.key_arn if settings.encrypted_log_group else None,
            # EKS writes logs for a while after the cluster is deleted. Then it would create the group without expiry.
            opts=pulumi.ResourceOptions(
                parent=self,
                retain_on_delete=True,
                hooks=hooks,
                # `pulumi import` cannot set this parent, because after destroy the state does not contain it.
                aliases=[pulumi.Alias(parent=pulumi.ROOT_STACK_RESOURCE)],
            ),
        )

    def _group(self, name: str) -> aws.ec2.SecurityGroup:
        cluster = self._args.settings.cluster_name
        return security_group(
            self, f"{name}-group", f"{cluster}-sg-{name}", f"{cluster}: {name}", self._args.network.vpc
        )

    def _rules(self, control_plane: aws.ec2.SecurityGroup, workers: aws.ec2.SecurityGroup) -> list[pulumi.Resource]:
        settings = self._args.settings
        table: list[tuple[str, aws.ec2.SecurityGroup, Direction, aws.ec2.SecurityGroup | str, int | None]] = [
            ("control-plane-from-vpc", control_plane, "from", settings.vpc_cidr, 443),
            ("control-plane-from-workers", control_plane, "from", workers, 443),
            ("control-plane-to-workers-443", control_plane, "to", workers, 443),
            ("control-plane-to-workers-10250", control_plane, "to", workers, 10250),
            ("workers-from-control-plane", workers, "from", control_plane, 443),
            ("kubelet-from-control-plane", workers, "from", control_plane, 10250),
            ("workers-from-workers", workers, "from", workers, None),
            ("workers-out", workers, "to", ANYWHERE, None),
        ]
        if settings.ssh_public_key:
            table += [(f"ssh-{i}", workers, "from", cidr, 22) for i, cidr in enumerate(settings.api_access_cidrs)]
        return [rule(*row, pulumi.ResourceOptions(parent=self)) for row in table]

    def _kubeconfig(self) -> pulumi.Input[str]:
        settings = self._args.settings
        if settings.kubeconfig:
            return Path(settings.kubeconfig).read_text()
        name, region, credentials = settings.cluster_name, settings.region, cli_credentials(settings.aws)
        return pulumi.Output.all(self.cluster.endpoint, self.cluster.certificate_authority.data).apply(
            lambda values: kubeconfig(name, values[0], values[1], region, credentials)
        )
