"""Write docs/aws-permissions.md from the policies in infra/aws, with what each of their statements is for.

Run as `.venv/bin/python docs/write_permissions.py`; `tests/golden/test_operator_policy.py` says when it is due.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "aws-permissions.md"
POLICIES = ROOT / "infra" / "aws"

PURPOSES = {
    "Look": "prices, quotas, images, and what there is of kedge's in each region; none of it changes anything",
    "FindImages": "the ids of the Deep Learning images, from AWS's public parameters",
    "FindAccountLevel": "what `bootstrap` has made: its stack, and the role whose tag says in which region it is",
    "MakeWithRunTag": "machines, their disks and network interfaces, data volumes, snapshots and security groups: only "
    "with the tag `kedge-run`",
    "MakeFrom": "what these are made from or in: an image, a snapshot, a subnet, a security group, a VPC, a spot "
    "request",
    "TagWhatIsMade": "tags of what is being made, in the same call; not of anything else",
    "UseDataVolumes": "data volumes, which have the tag `kedge-volume`: attach, copy, note which run uses them",
    "DeleteOwnVolumes": "deletes volumes that kedge has made (tag `kedge-created`), never others",
    "OwnMachines": "ends machines, and attaches volumes to them: only machines with the tag `kedge-machine`",
    "OwnSecurityGroups": "opens port 22 of a run's security group to your address, closes it, deletes the group",
    "MakeRunRoles": "makes the role of a run, only under the boundary that `bootstrap` has made",
    "KeepRunRoles": "completes and removes the roles and instance profiles of runs, all under the path /kedge/",
    "GiveRoleToMachines": "hands a run's role to its machines, and to nothing else",
    "GiveRoleToSchedules": "hands the role that ends machines to EventBridge Scheduler, and to nothing else",
    "Deadlines": "the schedule that ends a machine from outside when its deadline is past",
    "Bucket": "code, checkpoints, results and data sets in the account's own bucket",
    "FirstSpotMachine": "lets AWS make its own role for spot machines, once in an account",
    "Doctor": "`kedge doctor` asks IAM which of these permissions are there",
}
"""What a statement is for."""

LEFT_OUT = {
    "UseDataVolumes": "no job uses data volumes",
    "DeleteOwnVolumes": "no job uses data volumes",
    "MakeRunRoles": "all runs have one role (below)",
    "KeepRunRoles": "all runs have one role (below)",
    "FirstSpotMachine": "the account has used spot machines before, or uses none",
    "Doctor": "`kedge doctor` may say that it can't tell",
}
"""When a statement may be left out."""

BOOTSTRAP = {
    "cloudformation:CreateChangeSet": "",
    "cloudformation:DeleteChangeSet": "",
    "cloudformation:DeleteStack": "",
    "cloudformation:DescribeChangeSet": "",
    "cloudformation:DescribeStacks": "",
    "cloudformation:ExecuteChangeSet": "",
    "cloudformation:ListStackResources": "",
    "iam:GetRole": "",
    "iam:ListEntitiesForPolicy": "",
    "s3:DeleteBucket": "with `--remove`",
    "s3:DeleteObject": "with `--remove --delete-data`",
    "s3:ListBucket": "",
    "s3:ListBucketVersions": "with `--remove`",
    "budgets:ModifyBudget": "with `--budget-usd`, and with `--remove`",
    "budgets:ViewBudget": "with `--budget-usd`, and with `--remove`",
    "ec2:DescribeInstances": "with `--remove`, where all runs have one role",
    "ec2:DescribeRegions": "with `--remove`, where all runs have one role",
}
"""What `kedge bootstrap` calls by itself; CloudFormation then makes things with the same person's permissions."""

