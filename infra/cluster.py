"""The EKS control plane, its worker nodes, and the way to speak to it."""

from collections.abc import Sequence
from pathlib import Path

import pulumi
import pulumi_aws as aws
import pulumi_kubernetes as k8s
import yaml

from infra.encryption import Encryption
from infra.iam import assumed_by
from infra.network import Network
from settings.region import Architecture, RegionSupport
from settings.schema import Settings

LOG_TYPES = ("api", "audit", "authenticator", "controllerManager", "scheduler")
LOG_DAYS = 30
CLUSTER_POLICIES = ("AmazonEKSClusterPolicy",)
WORKER_POLICIES = ("AmazonEC2ContainerRegistryPullOnly", "AmazonEKSWorkerNodePolicy", "AmazonEKS_CNI_Policy")
SESSION_MANAGER_POLICY = "AmazonSSMManagedInstanceCore"


def kubeconfig(name: str, endpoint: str, certificate_authority: str, region: str) -> str:
    """How kubectl reaches the cluster, with a token that the AWS CLI makes anew each time."""
    arguments = ["--region", region, "eks", "get-token", "--cluster-name", name, "--output", "json"]
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
            "users": [
                {
                    "name": name,
                    "user": {
                        "exec": {
                            "apiVersion": "client.authentication.k8s.io/v1beta1",
                            "command": "aws",
                            "args": arguments,
                            "interactiveMode": "Never",
                        }
                    },
                }
            ],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
            "current-context": name,
        },
        sort_keys=False,
    )


def ami_type(architecture: Architecture | None, gpus: int) -> str:
    """EKS's name for the Amazon Linux 2023 image of an instance type."""
    family = "ARM_64" if architecture == "arm64" else "x86_64"
    return f"AL2023_{family}_{'NVIDIA' if gpus else 'STANDARD'}"


