"""Several machines on this computer that run a task together; each has an address of its own."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from tests.agent.box import RUN, Box
from tests.agent.several import task
from tests.support.ports import free_port

TOKEN = "known to the machines of this run"
MakeBox = Callable[..., Box]


def addresses(count: int) -> list[str]:
    return [f"127.0.0.{rank + 2}" for rank in range(count)]


class Machines:
    """A run's machines. Each runs the same command."""

    def __init__(self, make_box: MakeBox, count: int, *, port: int | None = None, **machine: Any) -> None:
        self.port = free_port() if port is None else port
        self.addresses = addresses(count)
        self.boxes = [make_box(rank=rank, machine=f"{RUN}-m{rank + 1}", **machine) for rank in range(count)]

    def start(self, command: str, *ranks: int, run: dict[str, Any] | None = None, **own: Any) -> None:
        """Start the command on these machines, or on all of them."""
        one = task("", command, **{"port": self.port, "grace": 2.0, **own})
        config = {"run": RUN, "job": "digits", "mode": "", "setup": "", "tasks": [one]}
        config |= {"addresses": self.addresses, "token": TOKEN, **(run or {})}
        for rank in ranks or range(len(self.boxes)):
            self.boxes[rank].ask("start", stdin=json.dumps(config).encode())

    def await_state(self, *states: str) -> list[dict[str, Any]]:
        return [box.await_state(*states) for box in self.boxes]

    def have_started_again(self) -> bool:
        """Tell whether the command has written " up " on all machines in the second attempt.

        The first is not asked about: a failure may end it on another machine before the command has written anything.
        """
        return all(" up " in box.log().partition("started, attempt 2 of ")[2] for box in self.boxes)

    def logs(self) -> str:
        return "\n".join(f"-- {rank}\n{box.log()}" for rank, box in enumerate(self.boxes))
