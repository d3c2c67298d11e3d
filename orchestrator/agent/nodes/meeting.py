"""A task's machines, as its runner uses them: they meet before each attempt, and end it together."""

from __future__ import annotations

import time

from ..base.state import SHUTDOWN_SIGNALS
from .agreement import Start
from .bond import Bond
from .group import Group
from .head import Head
from .member import Member
from .messages import TICK_SECONDS, GatheringError, Hooks

_READY_SECONDS = 0.02


class Meeting:
    """The other machines of a task; a task of one machine has none, and nothing waits.

    Attributes:
        extra_attempts: how many attempts are made beyond those of the job, because machines were lost.
    """

    def __init__(self, group: Group | None, hooks: Hooks) -> None:
        self._group = group
        self._hooks = hooks
        self._bond: Bond | None = None
        self._part = None if group is None else Member(group, hooks) if group.rank else Head(group, hooks)
        self._are_told = False
        self.extra_attempts = 0

    @property
    def has_others(self) -> bool:
        """Whether the task runs on several machines."""
        return self._part is not None

    def gather(self, own: Start) -> Start:
        """Wait until all machines are ready to start the command, and return from what all start.

        Raises:
            GatheringError: they didn't meet; the text says why.
        """
        self._are_told = False
        if self._group is None or self._part is None:
            return own
        try:
            channels, agreed = self._part.gather(own)
        except GatheringError as err:
            # A machine that the head has refused needn't tell it anything.
            self._are_told = err.is_final and self._group.rank > 0
            raise
        self._are_told = bool(channels)
        if channels:
            self._bond = Bond(self._group, channels, self._hooks)
        return agreed

    def start_together(self) -> None:
        """Wait until all machines have what they start from: the head until the others have it, they for the head."""
        if self._bond is None or self._group is None:
            return
        if self._group.rank:
            self._bond.say_ready()
        self._hooks.wait("waiting until all machines have the checkpoint")
        while not (self._bond.are_ready or self._bond.broken or self._hooks.is_unwanted()):
            time.sleep(_READY_SECONDS)
        if not self._group.rank:
            self._bond.say_ready()

    def tell_stopped(self, reason: str, *, left: int) -> None:
        """Tell the others that this machine's command was asked to stop; after a shutdown it makes another attempt."""
        if reason in SHUTDOWN_SIGNALS:
            self.tell_failed(f"it was stopped by {reason}", left=left)
        elif self._bond:
            self._bond.tell({"stopped": reason})

    def tell_failed(self, why: str, *, left: int) -> None:
        """Tell the others that this attempt has failed, and how many are left.

        If a lost machine has ended it, and is to be replaced, there is at least one more.
        """
        if self._bond and self._group:
            if self._bond.is_loss and self._group.recovers and not left:
                self.extra_attempts += 1
                left = 1
            self._bond.tell({"failed": why, "left": left, "lost": self._bond.is_loss})
            # If another attempt may follow, they expect this machine again, although that one may not get as far.
            self._are_told = not left or self.is_over

    def tell_succeeded(self) -> None:
        """Tell the others, and wait for the one with torch's rank 0, which may still write results.

        That is the head. In an elastic group it may be any machine, so that the head waits for all.
        """
        if self._bond is None or self._group is None:
            return
        self._bond.tell({"succeeded": True})
        if self._group.rank:
            self._hooks.wait("done; waiting for the head")
            while not (self._bond.head_succeeded or self._bond.broken or self._hooks.is_unwanted()):
                time.sleep(TICK_SECONDS)
        elif self._group.is_elastic:
            shown = ""
            while (awaited := self._bond.awaited) and not self._hooks.is_unwanted():
                if awaited != shown:
                    shown = awaited
                    self._hooks.wait(f"done; waiting for {awaited}")
                time.sleep(TICK_SECONDS)

    @property
    def broken(self) -> str:
        """Why the others have ended the attempt; empty if they haven't."""
        return self._bond.broken if self._bond else ""

    @property
    def is_over(self) -> bool:
        """Whether no further attempt makes sense: a machine makes none, or the head has succeeded."""
        return self._bond is not None and (self._bond.is_final or self._bond.head_succeeded)

    def end(self) -> None:
        """Close the connections at the end of an attempt."""
        if self._bond:
            self._bond.end()
            self._bond = None

    def give_up(self, why: str) -> None:
        """Tell machines that wait for this one that it makes no further attempt, unless they know."""
        if self._are_told or self._part is None:
            return
        if isinstance(self._part, Head):
            self._part.refuse_all(why)
        else:
            self._part.excuse(why)
