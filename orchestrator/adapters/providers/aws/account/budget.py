"""The budget alarm of the whole account, created through the Budgets API.

CloudFormation's AWS::Budgets::Budget is missing in 18 regions; the API has one endpoint for all of them. Stacks of
earlier versions contain a budget: their update removes it, and it is created again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from orchestrator.adapters.aws_sdk import code_of, translate
from orchestrator.adapters.providers.aws.account.changes import Change
from orchestrator.core.errors import BadRequestError

if TYPE_CHECKING:
    from orchestrator.adapters.providers.aws.access.session import AwsSession
    from orchestrator.adapters.providers.aws.account.settings import AccountSettings
    from orchestrator.adapters.providers.aws.account.stack import Stack

_NAME = "kedge"
_HOME = "us-east-1"
"""Requests to the partition's one endpoint are signed for this region. fact: budgets-everywhere."""

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
    """A limit in dollars a month for the whole account, and who receives the alarm."""

    usd: Decimal
    email: str

    def __str__(self) -> str:
        """Say it in words."""
        return f"mail to {self.email} above {self.usd.normalize():f} dollars a month"


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetChange:
    """A change of the budget; `wanted` None removes it."""

    wanted: Budget | None
    change: Change


def plan_budget(session: AwsSession, settings: AccountSettings, *, in_stack: bool) -> BudgetChange | None:
    """Compare the wanted budget with the one that will exist; None if nothing changes.

    AWS is called only if a budget is wanted, or is about to be removed.

    Args:
        session: the account's session.
        settings: what they leave out stays as it is.
        in_stack: the budget is part of the stack, whose update removes it. fact: cloudformation-removals.

    Raises:
        BadRequestError: there is no address for the alarm.
        KedgeError: AWS refuses, or doesn't answer.
    """
    if settings.budget_usd is None and settings.budget_email is None and not in_stack:
        return None
    present = read_budget(session)
    usd = settings.budget_usd if settings.budget_usd is not None else present.usd if present else Decimal(0)
    email = settings.budget_email or (present.email if present else "")
    if usd and not email:
        raise BadRequestError("a budget alarm needs an address to write to", fix="use --email you@example.org")
    wanted = Budget(usd=usd, email=email) if usd else None
    left = None if in_stack else present
    return BudgetChange(wanted=wanted, change=_describe(left, wanted)) if wanted != left else None


def is_in_stack(stack: Stack | None) -> bool:
    """Tell whether a stack contains a budget; those of earlier versions may."""
    return stack is not None and Decimal(stack.parameters.get("BudgetUsd", "0")) > 0


def apply_budget(session: AwsSession, planned: BudgetChange) -> None:
    """Delete the present budget and create the wanted one: an update can't change the subscribers.

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
    """Return the budget that kedge has created; None if there is none.

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
        raise translate(err, "the budget alarm can't be read") from err
    limit = found.get("BudgetLimit", {}).get("Amount", "0")
    return Budget(usd=Decimal(limit), email=next((each["Address"] for each in told), ""))


def remove_budget(session: AwsSession) -> None:
    """Delete the budget; a missing one is no error.

    Raises:
        KedgeError: AWS refuses.
    """
    try:
        _client(session).delete_budget(AccountId=session.account_id(), BudgetName=_NAME)
    except (ClientError, BotoCoreError) as err:
        if not (isinstance(err, ClientError) and code_of(err) == "NotFoundException"):
            raise translate(err, "the budget alarm can't be removed") from err


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
