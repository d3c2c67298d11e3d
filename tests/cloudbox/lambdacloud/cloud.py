"""The parts of one box, put together."""

from __future__ import annotations

import threading
from pathlib import Path

from tests.cloudbox.lambdacloud.account import Account
from tests.cloudbox.lambdacloud.faults import LambdaFaults
from tests.cloudbox.lambdacloud.hosting import Hosting
from tests.cloudbox.lambdacloud.rates import RateLimit
from tests.cloudbox.machines.addresses import AddressPool
from tests.cloudbox.rest.calls import CallBook
from tests.cloudbox.rest.clock import BoxClock
from tests.cloudbox.rest.meter import Meter


class Cloud:
    """The state of the box; `lock` is held by whatever reads or changes it. `machines` is where they live, if any."""

    def __init__(self, machines: Path | None = None) -> None:
        self.lock = threading.RLock()
        self.clock = BoxClock()
        self.account = Account(self.clock)
        self.addresses = AddressPool()
        self.calls = CallBook()
        self.faults = LambdaFaults()
        self.rates = RateLimit(self.clock)
        self.meter = Meter(self.clock, self.lock, self.account.billing)
        self.misuse: list[str] = []
        """What clients did that no client of an account with other people's instances may do."""
        self.hosting = Hosting(self.account, machines, self.lock) if machines else None

    def reset(self) -> None:
        """Start from nothing: an account in which nothing was ever made."""
        with self.lock:
            self.clock.reset()
            self.account.start_anew()
            self.misuse.clear()
            for part in (self.faults, self.rates, self.calls, self.meter):
                part.reset()
            if self.hosting:
                self.hosting.images.reset()
            self.settle()

    def settle(self) -> None:
        """Bring everything up to the box's present."""
        with self.lock:
            self.account.settle()
            self.meter.observe()
            if self.hosting:
                self.hosting.settle()
            self.addresses.keep_only({one.address for one in self.account.instances.values()})

    def close(self) -> None:
        """End all machines, and let go of what the box holds."""
        if self.hosting:
            self.hosting.close()
        with self.lock:
            self.addresses.keep_only(set())
