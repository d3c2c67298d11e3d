"""`kedge bootstrap` against moto's AWS: it is idempotent, and it explains each failure."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from botocore.stub import Stubber
from moto.cloudformation.models import cloudformation_backends

from orchestrator.adapters.providers.aws.access.session import AwsSession
from orchestrator.adapters.providers.aws.account.budget import read_budget
from orchestrator.adapters.providers.aws.account.changes import list_changes
from orchestrator.adapters.providers.aws.account.level import Account, find_account, read_account
from orchestrator.adapters.providers.aws.account.plan import (
    AccountChange,
    apply_account,
    discard_account,
)
from orchestrator.adapters.providers.aws.account.settings import AccountSettings
from orchestrator.adapters.providers.aws.account.stack import STACK, await_stack, find_stack
from orchestrator.core.errors import BadRequestError, ConflictError, KedgeError
from tests.adapters.aws.account.bootstraps import BUCKET, CLOCK, ImpatientClock, plan, set_up
from tests.adapters.aws.account_moto import ACCOUNT_ID, REGION, environment
from tests.support.laptop import Laptop

# moto emits this warning for the bucket's policy.
pytestmark = pytest.mark.filterwarnings("ignore:Tried to parse AWS:UserWarning")


def test_a_bootstrap_makes_the_account_level_once(session: AwsSession) -> None:
    """The plan lists what will be created; a second plan has nothing to do."""
    change = plan(session)
    assert change.kind == "create"
    assert {line.sign for line in change.changes} == {"+"}
    assert any(BUCKET in line.says for line in change.changes)

    account = apply_account(session, change, CLOCK)
    assert account == Account(
        bucket=BUCKET,
        boundary_arn=f"arn:aws:iam::{ACCOUNT_ID}:policy/kedge-run-boundary",
        scheduler_role_arn=f"arn:aws:iam::{ACCOUNT_ID}:role/kedge/kedge-scheduler",
        region=REGION,
        stores_secrets=True,
    )
    assert read_account(session.client("cloudformation")) == account
    again = plan(session)
    assert (again.kind, again.changes) == ("none", ())


def test_the_account_level_is_found_from_every_region(session: AwsSession) -> None:
    """A launch elsewhere uses the account's one bucket."""
    elsewhere = AwsSession(region="us-east-1")
    assert find_account(elsewhere) is None
    assert find_account(session) is None
    account = set_up(session)
    assert find_account(elsewhere) == account
    assert read_account(elsewhere.client("cloudformation")) is None


def test_a_second_region_is_refused(session: AwsSession) -> None:
    """Role names are unique in an account, so only one region can have them."""
    set_up(session)
    with pytest.raises(BadRequestError, match=f"set up in {REGION} already"):
        plan(AwsSession(region="us-east-1"))


def test_a_plan_that_is_not_carried_out_leaves_nothing(session: AwsSession) -> None:
    """Discarding the first plan leaves no stack; discarding a later one leaves the stack as it was."""
    discard_account(session, plan(session))
    client = session.client("cloudformation")
    assert find_stack(client) is None

    change = plan(session)
    account = apply_account(session, change, CLOCK)
    discard_account(session, change)
    settings = AccountSettings(run_role=True, budget_usd=Decimal(9), budget_email="a@b.example")
    discard_account(session, plan(session, settings))
    assert read_account(client) == account
    stack = find_stack(client)
    assert stack is not None
    assert stack.parameters["RunRole"] == "false"
    assert read_budget(session) is None


def test_a_bootstrap_killed_after_its_plan_can_start_again(session: AwsSession) -> None:
    """A stack that consists only of a change set does not block the next bootstrap."""
    plan(session)
    assert set_up(session).bucket == BUCKET
    assert len(session.client("cloudformation").list_stacks(StackStatusFilter=["CREATE_COMPLETE"])["StackSummaries"])


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (AccountSettings(budget_usd=Decimal(50)), "address to write to"),
        (AccountSettings(bucket="other"), "already"),
        (AccountSettings(read_buckets=("s3://my-data/x",)), "not a valid bucket name"),
    ],
)
def test_an_impossible_setting_changes_nothing(session: AwsSession, settings: AccountSettings, said: str) -> None:
    """A budget without an email address, a new name for the bucket, and an invalid bucket name."""
    set_up(session)
    with pytest.raises(BadRequestError, match=said):
        plan(session, settings)
    assert plan(session).kind == "none"


@pytest.mark.parametrize(
    ("status", "error", "said"),
    [
        ("ROLLBACK_COMPLETE", KedgeError, "is ROLLBACK_COMPLETE"),
        ("UPDATE_IN_PROGRESS", ConflictError, "being changed at this moment"),
    ],
)
def test_a_stack_that_cannot_be_updated_is_explained(
    session: AwsSession, status: str, error: type[KedgeError], said: str
) -> None:
    """Bootstrap does not touch a stack that has failed, or that another command is changing."""
    set_up(session)
    (stack,) = cloudformation_backends[ACCOUNT_ID][REGION].stacks.values()
    stack.status = status
    with pytest.raises(error, match=said) as caught:
        plan(session)
    assert caught.value.fix


