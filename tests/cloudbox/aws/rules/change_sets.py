"""CloudFormation's change sets, where moto's fall short of it."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from functools import cache
from typing import Any

from moto.budgets.models import budgets_backends
from moto.cloudformation.models import ChangeSet, Stack
from moto.iam.models import ManagedPolicy, Role, iam_backends
from moto.s3.models import FakeBucket, s3_backends

Patch = Callable[[Any, str, Any], None]
"""How an attribute of a class is replaced: `setattr`, or a test's MonkeyPatch.setattr, which takes it back."""

_PARTITION = "aws"
_parse_template = Stack.parse_template
_make_role = Role.create_from_cloudformation_json
_end_role = Role.delete_from_cloudformation_json
_apply_resources = ChangeSet.apply
_create_bucket = FakeBucket.create_from_cloudformation_json


def complete(patch: Patch = setattr) -> None:
    """Let moto do in this process what CloudFormation does with account.yaml.

    An executed change set gives its stack the new template, outputs and parameters; a bucket that is there already is
    imported, as ImportExistingResources says; a managed policy gets a new version with its stack, and goes with it;
    a role has the managed policies that its template names; a budget goes with the resource that was it;
    resources of kinds that moto has never heard of are left out of lists, instead of being listed without a name.

    Each template is parsed once, because that takes as long as 20 calls.
    """
    patch(ChangeSet, "apply", _apply)
    patch(FakeBucket, "create_from_cloudformation_json", _import_bucket)
    patch(ManagedPolicy, "update_from_cloudformation_json", _update_policy)
    patch(Role, "create_from_cloudformation_json", _create_role)
    patch(Role, "delete_from_cloudformation_json", _delete_role)
    patch(ManagedPolicy, "delete_from_cloudformation_json", _delete_policy)
    patch(Stack, "stack_resources", property(_known_resources))
    patch(Stack, "parse_template", staticmethod(_copy_template))


def _copy_template(template: str) -> Any:
    return pickle.loads(_pickle_template(template))


@cache
def _pickle_template(template: str) -> bytes:
    return pickle.dumps(_parse_template(template))


def _apply(change_set: ChangeSet) -> None:
    stack = change_set.stack
    _delete_budgets(stack, change_set.template_dict)
    # moto keeps parameters that the new template no longer has.
    stack.resource_map.resolved_parameters.clear()
    _apply_resources(change_set)
    stack.template_dict = change_set.template_dict
    stack.parameters = change_set.parameters
    stack.output_map = stack._create_output_map()


def _delete_budgets(stack: Stack, wanted: Any) -> None:
    """Delete the budgets that the new template no longer has; moto deletes no resource of a kind unknown to it.

    fact: cloudformation-removals
    """
    present = stack.resource_map._resource_json_map
    for name in present.keys() - wanted["Resources"].keys():
        if present[name]["Type"] == "AWS::Budgets::Budget":
            budget = present.pop(name)["Properties"]["Budget"]["BudgetName"]
            budgets_backends[stack.account_id][_PARTITION].delete_budget(stack.account_id, budget)


def _import_bucket(name: str, template: Any, account_id: str, region: str, **about: Any) -> FakeBucket:
    buckets = s3_backends[account_id][_PARTITION].buckets
    return buckets[name] if name in buckets else _create_bucket(name, template, account_id, region, **about)


def _update_policy(*, original_resource: ManagedPolicy, cloudformation_json: Any, **about: Any) -> ManagedPolicy:
    document = json.dumps(cloudformation_json["Properties"]["PolicyDocument"])
    # Of the five that IAM keeps, CloudFormation gives up the oldest one.
    del original_resource.versions[:-4]
    backend = iam_backends[about["account_id"]][_PARTITION]
    backend.create_policy_version(original_resource.arn, document, set_as_default=True)
    return original_resource


def _create_role(name: str, template: Any, account_id: str, region: str, **about: Any) -> Role:
    role = _make_role(name, template, account_id, region, **about)
    for arn in template["Properties"].get("ManagedPolicyArns", ()):
        iam_backends[account_id][_PARTITION].attach_role_policy(arn, role.name)
    return role


def _delete_role(name: str, template: Any, account_id: str, region: str) -> None:
    iam = iam_backends[account_id][_PARTITION]
    for policy in list(iam.get_role(name).managed_policies.values()):
        policy.detach_from(iam.get_role(name))
    _end_role(name, template, account_id, region)


def _delete_policy(arn: str, _template: Any, account_id: str, _region: str) -> None:
    iam_backends[account_id][_PARTITION].delete_policy(arn)


def _known_resources(stack: Stack) -> list[Any]:
    return [resource for resource in stack.resource_map.values() if resource is not None]
