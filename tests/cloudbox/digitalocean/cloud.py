"""The parts of one box, put together."""

from __future__ import annotations

import threading
from pathlib import Path

from tests.cloudbox.digitalocean.account.account import Account
from tests.cloudbox.digitalocean.account.catalogue import DIGITALOCEAN, Catalogue
from tests.cloudbox.digitalocean.account.faults import FaultBook
from tests.cloudbox.digitalocean.account.rates import RateLimit
from tests.cloudbox.digitalocean.account.tokens import Tokens
from tests.cloudbox.digitalocean.life.hosting import Hosting
from tests.cloudbox.digitalocean.life.meter import list_billing
from tests.cloudbox.machines.addresses import AddressPool
from tests.cloudbox.rest.calls import CallBook
from tests.cloudbox.rest.clock import BoxClock
from tests.cloudbox.rest.meter import Meter


class Cloud:
    """The state of the box; `lock` is held by whatever reads or changes it. `machines` is where they live, if any."""

    def __init__(self, machines: Path | None = None, catalogue: Catalogue = DIGITALOCEAN) -> None:
        self.lock = threading.RLock()
        self.clock = BoxClock()
        self.account = Account(self.clock, catalogue)
        self.addresses = AddressPool()
        self.calls = CallBook()
        self.faults = FaultBook()
        self.tokens = Tokens()
        self.rates = RateLimit(self.clock)
        self.meter = Meter(self.clock, self.lock, lambda now: list_billing(self.account, now))
        self.hosting = Hosting(self.account, machines, self.lock) if machines else None

    def reset(self) -> None:
        """Start from nothing: an account in which nothing was ever made."""
        with self.lock:
            self.clock.reset()
            self.account.start_anew()
            for part in (self.faults, self.tokens, self.rates, self.calls, self.meter):
                part.reset()
            if self.hosting:
                self.hosting.images.reset()
            self.settle()

    def settle(self) -> None:
        """Bring everything up to the box's present: what is gone lets go of what it had, and the meter looks."""
        with self.lock:
            self.account.bury()
            self.meter.observe()
            if self.hosting:
                self.hosting.settle()
            self.addresses.keep_only({droplet.address for droplet in self.account.droplets.values()})

    def close(self) -> None:
        """End all machines, and let go of what the box holds."""
        if self.hosting:
            self.hosting.close()
        with self.lock:
            self.addresses.keep_only(set())
