"""How tests give the box orders: JSON over HTTP, on a port of its own."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from werkzeug.wrappers import Request, Response

from tests.cloudbox.aws.cloud import Cloud
from tests.cloudbox.aws.faults import Fault
from tests.cloudbox.aws.life import identity
from tests.cloudbox.aws.life.states import Durations
from tests.cloudbox.aws.rules import images
from tests.cloudbox.aws.wire.call import Environ

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse


class Control:
    """The WSGI application for orders; README.md lists them."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud
        self._orders: dict[tuple[str, str], Callable[[dict[str, Any]], Any]] = {
            ("POST", "/control/reset"): lambda _: cloud.reset(),
            ("GET", "/control/calls"): lambda _: cloud.calls.entries(),
            ("DELETE", "/control/calls"): lambda _: cloud.calls.reset(),
            ("GET", "/control/faults"): lambda _: cloud.faults.pending(),
            ("POST", "/control/faults"): lambda order: cloud.faults.order(Fault(**order)),
            ("DELETE", "/control/faults"): lambda _: cloud.faults.reset(),
            ("GET", "/control/meter"): lambda _: cloud.meter.report(),
            ("GET", "/control/billing"): lambda _: cloud.meter.billing(),
            ("GET", "/control/machines"): lambda _: cloud.lifecycle.describe(),
            ("POST", "/control/reclaim"): self._reclaim,
            ("POST", "/control/states"): self._set_states,
            ("POST", "/control/failed-start"): lambda order: cloud.lifecycle.states.fail_next(
                order["code"], order["message"]
            ),
            ("DELETE", "/control/states"): lambda _: cloud.lifecycle.finish_states(),
            ("POST", "/control/rebalance"): lambda order: cloud.lifecycle.rebalance(order["instance_id"]),
            ("POST", "/control/spot-price"): self._set_spot_price,
            ("POST", "/control/placement-score"): lambda order: cloud.spot.set_score(order["zone"], order["score"]),
            ("POST", "/control/closed-region"): lambda order: cloud.closed.close(order["region"], order["how"]),
            ("POST", "/control/withdrawn-image"): lambda order: images.withdraw(order["region"], order["part"]),
            ("POST", "/control/quota"): lambda order: cloud.quotas.set(order["region"], order["code"], order["vcpus"]),
            ("POST", "/control/schedules"): self._advance_schedules,
            ("POST", "/control/gpu-fault"): lambda order: cloud.lifecycle.images.break_gpu(order["fault"]),
            ("POST", "/control/first-boot"): cloud.lifecycle.images.change_first_boot,
            ("POST", "/control/buckets"): lambda order: cloud.buckets.give_away(**order),
            ("POST", "/control/iam"): lambda order: identity.enforce(order["enforce"]),
        }

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """Carry an order out; what can't be done is answered with 400 and a sentence."""
        request = Request(environ)
        order = self._orders.get((request.method, request.path))
        if order is None:
            return _json({"error": f"no such order: {request.method} {request.path}"}, 404)(environ, start_response)
        try:
            done = order(json.loads(request.get_data() or b"{}"))
        except (LookupError, TypeError, ValueError) as err:
            return _json({"error": str(err)}, 400)(environ, start_response)
        return _json(done, 200)(environ, start_response)

    def _reclaim(self, order: dict[str, Any]) -> None:
        seconds = order.get("notice_seconds")
        notice = None if seconds is None else timedelta(seconds=seconds)
        self._cloud.lifecycle.reclaim(order["instance_id"], notice)

    def _set_states(self, order: dict[str, Any]) -> None:
        pending, ending = (timedelta(seconds=order[name]) for name in ("pending_seconds", "ending_seconds"))
        self._cloud.lifecycle.states.durations = Durations(pending=pending, ending=ending)

    def _advance_schedules(self, order: dict[str, Any]) -> None:
        self._cloud.scheduler.advance(timedelta(seconds=order["ahead_seconds"]))

    def _set_spot_price(self, order: dict[str, Any]) -> None:
        self._cloud.spot.set(order["instance_type"], order["zone"], Decimal(order["usd_per_hour"]))


def _json(payload: Any, status: int) -> Response:
    return Response(json.dumps(payload), status=status, content_type="application/json")
