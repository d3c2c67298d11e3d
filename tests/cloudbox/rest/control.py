"""Orders to a box by hand or from another process: JSON over HTTP, on a separate port; README.md lists them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import Any, cast

from tests.cloudbox.http_server import LoopbackServer, QuietHandler
from tests.cloudbox.rest.clock import BoxClock
from tests.cloudbox.rest.meter import Meter

Orders = Mapping[tuple[str, str], Callable[[dict[str, Any]], Any]]


class Control:
    """Serves orders at `url` until `close`; `orders` maps method and path to a function of the body's fields."""

    def __init__(self, orders: Orders) -> None:
        self._orders = orders
        self._server = _Server(self)
        self.url = f"http://{self._server.authority}"
        self._server.start()

    def close(self) -> None:
        """Stop serving."""
        self._server.close()

    def carry_out(self, method: str, path: str, raw: bytes) -> tuple[int, Any]:
        """Return the status and the answer to an order; an impossible one gets 400 and the reason."""
        order = self._orders.get((method, path))
        if order is None:
            return 404, {"error": f"no such order: {method} {path}"}
        try:
            return 200, order(json.loads(raw or b"{}"))
        except (LookupError, TypeError, ValueError) as err:
            return 400, {"error": str(err)}


def describe_meter(meter: Meter, clock: BoxClock) -> dict[str, Any]:
    """Return the bills and what everything has cost."""
    now = clock.now()
    return {"usd": meter.usd(), "bills": [{**asdict(bill), "usd": bill.usd(now)} for bill in meter.bills()]}


def set_fields(settings: Any, order: dict[str, Any]) -> None:
    """Set fields of a dataclass; unknown names are refused before any field is set."""
    replace(settings, **order)
    for name, value in order.items():
        setattr(settings, name, value)


class _Server(LoopbackServer):
    def __init__(self, control: Control) -> None:
        super().__init__("127.0.0.1", _Handler)
        self.control = control


class _Handler(QuietHandler):
    def respond(self) -> None:
        status, answer = cast("_Server", self.server).control.carry_out(self.command, self.path, self.read_body())
        # Amounts of money are Decimal, which JSON doesn't have: they are sent as text.
        body = json.dumps(answer, default=str).encode()
        self.answer(status, body, {"Content-Type": "application/json"})
