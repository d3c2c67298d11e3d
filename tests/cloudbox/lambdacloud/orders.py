"""Orders to a box that runs as a separate program, and requests that tests of the box make."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from tests.cloudbox.lambdacloud.box import LambdaBox
from tests.cloudbox.lambdacloud.rates import LAUNCH
from tests.cloudbox.rest.client import Reply
from tests.cloudbox.rest.control import Orders, describe_meter, set_fields

REGION, KIND = "us-east-1", "gpu_1x_h100_sxm5"
PUBLIC_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFo0 tests"


def render_orders(lam: LambdaBox) -> Orders:
    """Return the orders of the separate program, by method and path; README.md lists them."""
    return {
        ("POST", "/control/reset"): lambda _: lam.reset(),
        ("GET", "/control/calls"): lambda _: [asdict(call) for call in lam.calls],
        ("DELETE", "/control/calls"): lambda _: lam.calls.reset(),
        ("POST", "/control/faults"): lam.faults.order_fields,
        ("GET", "/control/faults"): lambda _: [asdict(fault) for fault in lam.faults.pending()],
        ("DELETE", "/control/faults"): lambda _: lam.faults.reset(),
        ("GET", "/control/meter"): lambda _: describe_meter(lam.meter, lam.cloud.clock),
        ("GET", "/control/instances"): lambda _: [asdict(one) for one in lam.instances()],
        ("POST", "/control/settings"): lambda order: set_fields(lam.settings, order),
        ("POST", "/control/sell-out"): lambda order: lam.sell_out(order["type"], *order.get("regions", [])),
        ("POST", "/control/restock"): lambda _: lam.restock(),
        ("POST", "/control/crowd"): lambda order: lam.crowd(order["count"]),
        ("POST", "/control/first-boot"): lambda order: lam.change_first_boot(**order),
        ("POST", "/control/advance"): lambda order: lam.advance(order["seconds"]),
        ("POST", "/control/revoke"): lambda _: lam.revoke(),
    }


def add_key(lam: LambdaBox, name: str = "laptop", public_key: str = PUBLIC_KEY) -> str:
    """Add a key that launches accept, and return its id."""
    reply = lam.client().call("POST", "/api/v1/ssh-keys", {"name": name, "public_key": public_key})
    lam.advance(lam.settings.key_seconds)
    return str(reply.json["data"]["id"])


def order(**more: Any) -> dict[str, Any]:
    """Return the body that launches one H100."""
    return {"region_name": REGION, "instance_type_name": KIND, "ssh_key_names": ["laptop"], **more}


def try_launch(lam: LambdaBox, **more: Any) -> Reply:
    """Request one instance; its key is added if it is missing."""
    if not any(key.name == "laptop" for key in lam.cloud.account.keys.values()):
        add_key(lam)
    return lam.client().call(*LAUNCH, order(**more))


def launch(lam: LambdaBox, **more: Any) -> str:
    """Launch one instance, and return its id."""
    reply = try_launch(lam, **more)
    assert reply.status == 200, reply
    (made,) = reply.json["data"]["instance_ids"]
    return str(made)


def terminate(lam: LambdaBox, *ids: str) -> Reply:
    """Request the termination of instances."""
    return lam.client().call("POST", "/api/v1/instance-operations/terminate", {"instance_ids": list(ids)})


def listed(lam: LambdaBox) -> dict[str, dict[str, Any]]:
    """Return the instances that the listing shows, by id."""
    return {one["id"]: one for one in lam.client().call("GET", "/api/v1/instances").json["data"]}


def code_of(reply: Reply) -> tuple[int, str]:
    """Return the status and the code of a refusal."""
    return reply.status, str(reply.json["error"]["code"])
