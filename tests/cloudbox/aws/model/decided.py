"""What the reader can't read, decided by hand.

Each decision names members (`service.Structure.Member`, as a shell pattern), a part of the sentence, and either rules
or why none of them can be checked from the request alone. `test_words.py` proves that of the operations that kedge
uses no sentence is left, and that each decision is of use.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

from tests.cloudbox.aws.model.decided_batch import BATCH, SAGEMAKER
from tests.cloudbox.aws.model.decided_ec2 import EC2_GROUPS, EC2_LAUNCHES, EC2_LISTS, EC2_VOLUMES
from tests.cloudbox.aws.model.decisions import DESCRIBES, FILTERS, STATE, Decision, Needed, never, no_rules
from tests.cloudbox.aws.model.rules import Checked, Length, Matching, NotWith, OneOf, OnlyWith

_OTHER_BUCKETS = "about directory buckets, Outposts and access points, which kedge doesn't use"
_PERMISSION = "about permissions"
_GRAMMAR = "policies.py checks it"


def _is_json(text: Any, _beside: Mapping[str, Any]) -> str | None:
    try:
        json.loads(text)
    except ValueError as err:
        return f"not well-formed JSON: {err}"
    return None


def _name_services(actions: Any, _beside: Mapping[str, Any]) -> str | None:
    wrong = [action for action in actions if ":" not in action or "*" in action]
    return f"{wrong[0]} names no service, or no single operation" if wrong else None


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
    no_rules("cloudformation.*.UsePreviousTemplate", "only one of", DESCRIBES),
    no_rules("cloudformation.*.ResourceTypes", "", STATE),
    no_rules("cloudformation.*.Capabilities", "", STATE),
    no_rules("cloudformation.*.ChangeSet*", "", STATE),
    no_rules("cloudformation.*", "`DisableRollback`", STATE),
    no_rules("cloudformation.*.DisableRollback", "", STATE),
    no_rules("cloudformation.*.StackName", "", STATE),
    no_rules("cloudformation.*.RetainResources", "", DESCRIBES),
    never("cloudformation.RollbackConfiguration.*"),
    never("cloudformation.*.StackPolicy*"),
    Decision(members="cloudformation.*.OnFailure", says="", rules=(OneOf(("DO_NOTHING", "ROLLBACK", "DELETE")),)),
    no_rules("cloudformation.*.EnableTerminationProtection", "", DESCRIBES),
)
_IAM = (
    Decision(members="iam.CreatePolicyRequest.Path", says="asterisk", rules=(Matching("[^*]*", "no asterisk"),)),
    no_rules("iam.CreatePolicyRequest.Description", "", DESCRIBES),
    no_rules("iam.CreateServiceLinkedRoleRequest.CustomSuffix", "", STATE),
    no_rules("iam.*Request.*PolicyDocument", "", _GRAMMAR),
    no_rules("iam.*Request.*Name", "cannot create resources named both", STATE),
    Decision(members="iam.SimulatePrincipalPolicyRequest.ActionNames", says="", rules=(Checked(_name_services),)),
    no_rules("iam.SimulatePrincipalPolicyRequest.ResourceArns", "", DESCRIBES),
    never("iam.SimulatePrincipalPolicyRequest.P*InputList"),
    never("iam.SimulatePrincipalPolicyRequest.CallerArn"),
    never("iam.PolicyIdentifier.*"),
    never("iam.SimulatePrincipalPolicyRequest.Resource[HP]*"),
)
_S3 = (
    no_rules("s3.*.Bucket", "", _OTHER_BUCKETS),
    no_rules("s3.*", "irectory bucket", _OTHER_BUCKETS),
    no_rules("s3.*", "Zonal endpoint", _OTHER_BUCKETS),
    no_rules("s3.*", "permission", _PERMISSION),
    no_rules("s3.*.EncodingType", "", DESCRIBES),
    no_rules("s3.*.MaxKeys", "", DESCRIBES),
    no_rules("s3.*.Content*", "", DESCRIBES),
    no_rules("s3.*.Checksum*", "", DESCRIBES),
    no_rules("s3.CompletedPart.PartNumber", "General purpose buckets", "moto compares the parts"),
    never("s3.*.Grant*"),
    never("s3.*.MFA"),
    never("s3.*.ObjectLock*"),
    never("s3.*.SSE*"),
    never("s3.*.Tagging"),
    never("s3.*.WriteOffsetBytes"),
    Decision(members="s3.Delete.Quiet", says="", rules=(OneOf(("true",)),)),
    no_rules("s3.*.ServerSideEncryption", "", _OTHER_BUCKETS),
    no_rules("s3.CreateBucket*.*", "", "moto checks buckets and their names"),
    Decision(members="s3.ListBucketsRequest.ContinuationToken", says="Maximum length", rules=(Length(1024),)),
    no_rules("s3.ListBucketsRequest.*", "", DESCRIBES),
)
_SCHEDULER = (
    Decision(
        members="scheduler.Target.Input",
        says="",
        rules=(Checked(_is_json),),
    ),
    never("scheduler.Target.*Parameters"),
    never("scheduler.EventBridge*"),
    never("scheduler.Ecs*"),
    never("scheduler.Placement*"),
    never("scheduler.AwsVpcConfiguration.*"),
    no_rules("scheduler.UpdateScheduleInput.GroupName", "", DESCRIBES),
)
_STS = (
    Decision(members="sts.AssumeRoleRequest.PolicyArns", says="up to 10", rules=(Length(10),)),
    Decision(
        members="sts.AssumeRoleRequest.SourceIdentity",
        says="begins with",
        rules=(Matching("(?!aws:).*", "it may not begin with aws:"),),
    ),
    no_rules("sts.AssumeRoleRequest.*", "", STATE),
    no_rules("sts.Tag.*", "", STATE),
)
_BUDGETS = (
    Decision(members="budgets.Subscriber.Address", says="line breaks", rules=(Matching("[^\\n]*", "no line breaks"),)),
    never("budgets.Budget.PlannedBudgetLimits"),
    never("budgets.Budget.TimePeriod"),
    never("budgets.CreateBudgetRequest.ResourceTags"),
    never("budgets.ProductAttributeValues.*"),
    never("budgets.ExpressionDimensionValues.*"),
    no_rules("budgets.Budget.BudgetLimit", "PlannedBudgetLimits", "planned limits are never sent"),
    no_rules("budgets.Budget.TimeUnit", "", DESCRIBES),
)
_PARAMETERS = "rules/parameters.py checks it"
_A_NAME = Matching("/?(?!(?i:aws|ssm))[a-zA-Z0-9_.-]+(/[a-zA-Z0-9_.-]+)*", "not a parameter's name")
_SSM = (
    Decision(members="ssm.PutParameterRequest.Name", says="", rules=(_A_NAME,)),
    no_rules("ssm.DeleteParametersRequest.Names", "", "an ARN names no parameter: it isn't deleted"),
    never("ssm.DescribeParametersRequest.Shared"),
    no_rules("ssm.PutParameterRequest.Value", "", _PARAMETERS),
    no_rules("ssm.PutParameterRequest.Type", "", STATE),
    no_rules("ssm.PutParameterRequest.Tier", "", _PARAMETERS),
)
_OTHERS = (no_rules("pricing.Filter.Field", "", FILTERS),)

DECISIONS = (
    *_CLOUDFORMATION,
    *EC2_GROUPS,
    *EC2_VOLUMES,
    *EC2_LAUNCHES,
    *EC2_LISTS,
    *_IAM,
    *_S3,
    *_SCHEDULER,
    *_STS,
    *_BUDGETS,
    *_SSM,
    *BATCH,
    *SAGEMAKER,
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
