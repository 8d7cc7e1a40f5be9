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


def _modify_rules(self: SecurityGroupBackend, group_id: str, rules: dict[str, dict[str, Any]]) -> None:
    """Accept all protocols without ports, and store another group as source: moto stores only IPv4 ranges."""
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
        if new.get("ReferencedGroupId"):
            account = rule.ec2_backend.account_id
            rule.source_group = {"GroupId": new["ReferencedGroupId"], "UserId": account, "OwnerId": account}


def apply() -> None:
    SecurityGroupRule.referenced_group_info = property(_referenced_group)  # type: ignore[assignment]
    SecurityGroupBackend.modify_security_group_rules = _modify_rules  # type: ignore[method-assign]
