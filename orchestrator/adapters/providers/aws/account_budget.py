"""The budget that sends mail when the whole account costs too much; made through the Budgets API.

CloudFormation's AWS::Budgets::Budget is missing in 18 regions; the API has one endpoint for all of them. Stacks of
earlier versions have one: it goes with their update, and is made anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from orchestrator.adapters.aws_sdk import code_of, translate
from orchestrator.adapters.providers.aws.account_changes import Change
from orchestrator.core.errors import BadRequestError

if TYPE_CHECKING:
    from orchestrator.adapters.providers.aws.account_settings import AccountWishes
    from orchestrator.adapters.providers.aws.account_stack import Stack
    from orchestrator.adapters.providers.aws.session import AwsSession

_NAME = "kedge"
_HOME = "us-east-1"
"""The endpoint of the whole partition signs for this region. fact: budgets-everywhere."""

_ALARMS: tuple[Mapping[str, Any], ...] = (
    {
        "NotificationType": "ACTUAL",
        "ComparisonOperator": "GREATER_THAN",
        "Threshold": 80,
        "ThresholdType": "PERCENTAGE",
    },
    {
        "NotificationType": "FORECASTED",
        "ComparisonOperator": "GREATER_THAN",
        "Threshold": 100,
        "ThresholdType": "PERCENTAGE",
    },
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Dollars a month of the whole account, and who is told about them."""

    usd: Decimal
    email: str

    def __str__(self) -> str:
        """Say it in words."""
        return f"mail to {self.email} above {self.usd.normalize():f} dollars a month"


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetChange:
    """What becomes of the budget; `wanted` None takes it away."""

    wanted: Budget | None
    change: Change


def plan_budget(session: AwsSession, wishes: AccountWishes, *, in_stack: bool) -> BudgetChange | None:
    """Compare what is wished with what will be there; None where nothing changes.

    AWS is asked only where something is wished, or is about to go.

    Args:
        session: the way to AWS.
        wishes: what is left out of them stays as it is.
        in_stack: the budget is part of the stack, whose update takes it away. fact: cloudformation-removals.

    Raises:
        BadRequestError: nobody would read the alarm.
        KedgeError: AWS doesn't tell.
    """
    if wishes.budget_usd is None and wishes.budget_email is None and not in_stack:
        return None
    present = read_budget(session)
    usd = wishes.budget_usd if wishes.budget_usd is not None else present.usd if present else Decimal(0)
    email = wishes.budget_email or (present.email if present else "")
    if usd and not email:
        raise BadRequestError("a budget alarm needs an address to write to", fix="say --email you@example.org")
    wanted = Budget(usd=usd, email=email) if usd else None
    left = None if in_stack else present
    return BudgetChange(wanted=wanted, change=_describe(left, wanted)) if wanted != left else None


def is_in_stack(stack: Stack | None) -> bool:
    """Tell whether a stack has a budget, as those of earlier versions may."""
    return stack is not None and Decimal(stack.parameters.get("BudgetUsd", "0")) > 0


def apply_budget(session: AwsSession, planned: BudgetChange) -> None:
    """Put the wanted budget in the place of the one that is there: subscribers can't be changed with it.

    Raises:
        KedgeError: AWS refuses.
    """
    remove_budget(session)
    if planned.wanted is None:
        return
    try:
        _client(session).create_budget(
            AccountId=session.account_id(),
            Budget={
                "BudgetName": _NAME,
                "BudgetType": "COST",
                "TimeUnit": "MONTHLY",
                "BudgetLimit": {"Amount": f"{planned.wanted.usd.normalize():f}", "Unit": "USD"},
            },
            NotificationsWithSubscribers=[_alarm(alarm, planned.wanted.email) for alarm in _ALARMS],
        )
    except (ClientError, BotoCoreError) as err:
        raise translate(err, "the budget alarm can't be made") from err


def read_budget(session: AwsSession) -> Budget | None:
    """Return the budget that kedge has made; None where there is none.

    Raises:
        KedgeError: AWS doesn't tell.
    """
    client, where = _client(session), {"AccountId": session.account_id(), "BudgetName": _NAME}
    try:
        found = client.describe_budget(**where)["Budget"]
        told = client.describe_subscribers_for_notification(**where, Notification=_ALARMS[0])["Subscribers"]
    except (ClientError, BotoCoreError) as err:
        if isinstance(err, ClientError) and code_of(err) == "NotFoundException":
            return None
        raise translate(err, "the budget alarm can't be looked at") from err
    limit = found.get("BudgetLimit", {}).get("Amount", "0")
    return Budget(usd=Decimal(limit), email=next((each["Address"] for each in told), ""))


def remove_budget(session: AwsSession) -> None:
    """Take the budget away; that there is none is no error.

    Raises:
        KedgeError: AWS refuses.
    """
    try:
        _client(session).delete_budget(AccountId=session.account_id(), BudgetName=_NAME)
    except (ClientError, BotoCoreError) as err:
        if not (isinstance(err, ClientError) and code_of(err) == "NotFoundException"):
            raise translate(err, "the budget alarm can't be taken away") from err


def _client(session: AwsSession) -> Any:
    return session.client("budgets", _HOME)


def _alarm(alarm: Mapping[str, Any], email: str) -> Mapping[str, Any]:
    return {"Notification": alarm, "Subscribers": [{"SubscriptionType": "EMAIL", "Address": email}]}


def _describe(present: Budget | None, wanted: Budget | None) -> Change:
    what = "budget alarm for the whole account"
    if present is None:
        return Change(sign="+", says=f"{what}: {wanted}")
    if wanted is None:
        return Change(sign="-", says=f"{what}: {present}")
    return Change(sign="~", says=f"{what}: {present} -> {wanted}")