class Cluster(pulumi.ComponentResource):
    """`kubernetes` is the provider that everything inside the cluster goes through."""

    cluster: aws.eks.Cluster
    worker_group: aws.ec2.SecurityGroup
    nodes: aws.eks.NodeGroup
    identity_provider: aws.iam.OpenIdConnectProvider
    issuer: pulumi.Output[str]
    kubeconfig: pulumi.Output[str]
    kubernetes: k8s.Provider

    def __init__(
        self,
        settings: Settings,
        region_support: RegionSupport,
        network: Network,
        encryption: Encryption,
        opts: pulumi.ResourceOptions,
    ) -> None:
        super().__init__("paddle:infra:Cluster", "cluster", None, opts)
        self._settings, self._region_support = settings, region_support
        child = pulumi.ResourceOptions(parent=self)
        name = settings.cluster_name
        subnet_ids = [subnet.id for subnet in network.worker_subnets]

        control_plane_group = self._group("control-plane", f"{name}-sg-control-plane", network)
        self.worker_group = self._group("worker", f"{name}-sg-worker", network)
        rules = self._rules(control_plane_group)

        cluster_role, cluster_attachments = self._role("cluster", "eks.amazonaws.com", CLUSTER_POLICIES)
        # Made by us, or EKS makes one that keeps every line for ever and outlives destroy.
        logs = aws.cloudwatch.LogGroup(
            "cluster-logs",
            name=settings.log_group,
            retention_in_days=LOG_DAYS,
            kms_key_id=encryption.key.arn,
            opts=child,
        )
        self.cluster = aws.eks.Cluster(
            "eks",
            name=name,
            role_arn=cluster_role.arn,
            version=settings.kubernetes_version,
            enabled_cluster_log_types=LOG_TYPES,
            access_config={"authentication_mode": "API", "bootstrap_cluster_creator_admin_permissions": True},
            encryption_config={"provider": {"key_arn": encryption.key.arn}, "resources": ["secrets"]},
            vpc_config={
                "subnet_ids": subnet_ids,
                "security_group_ids": [control_plane_group.id],
                "endpoint_private_access": True,
                "endpoint_public_access": bool(settings.api_access_cidrs),
                "public_access_cidrs": list(settings.api_access_cidrs) or None,
            },
            opts=pulumi.ResourceOptions(parent=self, depends_on=[*cluster_attachments, logs]),
        )
        self.issuer = self.cluster.identities[0].oidcs[0].issuer
        self.identity_provider = aws.iam.OpenIdConnectProvider(
            "service-accounts", url=self.issuer, client_id_lists=["sts.amazonaws.com"], opts=child
        )
        self.nodes = self._nodes(encryption, subnet_ids, [*rules, *network.ways_out])
        admins = [access for i, arn in enumerate(settings.admins) for access in self._admin(i, arn)]

        certificate = self.cluster.certificate_authority.data
        self.kubeconfig = pulumi.Output.secret(
            Path(settings.kubeconfig).read_text()
            if settings.kubeconfig
            else pulumi.Output.all(name, self.cluster.endpoint, certificate, settings.region).apply(
                lambda values: kubeconfig(*values)
            )
        )
        self.kubernetes = k8s.Provider(
            "kubernetes",
            kubeconfig=self.kubeconfig,
            # A new cluster has a new endpoint even under its old name; nothing else makes objects new.
            cluster_identifier=self.cluster.endpoint,
            # Without nodes and access, pods hang and a destroy ends Unauthorized.
            opts=pulumi.ResourceOptions(parent=self, depends_on=[self.nodes, *admins]),
        )
        self.register_outputs({"name": self.cluster.name, "endpoint": self.cluster.endpoint})

    def _group(self, name: str, physical_name: str, network: Network) -> aws.ec2.SecurityGroup:
        return aws.ec2.SecurityGroup(
            f"{name}-group",
            name=physical_name,
            description=f"{self._settings.cluster_name}: {name}",
            vpc_id=network.vpc.id,
            tags={"Name": physical_name},
            opts=pulumi.ResourceOptions(parent=self),
        )

    def _rules(self, control_plane: aws.ec2.SecurityGroup) -> list[pulumi.Resource]:
        """Who talks to whom: workers among themselves, control plane and workers as EKS needs it, workers out."""
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
                name,
                security_group_id=to.id,
                referenced_security_group_id=source.id,
                ip_protocol="tcp" if port else "-1",
                from_port=port,
                to_port=port,
                opts=child,
            )
            for name, (to, source, port) in ingress.items()
        ]
        rules += [
            aws.vpc.SecurityGroupEgressRule(
                f"control-plane-to-workers-{port}",
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
                "workers-out", security_group_id=workers.id, cidr_ipv4="0.0.0.0/0", ip_protocol="-1", opts=child
            )
        )
        if self._settings.ssh_public_key:
            rules += [
                aws.vpc.SecurityGroupIngressRule(
                    f"ssh-{i}",
                    security_group_id=workers.id,
                    cidr_ipv4=cidr,
                    ip_protocol="tcp",
                    from_port=22,
                    to_port=22,
                    opts=child,
                )
                for i, cidr in enumerate(self._settings.api_access_cidrs)
            ]
        return rules

    def _role(
        self, name: str, service: str, policies: Sequence[str]
    ) -> tuple[aws.iam.Role, list[aws.iam.RolePolicyAttachment]]:
        role = aws.iam.Role(
            f"{name}-role", assume_role_policy=assumed_by(service), opts=pulumi.ResourceOptions(parent=self)
        )
        return role, [
            aws.iam.RolePolicyAttachment(
                f"{name}-{policy}",
                role=role.name,
                policy_arn=f"arn:{self._region_support.partition}:iam::aws:policy/{policy}",
                opts=pulumi.ResourceOptions(parent=self),
            )
            for policy in policies
        ]

    def _nodes(
        self, encryption: Encryption, subnet_ids: Sequence[pulumi.Output[str]], lifelines: Sequence[pulumi.Resource]
    ) -> aws.eks.NodeGroup:
        settings, child = self._settings, pulumi.ResourceOptions(parent=self)
        workers, key = settings.workers, settings.ssh_public_key
        policies = WORKER_POLICIES if key else (*WORKER_POLICIES, SESSION_MANAGER_POLICY)
        role, attachments = self._role("worker", "ec2.amazonaws.com", policies)
        key_pair = aws.ec2.KeyPair("worker-key", public_key=key, opts=child) if key else None
        tags = {**settings.all_tags, "Name": f"{settings.cluster_name}-worker"}
        template = aws.ec2.LaunchTemplate(
            "worker-template",
            update_default_version=True,
            key_name=key_pair.key_name if key_pair else None,
            vpc_security_group_ids=[self.worker_group.id],
            # With one hop, a pod cannot take the node's credentials.
            metadata_options={"http_endpoint": "enabled", "http_tokens": "required", "http_put_response_hop_limit": 1},
            block_device_mappings=[
                {
                    "device_name": "/dev/xvda",
                    "ebs": {
                        "volume_type": "gp3",
                        "volume_size": workers.disk_gib,
                        "encrypted": "true",
                        "kms_key_id": encryption.key.arn,
                        "delete_on_termination": "true",
                    },
                }
            ],
            # What EC2 makes from a template never passes the provider, and so misses its tags.
            tag_specifications=[{"resource_type": kind, "tags": tags} for kind in ("instance", "volume")],
            opts=child,
        )
        return aws.eks.NodeGroup(
            "workers",
            cluster_name=self.cluster.name,
            node_role_arn=role.arn,
            version=self.cluster.version,
            subnet_ids=subnet_ids,
            ami_type=ami_type(self._region_support.architecture, self._region_support.gpus),
            capacity_type="SPOT" if workers.capacity == "spot" else "ON_DEMAND",
            instance_types=[workers.instance_type],
            scaling_config={"desired_size": workers.count, "min_size": workers.count, "max_size": workers.count},
            update_config={"max_unavailable": 1},
            launch_template={"id": template.id, "version": template.latest_version.apply(str)},
            # Nodes join over these and clean up after themselves over these: destroy takes the nodes first.
            opts=pulumi.ResourceOptions(parent=self, depends_on=[*attachments, *lifelines]),
        )

    def _admin(self, i: int, arn: str) -> Sequence[pulumi.Resource]:
        # Its id is its name, so a new one made beside the old would be deleted as the old.
        named = pulumi.ResourceOptions(parent=self, delete_before_replace=True)
        entry = aws.eks.AccessEntry(f"admin-{i}", cluster_name=self.cluster.name, principal_arn=arn, opts=named)
        association = aws.eks.AccessPolicyAssociation(
            f"admin-{i}-policy",
            cluster_name=self.cluster.name,
            principal_arn=entry.principal_arn,
            policy_arn=f"arn:{self._region_support.partition}:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy",
            access_scope={"type": "cluster"},
            opts=named,
        )
        return entry, association
