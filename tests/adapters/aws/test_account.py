"""The account level: what account.yaml allows, and a bootstrap against moto's AWS."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml
from botocore.stub import Stubber
from moto.cloudformation.models import cloudformation_backends
from moto.iam.access_control import IAMPolicy, PermissionResult
from moto.s3.models import s3_backends

from orchestrator.adapters.providers.aws.account import Account, find_account, read_account
from orchestrator.adapters.providers.aws.account_budget import Budget, read_budget
from orchestrator.adapters.providers.aws.account_changes import Change, list_changes
from orchestrator.adapters.providers.aws.account_plan import (
    AccountChange,
    apply_account,
    discard_account,
    plan_account,
)
from orchestrator.adapters.providers.aws.account_removal import plan_removal, remove_account
from orchestrator.adapters.providers.aws.account_settings import AccountWishes
from orchestrator.adapters.providers.aws.account_stack import STACK, await_stack, find_stack
from orchestrator.adapters.providers.aws.session import AwsSession
from orchestrator.adapters.resources import resource
from orchestrator.core.errors import BadRequestError, ConflictError, KedgeError
from tests.adapters.aws.account_moto import ACCOUNT_ID, REGION, environment, reset, serving
from tests.laptop import Laptop

# moto says so of the bucket's policy.
pytestmark = pytest.mark.filterwarnings("ignore:Tried to parse AWS:UserWarning")

TEMPLATE = resource("infra", "aws", "account.yaml")
BUCKET = f"kedge-{ACCOUNT_ID}-{REGION}"
NOTHING = AccountWishes()


class ImpatientClock:
    """A clock on which waiting costs nothing, and passes faster than it was asked to."""

    def __init__(self, speed: int = 1) -> None:
        self.time = datetime(2026, 11, 21, tzinfo=UTC)
        self.speed = speed

    def now(self) -> datetime:
        return self.time

    def sleep(self, duration: timedelta) -> None:
        self.time += duration * self.speed


CLOCK = ImpatientClock()


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """One AWS for all tests of this file."""
    with serving() as endpoint:
        yield endpoint


@pytest.fixture
def endpoint(server: str) -> Iterator[str]:
    """An AWS in which nothing has been made."""
    reset(server)
    yield server
    reset(server)


@pytest.fixture
def session(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> AwsSession:
    """The user's session."""
    for name, value in environment(endpoint).items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    return AwsSession()


def plan(session: AwsSession, wishes: AccountWishes = NOTHING) -> AccountChange:
    """Plan with the template that ships."""
    return plan_account(session, TEMPLATE.read_text(), wishes, CLOCK)


def set_up(session: AwsSession, wishes: AccountWishes = NOTHING) -> Account:
    """Bootstrap."""
    return apply_account(session, plan(session, wishes), CLOCK)


class PlainLoader(yaml.SafeLoader):
    """Reads CloudFormation's functions as their arguments: `!Ref RunDays` is `RunDays`."""


def construct_argument(loader: PlainLoader, _tag: str, node: yaml.Node) -> Any:
    """Return a function's argument."""
    if isinstance(node, yaml.SequenceNode):
        return loader.construct_sequence(node, deep=True)
    assert isinstance(node, yaml.ScalarNode)
    return loader.construct_scalar(node)


yaml.add_multi_constructor("!", construct_argument, PlainLoader)


def properties(name: str) -> Any:
    """Return the properties of one of the template's resources."""
    return yaml.load(TEMPLATE.read_text(), Loader=PlainLoader)["Resources"][name]["Properties"]


def test_the_template_has_no_finding_of_cfn_lint() -> None:
    """Types, properties, references and functions are what CloudFormation knows."""
    lint = subprocess.run(
        [Path(sys.executable).with_name("cfn-lint"), TEMPLATE], capture_output=True, text=True, check=False
    )
    assert (lint.returncode, lint.stdout) == (0, "")


