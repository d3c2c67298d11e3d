"""A slow line: a TCP proxy on the loopback that delays and throttles what passes through it.

Like a real line, it accepts data at its rate, shared by all connections of a direction, and delivers it after half
the round trip: a delay, not a pause, so that many packets are on their way at once. A new connection costs a round
trip. What it doesn't imitate is TCP's slow start, which would slow all contenders down.

    python -m benchmarks.proxy PORT --round-trip-ms 50 --mbit 200

prints the port that it listens on, and ends when its standard input does.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.rounds import CHECKOUT

_CHUNK = 1 << 14
_STANDING_SECONDS = 0.01
"""How many bytes may wait before the line before a sender is held up."""

_Parcels = asyncio.Queue[tuple[float, bytes]]


@dataclass(kw_only=True)
class Line:
    """One direction of the line.

    Attributes:
        free_at: when the line has sent everything that it accepted, on time.monotonic's clock.
    """

    bytes_per_second: float
    delay_seconds: float
    free_at: float = 0.0

    def take(self, size: int) -> float:
        """Accept this many bytes, and return when they arrive."""
        self.free_at = max(self.free_at, time.monotonic()) + size / self.bytes_per_second
        return self.free_at + self.delay_seconds


@dataclass(frozen=True, kw_only=True)
class Proxy:
    """Both directions, and the port that the line leads to."""

    port: int
    up: Line
    down: Line

    async def serve(self, near: asyncio.StreamReader, near_writer: asyncio.StreamWriter) -> None:
        """Carry one connection."""
        await asyncio.sleep(self.up.delay_seconds + self.down.delay_seconds)
        try:
            far, far_writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            near_writer.close()
            return
        await asyncio.gather(_carry(near, far_writer, self.up), _carry(far, near_writer, self.down))


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, line: Line) -> None:
    parcels: _Parcels = asyncio.Queue()
    delivery = asyncio.create_task(_deliver(parcels, writer))
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(_CHUNK):
            parcels.put_nowait((line.take(len(data)), data))
            await asyncio.sleep(max(0.0, line.free_at - time.monotonic() - _STANDING_SECONDS))
    parcels.put_nowait((time.monotonic() + line.delay_seconds, b""))
    await delivery


async def _deliver(parcels: _Parcels, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while True:
            arrives_at, data = await parcels.get()
            await asyncio.sleep(max(0.0, arrives_at - time.monotonic()))
            if not data:
                break
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
        return
    writer.close()


@contextlib.contextmanager
def slow_line(port: int, *, round_trip_ms: int, mbit: int) -> Iterator[int]:
    """Put a slow line in front of a local port, in its own process; yields the port to use instead."""
    words = [str(port), "--round-trip-ms", str(round_trip_ms), "--mbit", str(mbit)]
    argv = [sys.executable, "-m", "benchmarks.proxy", *words]
    with subprocess.Popen(argv, cwd=CHECKOUT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline())
        finally:
            process.kill()


async def _run(port: int, round_trip_ms: float, mbit: float) -> None:
    def line() -> Line:
        return Line(bytes_per_second=mbit * 1e6 / 8, delay_seconds=round_trip_ms / 2000)

    proxy = Proxy(port=port, up=line(), down=line())
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0, limit=_CHUNK)
    print(server.sockets[0].getsockname()[1], flush=True)
    # Standard input has closed: the process that started this is gone.
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    server.close()


def main() -> None:
    """Run as a process."""
    parser = argparse.ArgumentParser(description="A slow line before a local port.")
    parser.add_argument("port", type=int)
    parser.add_argument("--round-trip-ms", type=float, default=50)
    parser.add_argument("--mbit", type=float, default=200)
    options = parser.parse_args()
    asyncio.run(_run(options.port, options.round_trip_ms, options.mbit))


if __name__ == "__main__":
    main()
