"""What the rules of a security group must be like."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import AddressValueError, IPv4Network, IPv6Network, NetmaskValueError
from typing import Any

from tests.cloudbox.aws.wire.answers import AwsError

_WITH_PORTS = ("tcp", "udp")
_NAMED = (*_WITH_PORTS, "icmp", "icmpv6", "-1")
_LAST_PORT = 65535
_SOURCES = ("IpRanges", "Ipv6Ranges", "PrefixListIds", "UserIdGroupPairs")


def check_permissions(permissions: list[dict[str, Any]]) -> None:
    """Refuse the rules of a security group that EC2 would refuse.

    fact: aws-group-rules

    Raises:
        AwsError: one of them is no rule.
    """
    seen: set[str] = set()
    for permission in permissions:
        _check_ports(permission)
        if not any(permission.get(name) for name in _SOURCES):
            raise AwsError(
                "MissingParameter", "Missing source specification: include source security group or CIDR information"
            )
        for network in _networks(permission):
            rule = f"{permission.get('IpProtocol')} {permission.get('FromPort')} {permission.get('ToPort')} {network}"
            if rule in seen:
                raise AwsError("InvalidParameterValue", "The same permission must not appear multiple times")
            seen.add(rule)


def _check_ports(permission: dict[str, Any]) -> None:
    protocol = permission.get("IpProtocol")
    if protocol is None:
        raise AwsError("MissingParameter", "The request must contain the parameter IpProtocol")
    if protocol not in _NAMED and not (protocol.isdigit() and int(protocol) < 256):
        raise AwsError("InvalidParameterValue", f"Invalid value '{protocol}' for IP protocol. Unknown protocol.")
    if protocol not in _WITH_PORTS:
        return
    first, last = permission.get("FromPort"), permission.get("ToPort")
    if first is None or last is None:
        raise AwsError("InvalidParameterValue", "Invalid value 'Must specify both from and to ports with TCP/UDP.'")
    if not 0 <= int(first) <= int(last) <= _LAST_PORT:
        raise AwsError("InvalidParameterValue", f"Invalid TCP/UDP port range ({first}:{last})")


def _networks(permission: dict[str, Any]) -> Iterator[str]:
    try:
        for each in permission.get("IpRanges", []):
            yield str(IPv4Network(each["CidrIp"], strict=False))
        for each in permission.get("Ipv6Ranges", []):
            yield str(IPv6Network(each["CidrIpv6"], strict=False))
    except (AddressValueError, NetmaskValueError, KeyError) as err:
        raise AwsError("InvalidParameterValue", f"CIDR block {err} is malformed") from err