_HEAD = """\
# What kedge needs at AWS

Written by `docs/write_permissions.py` from `infra/aws/operator-policy.json` and `infra/aws/power-user-policy.json`. A
run's whole life is tested with exactly these policies (`tests/cloudbox/test_permissions.py`).

There are two kinds of people:

- an **administrator** runs `kedge bootstrap --provider aws`, once in an account;
- **operators** run everything else: offers, launches, teardowns, `kedge reap`.

## Operators

In a checkout of kedge:

```
aws iam create-policy --policy-name kedge-operator --policy-document file://infra/aws/operator-policy.json
aws iam attach-user-policy --user-name ada --policy-arn arn:aws:iam::ACCOUNT:policy/kedge-operator
```

The policy names no account and no region: narrow `arn:aws:ec2:*:*:` to your regions if you like. Two things to adapt:

- `Bucket` allows buckets whose names begin with `kedge-`, as `bootstrap` calls them. After `bootstrap --bucket NAME`,
  write that name there.
- New disks are encrypted with the account's default key. Where that isn't `aws/ebs` but a key of your own, the operator
  also needs `kms:CreateGrant`, `kms:Decrypt`, `kms:DescribeKey`, `kms:GenerateDataKeyWithoutPlainText` and
  `kms:ReEncrypt*` on it.

| statement | what it is for | may be left out where |
|---|---|---|
"""

_POWER = """
An operator with this policy cannot make a role without the boundary, so that no machine gets more than the objects of
runs in kedge's bucket; cannot change or end what doesn't carry kedge's tags; and can hand the two roles under /kedge/
to EC2 and to EventBridge Scheduler only. What is not separated: operators of one account can end each other's machines
and read each other's results.

## People who may not make roles (PowerUserAccess)

Each run has a role of its own, which gets at that run's objects and at the data sets that its job names. AWS's
PowerUserAccess can neither make roles nor hand them to machines. For such people an administrator runs

```
kedge bootstrap --provider aws --run-role
```

once, which makes **one role for all runs** (`kedge-runs`), with an instance profile. A launch then takes no writing
call of IAM. Beside PowerUserAccess a person needs `infra/aws/power-user-policy.json`: to look two roles up, to hand
them on, and for `kedge doctor` to ask IAM. Or take `operator-policy.json` without `MakeRunRoles` and `KeepRunRoles`.

What is lost: the machines of any run can read, change and delete the checkpoints and results of every other run in the
bucket, and read every data set there. Each plan says so. They still can't do anything else in the account: the
boundary holds this role too. The role is no run's own: teardown and `kedge reap` leave it alone, and `kedge bootstrap
--remove` takes it away, with the rest.

## The administrator

`kedge bootstrap` shows every change before it makes it. It calls:

| permission | when |
|---|---|
"""

_TAIL = """
CloudFormation then makes, changes and removes what `infra/aws/account.yaml` lists with the same person's permissions:
a bucket with its policy and settings, the managed policy `kedge-run-boundary`, the role `kedge-scheduler`, and with
`--run-role` the role and instance profile `kedge-runs`. AdministratorAccess is enough, and so are PowerUserAccess and
IAMFullAccess together.

## Credentials

Whatever the AWS CLI takes: keys, profiles, SSO, roles. A profile that assumes a role with an MFA code asks for it in
the terminal once an hour: kedge keeps the session where the AWS CLI does (`~/.aws/cli/cache`). Without a terminal it
says so and ends. `AWS_REGION` goes before `AWS_DEFAULT_REGION`.
"""


def render_page() -> str:
    """Return the page's text."""
    operator = json.loads((POLICIES / "operator-policy.json").read_text())["Statement"]
    rows = "".join(
        f"| `{each['Sid']}` | {PURPOSES[each['Sid']]} | {LEFT_OUT.get(each['Sid'], '')} |\n" for each in operator
    )
    calls = "".join(f"| `{action}` | {when or 'always'} |\n" for action, when in BOOTSTRAP.items())
    return f"{_HEAD}{rows}\n{_actions(operator)}{_POWER}{calls}{_TAIL}"


def _actions(statements: list[dict[str, Any]]) -> str:
    lines = ["| statement | actions | on | if |", "|---|---|---|---|"]
    for each in statements:
        conditions = [
            f"`{key}` is {_listed(values)}"
            for keys in each.get("Condition", {}).values()
            for key, values in keys.items()
        ]
        lines.append(
            f"| `{each['Sid']}` | {_listed(each['Action'])} | {_listed(each['Resource'])} | {'; '.join(conditions)} |"
        )
    return "\n".join(lines) + "\n"


def _listed(values: str | list[str]) -> str:
    return ", ".join(f"`{value}`" for value in ([values] if isinstance(values, str) else values))


if __name__ == "__main__":
    PAGE.write_text(render_page())
