"""Decisions about AWS Batch and SageMaker, to which the scripts of an export send requests.

Only the members that an export sends are decided: any other one is refused when it is sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.cloudbox.aws.model.decisions import DESCRIBES, STATE, Decision, no_rules
from tests.cloudbox.aws.model.rules import Checked, Length, Matching, OneOf, Span

OPERATIONS = {
    "batch": (
        *("CreateComputeEnvironment", "CreateJobQueue", "RegisterJobDefinition", "SubmitJob"),
        *("DescribeComputeEnvironments", "DescribeJobQueues", "DescribeJobs", "DescribeJobDefinitions"),
    ),
    "sagemaker": ("CreateTrainingJob", "DescribeTrainingJob"),
}
_FARGATE = "about Fargate, which an export doesn't use"
_NAME = Matching(r"[A-Za-z0-9_-]{1,128}", "up to 128 letters, numbers, hyphens and underscores")
_DAY_S = 24 * 3600


def _needs_fleet_role(kind: Any, beside: Mapping[str, Any]) -> str | None:
    """Two sentences disagree: `spotIamFleetRole` says that only BEST_FIT, the default, needs it.

    fact: batch-spot-role
    """
    is_needed = kind == "SPOT" and beside.get("allocationStrategy", "BEST_FIT") == "BEST_FIT"
    return "it needs a spotIamFleetRole" if is_needed and not beside.get("spotIamFleetRole") else None


def _is_enough(value: Any, beside: Mapping[str, Any]) -> str | None:
    least = {"MEMORY": 4, "VCPU": 1, "GPU": 1}[beside["type"]]
    return None if str(value).isdigit() and int(value) >= least else f"at least {least} is needed"


def _is_not_batchs(variables: Any, _beside: Mapping[str, Any]) -> str | None:
    return "AWS_BATCH is reserved" if any(row["name"].startswith("AWS_BATCH") for row in variables) else None


def _is_a_node(number: Any, beside: Mapping[str, Any]) -> str | None:
    return None if int(number) < int(beside["numNodes"]) else "there is no such node"


def _waits_long_enough(seconds: Any, beside: Mapping[str, Any]) -> str | None:
    return None if int(seconds) >= int(beside["MaxRuntimeInSeconds"]) else "less than MaxRuntimeInSeconds"


def _has_attempts(_rows: Any, beside: Mapping[str, Any]) -> str | None:
    return None if "attempts" in beside else "it needs `attempts`"


BATCH = (
    Decision(members="batch.CreateComputeEnvironmentRequest.state", says="", rules=(OneOf(("ENABLED",)),)),
    Decision(members="batch.*.jobQueueName", says="", rules=(_NAME,)),
    Decision(members="batch.*.jobDefinitionName", says="", rules=(_NAME,)),
    Decision(members="batch.*.jobName", says="", rules=(_NAME,)),
    Decision(members="batch.ContainerProperties.image", says="255 characters", rules=(Length(255),)),
    Decision(members="batch.ResourceRequirement.value", says="4 MiB", rules=(Checked(_is_enough),)),
    Decision(members="batch.RetryStrategy.evaluateOnExit", says="up to 5", rules=(Length(5),)),
    Decision(members="batch.RetryStrategy.evaluateOnExit", says="", rules=(Checked(_has_attempts),)),
    # fact: batch-timeouts
    Decision(members="batch.JobTimeout.attemptDurationSeconds", says="", rules=(Span(60, 365 * _DAY_S),)),
    Decision(members="batch.NodeProperties.mainNode", says="", rules=(Checked(_is_a_node),)),
    Decision(members="batch.*.environment", says="AWS_BATCH", rules=(Checked(_is_not_batchs),)),
    Decision(members="batch.*.dependsOn", says="20 jobs", rules=(Length(20),)),
    Decision(members="batch.ComputeResource.type", says="`SPOT`", rules=(Checked(_needs_fleet_role),)),
    Decision(members="batch.Describe*", says="up to 100", rules=(Length(100),)),
    no_rules("batch.*", "Fargate", _FARGATE),
    no_rules("batch.ComputeResource.*", "", STATE),
    no_rules("batch.CreateComputeEnvironmentRequest.*", "", STATE),
    no_rules("batch.CreateJobQueueRequest.*", "", STATE),
    no_rules("batch.ContainerProperties.*", "", STATE),
    no_rules("batch.ResourceRequirement.value", "", DESCRIBES),
    no_rules("batch.Secret.valueFrom", "", STATE),
    no_rules("batch.EFSVolumeConfiguration.transitEncryption", "", DESCRIBES),
    no_rules("batch.NodeRangeProperty.targetNodes", "", DESCRIBES),
    no_rules("batch.RegisterJobDefinitionRequest.*", "EKS", "about EKS, which an export doesn't use"),
    no_rules("batch.RegisterJobDefinitionRequest.*", "", DESCRIBES),
    no_rules("batch.SubmitJobRequest.dependsOn", "", DESCRIBES),
    no_rules("batch.DescribeJobDefinitionsRequest.jobDefinitions", "", DESCRIBES),
)
SAGEMAKER = (
    # fact: sagemaker-max-wait
    Decision(members="sagemaker.StoppingCondition.MaxWaitTimeInSeconds", says="", rules=(Checked(_waits_long_enough),)),
    no_rules("sagemaker.AlgorithmSpecification.*", "", DESCRIBES),
    no_rules("sagemaker.CreateTrainingJobRequest.*", "", STATE),
    no_rules("sagemaker.S3DataSource.S3Uri", "", STATE),
    no_rules("sagemaker.ResourceConfig.VolumeSizeInGB", "", DESCRIBES),
    no_rules("sagemaker.Tag.Key", "", DESCRIBES),
)
