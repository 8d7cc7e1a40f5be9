"""The private DNS zone, with names for the cluster's endpoint and the file system. It works inside the VPC."""

from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from infra.cluster import Cluster
from infra.naming import prefix
from infra.network import Network

TTL_SECONDS = 300


@dataclass(frozen=True)
class DnsArgs:
    zone_name: str
    cluster_name: str
    network: Network
    cluster: Cluster
    file_system_dns_name: pulumi.Output[str]


class Dns(pulumi.ComponentResource):
    zone: aws.route53.Zone

    def __init__(self, name: str, args: DnsArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("paddle:infra:Dns", name, None, opts)
        names = prefix(name, "dns")
        self.zone = aws.route53.Zone(
            f"{names}zone",
            name=args.zone_name,
            comment=f"Names inside {args.cluster_name}-vpc",
            vpcs=[{"vpc_id": args.network.vpc.id}],
            # Route53 is slow. With this edge, destroy deletes the zone while it deletes the cluster.
            opts=pulumi.ResourceOptions(parent=self, depends_on=args.network.worker_subnets),
        )
        api = args.cluster.cluster.endpoint.apply(lambda url: url.removeprefix("https://"))
        for host, target in {"api": api, "efs": args.file_system_dns_name}.items():
            aws.route53.Record(
                f"{names}{host}-record",
                zone_id=self.zone.zone_id,
                name=f"{host}.{args.zone_name}",
                type="CNAME",
                ttl=TTL_SECONDS,
                records=[target],
                # With this edge, destroy deletes the records while it deletes the workers.
                opts=pulumi.ResourceOptions(parent=self, depends_on=args.cluster.before_nodes),
            )
        self.register_outputs({"zone_id": self.zone.zone_id})
