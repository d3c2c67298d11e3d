"""The Budgets API, where moto's falls short of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from moto.budgets.exceptions import NotFoundException
from moto.budgets.responses import BudgetsResponse

Patch = Callable[[Any, str, Any], None]
"""How an attribute of a class is set: `setattr`, or a test's MonkeyPatch.setattr, which takes it back."""


def complete(patch: Patch = setattr) -> None:
    """Let moto say in this process who is told when a budget is exceeded."""
    patch(BudgetsResponse, "describe_subscribers_for_notification", _describe_subscribers)


def _describe_subscribers(response: BudgetsResponse) -> str:
    account, name = response._get_param("AccountId"), response._get_param("BudgetName")
    wanted = response._get_param("Notification")
    budget = response.backend.budgets[account].get(name)
    for notification in budget.notifications if budget else ():
        if notification.details == wanted:
            return json.dumps({"Subscribers": notification.subscribers})
    raise NotFoundException(f"Unable to get the subscribers of budget {name} - the notification doesn't exist.")
