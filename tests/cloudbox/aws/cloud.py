"""The parts of one box, put together."""

from __future__ import annotations

import threading
from pathlib import Path

from moto.moto_api._internal.models import moto_api_backend

from tests.cloudbox.aws.calls import CallBook
from tests.cloudbox.aws.faults import FaultBook
from tests.cloudbox.aws.life import identity
from tests.cloudbox.aws.life.lifecycle import Lifecycle
from tests.cloudbox.aws.life.meter import Meter
from tests.cloudbox.aws.life.schedules import Scheduler
from tests.cloudbox.aws.rules import budgets, images
from tests.cloudbox.aws.rules.bucket_rules import BucketRules
from tests.cloudbox.aws.rules.closed_regions import ClosedRegions
from tests.cloudbox.aws.rules.placements import PlacementBook
from tests.cloudbox.aws.rules.quotas import QuotaBook
from tests.cloudbox.aws.rules.restoring import fill_snapshots
from tests.cloudbox.aws.rules.spot import SpotMarket
from tests.cloudbox.aws.rules.tokens import TokenBook
from tests.cloudbox.aws.wire.moto_memory import remember_constants, remember_policies
from tests.cloudbox.aws.wire.moto_state import keep_first_regions


class Cloud:
    """The state of the box beside moto's own."""

    def __init__(self, folder: Path, *, with_machines: bool) -> None:
        identity.keep_few_managed_policies()
        identity.mend_moto()
        keep_first_regions()
        remember_constants()
        remember_policies()
        fill_snapshots()
        budgets.complete()
        self.lock = threading.RLock()
        self.calls = CallBook()
        self.faults = FaultBook()
        self.quotas = QuotaBook()
        self.spot = SpotMarket()
        self.closed = ClosedRegions()
        self.tokens = TokenBook()
        self.placements = PlacementBook()
        self.buckets = BucketRules()
        self.meter = Meter(self.spot)
        self.lifecycle = Lifecycle(folder, self.meter, self.lock, self.placements.holds, with_machines=with_machines)
        self.scheduler = Scheduler(self.lifecycle)

    def reset(self) -> None:
        """Start from nothing: an account in which nothing was ever made."""
        with self.lock:
            self.lifecycle.end_all()
            moto_api_backend.reset()
            self.lifecycle.states.reset()
            self.lifecycle.images.reset()
            identity.enforce(False)
            images.bring_back()
            self.closed.reset()
            for part in (self.faults, self.quotas, self.spot, self.tokens, self.buckets, self.meter, self.calls):
                part.reset()
            self.placements.reset()
            self.scheduler.reset()
            self.lifecycle.settle()

    def close(self) -> None:
        """End whatever runs."""
        self.scheduler.close()
        self.lifecycle.close()
