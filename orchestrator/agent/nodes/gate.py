"""How the machines of a run tell each other how far they are, so that all begin the next mode together.

The head's watch listens on a port of its own while the run has several modes. Each other watch asks it now and then.

    (as in messages.py, until the head has said who it is; the task is "next mode")
    machine  {"rank", "sequence", "state", "reason"}    its mode, and the state of its tasks together
    head     {"sequence", "state", "reason"}            the mode that all may be in; how the run has ended, if it has
"""

from __future__ import annotations

import contextlib
import select
import socket
import time
from typing import NamedTuple

from ..base.wire import IDLE, LIVE, OVER
from .channel import ANSWER_SECONDS, Channel, LostError, Message, text_in
from .group import Group
from .proof import admit, join

_LONGEST_REASON = 300
_STATES = frozenset({"", IDLE, *LIVE, *OVER})


class Standing(NamedTuple):
    """How far a machine is; or, as the head's answer, how far the run is.

    Attributes:
        sequence: how many modes came before its present one.
        state: of all of its tasks together; as an answer empty, or how the run has ended.
    """

    sequence: int
    state: str = ""
    reason: str = ""


class GateKeeper:
    """Answers the other machines, on the head.

    Attributes:
        group: the machines.
        standings: what each machine has last told, by its rank, and when, on the monotonic clock.
    """

    def __init__(self, group: Group) -> None:
        self.group = group
        self._listener: socket.socket | None = None
        self.standings: dict[int, tuple[float, Standing]] = {}

    def answer(self, own: Standing) -> None:
        """Answer everybody who has connected since the last call.

        Raises:
            OSError: the head can't listen.
        """
        listener = self._listen()
        while select.select([listener], [], [], 0)[0]:
            channel = Channel(listener.accept()[0])
            # It comes again, or it is somebody else.
            with contextlib.suppress(OSError):
                self._answer(channel, own)
            channel.close()

    def close(self) -> None:
        """Stop listening."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def _listen(self) -> socket.socket:
        if self._listener is None:
            listener = socket.socket()
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind((self.group.addresses[0], self.group.port))
                listener.listen(self.group.size)
            except OSError:
                listener.close()
                raise
            self._listener = listener
        return self._listener

    def _answer(self, channel: Channel, own: Standing) -> None:
        admit(channel, self.group)
        hello = channel.receive()
        rank = hello.get("rank")
        if type(rank) is int and 0 < rank < self.group.size:
            self.standings[rank] = time.monotonic(), _parse(hello)
            channel.send(own._asdict())


def ask_head(group: Group, own: Standing) -> Standing:
    """Tell the head how far this machine is, and return its answer.

    Raises:
        OSError: it can't be reached, or something else listens there.
    """
    connection = socket.socket()
    try:
        connection.bind((group.addresses[group.rank], 0))
        connection.settimeout(ANSWER_SECONDS)
        connection.connect((group.addresses[0], group.port))
        channel = Channel(connection)
        join(channel, group)
        channel.send({"rank": group.rank, **own._asdict()})
        return _parse(channel.receive())
    finally:
        connection.close()


def _parse(message: Message) -> Standing:
    sequence, state = message.get("sequence"), message.get("state")
    if type(sequence) is not int or not isinstance(state, str) or state not in _STATES:
        raise LostError("it sent something else")
    return Standing(sequence, state, text_in(message, "reason")[:_LONGEST_REASON])
