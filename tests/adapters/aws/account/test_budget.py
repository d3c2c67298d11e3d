"""The account's budget: created, changed and removed through the Budgets API, outside of the stack."""

from __future__ import annotations

from decimal import Decimal

import pytest
import yaml

from orchestrator.adapters.providers.aws.access.session import AwsSession
from orchestrator.adapters.providers.aws.account.budget import Budget, read_budget
from orchestrator.adapters.providers.aws.account.plan import (
    apply_account,
)
from orchestrator.adapters.providers.aws.account.settings import AccountSettings
from orchestrator.adapters.providers.aws.account.stack import STACK
from orchestrator.adapters.providers.aws.account_removal import plan_removal, remove_account
from tests.adapters.aws.account.bootstraps import BUCKET, CLOCK, NOTHING, TEMPLATE, PlainLoader, plan, set_up
from tests.adapters.aws.account_moto import ACCOUNT_ID

# moto emits this warning for the bucket's policy.
pytestmark = pytest.mark.filterwarnings("ignore:Tried to parse AWS:UserWarning")


def test_a_budget_stays_until_it_is_changed(session: AwsSession) -> None:
    """A bootstrap without a budget setting leaves the budget as it is; zero removes it."""
    set_up(session, AccountSettings(budget_usd=Decimal("50.00"), budget_email="me@example.org"))
    assert read_budget(session) == Budget(usd=Decimal(50), email="me@example.org")
    assert plan(session).kind == "none"
    assert plan(session, AccountSettings(budget_usd=Decimal(50))).changes == ()
    change = plan(session, AccountSettings(budget_usd=Decimal(60)))
    words = "mail to me@example.org above"
    (line,) = change.changes
    assert line.says == f"budget alarm for the whole account: {words} 50 dollars a month -> {words} 60 dollars a month"
    assert apply_account(session, change, CLOCK).bucket == BUCKET
    assert read_budget(session) == Budget(usd=Decimal(60), email="me@example.org")
    apply_account(session, plan(session, AccountSettings(budget_usd=Decimal(0))), CLOCK)
    assert read_budget(session) is None


def test_the_budget_does_not_use_cloudformation(session: AwsSession) -> None:
    """AWS::Budgets::Budget is missing in 18 regions; the Budgets API serves all of them. fact: budgets-everywhere."""
    types = {each["Type"] for each in yaml.load(TEMPLATE.read_text(), Loader=PlainLoader)["Resources"].values()}
    assert not any("Budget" in each for each in types)
    set_up(session, AccountSettings(budget_usd=Decimal(50), budget_email="me@example.org"))
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
    """Return the template of an older version, whose stack contained the budget."""
    parameters = "  BudgetUsd: {Type: Number, Default: 0}\n  BudgetEmail: {Type: String, Default: ''}\n"
    limit = "BudgetName: kedge, BudgetType: COST, TimeUnit: MONTHLY, BudgetLimit: {Amount: !Ref BudgetUsd, Unit: USD}"
    budget = f"  Budget: {{Type: AWS::Budgets::Budget, Properties: {{Budget: {{{limit}}}}}}}\n"
    text = TEMPLATE.read_text()
    return text.replace("Parameters:\n", f"Parameters:\n{parameters}").replace("Resources:\n", f"Resources:\n{budget}")


@pytest.mark.filterwarnings("ignore:No Moto CloudFormation support for AWS..Budgets..Budget:UserWarning")
@pytest.mark.parametrize(
    ("settings", "left"),
    [
        (NOTHING, Budget(usd=Decimal(50), email="me@example.org")),
        (AccountSettings(budget_usd=Decimal(60)), Budget(usd=Decimal(60), email="me@example.org")),
        (AccountSettings(budget_usd=Decimal(0)), None),
    ],
    ids=["not mentioned", "another", "none"],
)
def test_the_budget_of_an_older_stack_outlives_the_update_that_removes_it(
    session: AwsSession, settings: AccountSettings, left: Budget | None
) -> None:
    """CloudFormation deletes what the new template lacks. The plan says so, and that the budget is created again."""
    set_up(session, AccountSettings(budget_usd=Decimal(50), budget_email="me@example.org"))
    session.client("cloudformation").update_stack(
        StackName=STACK,
        TemplateBody=older_template(),
        Parameters=[
            {"ParameterKey": name, "ParameterValue": value}
            for name, value in {"BucketName": BUCKET, "BudgetUsd": "50", "BudgetEmail": "me@example.org"}.items()
        ],
        Capabilities=["CAPABILITY_NAMED_IAM"],
    )
    change = plan(session, settings)
    apply_account(session, change, CLOCK)
    assert read_budget(session) == left
    remade = [f"+ budget alarm for the whole account: {left}"] if left else []
    assert [f"{line.sign} {line.says}" for line in change.changes if "budget alarm for" in line.says] == remade
    assert plan(session).changes == ()


def test_a_removal_deletes_the_budget(session: AwsSession) -> None:
    """Even if nothing else is left of the account level."""
    set_up(session, AccountSettings(budget_usd=Decimal(50), budget_email="me@example.org"))
    removal = plan_removal(session)
    assert removal is not None
    shown = [change.says for change in removal.changes(delete_data=False)]
    assert "budget alarm for the whole account: mail to me@example.org above 50 dollars a month" in shown
    remove_account(session, removal, CLOCK, delete_data=False)
    assert read_budget(session) is None
    assert plan_removal(session) is None