def test_the_bucket_is_encrypted_private_and_cleans_up_after_itself() -> None:
    """No object is ever public or in plain text; stale uploads and old runs go by themselves, data sets stay."""
    bucket = properties("Bucket")
    default = bucket["BucketEncryption"]["ServerSideEncryptionConfiguration"][0]["ServerSideEncryptionByDefault"]
    assert default == {"SSEAlgorithm": "AES256"}
    assert list(bucket["PublicAccessBlockConfiguration"].values()) == [True] * 4
    assert bucket["OwnershipControls"]["Rules"] == [{"ObjectOwnership": "BucketOwnerEnforced"}]
    assert "VersioningConfiguration" not in bucket
    uploads, runs = bucket["LifecycleConfiguration"]["Rules"]
    assert uploads["AbortIncompleteMultipartUpload"] == {"DaysAfterInitiation": 2}
    assert (runs["Prefix"], runs["ExpirationInDays"]) == ("runs/", "RunDays")
    refused = properties("BucketPolicy")["PolicyDocument"]["Statement"][0]
    assert (refused["Effect"], refused["Condition"]) == ("Deny", {"Bool": {"aws:SecureTransport": "false"}})


def test_a_bootstrap_makes_the_account_level_once(session: AwsSession) -> None:
    """The plan lists what is made; a second time there is nothing to do, and nothing of the plan is left."""
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
    """The roles' names are the whole account's."""
    set_up(session)
    with pytest.raises(BadRequestError, match=f"set up in {REGION} already"):
        plan(AwsSession(region="us-east-1"))


def test_a_plan_that_is_not_carried_out_leaves_nothing(session: AwsSession) -> None:
    """Neither a first one, nor a change of what is there; what was carried out stays."""
    discard_account(session, plan(session))
    client = session.client("cloudformation")
    assert find_stack(client) is None

    change = plan(session)
    account = apply_account(session, change, CLOCK)
    discard_account(session, change)
    wishes = AccountWishes(run_role=True, budget_usd=Decimal(9), budget_email="a@b.example")
    discard_account(session, plan(session, wishes))
    assert read_account(client) == account
    stack = find_stack(client)
    assert stack is not None
    assert stack.parameters["RunRole"] == "false"
    assert read_budget(session) is None


def test_a_bootstrap_that_was_killed_after_its_plan_is_begun_again(session: AwsSession) -> None:
    """A stack that is only a change set stands in nobody's way."""
    plan(session)
    assert set_up(session).bucket == BUCKET
    assert len(session.client("cloudformation").list_stacks(StackStatusFilter=["CREATE_COMPLETE"])["StackSummaries"])


def test_a_budget_stays_until_it_is_changed(session: AwsSession) -> None:
    """What a later bootstrap leaves out isn't taken away; zero takes it away."""
    set_up(session, AccountWishes(budget_usd=Decimal("50.00"), budget_email="me@example.org"))
    assert read_budget(session) == Budget(usd=Decimal(50), email="me@example.org")
    assert plan(session).kind == "none"
    assert plan(session, AccountWishes(budget_usd=Decimal(50))).changes == ()
    change = plan(session, AccountWishes(budget_usd=Decimal(60)))
    words = "mail to me@example.org above"
    (line,) = change.changes
    assert line.says == f"budget alarm for the whole account: {words} 50 dollars a month -> {words} 60 dollars a month"
    assert apply_account(session, change, CLOCK).bucket == BUCKET
    assert read_budget(session) == Budget(usd=Decimal(60), email="me@example.org")
    apply_account(session, plan(session, AccountWishes(budget_usd=Decimal(0))), CLOCK)
    assert read_budget(session) is None


def test_the_budget_needs_nothing_of_cloudformation(session: AwsSession) -> None:
    """AWS::Budgets::Budget is missing in 18 regions: the API has one endpoint for all. fact: budgets-everywhere."""
    types = {each["Type"] for each in yaml.load(TEMPLATE.read_text(), Loader=PlainLoader)["Resources"].values()}
    assert not any("Budget" in each for each in types)
    set_up(session, AccountWishes(budget_usd=Decimal(50), budget_email="me@example.org"))
    budgets = session.client("budgets", "us-east-1")
    (budget,) = budgets.describe_budgets(AccountId=ACCOUNT_ID)["Budgets"]
    assert (budget["BudgetName"], budget["TimeUnit"], budget["BudgetType"]) == ("kedge", "MONTHLY", "COST")
    where = {"AccountId": ACCOUNT_ID, "BudgetName": "kedge"}
    alarms = budgets.describe_notifications_for_budget(**where)["Notifications"]
    assert [(alarm["NotificationType"], alarm["Threshold"]) for alarm in alarms] == [
        ("ACTUAL", 80),
        ("FORECASTED", 100),
    ]


