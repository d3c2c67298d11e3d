"""The steps of a call: recording, Cloudflare, rate limit, ordered faults, API key, description, handler, and back."""

from __future__ import annotations

import base64
import json
import logging
from pathlib import Path
from typing import Any

from tests.cloudbox.lambdacloud import firewalls, instances, resources
from tests.cloudbox.lambdacloud.cloud import Cloud
from tests.cloudbox.lambdacloud.errors import LambdaError, blocked, invalid
from tests.cloudbox.lambdacloud.faults import LambdaFault
from tests.cloudbox.lambdacloud.launching import change
from tests.cloudbox.rest.call import Answer, ApiError, BadBodyError, Call
from tests.cloudbox.rest.calls import Seen
from tests.cloudbox.rest.description import Description
from tests.cloudbox.rest.routes import Routes

_log = logging.getLogger(__name__)
_TOKEN = "a+b/c=&d%20"
"""The prefix of page tokens. Their format is unknown, so it has characters that must be escaped in a URL."""

ROUTES: Routes[Cloud] = Routes("/api/v1", *(part.routes for part in (instances, resources, firewalls)))
FILE = Path(__file__).with_name("openapi.json")
"""Paths, fields and limits of Lambda Cloud's OpenAPI description 1.10.0, without its prose, and without its tickets,
audit events and fabric. Lambda serves the full description without a key, and names no licence:
https://cloud.lambda.ai/api/v1/openapi.json. This file was made from the copy in github.com/api-evangelist/lambda-labs,
`openapi/_original/lambda-labs-openapi.json` at d6dbe75120e0 (2026-08-03; SHA-256 6163162cf92eb680...)."""


def load_description() -> Description:
    """Return the checker for calls and answers."""
    return Description(json.loads(FILE.read_text()), "https://cloud.lambda.ai")


class Gate:
    """Answers calls; those that use the account one after the other."""

    def __init__(self, cloud: Cloud, description: Description) -> None:
        self.broken: list[str] = []
        """Mistakes of the box: answers that Lambda's description doesn't allow, and exceptions."""
        self._cloud = cloud
        self._description = description

    def answer(self, call: Call) -> Answer | None:
        """Return the answer to a call; None if it is lost together with the connection."""
        seen = self._cloud.calls.record(call.method, call.path, call.query, _fields(call))
        try:
            answer = self._answer(call, seen)
        except ApiError as refusal:
            answer = refusal.answer
        seen.status = answer.status if answer else None
        return self._checked(call, answer) if answer else None

    def _answer(self, call: Call, seen: Seen) -> Answer | None:
        cloud, agent = self._cloud, call.headers.get("user-agent", "")
        # fact: lambda-needs-a-user-agent
        if not agent or agent.lower().startswith("python-urllib/"):
            raise blocked(403, 1010)
        cloud.rates.count(call, cloud.account.settings)
        fault = cloud.faults.take(call)
        seen.fault = fault.effect if fault else None
        if fault and not fault.needs_effect and fault.happen():
            return None
        try:
            answer = self._carry_out(call, fault)
        except ApiError:
            # A fault after the effect waits for a call that has an effect.
            if fault and fault.needs_effect:
                cloud.faults.put_back(fault)
            raise
        return None if fault and fault.after_effect and fault.happen() else answer

    def _carry_out(self, call: Call, fault: LambdaFault | None) -> Answer:
        cloud = self._cloud
        if _key_of(call) not in cloud.account.api_keys:
            raise LambdaError("global/invalid-api-key")
        found = ROUTES.find(call)
        if found is None:
            # fact: lambda-two-filesystem-paths
            raise LambdaError("global/not-found", status=405 if ROUTES.methods(call) else 404, is_described=False)
        route, call = found
        if complaint := self._description.complaint_about_request(call):
            raise invalid(complaint)
        with cloud.lock:
            cloud.settle()
            try:
                if cloud.account.settings.refuses_account:
                    raise LambdaError(cloud.account.settings.refuses_account, is_described=False)
                if fault and fault.effect in ("ignored", "omitted"):
                    return instances.pretend_termination(cloud, call, is_listed=fault.effect == "ignored")
                answer = route.handler(cloud, call)
                if fault and fault.effect in ("becomes", "stuck") and answer.body:
                    change(cloud.account, answer.body["data"]["instance_ids"][0], fault)
                return answer
            finally:
                cloud.settle()

    def _checked(self, call: Call, answer: Answer) -> Answer:
        if answer.is_described and (complaint := self._description.complaint_about_answer(call, answer)):
            mistake = f"{call.method} {call.path} {answer.status}: {complaint}"
            _log.error("the box's answer is not Lambda's: %s", mistake)
            self.broken.append(mistake)
        return self._paged(call, answer)

    def _paged(self, call: Call, answer: Answer) -> Answer:
        """Cut a listing of instances into pages: undocumented, but clients written by others expect it."""
        size = self._cloud.account.settings.page_size
        if not size or call.path != "/api/v1/instances" or answer.status != 200 or answer.body is None:
            return answer
        token, found = call.query.get("page_token", _TOKEN + "0"), answer.body["data"]
        if not token.startswith(_TOKEN):
            return invalid(f"page_token {token!r}").answer
        first = int(token.removeprefix(_TOKEN))
        more: dict[str, Any] = {"page_token": _TOKEN + str(first + size)} if first + size < len(found) else {}
        return Answer(body={"data": found[first : first + size], **more})


def _key_of(call: Call) -> str:
    """Return the API key: a bearer token, or the user of Basic with an empty password. fact: lambda-authorization."""
    scheme, _, text = call.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "basic":
        return call.token
    try:
        user, _, password = base64.b64decode(text, validate=True).decode().partition(":")
    except ValueError:
        return ""
    return "" if password else user


def _fields(call: Call) -> dict[str, object]:
    try:
        return call.body
    except BadBodyError:
        return {}
