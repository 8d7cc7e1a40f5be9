"""The private zone: names for the cluster's endpoint and the file system, inside the VPC."""

import pulumi
import pulumi_aws as aws

from infra.cluster import Cluster
from infra.network import Network
from infra.storage import Storage
from settings.schema import Settings

TTL_SECONDS = 300


class Dns(pulumi.ComponentResource):
    zone: aws.route53.Zone

    def __init__(
        self, settings: Settings, network: Network, cluster: Cluster, storage: Storage, opts: pulumi.ResourceOptions
    ) -> None:
        super().__init__("paddle:infra:Dns", "dns", None, opts)
        self.zone = aws.route53.Zone(
            "zone",
            name=settings.zone_name,
            comment=f"Names inside {settings.cluster_name}-vpc",
            vpcs=[{"vpc_id": network.vpc.id}],
            opts=pulumi.ResourceOptions(parent=self),
        )
        api = cluster.cluster.endpoint.apply(lambda url: url.removeprefix("https://"))
        for name, target in {"api": api, "efs": storage.file_system.dns_name}.items():
            aws.route53.Record(
                f"{name}-record",
                zone_id=self.zone.zone_id,
                name=f"{name}.{settings.zone_name}",
                type="CNAME",
                ttl=TTL_SECONDS,
                records=[target],
                opts=pulumi.ResourceOptions(parent=self),
            )
        self.register_outputs({"zone_id": self.zone.zone_id})
