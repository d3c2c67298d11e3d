"""What a call passes: recorded, counted, the token, ordered faults, the description, the rules; and back again."""

from __future__ import annotations

import logging
import uuid
from dataclasses import replace
from math import inf

from tests.cloudbox.digitalocean.account.call import bad_request, not_found, number_of, unprocessable
from tests.cloudbox.digitalocean.account.faults import Fault
from tests.cloudbox.digitalocean.cloud import Cloud
from tests.cloudbox.digitalocean.droplets import actions, associated, droplets, reserved_ips, volume_actions
from tests.cloudbox.digitalocean.resources import (
    firewalls,
    images,
    keys,
    offering,
    projects,
    snapshots,
    tagging,
    volumes,
    vpcs,
)
from tests.cloudbox.rest.call import Answer, ApiError, BadBodyError, Call
from tests.cloudbox.rest.description import Description
from tests.cloudbox.rest.routes import Routes

_log = logging.getLogger(__name__)

ROUTES: Routes[Cloud] = Routes(
    "/v2",
    *(part.routes for part in (offering, keys, images, droplets, actions, tagging, firewalls)),
    *(part.routes for part in (associated, volume_actions, snapshots, volumes, reserved_ips, projects, vpcs)),
)


class Gate:
    """Answers calls, one after the other where they look at the account."""

    def __init__(self, cloud: Cloud, description: Description | None) -> None:
        self.broken: list[str] = []
        """Mistakes of the box: answers that DigitalOcean's description doesn't allow, and exceptions."""
        self._cloud = cloud
        self._description = description

    def answer(self, call: Call) -> Answer | None:
        """Return the answer to a call; None where it is lost, and the connection with it."""
        seen = self._cloud.calls.record(call.method, call.path, call.query, _fields(call))
        fault = self._cloud.faults.take(call)
        if fault:
            seen.fault = fault.effect
        answer = self._answer(call, fault)
        if answer is not None:
            seen.status = answer.status
        return answer

    def _answer(self, call: Call, fault: Fault | None) -> Answer | None:
        headers: dict[str, str] = {}
        try:
            headers |= self._count()
            if fault and not fault.after_effect and fault.happen():
                return None
            answer = self._take_effect(call, fault)
            if fault and fault.after_effect and fault.happen():
                return None
        except ApiError as refusal:
            answer = refusal.answer
        headers |= {"x-request-id": str(uuid.uuid4()), **answer.headers}
        return self._checked(call, replace(answer, headers=headers))

    def _count(self) -> dict[str, str]:
        settings = self._cloud.account.settings
        return self._cloud.rates.count(
            per_minute=settings.requests_per_minute,
            per_hour=settings.requests_per_hour,
            retry_after=settings.retry_after,
        )

    def _take_effect(self, call: Call, fault: Fault | None) -> Answer:
        try:
            return self._carry_out(call, fault)
        except ApiError:
            # What was to happen after the effect waits for a call that has one.
            if fault and fault.needs_effect:
                self._cloud.faults.put_back(fault)
            raise

    def _carry_out(self, call: Call, fault: Fault | None) -> Answer:
        found = ROUTES.find(call)
        if found is None:
            raise not_found()
        route, call = found
        self._cloud.tokens.check(call.token, route.scopes)
        if self._description and (complaint := self._description.complaint_about_request(call)):
            raise unprocessable(complaint)
        _check_body(call)
        with self._cloud.lock:
            self._cloud.settle()
            try:
                answer = route.handler(self._cloud, call)
                if fault and fault.effect == "reappear":
                    droplet = self._cloud.account.droplets[number_of(call, "droplet_id")]
                    droplet.reappears_at = (droplet.deleted_at or 0) + fault.seconds
                if fault and fault.effect in ("errored", "vanish") and answer.body:
                    self._give_up(answer.body["droplet"]["id"], fault)
                return answer
            finally:
                self._cloud.settle()

    def _give_up(self, number: int, fault: Fault) -> None:
        """Let a creation that was accepted fail. fact: do-creation-errored."""
        account = self._cloud.account
        droplet, when = account.droplets[number], account.clock.now() + fault.seconds
        droplet.active_at, droplet.errored_at = inf, when
        if fault.effect == "vanish":
            droplet.deleted_at = when
        for action in account.actions.values():
            if (action.resource_id, action.type) == (number, "create"):
                action.done_at, action.fails = when, True

    def _checked(self, call: Call, answer: Answer) -> Answer:
        if self._description and (complaint := self._description.complaint_about_answer(call, answer)):
            mistake = f"{call.method} {call.path} {answer.status}: {complaint}"
            # A path that the description doesn't have is a client's mistake, and was answered with 404.
            if answer.status < 400 or "PathNotFound" not in complaint:
                _log.error("the box's answer is not DigitalOcean's: %s", mistake)
                self.broken.append(mistake)
        return answer


def _check_body(call: Call) -> None:
    try:
        _ = call.body
    except BadBodyError as err:
        raise bad_request(str(err)) from err


def _fields(call: Call) -> dict[str, object]:
    try:
        return call.body
    except BadBodyError:
        return {}
