"""The part of a machine that isn't the head: it connects to the head, and starts when the head says so."""

from __future__ import annotations

import contextlib
import errno
import select
import socket
import time

from ..base.wire import LOST_PEER
from .agreement import Start, parse_start
from .channel import ANSWER_SECONDS, Channel, text_in
from .group import Group
from .messages import NAMED_AFTER_SECONDS, TICK_SECONDS, GatheringError, Hooks, describe
from .proof import join

_UNREACHABLE_SECONDS = 30.0
"""How long the head may be unreachable, which is another thing than not yet listening."""
_STARTED_SECONDS = 30.0
"""How long the head's port may be silent: then it is torchrun's, since the others have started; or the head is busy."""
_FAREWELL_SECONDS = 2.0


class Member:
    """Joins a group, on a machine that isn't its head."""

    def __init__(self, group: Group, hooks: Hooks) -> None:
        self._group = group
        self._hooks = hooks
        self._is_new = True
        self._start = Start()
        self._began = 0.0
        self._unreachable_since = 0.0
        self._silent_since = 0.0
        self._told = ""

    def gather(self, own: Start) -> tuple[dict[int, Channel], Start]:
        """Wait for the head's word, and return the connection to it, and from what all machines start.

        There is no connection after a request to stop, and none if an elastic group has started without this machine.

        Raises:
            GatheringError: the head can't be reached, or has refused.
        """
        self._start = own
        self._began, self._told = time.monotonic(), ""
        self._unreachable_since = self._silent_since = 0.0
        self._hooks.wait(f"waiting for the head at {self._group.place}")
        while not self._hooks.is_unwanted():
            try:
                channel = self._connect(ANSWER_SECONDS)
            except ConnectionRefusedError:
                self._unreachable_since = self._silent_since = 0.0
                self._miss_start()
            except OSError as err:
                self._miss_head(err)
            else:
                if found := self._take_part(channel):
                    return found, self._start
                if self._have_started():
                    return {}, own
            time.sleep(TICK_SECONDS)
        return {}, own

    def excuse(self, why: str) -> None:
        """Tell the head that this machine won't come, if it is waiting."""
        give_up = time.monotonic() + _FAREWELL_SECONDS
        while (left := give_up - time.monotonic()) > 0:
            with contextlib.suppress(OSError):
                channel = self._connect(left)
                try:
                    join(channel, self._group, left)
                    channel.send({"rank": self._group.rank, "failed": why})
                finally:
                    channel.close()
                return
            time.sleep(TICK_SECONDS)

    def _tell(self, text: str) -> None:
        if text != self._told:
            self._told = text
            self._hooks.tell(text)

    def _connect(self, seconds: float) -> Channel:
        group, connection = self._group, socket.socket()
        try:
            # From the private address, so that a wrong one is noticed.
            connection.bind((group.addresses[group.rank], 0))
            connection.settimeout(seconds)
            connection.connect((group.addresses[0], group.port))
        except OSError:
            connection.close()
            raise
        return Channel(connection)

    def _miss_start(self) -> None:
        group, waited = self._group, time.monotonic() - self._began
        if waited > NAMED_AFTER_SECONDS:
            self._tell(f"the head doesn't listen on {group.place} yet")
        if not self._is_new and waited > group.patience:
            text = f"{LOST_PEER}: the head did not come back to {group.place} in {group.patience:g} s"
            raise GatheringError(text, is_final=True)

    def _miss_head(self, err: OSError) -> None:
        group = self._group
        if err.errno == errno.EADDRNOTAVAIL:
            own = group.addresses[group.rank]
            raise GatheringError(
                f"no network interface of node {group.rank} has its private address {own}", is_final=True
            ) from err
        text = f"the head can't be reached at {group.place}: {describe(err)}; does a firewall close the port?"
        self._tell(text)
        self._unreachable_since = self._unreachable_since or time.monotonic()
        # A head that was there before is lost, rather than behind a firewall.
        at_most = _UNREACHABLE_SECONDS if self._is_new or not group.recovers else group.patience
        if time.monotonic() - self._unreachable_since > at_most:
            raise GatheringError(text if self._is_new else f"{LOST_PEER}: {text}") from err

    def _have_started(self) -> bool:
        """Whether an elastic group has started without this machine, which joins it by torchrun's rendezvous."""
        is_silent = self._silent_since and time.monotonic() - self._silent_since > _STARTED_SECONDS
        if not self._group.is_elastic or not is_silent:
            return False
        self._tell("the others have started: joining them")
        return True

    def _take_part(self, channel: Channel) -> dict[int, Channel]:
        """Wait for the start over a new connection; nothing if the connection has broken."""
        try:
            began = time.monotonic()
            try:
                join(channel, self._group)
            except TimeoutError:
                self._silent_since = self._silent_since or began
                raise
            self._silent_since = 0.0
            if self._answer(channel):
                return {0: channel}
        except OSError as err:
            self._tell(f"the head at {self._group.place} doesn't answer: {describe(err)}")
        except BaseException:
            channel.close()
            raise
        channel.close()
        return {}

    def _answer(self, channel: Channel) -> bool:
        """Introduce this machine, and do what the head asks for until it says go; false after a request to stop."""
        group = self._group
        with socket.create_server((group.addresses[group.rank], 0)) as listener:
            hello = {"rank": group.rank, "port": listener.getsockname()[1], "is_new": self._is_new}
            channel.send({**hello, **self._start.as_message()})
            while not self._hooks.is_unwanted():
                if not channel.has_message and not select.select([channel], [], [], TICK_SECONDS)[0]:
                    continue
                message = channel.receive()
                if "go" in message:
                    self._is_new, self._start = False, parse_start(message)
                    return True
                if "refused" in message:
                    raise GatheringError(f"the head has failed: {text_in(message, 'refused')}", is_final=True)
                if "load" in message:
                    channel.send_load()
                elif "reverse" in message:
                    channel.send({"gbit_per_second": _receive_load(listener)})
        return False


def _receive_load(listener: socket.socket) -> float:
    listener.settimeout(ANSWER_SECONDS)
    connection, _ = listener.accept()
    with connection:
        return Channel(connection).receive_load()
