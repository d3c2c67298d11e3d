"""The states that an instance passes through: `pending` before it runs, `shutting-down` before it is terminated.

A machine boots while its instance is pending, and is over when its instance begins to shut down. Until an instance is
terminated it keeps its volumes and its network interface, as EC2's does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from moto.ec2.models.instances import Instance, InstanceState

from tests.cloudbox.aws.wire import moto_state

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
    """Takes instances through their states; whoever calls it holds the box's lock. fact: aws-slow-ends."""

    def __init__(self, later: Later, durations: Durations) -> None:
        self.durations = self._usual = durations
        self._later = later
        self._seen: set[str] = set()
        self._coming: list[Callable[[], None]] = []
        self._failing: list[tuple[str, str]] = []
        self._failed: set[str] = set()
        moto_state.take_ends(self._begin_end)

    def observe(self, instance: Instance) -> None:
        """Have a new instance start, which moto shows as running at once; or fail to, where that was ordered."""
        if instance.id not in self._seen:
            self._seen.add(instance.id)
            if self._failing:
                reason = self._failing.pop(0)
                self._failed.add(instance.id)
                moto_state.show(instance, "pending")
                self._in_time(self.durations.pending, lambda: self._fail(instance, *reason))
            elif self.durations.pending:
                moto_state.show(instance, "pending")
                self._in_time(self.durations.pending, lambda: self._run(instance))

    def fail_next(self, code: str, message: str) -> None:
        """Let the next new instance end before it has run, for this reason.

        fact: aws-failed-starts
        """
        self._failing.append((code, message))

    def may_boot(self, instance: Instance) -> bool:
        """Tell whether an instance gets a machine."""
        return instance.state in moto_state.RUNNING and instance.id not in self._failed

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
        self._failing.clear()
        self._failed.clear()

    def _in_time(self, duration: timedelta, act: Callable[[], None]) -> None:
        """Do something at the end of a state; a second time it has no effect."""
        self._coming.append(act)
        self._later(duration, act)

    def _run(self, instance: Instance) -> None:
        if instance.state == "pending":
            moto_state.show(instance, "running")

    def _fail(self, instance: Instance, code: str, message: str) -> None:
        if instance.state not in moto_state.GONE:
            moto_state.begin_end(instance, code, message)
            self._in_time(self.durations.ending, lambda: moto_state.finish_end(instance))

    def _begin_end(self, instance: Instance) -> InstanceState:
        """Begin what TerminateInstances asks for; returns the state before."""
        before = moto_state.begin_end(instance)
        if before.name not in moto_state.GONE:
            self._in_time(self.durations.ending, lambda: moto_state.finish_end(instance))
        return before
