"""The private DNS zone, with names for the cluster's endpoint and the file system. It works inside the VPC."""

from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from infra.cluster import Cluster
from infra.network import Network
from infra.storage import Storage
from settings.schema import Settings

TTL_SECONDS = 300


@dataclass(frozen=True)
class DnsArgs:
    settings: Settings
    network: Network
    cluster: Cluster
    storage: Storage


class Dns(pulumi.ComponentResource):
    zone: aws.route53.Zone

    def __init__(self, name: str, args: DnsArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("paddle:infra:Dns", name, None, opts)
        settings, child = args.settings, pulumi.ResourceOptions(parent=self)
        # Not force_destroy: it deletes the records with the zone, but as slowly, and needs route53:GetDNSSEC too.
        self.zone = aws.route53.Zone(
            "zone",
            name=settings.zone_name,
            comment=f"Names inside {settings.cluster_name}-vpc",
            vpcs=[{"vpc_id": args.network.vpc.id}],
            opts=child,
        )
        api = args.cluster.cluster.endpoint.apply(lambda url: url.removeprefix("https://"))
        for host, target in {"api": api, "efs": args.storage.file_system.dns_name}.items():
            aws.route53.Record(
                f"{host}-record",
                zone_id=self.zone.zone_id,
                name=f"{host}.{settings.zone_name}",
                type="CNAME",
                ttl=TTL_SECONDS,
                records=[target],
                opts=child,
            )
        self.register_outputs({"zone_id": self.zone.zone_id})
