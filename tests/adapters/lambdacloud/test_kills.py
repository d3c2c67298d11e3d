"""Commands that are killed between any two requests: the next one finishes, and nothing bills twice or for nobody."""

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
"""Of the waits at which a command is killed."""


class Died(BaseException):
    """The command is gone."""


class LastMoments(BoxTime):
    """The box's clock, for a command that dies as it waits for its turn to send its n-th request, or to look again."""

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
        prepare: makes the world as the command finds it.
        act: the command.
        finish: what follows it, and finds that all is well.
    """

    lam: LambdaWorld
    prepare: Callable[[LambdaWorld], None]
    act: Callable[[LambdaWorld], None]
    finish: Callable[[LambdaWorld], None]

    def go(self) -> None:
        """Carry it out, then kill it."""
        whole = LastMoments(self.lam.lam)
        self._carry_out(0, whole)
        assert whole.waits > SAMPLE
        for most in part_of(range(whole.waits), SAMPLE):
            clock = LastMoments(self.lam.lam)
            clock.most = most
            with pytest.raises(Died):
                self._carry_out(most + 1, clock)
            self.finish(replace(self.lam, folder=self.lam.folder / f"{most + 1}"))

    def _carry_out(self, number: int, clock: LastMoments) -> None:
        self.lam.lam.cloud.account.start_anew()
        self.lam.lam.faults.reset()
        laptop = replace(self.lam, folder=self.lam.folder / f"{number}")
        self.prepare(laptop)
        self.act(replace(laptop, clock=clock))


def create(laptop: LambdaWorld) -> None:
    """Create the machine; where nobody can tell, that is said."""
    with suppress(StillBillingError):
        laptop.provider().create(laptop.order())


def end(laptop: LambdaWorld) -> None:
    """End the machine and its run, for good."""
    laptop.provider().destroy(M1)
    laptop.provider().release(RUN)
    assert laptop.lam.instances() == []
    assert laptop.provider().machines() == []


def create_again(laptop: LambdaWorld) -> None:
    """Create the machine, as the next command does; what nobody can tell is waited for. Then end it."""
    laptop.lam.faults.reset()
    create(laptop)
    laptop.clock.sleep(timedelta(minutes=16))
    made = laptop.provider().create(laptop.order())
    (instance,) = laptop.lam.instances()
    assert made.provider_id == instance.id
    end(laptop)


@pytest.mark.parametrize("loss", ["", "its answer is lost", "it never arrives"])
def test_a_creation_that_is_killed_is_finished_by_the_next_command(lam: LambdaWorld, loss: str) -> None:
    """Between any two of its requests, and between any two looks for a machine whose answer was lost."""

    def prepare(laptop: LambdaWorld) -> None:
        if loss:
            laptop.lam.faults.drop_next(*LAUNCH, after_effect=loss == "its answer is lost")

    Kills(lam, prepare, create, create_again).go()


def test_an_end_that_is_killed_is_finished_by_the_next_command(lam: LambdaWorld) -> None:
    """Between any two of its requests; the release after it as well."""
    Kills(lam, create, end, end).go()
