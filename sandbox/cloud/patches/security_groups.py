"""Security group patches: references within one account, and changes of a rule that moto rejects or ignores."""

from __future__ import annotations

from typing import Any

from moto.ec2.models.security_groups import SecurityGroupBackend, SecurityGroupRule

_modify = SecurityGroupBackend.modify_security_group_rules


def _referenced_group(self: SecurityGroupRule) -> dict[str, str] | None:
    """Without the user ID: a provider that does not know its account ID takes the group for a foreign one."""
    source = self.source_group
    if not source:
        return None
    foreign = source.get("UserId", "") != self.ec2_backend.account_id
    return {"GroupId": source["GroupId"]} | ({"UserId": source["UserId"]} if foreign else {})


def _description(self: SecurityGroupRule) -> str | None:
    return self.ip_range.get("Description") or self.source_group.get("Description")


def _modify_rules(self: SecurityGroupBackend, group_id: str, rules: dict[str, dict[str, Any]]) -> None:
    """Accept all protocols without ports, and store every kind of source: moto stores only IPv4 ranges."""
    for identity, new in rules.items():
        all_protocols = new.get("IpProtocol") == "-1"
        # moto requires ports even where AWS does not.
        _modify(self, group_id, {identity: {"FromPort": -1, "ToPort": -1, **new} if all_protocols else new})
        group = self.get_security_group_by_name_or_id(group_id)
        rule = group.get_rule(identity) if group else None
        if rule is None:
            continue
        if all_protocols:
            rule.from_port = rule.to_port = None
        if new.get("CidrIpv6"):
            rule.ip_range["CidrIpv6"] = new["CidrIpv6"]
        if new.get("PrefixListId"):
            rule.prefix_list_id = new["PrefixListId"]
        if new.get("ReferencedGroupId"):
            described = {"Description": new["Description"]} if new.get("Description") else {}
            account = rule.ec2_backend.account_id
            source = {"GroupId": new["ReferencedGroupId"], "UserId": account, "OwnerId": account}
            rule.source_group = source | described


def apply() -> None:
    SecurityGroupRule.referenced_group_info = property(_referenced_group)  # type: ignore[assignment]
    SecurityGroupRule.description = property(_description)  # type: ignore[assignment]
    SecurityGroupBackend.modify_security_group_rules = _modify_rules  # type: ignore[method-assign]
