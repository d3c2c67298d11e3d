"""Plan and apply `kedge bootstrap` with the shipped template, and parse that template."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import yaml

from orchestrator.adapters.host.resources import resource
from orchestrator.adapters.providers.aws.access.session import AwsSession
from orchestrator.adapters.providers.aws.account.level import Account
from orchestrator.adapters.providers.aws.account.plan import (
    AccountChange,
    apply_account,
    plan_account,
)
from orchestrator.adapters.providers.aws.account.settings import AccountSettings
from tests.adapters.aws.account_moto import ACCOUNT_ID, REGION

TEMPLATE = resource("infra", "aws", "account.yaml")
BUCKET = f"kedge-{ACCOUNT_ID}-{REGION}"
NOTHING = AccountSettings()


class ImpatientClock:
    """A clock whose sleeps return at once, and advance it `speed` times as far as asked."""

    def __init__(self, speed: int = 1) -> None:
        self.time = datetime(2026, 11, 21, tzinfo=UTC)
        self.speed = speed

    def now(self) -> datetime:
        return self.time

    def sleep(self, duration: timedelta) -> None:
        self.time += duration * self.speed


CLOCK = ImpatientClock()


def plan(session: AwsSession, settings: AccountSettings = NOTHING) -> AccountChange:
    """Plan with the shipped template."""
    return plan_account(session, TEMPLATE.read_text(), settings, CLOCK)


def set_up(session: AwsSession, settings: AccountSettings = NOTHING) -> Account:
    """Bootstrap the account with the shipped template."""
    return apply_account(session, plan(session, settings), CLOCK)


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
