"""The state of one box, made of its parts."""

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
    """The state of the box; callers hold `lock`. `machines` is the folder of its machines; None without machines."""

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
        """Requests by which clients changed something that other people's instances depend on."""
        self.hosting = Hosting(self.account, machines, self.lock) if machines else None

    def reset(self) -> None:
        """Return to an empty account."""
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
        """Apply everything that is due at the box's time."""
        with self.lock:
            self.account.settle()
            self.meter.observe()
            if self.hosting:
                self.hosting.settle()
            self.addresses.keep_only({one.address for one in self.account.instances.values()})

    def close(self) -> None:
        """End all machines, and release the addresses that the box holds."""
        if self.hosting:
            self.hosting.close()
        with self.lock:
            self.addresses.keep_only(set())
