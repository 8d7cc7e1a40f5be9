"""The EKS cluster, its workers, and the Kubernetes provider that connects to it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pulumi
import pulumi_aws as aws
import pulumi_kubernetes as k8s
import yaml

from infra.addon import addon
from infra.encryption import Encryption, refuse_new_key
from infra.iam import allow, assumed_by, document
from infra.limited_role import limited_role
from infra.naming import named_group, prefix
from infra.network import Network
from infra.pause import addon_options
from settings.aws_facts import AwsFacts, InstanceType
from settings.credentials import CliCredentials, cli_credentials
from settings.problem import Problem
from settings.schema import NODES_PER_GROUP, Settings

LOG_DAYS = 30
# Without this, the cluster accepts network policies and ignores them.
ADDON_CONFIGURATION = {"vpc-cni": {"enableNetworkPolicy": "true"}}
CREATOR_ADMIN = "accessConfig.bootstrapClusterCreatorAdminPermissions"
CLUSTER_POLICIES = ("AmazonEKSClusterPolicy",)
# EKS uses the key for Kubernetes secrets with the cluster role, for example when it updates the control plane.
SECRETS_ACTIONS = ("kms:Decrypt", "kms:DescribeKey", "kms:Encrypt", "kms:ListGrants")
WORKER_POLICIES = ("AmazonEC2ContainerRegistryPullOnly", "AmazonEKSWorkerNodePolicy", "AmazonEKS_CNI_Policy")
SESSION_MANAGER_POLICY = "AmazonSSMManagedInstanceCore"


def kubeconfig(name: str, endpoint: str, certificate_authority: str, region: str, credentials: CliCredentials) -> str:
    """A kubeconfig that gets a new token from the AWS CLI for each session."""
    command = ["eks", "get-token", "--cluster-name", name, "--output", "json"]
    environment = [{"name": key, "value": value} for key, value in credentials.environment.items()]
    executable: dict[str, Any] = {
        "apiVersion": "client.authentication.k8s.io/v1beta1",
        "command": "aws",
        "args": [*credentials.options, "--region", region, *command, *credentials.token_options],
        "interactiveMode": "Never",
    }
    if environment:
        executable["env"] = environment
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {
                    "name": name,
                    "cluster": {"server": endpoint, "certificate-authority-data": certificate_authority},
                }
            ],
            "users": [{"name": name, "user": {"exec": executable}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
            "current-context": name,
        },
        sort_keys=False,
    )


def ami_type(kind: InstanceType) -> str:
    """The EKS name of the Amazon Linux 2023 image for an instance type."""
    family = "ARM_64" if kind.architecture == "arm64" else "x86_64"
    return f"AL2023_{family}_{'NVIDIA' if kind.gpus else 'STANDARD'}"


def group_sizes(count: int) -> list[int]:
    """Sizes of the fewest node groups that EKS allows for this many workers. They differ by at most one."""
    groups = max(1, -(-count // NODES_PER_GROUP))
    return [count // groups + (i < count % groups) for i in range(groups)]


def refuse_log_group(name: str, settings: Settings) -> pulumi.ResourceHook:
    """A hook that stops a preview or an update if the log group exists. The error shows how to adopt or delete it."""

    def refuse(_: pulumi.ResourceHookArgs) -> None:
        why = f"needs the log group {settings.log_group}, which exists and does not belong to this stack"
        flags = "--protect=false --generate-code=false"
        importing = f"pulumi import aws:cloudwatch/logGroup:LogGroup {name} {settings.log_group} {flags}"
        deleting = f"aws logs delete-log-group --region {settings.region} --log-group-name {settings.log_group}"
        instead = f"To keep its logs, run `{importing}`. To delete them, run `{deleting}`"
        raise RuntimeError(str(Problem("controlPlaneLogs", settings.control_plane_logs, why, instead)))

    return pulumi.ResourceHook(f"{name}-exists", refuse, pulumi.ResourceHookOptions(on_dry_run=True))


def refuse_access_entry(name: str, arn: str, settings: Settings) -> pulumi.ResourceHook:
    """A hook that stops a preview or an update before it creates a second access entry for an administrator."""

    def refuse(_: pulumi.ResourceHookArgs) -> None:
        why = f"has an access entry in the cluster {settings.cluster_name} that does not belong to this stack"
        where = f"--region {settings.region} --cluster-name {settings.cluster_name}"
        deleting = f"aws eks delete-access-entry {where} --principal-arn {arn}"
        instead = f"Run `{deleting}`. The next `pulumi up` creates it again"
        raise RuntimeError(str(Problem("deployer and admins", arn, why, instead)))

    return pulumi.ResourceHook(f"{name}-exists", refuse, pulumi.ResourceHookOptions(on_dry_run=True))


def refuse_new_subnets(name: str, vpc_cidr: str, zones: Sequence[str]) -> pulumi.ResourceHook:
    """A hook that stops a preview or an update before it moves the cluster to subnets that EKS rejects."""

    def refuse(args: pulumi.ResourceHookArgs) -> None:
        old, new = ((inputs or {})["vpcConfig"]["subnetIds"] for inputs in (args.old_inputs, args.new_inputs))
        if any(subnet not in old for subnet in new):
            why = "differ from those of the running cluster, and EKS cannot change them"
            instead = "Write the former values, or run `pulumi destroy` first"
            raise RuntimeError(str(Problem("vpcCidr and availabilityZones", [vpc_cidr, *zones], why, instead)))

    return pulumi.ResourceHook(f"{name}-moves", refuse, pulumi.ResourceHookOptions(on_dry_run=True))


@dataclass(frozen=True)
class ClusterArgs:
    settings: Settings
    facts: AwsFacts
    network: Network
    encryption: Encryption


class Cluster(pulumi.ComponentResource):
    """`kubernetes` is the provider of all objects in the cluster. The nodes must be deleted before `before_nodes`."""

    settings: Settings
    cluster: aws.eks.Cluster
    before_nodes: Sequence[pulumi.Resource]
    worker_group: aws.ec2.SecurityGroup
    nodes: Sequence[aws.eks.NodeGroup]
    coredns: aws.eks.Addon
    identity_provider: aws.iam.OpenIdConnectProvider
    issuer: pulumi.Output[str]
    kubeconfig: pulumi.Output[str]
    kubernetes: k8s.Provider

    def __init__(self, name: str, args: ClusterArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("paddle:infra:Cluster", name, None, opts)
        self._prefix, self._args = prefix(name, "cluster"), args
        settings, network = args.settings, args.network
        self.settings = settings
        child = pulumi.ResourceOptions(parent=self)
        cluster_name = settings.cluster_name
        subnet_ids = [subnet.id for subnet in network.worker_subnets]

        control_plane_group = self._group("control-plane", f"{cluster_name}-sg-control-plane", network.vpc.id)
        self.worker_group = self._group("worker", f"{cluster_name}-sg-worker", network.vpc.id)
        rules = self._rules(control_plane_group)

        cluster_role, cluster_attachments = self._role("cluster", "eks.amazonaws.com", CLUSTER_POLICIES)
        key_policy = aws.iam.RolePolicy(
            f"{self._prefix}cluster-key-policy",
            role=cluster_role.name,
            policy=document(allow("Secrets", SECRETS_ACTIONS, args.encryption.key_arn)),
            opts=child,
        )
        logs = [self._log_group()] if settings.control_plane_logs else []
        zones = args.facts.zones_for(settings)
        new_subnets = refuse_new_subnets(f"{self._prefix}eks", settings.vpc_cidr, zones)
        new_key = refuse_new_key(
            f"{self._prefix}eks",
            args.encryption.existing,
            lambda inputs: inputs["encryptionConfig"]["provider"].get("keyArn"),
        )
        hooks = pulumi.ResourceHookBinding(
            before_create=[*args.encryption.before_use],
            before_update=[new_subnets, new_key],
        )
        self.cluster = aws.eks.Cluster(
            f"{self._prefix}eks",
            name=cluster_name,
            role_arn=cluster_role.arn,
            version=settings.kubernetes_version,
            enabled_cluster_log_types=list(settings.control_plane_logs) or None,
            # The program installs the same add-ons itself, so that they are updated together with the cluster.
            bootstrap_self_managed_addons=False,
            # EKS then upgrades the cluster when standard support ends. Otherwise the price would be six times as high.
            upgrade_policy={"support_type": "STANDARD"},
            access_config={"authentication_mode": "API", "bootstrap_cluster_creator_admin_permissions": False},
            encryption_config={"provider": {"key_arn": args.encryption.key_arn}, "resources": ["secrets"]},
            vpc_config={
                "subnet_ids": subnet_ids,
                "security_group_ids": [control_plane_group.id],
                "endpoint_private_access": True,
                "endpoint_public_access": bool(settings.api_access_cidrs),
                "public_access_cidrs": list(settings.api_access_cidrs) or None,
            },
            opts=pulumi.ResourceOptions(
                parent=self,
                depends_on=[*cluster_attachments, key_policy, *logs],
                # EKS reads these only when it creates a cluster. A new value would replace a running cluster.
                ignore_changes=["bootstrapSelfManagedAddons", CREATOR_ADMIN],
                hooks=hooks,
            ),
        )
        self.issuer = self.cluster.identities[0].oidcs[0].issuer
        self.identity_provider = aws.iam.OpenIdConnectProvider(
            f"{self._prefix}service-accounts",
            url=self.issuer,
            client_id_lists=["sts.amazonaws.com"],
            opts=child,
        )
        # Nodes need a network plugin to become ready. Delete the nodes before it, otherwise network interfaces remain.
        plugins = [self._addon(name) for name in ("vpc-cni", "kube-proxy")]
        worker_subnets = subnet_ids[: settings.worker_zones(len(subnet_ids))]
        self.before_nodes = [*rules, *network.routes, *plugins]
        self.nodes = self._nodes(worker_subnets, self.before_nodes)
        # The pods of CoreDNS need nodes to become ready.
        self.coredns = self._addon("coredns", self.nodes, addon_options(f"{self._prefix}coredns", settings.paused))
        admins = [access for arn in args.facts.administrators(settings) for access in self._admin(arn)]

        certificate = self.cluster.certificate_authority.data
        self.kubeconfig = pulumi.Output.secret(
            Path(settings.kubeconfig).read_text()
            if settings.kubeconfig
            else pulumi.Output.all(self.cluster.endpoint, certificate).apply(
                lambda values: kubeconfig(
                    cluster_name, values[0], values[1], settings.region, cli_credentials(settings.aws)
                )
            )
        )
        self.kubernetes = k8s.Provider(
            f"{self._prefix}kubernetes",
            kubeconfig=self.kubeconfig,
            # Replace the objects only with the cluster. A new cluster has a new endpoint, even with the same name.
            cluster_identifier=self.cluster.endpoint,
            # Pods need nodes, and the provider needs its access entry until all objects are deleted.
            opts=pulumi.ResourceOptions(parent=self, depends_on=[*self.nodes, self.coredns, *admins]),
        )
        self.register_outputs({"name": self.cluster.name, "endpoint": self.cluster.endpoint})

    def _addon(
        self, name: str, after: Sequence[pulumi.Resource] = (), opts: pulumi.ResourceOptions | None = None
    ) -> aws.eks.Addon:
        return addon(
            f"{self._prefix}{name}",
            self.cluster,
            name,
            self._args.facts.addon_versions[name],
            pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(parent=self, depends_on=after)),
            configuration=ADDON_CONFIGURATION.get(name),
        )

    def _log_group(self) -> aws.cloudwatch.LogGroup:
        settings = self._args.settings
        name = f"{self._prefix}cluster-logs"
        # Only the engine knows whether the group belongs to the stack. It calls the hook only before it creates it.
        existing = self._args.facts.has_log_group
        hooks = pulumi.ResourceHookBinding(before_create=[refuse_log_group(name, settings)]) if existing else None
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

    def _group(self, name: str, physical_name: str, vpc_id: pulumi.Input[str]) -> aws.ec2.SecurityGroup:
        return aws.ec2.SecurityGroup(
            f"{self._prefix}{name}-group",
            name=physical_name,
            description=f"{self._args.settings.cluster_name}: {name}",
            vpc_id=vpc_id,
            tags={"Name": physical_name},
            opts=named_group(self),
        )

    def _rules(self, control_plane: aws.ec2.SecurityGroup) -> list[pulumi.Resource]:
        """Allowed traffic: between workers, between control plane and workers, and from workers to anywhere."""
        child = pulumi.ResourceOptions(parent=self)
        workers = self.worker_group
        ingress = {
            # Name: (to, from, port)
            "control-plane-from-workers": (control_plane, workers, 443),
            "workers-from-control-plane": (workers, control_plane, 443),
            "kubelet-from-control-plane": (workers, control_plane, 10250),
            "workers-from-workers": (workers, workers, None),
        }
        rules: list[pulumi.Resource] = [
            aws.vpc.SecurityGroupIngressRule(
                f"{self._prefix}{name}",
                security_group_id=to.id,
                referenced_security_group_id=source.id,
                ip_protocol="tcp" if port else "-1",
                from_port=port,
                to_port=port,
                opts=child,
            )
            for name, (to, source, port) in ingress.items()
        ]
        rules.append(
            aws.vpc.SecurityGroupIngressRule(
                f"{self._prefix}control-plane-from-vpc",
                security_group_id=control_plane.id,
                cidr_ipv4=self._args.settings.vpc_cidr,
                ip_protocol="tcp",
                from_port=443,
                to_port=443,
                opts=child,
            )
        )
        rules += [
            aws.vpc.SecurityGroupEgressRule(
                f"{self._prefix}control-plane-to-workers-{port}",
                security_group_id=control_plane.id,
                referenced_security_group_id=workers.id,
                ip_protocol="tcp",
                from_port=port,
                to_port=port,
                opts=child,
            )
            for port in (443, 10250)
        ]
        rules.append(
            aws.vpc.SecurityGroupEgressRule(
                f"{self._prefix}workers-out",
                security_group_id=workers.id,
                cidr_ipv4="0.0.0.0/0",
                ip_protocol="-1",
                opts=child,
            )
        )
        if self._args.settings.ssh_public_key:
            rules += [
                aws.vpc.SecurityGroupIngressRule(
                    f"{self._prefix}ssh-{i}",
                    security_group_id=workers.id,
                    cidr_ipv4=cidr,
                    ip_protocol="tcp",
                    from_port=22,
                    to_port=22,
                    opts=child,
                )
                for i, cidr in enumerate(self._args.settings.api_access_cidrs)
            ]
        return rules

    def _role(
        self, name: str, service: str, policies: Sequence[str]
    ) -> tuple[aws.iam.Role, list[aws.iam.RolePolicyAttachment]]:
        role = limited_role(f"{self._prefix}{name}-role", self.settings, assumed_by(service), self)
        return role, [
            aws.iam.RolePolicyAttachment(
                f"{self._prefix}{name}-{policy}",
                role=role.name,
                policy_arn=f"arn:{self._args.facts.partition}:iam::aws:policy/{policy}",
                opts=pulumi.ResourceOptions(parent=self),
            )
            for policy in policies
        ]

    def _nodes(
        self, subnet_ids: Sequence[pulumi.Output[str]], prerequisites: Sequence[pulumi.Resource]
    ) -> list[aws.eks.NodeGroup]:
        settings, child = self._args.settings, pulumi.ResourceOptions(parent=self)
        workers, key = settings.workers, settings.ssh_public_key
        policies = WORKER_POLICIES if key else (*WORKER_POLICIES, SESSION_MANAGER_POLICY)
        # The service principal of EC2 depends on the partition, that of EKS does not.
        service = f"ec2.{self._args.facts.dns_suffix}"
        role, attachments = self._role("worker", service, policies)
        key_pair = aws.ec2.KeyPair(f"{self._prefix}worker-key", public_key=key, opts=child) if key else None
        tags = {**settings.all_tags, "Name": f"{settings.cluster_name}-worker"}
        template = aws.ec2.LaunchTemplate(
            f"{self._prefix}worker-template",
            update_default_version=True,
            key_name=key_pair.key_name if key_pair else None,
            vpc_security_group_ids=[self.worker_group.id],
            # With a hop limit of 1, pods cannot get the credentials of the node.
            metadata_options={"http_endpoint": "enabled", "http_tokens": "required", "http_put_response_hop_limit": 1},
            block_device_mappings=[
                {
                    "device_name": "/dev/xvda",
                    "ebs": {
                        "volume_type": "gp3",
                        "volume_size": workers.disk_gib,
                        "encrypted": "true",
                        "kms_key_id": self._args.encryption.key_arn,
                        "delete_on_termination": "true",
                    },
                }
            ],
            # EC2 creates instances and volumes from the template, so the provider cannot tag them.
            tag_specifications=[{"resource_type": kind, "tags": tags} for kind in ("instance", "volume")],
            opts=child,
        )
        # Nodes need these routes, rules and policies to join and to drain, so the nodes must be deleted first.
        opts = pulumi.ResourceOptions(
            parent=self,
            depends_on=[*attachments, *prerequisites],
            # Without NAT, workers need a public address. A running worker cannot get or lose one, so replace it.
            replacement_trigger="public" if settings.nat_gateways == "none" else "private",
        )
        return [
            aws.eks.NodeGroup(
                # The first group has no number: a stack with one group keeps its name.
                f"{self._prefix}workers-{i}" if i else f"{self._prefix}workers",
                cluster_name=self.cluster.name,
                node_role_arn=role.arn,
                version=self.cluster.version,
                subnet_ids=subnet_ids,
                ami_type=ami_type(self._args.facts.instance_type),
                capacity_type="SPOT" if workers.capacity == "spot" else "ON_DEMAND",
                instance_types=list(workers.instance_types),
                # EKS allows 0 for the other sizes, but not for the maximum.
                scaling_config={"desired_size": size, "min_size": size, "max_size": max(size, 1)},
                update_config={"max_unavailable": 1},
                launch_template={"id": template.id, "version": template.latest_version.apply(str)},
                opts=opts,
            )
            for i, size in enumerate(group_sizes(workers.count))
        ]

    def _admin(self, arn: str) -> Sequence[pulumi.Resource]:
        """Make a role or user an administrator. The resource name contains its name, not its position in a list."""
        account, principal = arn.split(":", 5)[4:]
        name = f"{self._prefix}admin-{principal}"
        if account != self._args.facts.account:
            name += f"-{account}"
        options = self._named_admin(arn, "")
        # Only the engine knows whether the entry belongs to the stack, for example after its tags were removed.
        if arn in self._args.facts.access.foreign:
            refuse = refuse_access_entry(name, arn, self.settings)
            hooks = pulumi.ResourceHookBinding(before_create=[refuse])
            options = pulumi.ResourceOptions.merge(options, pulumi.ResourceOptions(hooks=hooks))
        entry = aws.eks.AccessEntry(name, cluster_name=self.cluster.name, principal_arn=arn, opts=options)
        association = aws.eks.AccessPolicyAssociation(
            f"{name}-policy",
            cluster_name=self.cluster.name,
            principal_arn=entry.principal_arn,
            policy_arn=f"arn:{self._args.facts.partition}:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy",
            access_scope={"type": "cluster"},
            opts=self._named_admin(arn, "-policy"),
        )
        return entry, association

    def _named_admin(self, arn: str, suffix: str) -> pulumi.ResourceOptions:
        admins = self._args.settings.admins
        # In earlier versions, the name contained the position in `admins`.
        old = [pulumi.Alias(name=f"{self._prefix}admin-{admins.index(arn)}{suffix}")] if arn in admins else []
        # In a replacement of the cluster, the engine needs the old entry until the objects in it are deleted.
        return pulumi.ResourceOptions(parent=self, delete_before_replace=False, aliases=old)
