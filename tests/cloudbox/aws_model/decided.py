"""What the reader can't read, decided by hand.

Each decision names members (`service.Structure.Member`, as a shell pattern), a part of the sentence, and either rules
or why none of them can be checked from the request alone. `test_words.py` proves that of the operations that kedge
uses no sentence is left, and that each decision is of use.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

from tests.cloudbox.aws_model.rules import Checked, Length, Matching, Never, NotWith, OneOf, OnlyWith, Rule

_STATE = "depends on what the account has: moto and the box's own modules look"
_DESCRIBES = "tells what happens, or what another call needs; every value is allowed"
_FILTERS = "about the values of filters, where an unknown one finds nothing"
_OTHER_BUCKETS = "about directory buckets, Outposts and access points, which kedge doesn't use"
_PERMISSION = "about permissions"
_GRAMMAR = "policies.py checks it"
_RULES_OF_GROUPS = "groups.py checks it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """One decision; `why` there are no rules, where there are none."""

    members: str
    says: str
    rules: tuple[Rule, ...] = ()
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Needed:
    """A structure that must have one of these members: its documentation says so, and the model doesn't."""

    structure: str
    any_of: tuple[str, ...]


def _is_not_small(price: Any, _beside: Mapping[str, Any]) -> str | None:
    return None if float(price) > 0.001 else "it must be more than USD $0.001"


def _is_json(text: Any, _beside: Mapping[str, Any]) -> str | None:
    try:
        json.loads(text)
    except ValueError as err:
        return f"not well-formed JSON: {err}"
    return None


def _name_services(actions: Any, _beside: Mapping[str, Any]) -> str | None:
    wrong = [action for action in actions if ":" not in action or "*" in action]
    return f"{wrong[0]} names no service, or no single operation" if wrong else None


def _is_encrypted(_key: Any, beside: Mapping[str, Any]) -> str | None:
    return None if beside.get("Encrypted") == "true" else "the encrypted state must be true"


def _is_burstable(_credits: Any, beside: Mapping[str, Any]) -> str | None:
    instance_type = str(beside.get("InstanceType"))
    return None if instance_type.startswith("t") else f"{instance_type} has no CPU credits"


def _no_rules(members: str, says: str, why: str) -> Decision:
    return Decision(members=members, says=says, why=why)


def _never(members: str) -> Decision:
    return Decision(members=members, says="", rules=(Never(),))


NEEDED = (
    Needed(structure="ec2.AuthorizeSecurityGroupIngressRequest", any_of=("GroupId", "GroupName")),
    Needed(structure="ec2.RevokeSecurityGroupIngressRequest", any_of=("GroupId", "GroupName", "SecurityGroupRuleIds")),
    Needed(structure="ec2.DeleteSecurityGroupRequest", any_of=("GroupId", "GroupName")),
    Needed(structure="ec2.CreateVolumeRequest", any_of=("AvailabilityZone", "AvailabilityZoneId")),
    Needed(structure="ec2.CreateVolumeRequest", any_of=("SnapshotId", "Size")),
    Needed(structure="ec2.RunInstancesRequest", any_of=("ImageId", "LaunchTemplate")),
    Needed(structure="ec2.InstanceNetworkInterfaceSpecification", any_of=("DeviceIndex",)),
    Needed(
        structure="cloudformation.CreateChangeSetInput", any_of=("TemplateBody", "TemplateURL", "UsePreviousTemplate")
    ),
    Needed(structure="cloudformation.CreateStackInput", any_of=("TemplateBody", "TemplateURL")),
)

