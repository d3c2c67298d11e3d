"""The head's part of the meeting: it admits the others, measures the network to each, and says when to start."""

from __future__ import annotations

import contextlib
import errno
import select
import socket
import time

from ..base.wire import LOST_PEER
from .agreement import Start, agree, parse_start
from .channel import ANSWER_SECONDS, Channel, Message, text_in
from .group import Group
from .messages import NAMED_AFTER_SECONDS, SLOW_GBIT_PER_SECOND, TICK_SECONDS, GatheringError, Hooks, describe
from .proof import admit

_FREE_SECONDS = 5.0
"""How long to wait for the port, which the last attempt's processes may still have."""
_ELASTIC_SECONDS = 60.0
"""How long an elastic group waits for more machines than it needs."""
_FAREWELL_SECONDS = 2.0
_MOST_FAILURES = 20
"""Nobody who connects again and again may fill the log."""


class Head:
    """Gathers the machines of a group, on the first one."""

    def __init__(self, group: Group, hooks: Hooks) -> None:
        self._group = group
        self._hooks = hooks
        self._measured: set[int] = set()
        self._members: dict[int, Channel] = {}
        self._starts: dict[int, Start] = {}
        self._failures: set[str] = set()
        self._began = 0.0
        self._shown = self._told = ""

    def gather(self, own: Start) -> tuple[dict[int, Channel], Start]:
        """Wait for the other machines, and return the connections to them, and from what all start.

        There are no connections after a request to stop.

        Raises:
            GatheringError: one didn't come, or can't be reached.
        """
        self._members, self._began = {}, time.monotonic()
        self._shown = self._told = ""
        try:
            with self._listen(patience=_FREE_SECONDS) as listener:
                self._await_members(listener)
        except GatheringError as err:
            self._say({"refused": str(err)})
            self.leave()
            raise
        if self._hooks.is_unwanted():
            self.leave()
            return {}, own
        agreed = agree([own, *(self._starts[rank] for rank in sorted(self._members))])
        self._say({"go": True, **agreed.as_message()})
        return self._members, agreed

    def leave(self) -> None:
        """Close the connections."""
        for channel in self._members.values():
            channel.close()
        self._members = {}

    def refuse_all(self, why: str) -> None:
        """Tell the machines that come within a moment that the head won't start."""
        give_up = time.monotonic() + _FAREWELL_SECONDS
        with contextlib.suppress(GatheringError, OSError), self._listen(patience=0) as listener:
            while (left := give_up - time.monotonic()) > 0:
                listener.settimeout(left)
                channel = Channel(listener.accept()[0])
                with contextlib.suppress(OSError):
                    admit(channel, self._group)
                    channel.receive(1.0)
                    channel.send({"refused": why})
                channel.close()

    def _say(self, message: Message) -> None:
        for channel in self._members.values():
            # Whoever is lost by now is missed by the bond.
            with contextlib.suppress(OSError):
                channel.send(message)

    def _listen(self, *, patience: float) -> socket.socket:
        group = self._group
        give_up = time.monotonic() + patience
        while True:
            listener = socket.socket()
            # Connections of the last attempt don't matter; torchrun's store binds the port in the same way.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind((group.addresses[0], group.port))
                listener.listen(group.size)
            except OSError as err:
                listener.close()
                if err.errno == errno.EADDRINUSE and time.monotonic() < give_up:
                    time.sleep(TICK_SECONDS)
                    continue
                raise GatheringError(self._why_deaf(err), is_final=True) from err
            return listener

    def _why_deaf(self, err: OSError) -> str:
        group = self._group
        if err.errno == errno.EADDRINUSE:
            return f"port {group.port} of {group.name(0)} is taken by another program: end it, and start again"
        if err.errno == errno.EADDRNOTAVAIL:
            return f"no network interface of the head has its private address {group.addresses[0]}"
        return f"the head can't listen on {group.place}: {describe(err)}"

    def _await_members(self, listener: socket.socket) -> None:
        while not self._is_complete() and not self._hooks.is_unwanted():
            self._report_missing()
            members = {channel.fileno(): rank for rank, channel in self._members.items()}
            ready, _, _ = select.select([listener.fileno(), *members], [], [], TICK_SECONDS)
            for descriptor in ready:
                if descriptor in members:
                    # It owes nothing: its connection has ended.
                    self._members.pop(members[descriptor]).close()
            if listener.fileno() in ready:
                connection, (address, *_) = listener.accept()
                self._admit(Channel(connection), str(address))

    def _is_complete(self) -> bool:
        there = len(self._members) + 1
        if there == self._group.size:
            return True
        return there >= self._group.least and time.monotonic() >= self._began + _ELASTIC_SECONDS

    def _report_missing(self) -> None:
        group, waited = self._group, time.monotonic() - self._began
        missing = [group.name(rank) for rank in range(1, group.size) if rank not in self._members]
        said = f"waiting for {', '.join(missing)} at {group.place}"
        at_most = group.patience if self._measured else group.wait
        if waited > at_most:
            lost = f"{LOST_PEER}: " if self._measured else ""
            text = f"{lost}{', '.join(missing)} did not come to {group.place} in {at_most:g} s"
            raise GatheringError(text, is_final=True)
        if said != self._shown:
            self._shown = said
            self._hooks.wait(said)
        if said != self._told and waited > NAMED_AFTER_SECONDS:
            self._told = said
            self._hooks.tell(said)

    def _admit(self, channel: Channel, address: str) -> None:
        try:
            admit(channel, self._group)
            hello = channel.receive()
            rank = hello.get("rank")
            if type(rank) is not int or not 0 < rank < self._group.size:
                channel.close()
                return
            if "failed" in hello:
                channel.close()
                self._miss(rank, text_in(hello, "failed"))
                return
            if hello.get("is_new") or rank not in self._measured:
                self._measure(rank, channel, hello.get("port"))
        except OSError as err:
            # It comes again, or it is somebody else.
            self._report_failure(f"a connection from {address} to {self._group.place} has failed: {describe(err)}")
            channel.close()
            return
        if rank in self._members:
            self._members[rank].close()
        self._members[rank], self._starts[rank] = channel, parse_start(hello)

    def _report_failure(self, text: str) -> None:
        if text not in self._failures and len(self._failures) < _MOST_FAILURES:
            self._failures.add(text)
            self._hooks.tell(text)

    def _miss(self, rank: int, why: str) -> None:
        text = f"{self._group.name(rank)} has failed: {why}"
        if not self._group.is_elastic:
            raise GatheringError(text, is_final=True)
        self._hooks.tell(text)

    def _measure(self, rank: int, channel: Channel, port: object) -> None:
        """Measure the network in both directions, over connections from both sides, as a training uses them."""
        channel.send({"load": True})
        received = channel.receive_load()
        channel.send({"reverse": True})
        address = self._group.addresses[rank]
        if type(port) is not int or not 0 < port < 1 << 16:
            raise OSError("it sent something else")
        try:
            with socket.create_connection((address, port), timeout=ANSWER_SECONDS) as back:
                Channel(back).send_load()
        except OSError as err:
            text = f"{self._group.name(rank)} can't be reached by the head at its port {port}: {describe(err)}"
            with contextlib.suppress(OSError):
                channel.send({"refused": text})
            channel.close()
            raise GatheringError(text) from err
        sent = channel.receive().get("gbit_per_second")
        if not isinstance(sent, int | float) or not 0 <= sent < 1 << 20:
            raise OSError("it sent something else")
        self._measured.add(rank)
        text = f"the network of {self._group.name(rank)}: {received:.2g} Gbit/s to the head, {sent:.2g} Gbit/s from it"
        is_slow = min(received, sent) < SLOW_GBIT_PER_SECOND
        self._hooks.tell(f"{text}; that is slow for training, is it the right network?" if is_slow else text)
