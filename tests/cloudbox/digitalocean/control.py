"""Orders to a box by hand or from another process: JSON over HTTP, on a port of its own; README.md lists them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any, cast

from tests.cloudbox.digitalocean.box import DigitalOceanBox
from tests.cloudbox.digitalocean.faults import Fault
from tests.cloudbox.http_server import LoopbackServer, QuietHandler


class Control:
    """Takes orders until `close`, at `url`."""

    def __init__(self, do: DigitalOceanBox) -> None:
        self._do = do
        self._orders: dict[tuple[str, str], Callable[[dict[str, Any]], Any]] = {
            ("POST", "/control/reset"): lambda _: do.reset(),
            ("GET", "/control/calls"): lambda _: [asdict(call) for call in do.calls],
            ("DELETE", "/control/calls"): lambda _: do.calls.reset(),
            ("POST", "/control/faults"): lambda order: do.faults.order(Fault(**order)),
            ("GET", "/control/faults"): lambda _: [asdict(fault) for fault in do.faults.pending()],
            ("DELETE", "/control/faults"): lambda _: do.faults.reset(),
            ("GET", "/control/meter"): lambda _: self._meter(),
            ("GET", "/control/droplets"): lambda _: [asdict(droplet) for droplet in do.droplets()],
            ("POST", "/control/settings"): self._set,
            ("POST", "/control/sell-out"): lambda order: do.sell_out(order["size"], *order.get("regions", [])),
            ("POST", "/control/restock"): lambda _: do.restock(),
            ("POST", "/control/first-boot"): lambda order: do.change_first_boot(**order),
            ("POST", "/control/price"): lambda order: do.set_price(order["size"], order["usd_per_hour"]),
            ("POST", "/control/advance"): lambda order: do.advance(order["seconds"]),
            ("POST", "/control/tokens"): lambda order: do.make_token(*order["scopes"]),
        }
        self._server = _Server(self)
        self.url = f"http://{self._server.authority}"
        self._server.start()

    def close(self) -> None:
        """Take no more orders."""
        self._server.close()

    def carry_out(self, method: str, path: str, raw: bytes) -> tuple[int, Any]:
        """Return the status and the answer to an order; what can't be done is answered with 400 and a sentence."""
        order = self._orders.get((method, path))
        if order is None:
            return 404, {"error": f"no such order: {method} {path}"}
        try:
            return 200, order(json.loads(raw or b"{}"))
        except (LookupError, TypeError, ValueError) as err:
            return 400, {"error": str(err)}

    def _meter(self) -> dict[str, Any]:
        meter, now = self._do.meter, self._do.cloud.clock.now()
        return {"usd": meter.usd(), "bills": [{**asdict(bill), "usd": bill.usd(now)} for bill in meter.bills()]}

    def _set(self, order: dict[str, Any]) -> None:
        # Unknown names are refused before anything is set.
        replace(self._do.settings, **order)
        for name, value in order.items():
            setattr(self._do.settings, name, value)


class _Server(LoopbackServer):
    def __init__(self, control: Control) -> None:
        super().__init__("127.0.0.1", _Handler)
        self.control = control


class _Handler(QuietHandler):
    def respond(self) -> None:
        status, answer = cast("_Server", self.server).control.carry_out(self.command, self.path, self.read_body())
        # Money and sizes are numbers that JSON doesn't have.
        body = json.dumps(answer, default=str).encode()
        self.answer(status, body, {"Content-Type": "application/json"})
