"""One call of an AWS API, as the box sees it: who is asked for what, where."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from io import BytesIO
from typing import Any
from urllib.parse import parse_qsl, unquote

from moto.core.request import Request
from moto.core.routing import get_service_router
from werkzeug.exceptions import NotFound

Environ = dict[str, Any]

_OF_CONTENT = frozenset({"PutObject", "UploadPart", ""})
"""S3's operations whose body is an object's content, or part of it."""
_SCOPE = re.compile(r"Credential=[^/]+/\d{8}/(?P<region>[^/]+)/(?P<service>[^/]+)/aws4_request")


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What one HTTP request asks for.

    `params` is flat where the protocol is (`Placement.AvailabilityZone`, `InstanceId.1`), else the JSON that was sent.
    The names of `headers` are in lower case; `body` is empty where it is an object's content.
    """

    service: str
    action: str
    region: str
    params: Mapping[str, Any]
    query: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""

    def listed(self, name: str) -> list[str]:
        """Return the values of a list parameter of the query protocol: `InstanceId.1`, `InstanceId.2`, ..."""
        prefix = f"{name}."
        return [value for key, value in self.params.items() if key.removeprefix(prefix).isdigit()]

    def filters(self) -> dict[str, list[str]]:
        """Return the EC2 filters of the call, by name."""
        found = {}
        number = 1
        while name := self.params.get(f"Filter.{number}.Name"):
            found[name] = self.listed(f"Filter.{number}.Value")
            number += 1
        return found

    @property
    def spot(self) -> bool:
        """Tell whether a spot machine is asked for."""
        return self.params.get("InstanceMarketOptions.MarketType") == "spot"

    @property
    def changes_machines(self) -> bool:
        """Tell whether instances or volumes may be others after the call."""
        if self.service == "cloudformation":
            return True
        return self.service == "ec2" and not self.action.startswith(("Describe", "Get"))


def parse_call(environ: Environ) -> Call:
    """Read what a request asks for; its body can be read again afterwards (an object's content isn't touched)."""
    region, service = _scope(environ)
    call = _parse_s3(environ, region) if service == "s3" else _parse(environ, service, region)
    return replace(call, query=environ.get("QUERY_STRING", ""), headers=_headers(environ))


def _parse(environ: Environ, service: str, region: str) -> Call:
    body = _body(environ)
    if target := environ.get("HTTP_X_AMZ_TARGET"):
        return Call(service=service, action=target.split(".")[-1], region=region, params=_json(body), body=body)
    form = dict(parse_qsl(body.decode(errors="replace") or environ.get("QUERY_STRING", ""), keep_blank_values=True))
    if "Action" in form:
        return Call(service=service, action=form.pop("Action"), region=region, params=form)
    action, params = _route(service, environ)
    return Call(service=service, action=action, region=region, params={**params, **_json(body)}, body=body)


def _parse_s3(environ: Environ, region: str) -> Call:
    action, params = _route("s3", environ)
    body = b"" if action in _OF_CONTENT else _body(environ)
    return Call(service="s3", action=action or environ["REQUEST_METHOD"], region=region, params=params, body=body)


def _headers(environ: Environ) -> dict[str, str]:
    named = {key.removeprefix("HTTP_"): value for key, value in environ.items() if key.startswith("HTTP_")}
    named |= {key: environ[key] for key in ("CONTENT_LENGTH", "CONTENT_TYPE") if environ.get(key)}
    return {key.replace("_", "-").lower(): value for key, value in named.items()}


def _scope(environ: Environ) -> tuple[str, str]:
    signed = environ.get("HTTP_AUTHORIZATION", "")
    # A presigned URL carries the same scope in its query.
    presigned = unquote(environ.get("QUERY_STRING", "")).replace("X-Amz-Credential=", "Credential=")
    if found := _SCOPE.search(signed) or _SCOPE.search(presigned):
        return found["region"], found["service"]
    return "us-east-1", "s3"


def _body(environ: Environ) -> bytes:
    length = int(environ.get("CONTENT_LENGTH") or 0)
    body: bytes = environ["wsgi.input"].read(length) if length else b""
    environ["wsgi.input"] = BytesIO(body)
    return body


def _route(service: str, environ: Environ) -> tuple[str, dict[str, Any]]:
    try:
        operation, params = get_service_router(service).match(Request(environ.copy()))
    except NotFound:
        return "", {}
    return str(operation.name), dict(params)


def _json(body: bytes) -> dict[str, Any]:
    try:
        parsed = json.loads(body)
    except ValueError:
        return {}
    return parsed if isinstance(parsed, dict) else {}
