"""The VPC with its subnets, its routes to the internet and an endpoint for S3."""

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from settings.aws_facts import AwsFacts
from settings.schema import Settings
from settings.subnets import cidr_plan


@dataclass(frozen=True)
class NetworkArgs:
    settings: Settings
    facts: AwsFacts


class Network(pulumi.ComponentResource):
    """`routes` lists the routes and associations that must exist until the workers are deleted."""

    vpc: aws.ec2.Vpc
    worker_subnets: Sequence[aws.ec2.Subnet]
    routes: Sequence[pulumi.Resource]

    def __init__(self, name: str, args: NetworkArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("paddle:infra:Network", name, None, opts)
        settings, child = args.settings, pulumi.ResourceOptions(parent=self)
        self._cluster = settings.cluster_name
        zones = args.facts.zones_for(settings)
        plan = cidr_plan(settings.vpc_cidr, len(zones))
        private = settings.nat_gateways != "none"

        self.vpc = aws.ec2.Vpc(
            "vpc",
            cidr_block=settings.vpc_cidr,
            enable_dns_support=True,
            enable_dns_hostnames=True,
            tags={"Name": f"{self._cluster}-vpc"},
            opts=child,
        )
        internet = aws.ec2.InternetGateway("internet", vpc_id=self.vpc.id, tags={"Name": self._cluster}, opts=child)
        public_routes = self._route_table("public-routes")
        to_internet = aws.ec2.Route(
            "to-internet",
            route_table_id=public_routes.id,
            destination_cidr_block="0.0.0.0/0",
            gateway_id=internet.id,
            opts=child,
        )
        self.worker_subnets = [
            aws.ec2.Subnet(
                f"subnet-{i}",
                vpc_id=self.vpc.id,
                availability_zone=zone,
                cidr_block=cidr,
                map_public_ip_on_launch=not private,
                tags={"Name": f"{self._cluster}-Subnet{i}"},
                opts=child,
            )
            for i, (zone, cidr) in enumerate(zip(zones, plan.workers, strict=True))
        ]
        tables, routes = [public_routes], [to_internet]
        if private:
            count = settings.worker_zones(len(zones)) if settings.nat_gateways == "perZone" else 1
            gateways = [self._nat(i, zones[i], plan.public[i], public_routes, to_internet) for i in range(count)]
            private_tables = [self._route_table(f"private-routes-{i}") for i in range(count)]
            routes += [
                aws.ec2.Route(
                    f"to-nat-{i}",
                    route_table_id=table.id,
                    destination_cidr_block="0.0.0.0/0",
                    nat_gateway_id=gateway.id,
                    opts=child,
                )
                for i, (table, gateway) in enumerate(zip(private_tables, gateways, strict=True))
            ]
            tables += private_tables
        worker_tables = tables[1:] or tables
        associations = [
            aws.ec2.RouteTableAssociation(
                f"subnet-{i}-routes",
                subnet_id=subnet.id,
                route_table_id=worker_tables[i % len(worker_tables)].id,
                opts=child,
            )
            for i, subnet in enumerate(self.worker_subnets)
        ]
        self.routes = [*routes, *associations]
        aws.ec2.VpcEndpoint(
            "s3-endpoint",
            vpc_id=self.vpc.id,
            service_name=f"com.amazonaws.{settings.region}.s3",
            route_table_ids=[table.id for table in tables],
            tags={"Name": f"{self._cluster}-s3"},
            opts=child,
        )
        self.register_outputs({"vpc_id": self.vpc.id, "subnet_ids": [subnet.id for subnet in self.worker_subnets]})

    def _route_table(self, name: str) -> aws.ec2.RouteTable:
        return aws.ec2.RouteTable(
            name,
            vpc_id=self.vpc.id,
            tags={"Name": f"{self._cluster}-{name}"},
            opts=pulumi.ResourceOptions(parent=self),
        )

    def _nat(
        self, i: int, zone: str, cidr: str, routes: aws.ec2.RouteTable, to_internet: aws.ec2.Route
    ) -> aws.ec2.NatGateway:
        """A NAT gateway in its own public subnet."""
        child = pulumi.ResourceOptions(parent=self)
        subnet = aws.ec2.Subnet(
            f"public-subnet-{i}",
            vpc_id=self.vpc.id,
            availability_zone=zone,
            cidr_block=cidr,
            tags={"Name": f"{self._cluster}-PublicSubnet{i}"},
            opts=child,
        )
        association = aws.ec2.RouteTableAssociation(
            f"public-subnet-{i}-routes", subnet_id=subnet.id, route_table_id=routes.id, opts=child
        )
        address = aws.ec2.Eip(
            f"nat-address-{i}",
            domain="vpc",
            tags={"Name": f"{self._cluster}-nat-{i}"},
            # AWS does not detach an internet gateway while the VPC uses a public address, so delete the address first.
            opts=pulumi.ResourceOptions(parent=self, depends_on=[to_internet]),
        )
        return aws.ec2.NatGateway(
            f"nat-{i}",
            subnet_id=subnet.id,
            allocation_id=address.id,
            tags={"Name": f"{self._cluster}-nat-{i}"},
            # Without this association the gateway has no route to the internet.
            opts=pulumi.ResourceOptions(parent=self, depends_on=[association]),
        )
