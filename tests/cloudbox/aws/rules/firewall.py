"""Security groups, as far as packets between the machines of a run are concerned: what comes in. What goes out may."""

from __future__ import annotations

from collections.abc import Iterable

from moto.ec2.models.instances import Instance
from moto.ec2.models.security_groups import SecurityGroup, SecurityGroupRule

from tests.cloudbox.machines.network import Admission


def admissions(instance: Instance, others: Iterable[Instance]) -> tuple[Admission, ...]:
    """Return who is admitted to an instance; `others` are the instances of its region. fact: aws-stateful-groups."""
    members: dict[str, list[str]] = {}
    for other in others:
        for group in _groups(other):
            members.setdefault(group.id, []).append(str(other.private_ip))
    rules = [rule for group in _groups(instance) for rule in group.ingress_rules]
    return tuple(_admission(rule, members) for rule in rules)


def _admission(rule: SecurityGroupRule, members: dict[str, list[str]]) -> Admission:
    named = rule.ip_range.get("CidrIp")
    sources = [named] if named else members.get(rule.source_group.get("GroupId", ""), [])
    protocol = "" if rule.ip_protocol in (None, "-1") else str(rule.ip_protocol)
    ports = (rule.from_port, rule.to_port) if rule.from_port is not None and rule.to_port is not None else None
    return Admission(sources=tuple(sources), protocol=protocol, ports=ports)


def _groups(instance: Instance) -> list[SecurityGroup]:
    found = {group.id: group for nic in instance.nics.values() for group in nic.group_set}
    return list(found.values())