def older_template() -> str:
    """Return the template of a version whose stack had the budget."""
    parameters = "  BudgetUsd: {Type: Number, Default: 0}\n  BudgetEmail: {Type: String, Default: ''}\n"
    limit = "BudgetName: kedge, BudgetType: COST, TimeUnit: MONTHLY, BudgetLimit: {Amount: !Ref BudgetUsd, Unit: USD}"
    budget = f"  Budget: {{Type: AWS::Budgets::Budget, Properties: {{Budget: {{{limit}}}}}}}\n"
    text = TEMPLATE.read_text()
    return text.replace("Parameters:\n", f"Parameters:\n{parameters}").replace("Resources:\n", f"Resources:\n{budget}")


@pytest.mark.filterwarnings("ignore:No Moto CloudFormation support for AWS..Budgets..Budget:UserWarning")
@pytest.mark.parametrize(
    ("wishes", "left"),
    [
        (NOTHING, Budget(usd=Decimal(50), email="me@example.org")),
        (AccountWishes(budget_usd=Decimal(60)), Budget(usd=Decimal(60), email="me@example.org")),
        (AccountWishes(budget_usd=Decimal(0)), None),
    ],
    ids=["nothing wished", "another", "none"],
)
def test_the_budget_of_an_older_stack_outlives_the_update_that_takes_it_away(
    session: AwsSession, wishes: AccountWishes, left: Budget | None
) -> None:
    """CloudFormation deletes what the new template no longer has; the plan says so, and that it is made anew."""
    set_up(session, AccountWishes(budget_usd=Decimal(50), budget_email="me@example.org"))
    session.client("cloudformation").update_stack(
        StackName=STACK,
        TemplateBody=older_template(),
        Parameters=[
            {"ParameterKey": name, "ParameterValue": value}
            for name, value in {"BucketName": BUCKET, "BudgetUsd": "50", "BudgetEmail": "me@example.org"}.items()
        ],
        Capabilities=["CAPABILITY_NAMED_IAM"],
    )
    change = plan(session, wishes)
    apply_account(session, change, CLOCK)
    assert read_budget(session) == left
    remade = [f"+ budget alarm for the whole account: {left}"] if left else []
    assert [f"{line.sign} {line.says}" for line in change.changes if "budget alarm for" in line.says] == remade
    assert plan(session).changes == ()


def test_a_removal_takes_the_budget_away(session: AwsSession) -> None:
    """Also where nothing else is left of the account level."""
    set_up(session, AccountWishes(budget_usd=Decimal(50), budget_email="me@example.org"))
    removal = plan_removal(session)
    assert removal is not None
    shown = [change.says for change in removal.changes(delete_data=False)]
    assert "budget alarm for the whole account: mail to me@example.org above 50 dollars a month" in shown
    remove_account(session, removal, CLOCK, delete_data=False)
    assert read_budget(session) is None
    assert plan_removal(session) is None


def test_one_role_for_all_runs_is_made_on_request_and_goes_with_the_rest(session: AwsSession) -> None:
    """It is under the boundary, which is also all that it may do; what is lost is said before."""
    change = plan(session, AccountWishes(run_role=True))
    assert any("results of every other run" in line.says for line in change.changes)
    assert apply_account(session, change, CLOCK).shared_role
    iam = session.client("iam")
    role = iam.get_role(RoleName="kedge-runs")["Role"]
    boundary = f"arn:aws:iam::{ACCOUNT_ID}:policy/kedge-run-boundary"
    assert (role["Path"], role["PermissionsBoundary"]["PermissionsBoundaryArn"]) == ("/kedge/", boundary)
    attached = iam.list_attached_role_policies(RoleName="kedge-runs")["AttachedPolicies"]
    assert [policy["PolicyArn"] for policy in attached] == [boundary]
    (profile,) = iam.list_instance_profiles_for_role(RoleName="kedge-runs")["InstanceProfiles"]
    assert profile["InstanceProfileName"] == "kedge-runs"
    assert plan(session).changes == ()
    removal = plan_removal(session)
    assert removal is not None
    remove_account(session, removal, CLOCK, delete_data=False)
    assert iam.list_instance_profiles()["InstanceProfiles"] == []
    assert iam.list_roles(PathPrefix="/kedge/")["Roles"] == []


