"""The states that an instance passes through: `pending` before it runs, `shutting-down` before it is terminated.

A machine boots while its instance is pending, and is over when its instance begins to shut down. Until an instance is
terminated it keeps its volumes and its network interface, as EC2's does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from moto.ec2.models.instances import Instance, InstanceState

from tests.cloudbox import moto_state

Later = Callable[[timedelta, Callable[[], None]], None]
"""Does something after a while, holding the box's lock, and then settles; at once where there is no while."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Durations:
    """How long the states last; at AWS it is seconds to minutes."""

    pending: timedelta = timedelta(0)
    ending: timedelta = timedelta(0)


WITH_MACHINES = Durations(pending=timedelta(seconds=0.3), ending=timedelta(seconds=0.5))
"""Short, and long enough for whoever doesn't wait to be caught."""


class States:
    """Takes instances through their states; whoever calls it holds the box's lock."""

    def __init__(self, later: Later, durations: Durations) -> None:
        self.durations = self._usual = durations
        self._later = later
        self._seen: set[str] = set()
        self._coming: list[Callable[[], None]] = []
        moto_state.take_ends(self._begin_end)

    def observe(self, instance: Instance) -> None:
        """Have a new instance start, which moto shows as running at once."""
        if instance.id not in self._seen:
            self._seen.add(instance.id)
            if self.durations.pending:
                moto_state.show(instance, "pending")
                self._in_time(self.durations.pending, lambda: self._run(instance))

    def finish(self) -> None:
        """Let every state that was going to pass be over now."""
        for act in self._coming:
            act()
        self._coming.clear()

    def reset(self) -> None:
        """Start from nothing."""
        self.durations = self._usual
        self._seen.clear()
        self._coming.clear()

    def _in_time(self, duration: timedelta, act: Callable[[], None]) -> None:
        """Do something at the end of a state; a second time it has no effect."""
        self._coming.append(act)
        self._later(duration, act)

    def _run(self, instance: Instance) -> None:
        if instance.state == "pending":
            moto_state.show(instance, "running")

    def _begin_end(self, instance: Instance) -> InstanceState:
        """Begin what TerminateInstances asks for; returns the state before."""
        before = moto_state.begin_end(instance)
        if before.name not in moto_state.GONE:
            self._in_time(self.durations.ending, lambda: moto_state.finish_end(instance))
        return before
