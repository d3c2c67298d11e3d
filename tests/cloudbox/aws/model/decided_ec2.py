"""What is decided of EC2."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.cloudbox.aws.model.decisions import DESCRIBES, FILTERS, STATE, Decision, never, no_rules
from tests.cloudbox.aws.model.rules import Checked, Length, Matching, NotWith, OneOf, OnlyWith

_RULES_OF_GROUPS = "groups.py checks it"


def _is_not_small(price: Any, _beside: Mapping[str, Any]) -> str | None:
    return None if float(price) > 0.001 else "it must be more than USD $0.001"


def _is_encrypted(_key: Any, beside: Mapping[str, Any]) -> str | None:
    return None if beside.get("Encrypted") == "true" else "the encrypted state must be true"


def _is_burstable(_credits: Any, beside: Mapping[str, Any]) -> str | None:
    instance_type = str(beside.get("InstanceType"))
    return None if instance_type.startswith("t") else f"{instance_type} has no CPU credits"


EC2_GROUPS = (
    no_rules("ec2.IpPermission.*", "", _RULES_OF_GROUPS),
    no_rules("ec2.*Range.Cidr*", "", _RULES_OF_GROUPS),
    no_rules("ec2.*SecurityGroup*Request.*GroupName", "VPC", STATE),
    no_rules("ec2.*SecurityGroup*Request.GroupName", "must specify either", "NEEDED says so"),
    never("ec2.*SecurityGroupIngressRequest.ToPort"),
    never("ec2.*SecurityGroupIngressRequest.CidrIp"),
    never("ec2.*SecurityGroupIngressRequest.SourceSecurityGroupName"),
    no_rules("ec2.*SecurityGroupIngressRequest.IpPermissions", "", _RULES_OF_GROUPS),
    never("ec2.CreatePlacementGroupRequest.PartitionCount"),
    never("ec2.CreatePlacementGroupRequest.ParentGroupId"),
    Decision(members="ec2.CreatePlacementGroupRequest.GroupName", says="255", rules=(Length(255),)),
    no_rules("ec2.CreatePlacementGroupRequest.GroupName", "unique", STATE),
    no_rules("ec2.DescribePlacementGroupsRequest.GroupNames", "", "about groups that are shared with the account"),
)
EC2_VOLUMES = (
    Decision(members="ec2.AttributeBooleanValue.Value", says="", rules=(OneOf(("true", "false")),)),
    Decision(
        members="ec2.CreateManagedPrefixListRequest.PrefixListName",
        says="cannot start with",
        rules=(Matching("(?!com\\.amazonaws).*", "it may not begin with com.amazonaws"),),
    ),
    Decision(members="ec2.CreateManagedPrefixListRequest.ClientToken", says="255", rules=(Length(255),)),
    Decision(members="ec2.CreateVolumeRequest.KmsKeyId", says="must be `true`", rules=(Checked(_is_encrypted),)),
    Decision(members="ec2.*.VolumeInitializationRate", says="only for volumes", rules=(OnlyWith("SnapshotId"),)),
    Decision(members="ec2.EbsBlockDevice.Throughput", says="valid only for", rules=(OnlyWith("VolumeType", ("gp3",)),)),
    Decision(
        members="ec2.CreateVolumeRequest.Throughput", says="volumes only", rules=(OnlyWith("VolumeType", ("gp3",)),)
    ),
    no_rules("ec2.*.VolumeInitializationRate", "fast snapshot restore", DESCRIBES),
    no_rules("ec2.*.Iops", "Nitro", STATE),
    no_rules("ec2.*.Iops", "Other instances", STATE),
    no_rules("ec2.*.Iops", "On other instances", STATE),
    no_rules("ec2.CreateVolumeRequest.S*", "either a snapshot ID or a volume size", "NEEDED says so"),
    no_rules("ec2.EbsBlockDevice.VolumeSize", "either a snapshot ID", "the image's mapping names the snapshot"),
    no_rules("ec2.EbsBlockDevice.Encrypted", "", "about CreateImage and RegisterImage"),
    no_rules("ec2.CreateVolumeRequest.Encrypted", "", STATE),
    no_rules("ec2.CreateVolumeRequest.VolumeType", "boot volumes", DESCRIBES),
    no_rules("ec2.*tachVolumeRequest.*Id", "", STATE),
    no_rules("ec2.ModifySnapshotTierRequest.StorageTier", "", "the enumeration says so"),
    no_rules("ec2.*Request.Force", "file system", DESCRIBES),
    never("ec2.Create*Request.OutpostArn"),
    never("ec2.CreateVolumeRequest.MultiAttachEnabled"),
)
EC2_LAUNCHES = (
    Decision(
        members="ec2.RunInstancesRequest.SecurityGroup*",
        says="network interface",
        rules=(NotWith(("NetworkInterfaces",)),),
    ),
    Decision(
        members="ec2.RunInstancesRequest.SubnetId", says="network interface", rules=(NotWith(("NetworkInterfaces",)),)
    ),
    Decision(members="ec2.SpotMarketOptions.MaxPrice", says="more than", rules=(Checked(_is_not_small),)),
    Decision(
        members="ec2.SpotMarketOptions.ValidUntil", says="", rules=(OnlyWith("SpotInstanceType", ("persistent",)),)
    ),
    no_rules("ec2.RunInstancesRequest.ImageId", "", "NEEDED says so"),
    no_rules("ec2.RunInstancesRequest.M??Count", "", "the box's quotas look"),
    no_rules("ec2.RunInstancesRequest.UserData", "", "launching.py checks it"),
    no_rules("ec2.RunInstancesRequest.KeyName", "", DESCRIBES),
    no_rules("ec2.InstanceNetworkInterfaceSpecification.AssociatePublicIpAddress", "", "launching.py checks it"),
    no_rules("ec2.InstanceNetworkInterfaceSpecification.DeviceIndex", "", "NEEDED says so"),
    no_rules("ec2.InstanceMetadataOptionsRequest.Http*", "", DESCRIBES),
    Decision(members="ec2.RunInstancesRequest.CreditSpecification", says="", rules=(Checked(_is_burstable),)),
    never("ec2.*.Ipv[46]*"),
    never("ec2.*.PrivateIpAddress*"),
    never("ec2.*.NetworkCardIndex"),
    never("ec2.RunInstancesRequest.HibernationOptions"),
    never("ec2.RunInstancesRequest.EnclaveOptions"),
    never("ec2.RunInstancesRequest.EnablePrimaryIpv6"),
    never("ec2.EnaSrdUdpSpecificationRequest.*"),
    never("ec2.PrivateDnsNameOptionsRequest.*"),
    never("ec2.CpuOptionsRequest.*"),
    never("ec2.LaunchTemplateSpecification.*"),
    never("ec2.Placement.PartitionNumber"),
    never("ec2.RunInstancesMonitoringEnabled.*"),
    never("ec2.BlockDeviceMapping.VirtualName"),
)
EC2_LISTS = (
    Decision(
        members="ec2.DescribeInstancesRequest.MaxResults", says="same request", rules=(NotWith(("InstanceIds",)),)
    ),
    Decision(
        members="ec2.DescribeNetworkInterfacesRequest.MaxResults",
        says="same request",
        rules=(NotWith(("NetworkInterfaceIds",)),),
    ),
    never("ec2.StopInstancesRequest.Hibernate"),
    no_rules("ec2.Describe*Request.Filters", "", FILTERS),
    Decision(
        members="ec2.GetSpotPlacementScoresRequest.InstanceTypes",
        says="",
        rules=(NotWith(("InstanceRequirementsWithMetadata",)),),
    ),
    never("ec2.GetSpotPlacementScoresRequest.InstanceRequirementsWithMetadata"),
    never("ec2.InstanceRequirementsRequest.*"),
    no_rules("ec2.DescribeInstanceTypeOfferingsRequest.LocationType", "", FILTERS),
)
