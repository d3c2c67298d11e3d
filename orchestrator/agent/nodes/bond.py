"""The connections between a group's machines while the command runs: an end on one is an end on all.

Without them, a machine whose peer has died would wait for it, until NCCL's own time limit of ten minutes. Since all end
an attempt together, all begin the next one together.
"""

from __future__ import annotations

import contextlib
import select
import threading
from collections.abc import Mapping

from ..base.wire import LOST_PEER
from .channel import Channel, Message, text_in
from .group import Group
from .messages import TICK_SECONDS, Hooks

_DRAIN_SECONDS = 1.0


class Bond:
    """Watches the connections of one attempt in a thread.

    Attributes:
        broken: why the attempt is over; empty while it isn't.
        is_final: the other machine makes no further attempt.
        is_loss: a machine is lost, rather than its command has failed.
        head_succeeded: the head's command has succeeded.
    """

    def __init__(self, group: Group, channels: Mapping[int, Channel], hooks: Hooks) -> None:
        self._group = group
        self._channels = dict(channels)
        self._hooks = hooks
        self._done: set[int] = set()
        self._ready: set[int] = set()
        self._told: Message | None = None
        self._is_over = threading.Event()
        self.broken = ""
        self.is_final = False
        self.is_loss = False
        self.head_succeeded = False
        self._thread = threading.Thread(target=self._work, name="bond", daemon=True)
        self._thread.start()

    def tell(self, message: Message) -> None:
        """Tell the others how this machine's command ends; only the first time."""
        if self._told is not None:
            return
        self._told = message
        for channel in list(self._channels.values()):
            with contextlib.suppress(OSError):
                channel.send(message)

    def say_ready(self) -> None:
        """Tell the others that this machine can start its command."""
        for channel in list(self._channels.values()):
            with contextlib.suppress(OSError):
                channel.send({"ready": True})

    @property
    def are_ready(self) -> bool:
        """Whether all that are still there can start theirs."""
        return self._ready >= self._channels.keys()

    @property
    def awaited(self) -> str:
        """The names of the machines whose command still runs."""
        return ", ".join(self._group.name(rank) for rank in sorted(self._channels) if rank not in self._done)

    def end(self) -> None:
        """Close the connections, once the others have received what was said."""
        for channel in list(self._channels.values()):
            channel.finish()
        self._thread.join(_DRAIN_SECONDS)
        self._is_over.set()
        self._thread.join()
        for channel in self._channels.values():
            channel.close()

    def _work(self) -> None:
        while self._channels and not self._is_over.is_set():
            waiting = [each for each in self._channels.values() if each.has_message]
            ready = waiting or select.select(list(self._channels.values()), [], [], TICK_SECONDS)[0]
            for rank in [rank for rank, each in self._channels.items() if each in ready]:
                self._read(rank)

    def _read(self, rank: int) -> None:
        name = self._group.name(rank)
        try:
            message = self._channels[rank].receive()
        except OSError:
            self._close(rank)
            if rank not in self._done:
                self._lose(rank, f"{LOST_PEER}: the connection to {name} is lost", is_loss=True)
            return
        if "ready" in message:
            self._ready.add(rank)
            return
        if "succeeded" in message:
            self._done.add(rank)
            if rank == 0:
                self.head_succeeded = True
                if not self._group.is_elastic:
                    self._close(rank)
            return
        self._close(rank)
        if "stopped" in message:
            self._stop(rank, text_in(message, "stopped"))
            return
        is_loss = message.get("lost") is True
        why = text_in(message, "failed")
        self._lose(
            rank, why if is_loss else f"{name} has failed: {why}", is_loss=is_loss, is_final=message.get("left") == 0
        )

    def _close(self, rank: int) -> None:
        self._channels.pop(rank).close()

    def _stop(self, rank: int, reason: str) -> None:
        if self._goes_on_without(rank):
            self._hooks.tell(f"{self._group.name(rank)} was stopped: {reason}")
        else:
            self._hooks.stop(reason)

    def _lose(self, rank: int, text: str, *, is_loss: bool, is_final: bool = False) -> None:
        if self._told is not None and (self._group.rank == 0 or "succeeded" not in self._told):
            # The attempt is over here, too.
            return
        if self._goes_on_without(rank):
            self._hooks.tell(text)
        elif not self.broken:
            self.is_final, self.is_loss = is_final, is_loss
            self.broken = text
            self._hooks.abort(text)

    def _goes_on_without(self, rank: int) -> bool:
        return self._group.is_elastic and rank > 0 and len(self._channels) + 1 >= self._group.least
