"""The metadata service of one instance: IMDSv2 only, on the instance's own loopback address.

Paths and answers as in "Instance metadata categories" of the EC2 user guide (docs.aws.amazon.com/AWSEC2/latest/
UserGuide/instancedata-data-categories.html, 2026-11): a request without a session token is answered 401, a category
that has no value now 404.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from typing import cast

from tests.cloudbox.http_server import LoopbackServer, QuietHandler

Credentials = Callable[[], Mapping[str, str] | None]

_TOKEN_PATH = "/latest/api/token"
_MAX_TTL_S = 21600
_HEADER = "X-aws-ec2-metadata-token"
_CREDENTIALS = "meta-data/iam/security-credentials/"


class MetadataService:
    """Serves one instance until `close`, at `url`. fact: aws-spot-notice; fact: aws-metadata-tokens.

    Args:
        address: Where it listens, on a free port: the instance's address.
        instance_id: Of the instance, as all that follows.
        region: Its region.
        zone: Its availability zone.
        instance_type: Its type.
        user_data: As it was given to RunInstances, decoded.
        credentials: Asked for each request; RoleName, AccessKeyId, SecretAccessKey, Token and Expiration of the role
            of its profile, or None where it has none.
    """

    def __init__(
        self,
        address: str,
        *,
        instance_id: str,
        region: str,
        zone: str,
        instance_type: str,
        user_data: bytes,
        credentials: Credentials,
    ) -> None:
        self.notice: datetime | None = None
        """When a reclaimed spot instance will be terminated; None while it isn't reclaimed."""
        self.rebalance: datetime | None = None
        """When a rebalance was recommended; None while it isn't."""
        self._credentials = credentials
        self._tokens: dict[str, float] = {}
        identity = {
            "instanceId": instance_id,
            "region": region,
            "availabilityZone": zone,
            "instanceType": instance_type,
        }
        self._fixed = {
            "user-data": user_data,
            "meta-data/instance-id": instance_id.encode(),
            "meta-data/instance-type": instance_type.encode(),
            "meta-data/local-ipv4": address.encode(),
            "meta-data/public-ipv4": address.encode(),
            "meta-data/placement/availability-zone": zone.encode(),
            "meta-data/placement/region": region.encode(),
            "dynamic/instance-identity/document": json.dumps({**identity, "privateIp": address}).encode(),
        }
        self._server = _Server(address, self)
        self.url = f"http://{self._server.authority}"
        self._server.start()

    def close(self) -> None:
        """Stop serving."""
        self._server.close()

    def make_token(self, ttl_s: int) -> str:
        """Return a new session token, good for `ttl_s` seconds."""
        token = secrets.token_urlsafe(32)
        self._tokens[token] = time.monotonic() + ttl_s
        return token

    def accepts(self, token: str | None) -> bool:
        """Return whether a session token is one of ours that is still good."""
        return token is not None and self._tokens.get(token, 0.0) > time.monotonic()

    def find(self, path: str) -> bytes | None:
        """Return the value at a path below /latest/; None where there is none now."""
        if path.startswith(_CREDENTIALS.rstrip("/")):
            return self._find_credentials(path.removeprefix(_CREDENTIALS.rstrip("/")).strip("/"))
        if path == "meta-data/spot/instance-action" and self.notice is not None:
            return _encode({"action": "terminate", "time": _iso(self.notice)})
        if path == "meta-data/spot/termination-time" and self.notice is not None:
            return _iso(self.notice).encode()
        if path == "meta-data/events/recommendations/rebalance" and self.rebalance is not None:
            return _encode({"noticeTime": _iso(self.rebalance)})
        return self._fixed.get(path)

    def _find_credentials(self, role: str) -> bytes | None:
        credentials = self._credentials()
        if credentials is None:
            return None
        if not role:
            return credentials["RoleName"].encode()
        if role != credentials["RoleName"]:
            return None
        keys = {name: credentials[name] for name in ("AccessKeyId", "SecretAccessKey", "Token", "Expiration")}
        return _encode({"Code": "Success", "LastUpdated": _iso(datetime.now(UTC)), "Type": "AWS-HMAC", **keys})


class _Server(LoopbackServer):
    def __init__(self, address: str, service: MetadataService) -> None:
        super().__init__(address, _Handler)
        self.service = service


class _Handler(QuietHandler):
    @property
    def _service(self) -> MetadataService:
        return cast("_Server", self.server).service

    def respond(self) -> None:
        self.read_body()
        if self.command == "PUT":
            self._make_token()
        else:
            self._show()

    def _make_token(self) -> None:
        ttl = self.headers.get(f"{_HEADER}-ttl-seconds", "")
        if self.path != _TOKEN_PATH:
            self.answer(HTTPStatus.NOT_FOUND)
        # A hop limit of one: a request that came through a proxy gets no token.
        elif "X-Forwarded-For" in self.headers:
            self.answer(HTTPStatus.FORBIDDEN)
        elif not ttl.isdecimal() or not 1 <= int(ttl) <= _MAX_TTL_S:
            self.answer(HTTPStatus.BAD_REQUEST)
        else:
            token = self._service.make_token(int(ttl))
            self.answer(HTTPStatus.OK, token.encode(), {f"{_HEADER}-ttl-seconds": ttl})

    def _show(self) -> None:
        if not self._service.accepts(self.headers.get(_HEADER)):
            self.answer(HTTPStatus.UNAUTHORIZED)
            return
        value = self._service.find(self.path.removeprefix("/latest/"))
        if value is None:
            self.answer(HTTPStatus.NOT_FOUND)
        else:
            self.answer(HTTPStatus.OK, value)


def _encode(value: Mapping[str, str]) -> bytes:
    return json.dumps(value).encode()


def _iso(when: datetime) -> str:
    return when.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
