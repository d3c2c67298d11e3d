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
    "Look": "read prices, quotas, images, and what kedge has in each region; changes nothing",
    "FindImages": "read the ids of the Deep Learning images from AWS's public parameters",
    "FindAccountLevel": "find what `bootstrap` made: its stack, and the role whose tag names the region",
    "MakeWithRunTag": "create machines, their disks and network interfaces, data volumes, snapshots, security groups "
    "and placement groups: only with the tag `kedge-run`",
    "MakeFrom": "use what these are created from or in: an image, a snapshot, a subnet, a security group, a placement "
    "group, a VPC, a spot request",
    "TagWhatIsMade": "tag what is being created, in the same call; nothing else",
    "UseDataVolumes": "attach and copy data volumes (tag `kedge-volume`), and note which run uses them",
    "DeleteOwnVolumes": "delete volumes that kedge made (tag `kedge-created`), no others",
    "OwnMachines": "terminate machines, and attach volumes to them: only machines with the tag `kedge-machine`",
    "MoveDeadlines": "write a new deadline into the tag `kedge-deadline` of a machine (`kedge extend`); no other tag",
    "OwnGroups": "open port 22 of a run's security group to your address, close it, open it to the run's own machines, "
    "delete a run's security groups and placement groups",
    "MakeRunRoles": "create a run's role, only with the permissions boundary that `bootstrap` made",
    "KeepRunRoles": "complete and delete the roles and instance profiles of runs, all under the path /kedge/",
    "GiveRoleToMachines": "pass a run's role to its machines, and to nothing else",
    "GiveRoleToSchedules": "pass the role that ends machines to EventBridge Scheduler, and to nothing else",
    "Deadlines": "create, move and delete the schedule that ends a machine from outside at its deadline",
    "Bucket": "read and write code, checkpoints, results and data sets in the account's own bucket",
    "FindRunSecrets": "find the secrets that runs have left, by name; the values can't be read with it",
    "RunSecrets": "store and delete the secrets of jobs with `start: boot`; not read them",
    "FirstSpotMachine": "let AWS create its own role for spot machines, once per account",
    "Doctor": "let `kedge doctor` ask IAM which of these permissions you have",
}
"""What a statement is for."""

LEFT_OUT = {
    "UseDataVolumes": "no job uses data volumes",
    "DeleteOwnVolumes": "no job uses data volumes",
    "MoveDeadlines": "nobody uses `kedge extend`",
    "MakeRunRoles": "all runs share one role (below)",
    "KeepRunRoles": "all runs share one role (below)",
    "FindRunSecrets": "no job with `start: boot` has secrets",
    "RunSecrets": "no job with `start: boot` has secrets",
    "FirstSpotMachine": "the account has used spot machines before, or uses none",
    "Doctor": "it is fine if `kedge doctor` can't check permissions",
}
"""When a statement can be left out."""

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
    "ssm:DescribeParameters": "with `--remove`",
    "s3:DeleteBucket": "with `--remove`",
    "s3:DeleteObject": "with `--remove --delete-data`",
    "s3:ListBucket": "",
    "s3:ListBucketVersions": "with `--remove`",
    "budgets:ModifyBudget": "with `--budget-usd`, and with `--remove`",
    "budgets:ViewBudget": "with `--budget-usd`, and with `--remove`",
    "ec2:DescribeInstances": "with `--remove`, if all runs share one role",
    "ec2:DescribeRegions": "with `--remove`, if all runs share one role",
}
"""What `kedge bootstrap` calls by itself; CloudFormation then makes things with the same person's permissions."""

_HEAD = """\
# AWS permissions

Which permissions kedge needs at AWS. `docs/write_permissions.py` makes this page from
`infra/aws/operator-policy.json` and `infra/aws/power-user-policy.json`. Tests go through a run's whole life with
exactly these policies (`tests/in_cloudbox/aws/test_permissions.py`).

There are two kinds of people:

- an **administrator** runs `kedge bootstrap --provider aws`, once per account;
- **operators** run everything else: offers, launches, teardowns, `kedge reap`.

## Operators

An administrator gives the policy to a user, here `ada`, in a checkout of kedge:

```
aws iam create-policy --policy-name kedge-operator --policy-document file://infra/aws/operator-policy.json
aws iam attach-user-policy --user-name ada --policy-arn arn:aws:iam::ACCOUNT:policy/kedge-operator
```

`kedge doctor --provider aws` then checks the permissions. The policy names no account and no region; to limit it to
some regions, replace `arn:aws:ec2:*:*:` by their ARNs. Two things may need a change:

- `Bucket` allows buckets whose names begin with `kedge-`, which `bootstrap` chooses. If you ran `bootstrap --bucket
  NAME`, put that name there.
- New disks are encrypted with the account's default key. If that is a key of your own instead of `aws/ebs`, the
  operator also needs `kms:CreateGrant`, `kms:Decrypt`, `kms:DescribeKey`, `kms:GenerateDataKeyWithoutPlainText` and
  `kms:ReEncrypt*` on it.

| statement | what it allows | can be left out if |
|---|---|---|
"""

_POWER = """
An operator with this policy:

- can create roles only with the permissions boundary, so that no machine gets more than the objects of runs in kedge's
  bucket;
- can't change or end anything without kedge's tags;
- can pass the two roles under /kedge/ only to EC2 and to EventBridge Scheduler;
- can store and delete the secrets of runs, and can't read them.

Operators of one account aren't separated from each other: they can end each other's machines and read each other's
results.

## People who may not make roles (PowerUserAccess)

By default each run has its own role, which can access that run's objects and the data sets that its job names. AWS's
PowerUserAccess can neither create roles nor pass them to machines. For people with PowerUserAccess an administrator
runs, once:

```
kedge bootstrap --provider aws --run-role
```

This makes **one role for all runs** (`kedge-runs`), with an instance profile. A launch then makes no IAM call that
changes anything. In addition to PowerUserAccess a person needs `infra/aws/power-user-policy.json`: it allows to look
up two roles, to pass them on, and `kedge doctor` to ask IAM. `operator-policy.json` without `MakeRunRoles` and
`KeepRunRoles` works, too.

**What you lose:** the machines of any run can read, change and delete the checkpoints and results of every other run
in the bucket, and read every data set there. Each plan says so. They still can't do anything else in the account,
because this role has the boundary, too. It belongs to no run: teardown and `kedge reap` leave it alone, and `kedge
bootstrap --remove` removes it with the rest.

## The administrator

`kedge bootstrap` shows every change before it makes it. It calls:

| permission | when |
|---|---|
"""

_TAIL = """
CloudFormation then creates, changes and removes what `infra/aws/account.yaml` lists, with the same person's
permissions: a bucket with its policy and settings, the managed policy `kedge-run-boundary`, the role
`kedge-scheduler`, and with `--run-role` the role and instance profile `kedge-runs`. AdministratorAccess is enough; so
are PowerUserAccess and IAMFullAccess together.

## Credentials

kedge uses the same credentials as the AWS CLI: keys, profiles, SSO, roles. If a profile assumes a role with an MFA
code, kedge asks for the code in the terminal, at most once an hour, because it keeps the session where the AWS CLI
does (`~/.aws/cli/cache`). Without a terminal the command fails and says so. `AWS_REGION` takes precedence over
`AWS_DEFAULT_REGION`.
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
