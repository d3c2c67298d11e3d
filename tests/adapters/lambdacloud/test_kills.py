"""Commands killed between any two requests: the next command finishes the work, and nothing bills unnoticed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta

import pytest

from orchestrator.core.errors import StillBillingError
from tests.adapters.lambdacloud.world import LAUNCH, M1, RUN, LambdaWorld
from tests.support.box_time import BoxTime
from tests.support.samples import part_of

SAMPLE = 4
"""At how many of its waits a command is killed."""


class Died(BaseException):
    """The command was killed."""


class KillingClock(BoxTime):
    """The box's clock, for a command that is killed at its n-th wait: before a request or before a poll."""

    waits = 0
    most = 1_000

    def sleep(self, duration: timedelta) -> None:
        self.waits += 1
        if self.waits > self.most:
            raise Died
        super().sleep(duration)


@dataclass
class Kills:
    """A command that is carried out once, and then killed at some of its waits, or in `make nightly` at each.

    Attributes:
        prepare: makes what is there before the command.
        act: the command.
        finish: runs after a kill, and asserts that all is well.
    """

    lam: LambdaWorld
    prepare: Callable[[LambdaWorld], None]
    act: Callable[[LambdaWorld], None]
    finish: Callable[[LambdaWorld], None]

    def go(self) -> None:
        """Carry the command out once, then kill it at its waits."""
        whole = KillingClock(self.lam.lam)
        self._carry_out(0, whole)
        assert whole.waits > SAMPLE
        for most in part_of(range(whole.waits), SAMPLE):
            clock = KillingClock(self.lam.lam)
            clock.most = most
            with pytest.raises(Died):
                self._carry_out(most + 1, clock)
            self.finish(replace(self.lam, folder=self.lam.folder / f"{most + 1}"))

    def _carry_out(self, number: int, clock: KillingClock) -> None:
        self.lam.lam.cloud.account.start_anew()
        self.lam.lam.faults.reset()
        laptop = replace(self.lam, folder=self.lam.folder / f"{number}")
        self.prepare(laptop)
        self.act(replace(laptop, clock=clock))


def create(laptop: LambdaWorld) -> None:
    """Create the machine. StillBillingError is fine: it means that the outcome is unknown."""
    with suppress(StillBillingError):
        laptop.provider().create(laptop.order())


def end(laptop: LambdaWorld) -> None:
    """End the machine and its run, for good."""
    laptop.provider().destroy(M1)
    laptop.provider().release(RUN)
    assert laptop.lam.instances() == []
    assert laptop.provider().machines() == []


def create_again(laptop: LambdaWorld) -> None:
    """Create the machine as the next command does, wait until an unclear launch is settled, and end the machine."""
    laptop.lam.faults.reset()
    create(laptop)
    laptop.clock.sleep(timedelta(minutes=16))
    made = laptop.provider().create(laptop.order())
    (instance,) = laptop.lam.instances()
    assert made.provider_id == instance.id
    end(laptop)


@pytest.mark.parametrize("loss", ["", "its answer is lost", "it never arrives"])
def test_a_creation_that_is_killed_is_finished_by_the_next_command(lam: LambdaWorld, loss: str) -> None:
    """Between any two of its requests, and between any two polls for a machine whose answer was lost."""

    def prepare(laptop: LambdaWorld) -> None:
        if loss:
            laptop.lam.faults.drop_next(*LAUNCH, after_effect=loss == "its answer is lost")

    Kills(lam, prepare, create, create_again).go()


def test_an_end_that_is_killed_is_finished_by_the_next_command(lam: LambdaWorld) -> None:
    """Between any two of its requests, and also during the release."""
    Kills(lam, create, end, end).go()
