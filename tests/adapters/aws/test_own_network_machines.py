"""Machines in the user's own network: their subnet, group and address. The network itself stays unchanged."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.adapters.providers.aws.naming import role_name
from orchestrator.core.job import Resources, VolumeSpec
from orchestrator.core.values.site import Site
from tests.adapters.aws.networks import group_rules, make_network
from tests.adapters.aws.world import RUN, AwsWorld

TAGS = (("cost-center", "42"), ("team", "vision"))


@pytest.mark.parametrize("way", [{"jump_host": "me@bastion"}, {"proxy_command": "nc %h %p"}])
def test_a_private_machine_of_the_default_network_is_open_to_that_network(aws: AwsWorld, way: dict[str, Any]) -> None:
    """Not to the laptop, whose address the machine never sees. The next command knows how to reach it."""
    (cidr,) = (each["CidrBlock"] for each in aws.api.client("ec2").describe_vpcs()["Vpcs"] if each["IsDefault"])
    machine = aws.provider().create(aws.order(site=Site(**way), ssh_from=""))
    (run,) = aws.api.calls("ec2", "RunInstances")
    (rules,) = group_rules(aws.api, run.params["NetworkInterface.1.SecurityGroupId.1"])
    assert [each["CidrIp"] for rule in rules for each in rule["IpRanges"]] == [cidr]
    aws.api.finish_states()
    seen = aws.provider().describe(machine.id)
    assert seen is not None
    assert seen.address is not None
    assert {"jump_host": seen.address.jump_host, "proxy_command": seen.address.proxy_command} == {
        "jump_host": "",
        "proxy_command": "",
        **way,
    }


def test_a_machine_uses_the_user_s_subnet_and_group_unchanged(aws: AwsWorld) -> None:
    """No group is created and nothing is opened; the end of the run leaves the group as it was."""
    _, subnets, group = make_network(aws.api, "us-east-1a", "us-east-1c")
    before = group_rules(aws.api, group)
    provider, site = aws.provider(), Site(security_group=group)
    machine = provider.create(aws.order(zone="us-east-1c", site=site))
    (run,) = aws.api.calls("ec2", "RunInstances")
    assert run.params["NetworkInterface.1.SubnetId"] == subnets[1]
    assert run.params["NetworkInterface.1.SecurityGroupId.1"] == group
    assert run.params["NetworkInterface.1.AssociatePublicIpAddress"] == "true"
    assert not any(name.startswith("Placement") for name in run.params)
    assert not provider.reopen(machine.id, "203.0.113.9/32")
    provider.destroy(machine.id)
    aws.api.finish_states()
    provider.release(RUN)
    assert group_rules(aws.api, group) == before
    changed = {"CreateSecurityGroup", "AuthorizeSecurityGroupIngress", "DeleteSecurityGroup", "DeleteSubnet"}
    after = [call.action for call in aws.api.calls("ec2") if call.at >= run.at]
    assert not changed & set(after)


def test_a_private_machine_has_no_public_address_and_is_open_to_its_network(aws: AwsWorld) -> None:
    """A jump host connects from inside the network. kedge creates its own group in that network."""
    vpc, subnets, _ = make_network(aws.api, "us-east-1a")
    site = Site(subnets=tuple(subnets), jump_host="bastion")
    provider = aws.provider()
    private, public = (
        provider.offers(Resources(instance_type="m5.large", site=each))[0]
        for each in (site, Site(subnets=tuple(subnets)))
    )
    assert str(public.disk_usd_per_hour - private.disk_usd_per_hour) == "0.005000"
    machine = provider.create(aws.order(site=site, ssh_from=""))
    (run,) = aws.api.calls("ec2", "RunInstances")
    assert run.params["NetworkInterface.1.AssociatePublicIpAddress"] == "false"
    (group,) = aws.api.client("ec2").describe_security_groups(
        GroupIds=[run.params["NetworkInterface.1.SecurityGroupId.1"]]
    )["SecurityGroups"]
    assert group["VpcId"] == vpc
    assert [each["CidrIp"] for rule in group["IpPermissions"] for each in rule["IpRanges"]] == ["10.7.0.0/16"]
    aws.api.finish_states()
    seen = aws.provider().describe(machine.id)
    assert seen is not None
    assert seen.address is not None
    assert (seen.address.host.rpartition(".")[0], seen.address.jump_host) == ("10.7.0", "bastion")


def test_everything_that_is_created_has_the_user_s_tags_and_kedge_s_own(aws: AwsWorld) -> None:
    """Machine, disks, interface, spot request, group, role and data volume, so that a bill can be split."""
    volume = VolumeSpec(name="imagenet", target="data", size_gib=5)
    aws.provider().create(aws.order(site=Site(tags=TAGS), volumes=(volume,), spot=True))
    sent = {
        call.action: call.params
        for call in aws.api.calls("ec2")
        if call.action in ("RunInstances", "CreateSecurityGroup", "CreateVolume")
    }
    assert {"RunInstances", "CreateSecurityGroup", "CreateVolume"} == set(sent)
    for action, params in sent.items():
        kinds = [key for key in params if key.startswith("TagSpecification") and key.endswith("ResourceType")]
        assert kinds, action
        for kind in kinds:
            prefix = kind.removesuffix("ResourceType")
            keys = {params[key] for key in params if key.startswith(f"{prefix}Tag.") and key.endswith(".Key")}
            assert {"team", "cost-center", "kedge-run"} <= keys, (action, params[kind])
    for tags in (
        aws.api.client("iam").list_role_tags(RoleName=role_name(RUN))["Tags"],
        aws.api.client("iam").get_instance_profile(InstanceProfileName=role_name(RUN))["InstanceProfile"]["Tags"],
    ):
        assert {"Key": "team", "Value": "vision"} in tags