@pytest.mark.parametrize(
    ("wishes", "said"),
    [
        (AccountWishes(budget_usd=Decimal(50)), "address to write to"),
        (AccountWishes(bucket="other"), "already"),
        (AccountWishes(read_buckets=("s3://my-data/x",)), "no bucket's name"),
    ],
)
def test_a_wish_that_cannot_be_fulfilled_changes_nothing(session: AwsSession, wishes: AccountWishes, said: str) -> None:
    """An alarm that nobody reads, a bucket that would have to be renamed, and a name that no bucket can have."""
    set_up(session)
    with pytest.raises(BadRequestError, match=said):
        plan(session, wishes)
    assert plan(session).kind == "none"


def test_the_boundary_confines_every_role_of_a_run(session: AwsSession) -> None:
    """Even a role with a policy of `*` gets at objects of runs, and reads data: nothing else."""
    account = set_up(session)
    iam = session.client("iam")
    version = iam.get_policy_version(PolicyArn=account.boundary_arn, VersionId="v1")["PolicyVersion"]
    document: Any = version["Document"]
    boundary = IAMPolicy(json.dumps(document))

    def allowed(action: str, resource: str) -> bool:
        return boundary.is_action_permitted(action, resource) is PermissionResult.PERMITTED

    ours = f"arn:aws:s3:::{BUCKET}"
    assert all(allowed(f"s3:{verb}Object", f"{ours}/runs/a/manifest.json") for verb in ("Get", "Put", "Delete"))
    assert allowed("s3:GetObject", f"{ours}/data/scans/1.tar")
    assert not allowed("s3:PutObject", f"{ours}/data/scans/1.tar")
    assert not allowed("s3:GetObject", f"{ours}/elsewhere")
    assert not allowed("s3:GetObject", "arn:aws:s3:::another-bucket/runs/a")
    assert not allowed("s3:DeleteBucket", ours)
    for action in ("iam:CreateRole", "iam:PassRole", "ec2:RunInstances", "ec2:TerminateInstances", "sts:AssumeRole"):
        assert not allowed(action, "*")
    listing = document["Statement"][2]
    assert listing["Action"] == "s3:ListBucket"
    assert listing["Condition"] == {"StringLike": {"s3:prefix": ["runs/*", "data/*"]}}


def test_other_buckets_that_were_named_may_be_read_and_nothing_else(session: AwsSession) -> None:
    """With `--read-bucket`; they stay until other ones are named, and go with an empty name."""
    account = set_up(session, AccountWishes(read_buckets=("my-data", "more.data")))
    assert tuple(account.read_buckets) == ("my-data", "more.data")
    iam = session.client("iam")
    version = iam.get_policy(PolicyArn=account.boundary_arn)["Policy"]["DefaultVersionId"]
    found = iam.get_policy_version(PolicyArn=account.boundary_arn, VersionId=version)["PolicyVersion"]
    boundary = IAMPolicy(json.dumps(found["Document"]))

    def allowed(action: str, resource: str) -> bool:
        return boundary.is_action_permitted(action, f"arn:aws:s3:::{resource}") is PermissionResult.PERMITTED

    for name in ("my-data", "more.data"):
        assert allowed("s3:GetObject", f"{name}/a/b")
        assert allowed("s3:ListBucket", name)
        assert not allowed("s3:PutObject", f"{name}/a/b")
        assert not allowed("s3:DeleteObject", f"{name}/a/b")
    assert not allowed("s3:GetObject", "my-data-2/a")
    assert not allowed("s3:GetObject", "another-bucket/a")

    assert plan(session).kind == "none"
    change = plan(session, AccountWishes(read_buckets=()))
    said = "other buckets that runs may read where their job names them: my-data,more.data -> none"
    assert Change(sign="~", says=said) in change.changes
    assert apply_account(session, change, CLOCK).read_buckets == ()


