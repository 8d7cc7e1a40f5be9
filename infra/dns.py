"""The private DNS zone, with names for the cluster's endpoint and the file system. It works inside the VPC."""

from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from infra.naming import prefix

TTL_SECONDS = 300


@dataclass(frozen=True)
class DnsArgs:
    zone_name: str
    cluster_name: str
    vpc_id: pulumi.Input[str]
    api_endpoint: pulumi.Output[str]
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
            vpcs=[{"vpc_id": args.vpc_id}],
            opts=pulumi.ResourceOptions(parent=self),
        )
        api = args.api_endpoint.apply(lambda url: url.removeprefix("https://"))
        for host, target in {"api": api, "efs": args.file_system_dns_name}.items():
            aws.route53.Record(
                f"{names}{host}-record",
                zone_id=self.zone.zone_id,
                name=f"{host}.{args.zone_name}",
                type="CNAME",
                ttl=TTL_SECONDS,
                records=[target],
                opts=pulumi.ResourceOptions(parent=self),
            )
        self.register_outputs({"zone_id": self.zone.zone_id})
