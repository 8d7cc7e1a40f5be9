"""Route53: hosted zones and records."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from sandbox.plugins.aws.cloud import Cloud, first, only, pairs, plain, unpaired
from sandbox.plugins.aws.props import (
    COMPUTED,
    REPLACES,
    REQUIRED,
    blocks,
    number,
    text,
    texts,
)
from sandbox.plugins.aws.rows import TAGS, Autoname, Checked, Row, tag_changes
from sandbox.plugins.servicer import ProviderError
from sandbox.plugins.wire import State

IN_SYNC_SECONDS = 300


def _create_zone(cloud: Cloud, want: Checked) -> str:
    vpc = first(want.get("vpcs"))
    parameters: dict[str, Any] = {"VPC": _vpc(cloud, vpc)} if vpc else {}
    answer = cloud(
        "route53:CreateHostedZone",
        Name=want["name"],
        CallerReference=str(uuid.uuid4()),
        HostedZoneConfig={"Comment": want["comment"], "PrivateZone": bool(vpc)},
        **parameters,
    )
    return str(answer["HostedZone"]["Id"]).rsplit("/", 1)[-1]


def _vpc(cloud: Cloud, given: Mapping[str, Any]) -> dict[str, str]:
    return {"VPCId": given["vpcId"], "VPCRegion": cloud.region}


def _read_zone(cloud: Cloud, identity: str, before: Checked) -> State:
    answer = cloud("route53:GetHostedZone", Id=identity)
    zone = answer["HostedZone"]
    name = zone["Name"].rstrip(".")
    records = cloud.pages("route53:ListResourceRecordSets", "ResourceRecordSets", HostedZoneId=identity)
    servers = answer.get("DelegationSet", {}).get("NameServers") or [
        value["Value"]
        for each in records
        if each["Type"] == "NS" and each["Name"] == zone["Name"]
        for value in _values(each)
    ]
    tags = cloud("route53:ListTagsForResource", ResourceType="hostedzone", ResourceId=identity)
    return {
        "arn": f"arn:{cloud.partition()[0]}:route53:::hostedzone/{identity}",
        "zoneId": identity,
        "name": name,
        "comment": zone.get("Config", {}).get("Comment", ""),
        "vpcs": [plain(each) for each in answer.get("VPCs") or []],
        "nameServers": sorted(each.rstrip(".") for each in servers),
        "tagsAll": unpaired(tags["ResourceTagSet"]["Tags"]),
    }


def _values(record: Mapping[str, Any]) -> list[dict[str, str]]:
    return record.get("ResourceRecords") or []


def _update_zone(cloud: Cloud, identity: str, have: Checked, want: Checked, changed: frozenset[str]) -> None:
    if "comment" in changed:
        cloud("route53:UpdateHostedZoneComment", Id=identity, Comment=want["comment"])
    if "vpcs" in changed:
        has, wanted = (
            {(each["VPCId"], each["VPCRegion"]) for each in (_vpc(cloud, vpc) for vpc in state.get("vpcs") or [])}
            for state in (have, want)
        )
        # Associate first: a private zone must always have a VPC.
        for action, vpcs in (("Associate", wanted - has), ("Disassociate", has - wanted)):
            for vpc, region in sorted(vpcs):
                way = "With" if action == "Associate" else "From"
                where = {"VPCId": vpc, "VPCRegion": region}
                cloud(f"route53:{action}VPC{way}HostedZone", HostedZoneId=identity, VPC=where)
    removed, tags = tag_changes(have, want, changed)
    if removed or tags:
        given: dict[str, Any] = {"AddTags": pairs(tags)} if tags else {}
        given |= {"RemoveTagKeys": removed} if removed else {}
        cloud("route53:ChangeTagsForResource", ResourceType="hostedzone", ResourceId=identity, **given)


def _delete_zone(cloud: Cloud, identity: str, state: Checked) -> None:
    cloud("route53:DeleteHostedZone", Id=identity)


def _change(cloud: Cloud, zone: str, *changes: tuple[str, Mapping[str, Any]]) -> None:
    """Change records in one batch, and wait until all name servers have the change."""
    batch = {"Changes": [{"Action": action, "ResourceRecordSet": record} for action, record in changes]}
    change = cloud("route53:ChangeResourceRecordSets", HostedZoneId=zone, ChangeBatch=batch)["ChangeInfo"]

    def in_sync() -> bool | None:
        return True if cloud("route53:GetChange", Id=change["Id"])["ChangeInfo"]["Status"] == "INSYNC" else None

    if change["Status"] != "INSYNC":
        cloud.until(in_sync, f"the records of zone {zone} to be INSYNC", IN_SYNC_SECONDS)


def _record_set(cloud: Cloud, want: Checked) -> dict[str, Any]:
    return {
        "Name": _full_name(cloud, want["zoneId"], want["name"]),
        "Type": want["type"],
        "TTL": want["ttl"],
        "ResourceRecords": [{"Value": each} for each in want["records"]],
    }


def _full_name(cloud: Cloud, zone: str, name: str) -> str:
    """The full name of a record; the program may leave out the name of the zone."""
    apex = cloud("route53:GetHostedZone", Id=zone)["HostedZone"]["Name"].rstrip(".")
    name = name.rstrip(".").lower()
    return name if name == apex or name.endswith(f".{apex}") else f"{name}.{apex}".lstrip(".")


def _create_record(cloud: Cloud, want: Checked) -> str:
    _change(cloud, want["zoneId"], ("CREATE", _record_set(cloud, want)))
    return f"{want['zoneId']}_{want['name']}_{want['type']}"


def _find_record(cloud: Cloud, zone: str, name: str, kind: str) -> Mapping[str, Any]:
    full = _full_name(cloud, zone, name)
    start = {"StartRecordName": full, "StartRecordType": kind, "MaxItems": "1"}
    records = cloud("route53:ListResourceRecordSets", HostedZoneId=zone, **start)["ResourceRecordSets"]
    found: Mapping[str, Any] = only(
        each for each in records if each["Name"].rstrip(".").lower() == full and each["Type"] == kind
    )
    return found


def _place_of_record(identity: str, state: Checked) -> tuple[str, str, str]:
    if state.get("zoneId"):
        return state["zoneId"], state["name"], state["type"]
    zone, found, rest = identity.partition("_")
    name, found, kind = rest.rpartition("_")
    if not found:
        raise ProviderError(f"the id of a record has the form ZONEID_NAME_TYPE, not {identity!r}")
    return zone, name, kind


def _read_record(cloud: Cloud, identity: str, before: Checked) -> State:
    zone, name, kind = _place_of_record(identity, before)
    record = _find_record(cloud, zone, name, kind)
    return {
        "zoneId": zone,
        "name": name,
        "type": kind,
        "fqdn": record["Name"].rstrip("."),
        "ttl": record.get("TTL"),
        "records": [each["Value"] for each in _values(record)],
    }


def _update_record(cloud: Cloud, identity: str, have: Checked, want: Checked, changed: frozenset[str]) -> None:
    changes: list[tuple[str, Mapping[str, Any]]] = [("UPSERT", _record_set(cloud, want))]
    if "type" in changed:
        changes.insert(0, ("DELETE", _find_record(cloud, have["zoneId"], have["name"], have["type"])))
    _change(cloud, want["zoneId"], *changes)


def _delete_record(cloud: Cloud, identity: str, state: Checked) -> None:
    place = _place_of_record(identity, state)
    _change(cloud, place[0], ("DELETE", _find_record(cloud, *place)))


ROWS = [
    Row(
        "aws:route53/zone:Zone",
        inputs={
            "name": text(REPLACES | COMPUTED, same=lambda one, other: one.rstrip(".") == other.rstrip(".")),
            "comment": text(default="Managed by Pulumi"),
            "vpcs": blocks({"vpcId": text(REQUIRED)}),
            **TAGS,
        },
        outputs=["arn", "nameServers", "zoneId"],
        autoname=Autoname(),
        create=_create_zone,
        read=_read_zone,
        update=_update_zone,
        delete=_delete_zone,
    ),
    Row(
        "aws:route53/record:Record",
        inputs={
            "zoneId": text(REQUIRED | REPLACES),
            "name": text(REQUIRED | REPLACES),
            "type": text(REQUIRED),
            "ttl": number(REQUIRED),
            "records": texts(REQUIRED),
        },
        outputs=["fqdn"],
        create=_create_record,
        read=_read_record,
        update=_update_record,
        delete=_delete_record,
    ),
]