def test_a_failed_creation_reports_the_first_failure(session: AwsSession) -> None:
    """Later failures follow from the first. The stubbed answers are checked against CloudFormation's API model."""
    client = session.client("cloudformation")
    arn = f"arn:aws:cloudformation:{REGION}:{ACCOUNT_ID}:stack/{STACK}/1"
    change_set = f"arn:aws:cloudformation:{REGION}:{ACCOUNT_ID}:changeSet/kedge-1/1"
    stack = {"StackName": STACK, "StackId": arn, "CreationTime": CLOCK.now()}
    event = {"StackId": arn, "StackName": STACK, "Timestamp": CLOCK.now()}
    said = {"LogicalResourceId": "SchedulerRole", "ResourceStatus": "CREATE_FAILED"}
    first = {"LogicalResourceId": "Bucket", "ResourceStatus": "CREATE_FAILED"}
    events = [
        event | {"EventId": "3"} | said | {"ResourceStatusReason": "Resource creation cancelled"},
        event | {"EventId": "2"} | first | {"ResourceStatusReason": "the name\nis taken"},
        event | {"EventId": "1", "ResourceStatus": "CREATE_IN_PROGRESS", "ResourceStatusReason": "User Initiated"},
        event | {"EventId": "0"} | said | {"ResourceStatusReason": "of an earlier attempt"},
    ]
    with Stubber(client) as stubber:
        stubber.add_response("execute_change_set", {}, {"ChangeSetName": change_set})
        for status in ("CREATE_IN_PROGRESS", "DELETE_IN_PROGRESS", "DELETE_COMPLETE"):
            stubber.add_response("describe_stacks", {"Stacks": [stack | {"StackStatus": status}]}, {"StackName": arn})
        stubber.add_response("describe_stack_events", {"StackEvents": events}, {"StackName": arn})
        change = AccountChange(kind="create", account_id=ACCOUNT_ID, region=REGION, stack_id=arn, change_set=change_set)
        with pytest.raises(KedgeError) as caught:
            apply_account(session, change, CLOCK)
    assert caught.value.why == "Bucket: the name is taken"


def test_waiting_for_cloudformation_has_a_deadline(session: AwsSession) -> None:
    """A stack that never settles is an error after ten minutes; the command does not hang."""
    plan(session)
    stack = find_stack(session.client("cloudformation"))
    assert stack is not None
    clock = ImpatientClock(speed=30)
    began = clock.now()
    with pytest.raises(KedgeError, match="still being changed"):
        await_stack(session.client("cloudformation"), stack.id, clock)
    assert clock.now() - began == timedelta(minutes=10)


def test_a_change_set_is_described_in_words() -> None:
    """The lines say which resource is replaced, and which one is adopted from an earlier bootstrap."""

    def resource_change(action: Any, name: str, replacement: Any = "False") -> Any:
        about = {"Action": action, "LogicalResourceId": name, "Replacement": replacement}
        return {"Type": "Resource", "ResourceChange": about}

    changes = [
        resource_change("Import", "Bucket"),
        resource_change("Modify", "RunBoundary", "True"),
        resource_change("Remove", "SharedRunProfile"),
    ]
    found = [f"{c.sign} {c.says}" for c in list_changes(changes, {}, {"BucketName": "mine"})]
    assert found == [
        "~ bucket for code, checkpoints, results and data sets: mine (it exists already and is imported)",
        "~ policy kedge-run-boundary: the most that a machine of a run may do (replaced)",
        "- instance profile kedge-runs, which gives machines that role",
    ]
    assert list_changes([], {}, {})[0].sign == "~"


def test_the_command_shows_its_plan_asks_and_is_idempotent(laptop: Laptop, endpoint: str) -> None:
    """`kedge bootstrap` creates nothing before a yes, and has nothing to do the second time."""
    laptop.extra_env = environment(endpoint)
    words = ("bootstrap", "--provider", "aws")
    shown = laptop.kedge(*words, code=2)
    assert f"+ bucket for code, checkpoints, results and data sets: {BUCKET}" in shown
    assert "no terminal to ask on" in laptop.errors
    planned = laptop.json(*words, "--dry-run")
    assert (planned["done"], planned["account"]) == (False, ACCOUNT_ID)
    made = laptop.json(*words, "--yes")
    assert (made["done"], made["bucket"]) == (True, BUCKET)
    assert made["actions"] == planned["actions"]
    assert "nothing to do" in laptop.kedge(*words)
    assert laptop.json(*words, "--read-bucket", "my-data", "--yes")["read_buckets"] == ["my-data"]
    assert f"- bucket for code, checkpoints, results and data sets: {BUCKET} (empty)" in laptop.kedge(
        *words, "--remove", "--yes"
    )
    assert "nothing to do" in laptop.kedge(*words, "--remove")


@pytest.mark.parametrize(
    ("words", "env", "said"),
    [
        (["--provider", "aws"], {"AWS_ACCESS_KEY_ID": ""}, "aws configure"),
        (["--provider", "aws"], {"AWS_DEFAULT_REGION": ""}, "--region eu-west-1"),
        (["--provider", "aws"], {"AWS_PROFILE": "nobody"}, "AWS_PROFILE"),
        (["--provider", "local"], {}, "--provider aws"),
        (["--provider", "aws", "--delete-data"], {}, "--remove --delete-data"),
        (["--provider", "aws", "--budget-usd", "much"], {}, "10"),
    ],
)
def test_a_request_that_cannot_be_carried_out_says_how_to_fix_it(
    laptop: Laptop, endpoint: str, words: list[str], env: dict[str, str], said: str
) -> None:
    """The exit code is 2; what, why and fix have one line each."""
    laptop.extra_env = environment(endpoint) | env
    laptop.kedge("bootstrap", *words, code=2)
    fix = next(line for line in laptop.errors.splitlines() if line.startswith("  fix: "))
    assert said in fix