def test_the_scheduler_ends_only_kedges_machines_of_this_account(session: AwsSession) -> None:
    """The role does one thing, to instances with kedge's tag, and only for this account's schedules."""
    set_up(session)
    iam = session.client("iam")
    trust: Any = iam.get_role(RoleName="kedge-scheduler")["Role"]["AssumeRolePolicyDocument"]
    assert trust["Statement"][0]["Principal"] == {"Service": "scheduler.amazonaws.com"}
    assert trust["Statement"][0]["Condition"] == {"StringEquals": {"aws:SourceAccount": ACCOUNT_ID}}
    assert iam.list_role_policies(RoleName="kedge-scheduler")["PolicyNames"] == ["terminate-kedge-machines"]
    assert "ManagedPolicyArns" not in properties("SchedulerRole")
    assert properties("SchedulerRole")["Policies"][0]["PolicyDocument"]["Statement"] == [
        {
            "Effect": "Allow",
            "Action": "ec2:TerminateInstances",
            "Resource": "arn:${AWS::Partition}:ec2:*:${AWS::AccountId}:instance/*",
            "Condition": {"StringLike": {"ec2:ResourceTag/kedge-machine": "*"}},
        }
    ]


def test_a_removal_counts_the_data_and_leaves_it(session: AwsSession) -> None:
    """The bucket stays with what it holds, and can be deleted by a later command."""
    set_up(session)
    s3 = session.client("s3")
    for name in ("runs/a", "runs/b", "data/c"):
        s3.put_object(Bucket=BUCKET, Key=name, Body=bytes(1000))
    removal = plan_removal(session)
    assert removal is not None
    assert (removal.bucket, removal.objects, removal.bytes) == (BUCKET, 3, 3000)
    assert "stays" in removal.changes(delete_data=False)[-1].says
    assert "3 objects, 3.0 kB" in removal.changes(delete_data=False)[-1].says

    remove_account(session, removal, CLOCK, delete_data=False)
    assert find_account(session) is None
    assert s3.list_objects_v2(Bucket=BUCKET)["KeyCount"] == 3

    left = plan_removal(session)
    assert left is not None
    assert "WITH ITS DATA: 3 objects" in left.changes(delete_data=True)[-1].says
    remove_account(session, left, CLOCK, delete_data=True)
    assert s3.list_buckets()["Buckets"] == []
    assert plan_removal(session) is None


def test_a_bucket_that_was_left_is_taken_in_again(session: AwsSession) -> None:
    """Data sets outlive a removal: the next bootstrap has the same bucket, with them in it.

    CloudFormation imports a bucket only where the template names it without a function.
    """
    set_up(session)
    session.client("s3").put_object(Bucket=BUCKET, Key="data/c", Body=b"x")
    removal = plan_removal(session)
    assert removal is not None
    remove_account(session, removal, CLOCK, delete_data=False)
    assert set_up(session).bucket == BUCKET
    template: Any = session.client("cloudformation").get_template(StackName=STACK)["TemplateBody"]
    assert f'BucketName: "{BUCKET}"' in str(template)
    assert session.client("s3").list_objects_v2(Bucket=BUCKET)["KeyCount"] == 1
    assert plan(session).kind == "none"


def test_a_bucket_of_somebody_elses_is_not_taken(session: AwsSession) -> None:
    """Buckets' names are the whole world's: another one is asked for before anything is made."""
    with Stubber(session.client("s3")) as stubber:
        stubber.add_client_error("head_bucket", service_error_code="403", http_status_code=403)
        with pytest.raises(BadRequestError, match="is taken") as caught:
            plan(session)
    assert "--bucket" in caught.value.fix
    assert find_stack(session.client("cloudformation")) is None


