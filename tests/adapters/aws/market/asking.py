"""What tests need to ask for offers: a clock, GPUs, quota codes, an image."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from orchestrator.adapters.providers.aws.market.offers import Listing
from orchestrator.core.offer import Accelerators
from tests.cloudbox.aws.box import Box

A10G = Accelerators(name="a10g")
NOBODY = "http://127.0.0.1:1"
ON_DEMAND_G = "L-DB2E81BA"
SPOT_G = "L-3819A6DF"


class SetClock:
    """A clock that moves only when a test moves it."""

    def __init__(self) -> None:
        self.at = datetime.now(UTC)

    def now(self) -> datetime:
        """Return the time that was set."""
        return self.at

    def sleep(self, duration: timedelta) -> None:
        """Advance the clock."""
        self.at += duration


Ask = Callable[..., Listing]


def any_image(api: Box) -> str:
    name = "/aws/service/debian/release/12/latest/amd64"
    return str(api.client("ssm").get_parameter(Name=name)["Parameter"]["Value"])
