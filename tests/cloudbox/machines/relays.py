"""Passes TCP connections on from one network namespace to another, in one thread."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections import defaultdict
from collections.abc import Coroutine
from typing import Any, NamedTuple

from tests.cloudbox.nspawn.namespaces import entered

_CHUNK_BYTES = 1 << 16
_AT_ONCE = struct.pack("ii", 1, 0)
"""Close with a reset."""


class Way(NamedTuple):
    """From where connections are passed on, to where.

    Attributes:
        place: The address and the port, the same on both sides.
        start: The namespace in which clients connect; None: this process's own.
        end: The namespace in which the server listens; None: this process's own.
    """

    place: tuple[str, int]
    start: int | None
    end: int | None


class Relays:
    """The ways that are open, each under the name of a machine."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._tasks: dict[str, set[asyncio.Task[None]]] = defaultdict(set)
        self._thread = threading.Thread(target=self._loop.run_forever, name="relays", daemon=True)
        self._thread.start()

    def open(self, name: str, way: Way) -> None:
        """Listen at the start of a way from now on.

        Raises:
            OSError: Somebody else does.
        """
        with entered(way.start):
            listener = socket.create_server(way.place)
        listener.setblocking(False)
        self._ask(self._start(name, self._accept(name, listener, way)))

    def close_ways(self, name: str) -> None:
        """Close a machine's ways, and all connections there."""
        self._ask(self._cancel(self._tasks.pop(name, set())))

    def close(self) -> None:
        """Close everything."""
        for name in list(self._tasks):
            self.close_ways(name)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _ask(self, what: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(what, self._loop).result()

    async def _start(self, name: str, what: Coroutine[Any, Any, None]) -> None:
        tasks = self._tasks[name]
        task = self._loop.create_task(what)
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    async def _cancel(self, tasks: set[asyncio.Task[None]]) -> None:
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _accept(self, name: str, listener: socket.socket, way: Way) -> None:
        with listener:
            while True:
                client, _ = await self._loop.sock_accept(listener)
                await self._start(name, self._pass_on(client, way))

    async def _pass_on(self, client: socket.socket, way: Way) -> None:
        with entered(way.end):
            server = socket.socket()
        with client, server:
            for each in (client, server):
                each.setblocking(False)
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            try:
                await self._loop.sock_connect(server, way.place)
                await asyncio.gather(self._pump(client, server), self._pump(server, client))
            except OSError:
                # What happened to the one side is seen on the other.
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)

    async def _pump(self, source: socket.socket, target: socket.socket) -> None:
        while chunk := await self._loop.sock_recv(source, _CHUNK_BYTES):
            await self._loop.sock_sendall(target, chunk)
        target.shutdown(socket.SHUT_WR)
