"""An SSH server that plays many machines: each address answers as a machine whose agent reports.

`python benchmarks/machines.py HOST_KEY AGENT_SECONDS` reads a line of JSON, the reports by their addresses. It listens
at port 22 of each, prints `ready`, and ends when its standard input ends, or with a signal.
"""

from __future__ import annotations

import json
import socket
import sys
import threading
import time

import paramiko
from paramiko.common import AUTH_SUCCESSFUL, OPEN_SUCCEEDED

_PORT = 22


class Machine(paramiko.ServerInterface):
    """One connection to a machine: every key opens it, and the one command that does something is `report`."""

    def __init__(self, report: bytes, agent_seconds: float) -> None:
        self._report = report
        self._agent_seconds = agent_seconds

    def get_allowed_auths(self, username: str) -> str:  # noqa: ARG002 - paramiko's name
        """Allow keys."""
        return "publickey"

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:  # noqa: ARG002
        """Accept every key."""
        return AUTH_SUCCESSFUL

    def check_channel_request(self, kind: str, chanid: int) -> int:  # noqa: ARG002
        """Accept sessions."""
        return OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        """Answer a command once the time that an agent needs for it has passed."""
        answer = self._report if command.endswith(b"kedge-agent report") else b""
        threading.Timer(self._agent_seconds if answer else 0, _answer, (channel, answer)).start()
        return True


def _answer(channel: paramiko.Channel, answer: bytes) -> None:
    channel.sendall(answer)
    channel.send_exit_status(0)
    channel.close()


def _listen(address: str, key: paramiko.PKey, report: bytes, agent_seconds: float) -> None:
    listener = socket.create_server((address, _PORT))

    def serve() -> None:
        while True:
            connection, _ = listener.accept()
            transport = paramiko.Transport(connection)
            transport.add_server_key(key)
            threading.Thread(
                target=transport.start_server, kwargs={"server": Machine(report, agent_seconds)}, daemon=True
            ).start()

    threading.Thread(target=serve, daemon=True).start()


def main() -> None:
    """Serve until nobody wants it any more."""
    key, agent_seconds = paramiko.Ed25519Key(filename=sys.argv[1]), float(sys.argv[2])
    began = time.time()
    for address, report in json.loads(sys.stdin.readline()).items():
        _listen(address, key, json.dumps({**report, "now": began}).encode(), agent_seconds)
    print("ready", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