def test_data_is_deleted_where_that_was_asked_for(session: AwsSession) -> None:
    """More objects than one request deletes, and older versions of them."""
    set_up(session)
    s3 = session.client("s3")
    s3.put_bucket_versioning(Bucket=BUCKET, VersioningConfiguration={"Status": "Enabled"})
    for number in range(1002):
        s3_backends[ACCOUNT_ID]["aws"].put_object(BUCKET, f"runs/{number}", b"x")
    s3.delete_object(Bucket=BUCKET, Key="runs/0")
    removal = plan_removal(session)
    assert removal is not None
    remove_account(session, removal, CLOCK, delete_data=True)
    assert s3.list_buckets()["Buckets"] == []
    assert session.client("iam").list_roles(PathPrefix="/kedge/")["Roles"] == []


def test_an_empty_bucket_goes_with_the_rest(session: AwsSession) -> None:
    """There is nothing to lose in it."""
    set_up(session)
    removal = plan_removal(session)
    assert removal is not None
    assert removal.changes(delete_data=False)[-1].says.endswith(f"{BUCKET} (empty)")
    remove_account(session, removal, CLOCK, delete_data=False)
    assert session.client("s3").list_buckets()["Buckets"] == []


def test_a_removal_that_broke_off_is_gone_on_with(session: AwsSession) -> None:
    """The bucket was deleted already; the rest is still found."""
    account = set_up(session)
    session.client("s3").delete_bucket(Bucket=account.bucket)
    removal = plan_removal(session)
    assert removal is not None
    assert removal.bucket == ""
    remove_account(session, removal, CLOCK, delete_data=False)
    assert find_account(session) is None


def test_a_removal_is_refused_while_runs_need_the_account_level(session: AwsSession) -> None:
    """Their roles are under the boundary; half a removal would be worse than none."""
    account = set_up(session)
    iam = session.client("iam")
    trust = {"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}
    document = json.dumps({"Version": "2012-10-17", "Statement": [trust]})
    iam.create_role(RoleName="kedge-run-a", AssumeRolePolicyDocument=document)
    iam.attach_role_policy(RoleName="kedge-run-a", PolicyArn=account.boundary_arn)
    with pytest.raises(ConflictError, match="runs still need") as caught:
        plan_removal(session)
    assert "kedge-run-a" in caught.value.why
    assert read_account(session.client("cloudformation")) == account


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
    """Nothing is tried on a stack that a failure or another command holds."""
    set_up(session)
    (stack,) = cloudformation_backends[ACCOUNT_ID][REGION].stacks.values()
    stack.status = status
    with pytest.raises(error, match=said) as caught:
        plan(session)
    assert caught.value.fix


def test_a_failed_creation_says_the_first_thing_that_failed(session: AwsSession) -> None:
    """The answers are those of CloudFormation, checked against its API: what failed later followed from the first."""
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


def test_waiting_for_cloudformation_has_an_end(session: AwsSession) -> None:
    """A stack that never comes to rest is an error after ten minutes, not a command that hangs."""
    plan(session)
    stack = find_stack(session.client("cloudformation"))
    assert stack is not None
    clock = ImpatientClock(speed=30)
    began = clock.now()
    with pytest.raises(KedgeError, match="still being changed"):
        await_stack(session.client("cloudformation"), stack.id, clock)
    assert clock.now() - began == timedelta(minutes=10)


def test_a_change_set_is_put_into_words() -> None:
    """What is replaced, and what an earlier removal left, is said."""

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
        "~ bucket for code, checkpoints, results and data sets: mine (it is there already and is taken in)",
        "~ policy kedge-run-boundary: the most that a machine of a run may do (replaced)",
        "- instance profile kedge-runs, which gives machines that role",
    ]
    assert list_changes([], {}, {})[0].sign == "~"


def test_the_command_shows_asks_and_is_idempotent(laptop: Laptop, endpoint: str) -> None:
    """`kedge bootstrap`: nothing is made before a yes, and a second time there is nothing to do."""
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
def test_a_request_that_cannot_be_carried_out_says_how_to_mend_it(
    laptop: Laptop, endpoint: str, words: list[str], env: dict[str, str], said: str
) -> None:
    """Exit code 2, one line each of what, why and fix."""
    laptop.extra_env = environment(endpoint) | env
    laptop.kedge("bootstrap", *words, code=2)
    fix = next(line for line in laptop.errors.splitlines() if line.startswith("  fix: "))
    assert said in fix