_CLOUDFORMATION = (
    Decision(members="cloudformation.*.TemplateBody", says="only one of", rules=(NotWith(("TemplateURL",)),)),
    Decision(
        members="cloudformation.*.TemplateURL",
        says="",
        rules=(Matching("https://.*", "it must start with https://"), NotWith(("TemplateBody",))),
    ),
    Decision(members="cloudformation.GetTemplateInput.ChangeSetName", says="", rules=(OnlyWith("StackName"),)),
    _no_rules("cloudformation.*.UsePreviousTemplate", "only one of", _DESCRIBES),
    _no_rules("cloudformation.*.ResourceTypes", "", _STATE),
    _no_rules("cloudformation.*.Capabilities", "", _STATE),
    _no_rules("cloudformation.*.ChangeSet*", "", _STATE),
    _no_rules("cloudformation.*", "`DisableRollback`", _STATE),
    _no_rules("cloudformation.*.DisableRollback", "", _STATE),
    _no_rules("cloudformation.*.StackName", "", _STATE),
    _no_rules("cloudformation.*.RetainResources", "", _DESCRIBES),
    _never("cloudformation.RollbackConfiguration.*"),
    _never("cloudformation.*.StackPolicy*"),
    Decision(members="cloudformation.*.OnFailure", says="", rules=(OneOf(("DO_NOTHING", "ROLLBACK", "DELETE")),)),
    _no_rules("cloudformation.*.EnableTerminationProtection", "", _DESCRIBES),
)
_EC2_GROUPS = (
    _no_rules("ec2.IpPermission.*", "", _RULES_OF_GROUPS),
    _no_rules("ec2.*Range.Cidr*", "", _RULES_OF_GROUPS),
    _no_rules("ec2.*SecurityGroup*Request.*GroupName", "VPC", _STATE),
    _no_rules("ec2.*SecurityGroup*Request.GroupName", "must specify either", "NEEDED says so"),
    _never("ec2.*SecurityGroupIngressRequest.ToPort"),
    _never("ec2.*SecurityGroupIngressRequest.CidrIp"),
    _never("ec2.*SecurityGroupIngressRequest.SourceSecurityGroupName"),
    _no_rules("ec2.*SecurityGroupIngressRequest.IpPermissions", "", _RULES_OF_GROUPS),
)
_EC2_VOLUMES = (
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
    _no_rules("ec2.*.VolumeInitializationRate", "fast snapshot restore", _DESCRIBES),
    _no_rules("ec2.*.Iops", "Nitro", _STATE),
    _no_rules("ec2.*.Iops", "Other instances", _STATE),
    _no_rules("ec2.*.Iops", "On other instances", _STATE),
    _no_rules("ec2.CreateVolumeRequest.S*", "either a snapshot ID or a volume size", "NEEDED says so"),
    _no_rules("ec2.EbsBlockDevice.VolumeSize", "either a snapshot ID", "the image's mapping names the snapshot"),
    _no_rules("ec2.EbsBlockDevice.Encrypted", "", "about CreateImage and RegisterImage"),
    _no_rules("ec2.CreateVolumeRequest.Encrypted", "", _STATE),
    _no_rules("ec2.CreateVolumeRequest.VolumeType", "boot volumes", _DESCRIBES),
    _no_rules("ec2.*tachVolumeRequest.*Id", "", _STATE),
    _no_rules("ec2.ModifySnapshotTierRequest.StorageTier", "", "the enumeration says so"),
    _no_rules("ec2.*Request.Force", "file system", _DESCRIBES),
    _never("ec2.Create*Request.OutpostArn"),
    _never("ec2.CreateVolumeRequest.MultiAttachEnabled"),
)
_EC2_LAUNCHES = (
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
    _no_rules("ec2.RunInstancesRequest.ImageId", "", "NEEDED says so"),
    _no_rules("ec2.RunInstancesRequest.M??Count", "", "the box's quotas look"),
    _no_rules("ec2.RunInstancesRequest.UserData", "", "launching.py checks it"),
    _no_rules("ec2.RunInstancesRequest.KeyName", "", _DESCRIBES),
    _no_rules("ec2.InstanceNetworkInterfaceSpecification.AssociatePublicIpAddress", "", "launching.py checks it"),
    _no_rules("ec2.InstanceNetworkInterfaceSpecification.DeviceIndex", "", "NEEDED says so"),
    _no_rules("ec2.InstanceMetadataOptionsRequest.Http*", "", _DESCRIBES),
    Decision(members="ec2.RunInstancesRequest.CreditSpecification", says="", rules=(Checked(_is_burstable),)),
    _never("ec2.*.Ipv[46]*"),
    _never("ec2.*.PrivateIpAddress*"),
    _never("ec2.*.NetworkCardIndex"),
    _never("ec2.RunInstancesRequest.HibernationOptions"),
    _never("ec2.RunInstancesRequest.EnclaveOptions"),
    _never("ec2.RunInstancesRequest.EnablePrimaryIpv6"),
    _never("ec2.EnaSrdUdpSpecificationRequest.*"),
    _never("ec2.PrivateDnsNameOptionsRequest.*"),
    _never("ec2.CpuOptionsRequest.*"),
    _never("ec2.LaunchTemplateSpecification.*"),
    _never("ec2.Placement.PartitionNumber"),
    _never("ec2.RunInstancesMonitoringEnabled.*"),
    _never("ec2.BlockDeviceMapping.VirtualName"),
)
_EC2_LISTS = (
    Decision(
        members="ec2.DescribeInstancesRequest.MaxResults", says="same request", rules=(NotWith(("InstanceIds",)),)
    ),
    Decision(
        members="ec2.DescribeNetworkInterfacesRequest.MaxResults",
        says="same request",
        rules=(NotWith(("NetworkInterfaceIds",)),),
    ),
    _never("ec2.StopInstancesRequest.Hibernate"),
    _no_rules("ec2.Describe*Request.Filters", "", _FILTERS),
    Decision(
        members="ec2.GetSpotPlacementScoresRequest.InstanceTypes",
        says="",
        rules=(NotWith(("InstanceRequirementsWithMetadata",)),),
    ),
    _never("ec2.GetSpotPlacementScoresRequest.InstanceRequirementsWithMetadata"),
    _never("ec2.InstanceRequirementsRequest.*"),
    _no_rules("ec2.DescribeInstanceTypeOfferingsRequest.LocationType", "", _FILTERS),
)
_IAM = (
    Decision(members="iam.CreatePolicyRequest.Path", says="asterisk", rules=(Matching("[^*]*", "no asterisk"),)),
    _no_rules("iam.CreatePolicyRequest.Description", "", _DESCRIBES),
    _no_rules("iam.CreateServiceLinkedRoleRequest.CustomSuffix", "", _STATE),
    _no_rules("iam.*Request.*PolicyDocument", "", _GRAMMAR),
    _no_rules("iam.*Request.*Name", "cannot create resources named both", _STATE),
    Decision(members="iam.SimulatePrincipalPolicyRequest.ActionNames", says="", rules=(Checked(_name_services),)),
    _no_rules("iam.SimulatePrincipalPolicyRequest.ResourceArns", "", _DESCRIBES),
    _never("iam.SimulatePrincipalPolicyRequest.P*InputList"),
    _never("iam.SimulatePrincipalPolicyRequest.CallerArn"),
    _never("iam.PolicyIdentifier.*"),
    _never("iam.SimulatePrincipalPolicyRequest.Resource[HP]*"),
)
_S3 = (
    _no_rules("s3.*.Bucket", "", _OTHER_BUCKETS),
    _no_rules("s3.*", "irectory bucket", _OTHER_BUCKETS),
    _no_rules("s3.*", "Zonal endpoint", _OTHER_BUCKETS),
    _no_rules("s3.*", "permission", _PERMISSION),
    _no_rules("s3.*.EncodingType", "", _DESCRIBES),
    _no_rules("s3.*.MaxKeys", "", _DESCRIBES),
    _no_rules("s3.*.Content*", "", _DESCRIBES),
    _no_rules("s3.*.Checksum*", "", _DESCRIBES),
    _no_rules("s3.CompletedPart.PartNumber", "General purpose buckets", "moto compares the parts"),
    _never("s3.*.Grant*"),
    _never("s3.*.MFA"),
    _never("s3.*.ObjectLock*"),
    _never("s3.*.SSE*"),
    _never("s3.*.Tagging"),
    _never("s3.*.WriteOffsetBytes"),
    Decision(members="s3.Delete.Quiet", says="", rules=(OneOf(("true",)),)),
    _no_rules("s3.*.ServerSideEncryption", "", _OTHER_BUCKETS),
    _no_rules("s3.CreateBucket*.*", "", "moto checks buckets and their names"),
    Decision(members="s3.ListBucketsRequest.ContinuationToken", says="Maximum length", rules=(Length(1024),)),
    _no_rules("s3.ListBucketsRequest.*", "", _DESCRIBES),
)
_SCHEDULER = (
    Decision(
        members="scheduler.Target.Input",
        says="",
        rules=(Checked(_is_json),),
    ),
    _never("scheduler.Target.*Parameters"),
    _never("scheduler.EventBridge*"),
    _never("scheduler.Ecs*"),
    _never("scheduler.Placement*"),
    _never("scheduler.AwsVpcConfiguration.*"),
    _no_rules("scheduler.UpdateScheduleInput.GroupName", "", _DESCRIBES),
)
_STS = (
    Decision(members="sts.AssumeRoleRequest.PolicyArns", says="up to 10", rules=(Length(10),)),
    Decision(
        members="sts.AssumeRoleRequest.SourceIdentity",
        says="begins with",
        rules=(Matching("(?!aws:).*", "it may not begin with aws:"),),
    ),
    _no_rules("sts.AssumeRoleRequest.*", "", _STATE),
    _no_rules("sts.Tag.*", "", _STATE),
)
_BUDGETS = (
    Decision(members="budgets.Subscriber.Address", says="line breaks", rules=(Matching("[^\\n]*", "no line breaks"),)),
    _never("budgets.Budget.PlannedBudgetLimits"),
    _never("budgets.Budget.TimePeriod"),
    _never("budgets.CreateBudgetRequest.ResourceTags"),
    _never("budgets.ProductAttributeValues.*"),
    _never("budgets.ExpressionDimensionValues.*"),
    _no_rules("budgets.Budget.BudgetLimit", "PlannedBudgetLimits", "planned limits are never sent"),
    _no_rules("budgets.Budget.TimeUnit", "", _DESCRIBES),
)
_OTHERS = (_no_rules("pricing.Filter.Field", "", _FILTERS),)

DECISIONS = (
    *_CLOUDFORMATION,
    *_EC2_GROUPS,
    *_EC2_VOLUMES,
    *_EC2_LAUNCHES,
    *_EC2_LISTS,
    *_IAM,
    *_S3,
    *_SCHEDULER,
    *_STS,
    *_BUDGETS,
    *_OTHERS,
)


@cache
def decision_on(service: str, member: str, sentence: str) -> Decision | None:
    """Return what was decided about a sentence in a member's documentation."""
    name = f"{service}.{member}"
    return next((each for each in DECISIONS if each.says in sentence and fnmatchcase(name, each.members)), None)


@cache
def needed_in(service: str, structure: str) -> tuple[Needed, ...]:
    """Return the groups of members of which a structure must have one."""
    return tuple(each for each in NEEDED if each.structure == f"{service}.{structure}")
