"""Orders to a box that is a program of its own; README.md lists them."""

from __future__ import annotations

from dataclasses import asdict

from tests.cloudbox.digitalocean.box import DigitalOceanBox
from tests.cloudbox.rest.control import Orders, describe_meter, set_fields


def render_orders(do: DigitalOceanBox) -> Orders:
    """Return what the program does, by method and path."""
    return {
        ("POST", "/control/reset"): lambda _: do.reset(),
        ("GET", "/control/calls"): lambda _: [asdict(call) for call in do.calls],
        ("DELETE", "/control/calls"): lambda _: do.calls.reset(),
        ("POST", "/control/faults"): do.faults.order_fields,
        ("GET", "/control/faults"): lambda _: [asdict(fault) for fault in do.faults.pending()],
        ("DELETE", "/control/faults"): lambda _: do.faults.reset(),
        ("GET", "/control/meter"): lambda _: describe_meter(do.meter, do.cloud.clock),
        ("GET", "/control/droplets"): lambda _: [asdict(droplet) for droplet in do.droplets()],
        ("POST", "/control/settings"): lambda order: set_fields(do.settings, order),
        ("POST", "/control/sell-out"): lambda order: do.sell_out(order["size"], *order.get("regions", [])),
        ("POST", "/control/restock"): lambda _: do.restock(),
        ("POST", "/control/first-boot"): lambda order: do.change_first_boot(**order),
        ("POST", "/control/price"): lambda order: do.set_price(order["size"], order["usd_per_hour"]),
        ("POST", "/control/advance"): lambda order: do.advance(order["seconds"]),
        ("POST", "/control/tokens"): lambda order: do.make_token(*order["scopes"]),
    }
