"""A connection between the agents of two machines: messages in lines of JSON, and a measurement of the network."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from typing import Any

LOAD_BYTES = 64 << 20
LOAD_SECONDS = 1.0
ANSWER_SECONDS = 5.0
"""How long the other side of a connection may take for the next message that it owes."""
_LINE_BYTES = 2 << 20
"""More than the longest message has: names of files, escaped (agreement.py)."""
_CHUNK_BYTES = 256 << 10
_LONGEST_LOAD_SECONDS = 30.0
"""A slow network takes longer than a second for what the sender's kernel has accepted in one."""
_LONGEST_TEXT = 1000
_IDLE_SECONDS, _PROBE_SECONDS, _PROBES = 10, 5, 3
"""When TCP asks whether a silent peer still exists, how often, and after how many unanswered questions it is lost."""

Message = dict[str, Any]


class LostError(OSError):
    """The connection has ended, or the other side sends something else."""


class Channel:
    """One connection. Sending and receiving raise OSError, of which a timeout is one."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._received = bytearray()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        # Not every system has all of them.
        for name, value in (
            ("TCP_KEEPIDLE", _IDLE_SECONDS),
            ("TCP_KEEPINTVL", _PROBE_SECONDS),
            ("TCP_KEEPCNT", _PROBES),
            ("TCP_NODELAY", 1),
        ):
            if hasattr(socket, name):
                connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)

    def fileno(self) -> int:
        """Return the file descriptor, for select."""
        return self._socket.fileno()

    @property
    def has_message(self) -> bool:
        """Whether a message was received already, which select doesn't know."""
        return b"\n" in self._received

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def finish(self) -> None:
        """Say that nothing more is sent; what was sent still arrives."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def send(self, message: Message) -> None:
        """Send a message."""
        self._socket.settimeout(ANSWER_SECONDS)
        self._socket.sendall(json.dumps(message).encode() + b"\n")

    def receive(self, seconds: float = ANSWER_SECONDS) -> Message:
        """Return the next message.

        Raises:
            LostError: the connection has ended, or this is no message.
            OSError: there is none in time, or the connection is broken.
        """
        give_up = time.monotonic() + seconds
        while b"\n" not in self._received:
            self._fill(_LINE_BYTES, seconds, give_up)
            if len(self._received) > _LINE_BYTES:
                raise LostError("it sent something else")
        line, _, rest = bytes(self._received).partition(b"\n")
        self._received = bytearray(rest)
        try:
            message = json.loads(line)
        except (ValueError, RecursionError) as err:
            raise LostError("it sent something else") from err
        if not isinstance(message, dict):
            raise LostError("it sent something else")
        return message

    def send_load(self) -> None:
        """Send as much as fits into a second, at most 64 MiB; the first byte of the last chunk isn't zero."""
        self._socket.settimeout(ANSWER_SECONDS + LOAD_SECONDS)
        more, last = bytes(_CHUNK_BYTES), b"\1" + bytes(_CHUNK_BYTES - 1)
        give_up = time.monotonic() + LOAD_SECONDS
        for _ in range(LOAD_BYTES // _CHUNK_BYTES - 1):
            if time.monotonic() >= give_up:
                break
            self._socket.sendall(more)
        self._socket.sendall(last)

    def receive_load(self) -> float:
        """Receive such a load, and return the bandwidth in Gbit/s.

        Raises:
            OSError: it has no end, it stops, or the connection is broken.
        """
        give_up = time.monotonic() + _LONGEST_LOAD_SECONDS
        began = 0.0
        for number in range(1, LOAD_BYTES // _CHUNK_BYTES + 1):
            while len(self._received) < _CHUNK_BYTES:
                self._fill(_CHUNK_BYTES - len(self._received), ANSWER_SECONDS + LOAD_SECONDS, give_up)
                began = began or time.monotonic()
            is_last = self._received[0] != 0
            del self._received[:_CHUNK_BYTES]
            if is_last:
                return number * _CHUNK_BYTES * 8e-9 / max(1e-6, time.monotonic() - began)
        raise LostError("its load has no end")

    def _fill(self, most: int, seconds: float, give_up: float) -> None:
        """Receive something within this time, and before a time on the monotonic clock."""
        left = give_up - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._socket.settimeout(min(seconds, left))
        chunk = self._socket.recv(most)
        if not chunk:
            raise LostError("it closed the connection")
        self._received += chunk


def text_in(message: Message, key: str) -> str:
    """Return a text of a message; what could be neither logged nor reported is escaped, or cut off."""
    found = message.get(key)
    text = found if isinstance(found, str) else "it doesn't say why"
    return text.encode(errors="backslashreplace").decode()[:_LONGEST_TEXT]
