"""Run a droplet's end script in its own namespaces while its job holds every ephemeral port.

    python -m tests.adapters.digitalocean.crowded SCRIPT PORT

Root runs SCRIPT while the job's user holds the ports. A server at PORT acts as the metadata service and the API; it
prints each deletion that it receives on a line.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import socket
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

JOB = "nobody"
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOW, _HIGH = 40_000, 40_500
_SIOCSIFFLAGS, _IFF_UP = 0x8914, 1


class Cloud(BaseHTTPRequestHandler):
    """The metadata service and the API: returns the droplet's id, and accepts its deletion."""

    def do_GET(self) -> None:
        self._answer(200, b"4711")

    def do_DELETE(self) -> None:
        print(f"DELETE {self.path}", flush=True)
        # The machine ends, and its namespaces with it.
        os._exit(0)

    def _answer(self, status: int, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_arguments: object) -> None:
        pass


def hold_ports(ready: int) -> None:
    """Act as the job: bind each port once, and keep it."""
    os.setgroups([])
    os.setuid(pwd.getpwnam(JOB).pw_uid)
    held = [socket.socket() for _ in range(_LOW, _HIGH + 1)]
    for port, each in enumerate(held, start=_LOW):
        each.bind(("0.0.0.0", port))
    os.write(ready, b"held")
    threading.Event().wait()


def bring_loopback_up() -> None:
    with socket.socket() as any_socket:
        request = ctypes.create_string_buffer(b"lo".ljust(16, b"\0") + _IFF_UP.to_bytes(2, sys.byteorder), 40)
        ctypes.CDLL(None, use_errno=True).ioctl(any_socket.fileno(), _SIOCSIFFLAGS, request)


def main(script: str, port: int) -> int:
    bring_loopback_up()
    _RANGE.write_text(f"{_LOW} {_HIGH}")
    server = ThreadingHTTPServer(("127.0.0.1", port), Cloud)
    heard, ready = os.pipe()
    if os.fork() == 0:
        hold_ports(ready)
    os.read(heard, 4)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        done = subprocess.run(["sh", script], check=False, capture_output=True, timeout=10)
    except subprocess.TimeoutExpired:
        print("it never ends")
        return 1
    print(f"it ended without a deletion: {done.stdout.decode()}")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
