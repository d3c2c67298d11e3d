"""Answers of clouds' APIs, over HTTP, to the real SDKs: DigitalOcean's pydo over TLS, and AWS's botocore.

An input says which of a command's requests gets which answer: `call`, `at`, `status`, `headers`, `body`. All others get
the good ones of recorded.json. Bytes that say nothing of the kind are the body of every answer, as a captive portal's.

Promises: a call of the provider's returns, or fails with an error of kedge's that has an exit code.
"""

from __future__ import annotations

import json
import os
import re
import ssl
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast
from unittest.mock import patch
from urllib.parse import parse_qs, urlsplit

import trustme

from orchestrator.adapters.providers import Context, open_backing
from orchestrator.adapters.providers.aws.provider import AwsProvider
from orchestrator.adapters.providers.aws.session import AwsSession
from orchestrator.core.errors import KedgeError
from orchestrator.core.job import Resources, VolumeSpec
from orchestrator.core.machine import MachineOrder
from orchestrator.core.ports import Provider
from tests.fuzz.target import Target

RECORDED = Path(__file__).with_name("recorded.json")
_RUN = "digits-1121-ab2c"
_MACHINE = f"{_RUN}-m1"
_SSH_FROM = "203.0.113.9/32"
_VOLUME = VolumeSpec(name="scans", target="scans", size_gib=10)
_WISHES = {"do": Resources(volumes=(_VOLUME,)), "aws": Resources(instance_type="m5.large")}
# What is asked before a machine is made, where there is none yet.
_NOTHING = {
    "GET /v2/droplets": {"droplets": [], "links": {}, "meta": {"total": 0}},
    "GET /v2/droplets?type=gpus": {"droplets": [], "links": {}, "meta": {"total": 0}},
    "GET /v2/volumes": {"volumes": [], "links": {}, "meta": {"total": 0}},
    "GET /v2/firewalls": {"firewalls": [], "links": {}, "meta": {"total": 0}},
    "ec2 DescribeInstances": "<DescribeInstancesResponse><reservationSet/></DescribeInstancesResponse>",
}
_AWS_ACTION = re.compile(r"Credential=[^/]+/[^/]+/[^/]+/([^/]+)/")
_FOR_ALL = "*"
_LONGEST = 10_000
_UNHEARD_OF: Mapping[str, Any] = {
    "do": {"status": 404, "body": {"id": "not_found", "message": "none"}},
    "aws": {"status": 200, "body": ""},
}


def order(provider: str) -> MachineOrder:
    """Order the machine that is in recorded.json."""
    region, kind = ("us-east-1", "m5.large") if provider == "aws" else ("tor1", "gpu-mi300x1-192gb")
    return MachineOrder(
        id=_MACHINE,
        run_id=_RUN,
        instance_type=kind,
        region=region,
        zone="us-east-1a" if provider == "aws" else "",
        spot=False,
        usd_per_hour=Decimal("1.99"),
        lifetime_seconds=3600,
        authorized_key="ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGPKoMcRrkmFHYXVVT3sHqPiDRyyGHfRVGRFYT4LnNHB kedge",
        agent_archive=b"agent",
        store_url="",
        ssh_from=_SSH_FROM,
        volumes=(_VOLUME,),
    )


CALLS: Mapping[str, Callable[[Provider], object]] = {
    "offers": lambda provider: provider.offers(_WISHES[provider.name]),
    "machines": lambda provider: provider.machines(),
    "describe": lambda provider: provider.describe(_MACHINE),
    "sweep": lambda provider: provider.sweep(),
    "why_ended": lambda provider: provider.why_ended(_MACHINE),
    "guard": lambda provider: provider.guard(_MACHINE),
    "reopen": lambda provider: provider.reopen(_MACHINE, _SSH_FROM),
    "create": lambda provider: provider.create(order(provider.name)),
    "create anew": lambda provider: provider.create(order(provider.name)),
    "destroy": lambda provider: provider.destroy(_MACHINE),
    "release": lambda provider: provider.release(_RUN),
}
"""What a command asks of a provider."""


def _run(data: bytes, folder: Path) -> None:
    said = _described(data)
    cloud = "aws" if said.get("cloud") == "aws" else "do"
    names = [said["call"]] if str(said.get("call")) in CALLS else ["offers", "machines", "describe"]
    for name in names:
        try:
            ask(cloud, name, folder, _answer(said))
        except KedgeError as err:
            refusal = err
        else:
            continue
        assert 1 <= refusal.exit_code <= 5  # core/errors.py
        assert len(str(refusal)) < _LONGEST
        assert refusal.why or refusal.fix


def ask(cloud: str, name: str, folder: Path, answer: Answer | None) -> list[str]:
    """Have a provider do something, one of whose requests gets this answer; return what was asked.

    Raises:
        KedgeError: as the provider's user sees it.
    """
    place = folder / name
    is_new = name == "create anew"
    kept = {} if is_new else recorded()[cloud]["files"]
    for path, content in kept.items():
        file = place / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    server = _server(cloud)
    server.begin(cloud, answer, is_new=is_new)
    with patch.dict(os.environ, _AWS_ENVIRON | {"AWS_ENDPOINT_URL": server.url}):
        CALLS[name](_provider(cloud, place, server))
    return server.asked


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a request gets."""

    at: str
    status: int
    headers: Mapping[str, str]
    body: bytes


def _described(data: bytes) -> dict[str, Any]:
    with suppress(ValueError, RecursionError):
        said = json.loads(data)
        if isinstance(said, dict) and "at" in said:
            return said
    return {"cloud": "aws" if data[:1] == b"<" else "do", "at": _FOR_ALL, "body": data.decode("latin-1"), "raw": True}


def _answer(said: Mapping[str, Any]) -> Answer:
    body, status, headers = said.get("body"), said.get("status", 200), said.get("headers")
    content = body.encode("utf-8", "surrogatepass") if isinstance(body, str) else json.dumps(body).encode()
    named = headers.items() if isinstance(headers, dict) else ()
    return Answer(
        at=str(said.get("at")),
        # Others have the client wait for more.
        status=status if isinstance(status, int) and 200 <= status < 600 else 200,
        headers={_header(name): _header(str(value)) for name, value in named if _header(name)},
        body=body.encode("latin-1") if said.get("raw") and isinstance(body, str) else content,
    )


def _header(text: str) -> str:
    return re.sub(r"[^ -~]", "", text)[:1000].strip()


@cache
def recorded() -> dict[str, Any]:
    """Return what the clouds of the tests have answered, and what kedge's state folder held then."""
    return dict(json.loads(RECORDED.read_text()))


class _Clock:
    """Waiting takes no time, and begins when the answers were recorded."""

    def __init__(self) -> None:
        self._now = datetime.fromisoformat(recorded()["at"]).astimezone(UTC)

    def now(self) -> datetime:
        return self._now

    def sleep(self, duration: timedelta) -> None:
        self._now += duration


class _Once(AwsSession):
    """Sends each request once: the SDK waits between its attempts, on a clock of its own."""

    def _make_client(self, service: str, region: str, single_shot: bool) -> Any:
        return super()._make_client(service, region, single_shot=single_shot or True)


_AWS_ENVIRON = {
    "AWS_ACCESS_KEY_ID": "AKIAKEDGEBOXOPERATOR",
    "AWS_SECRET_ACCESS_KEY": "kedge-box-operator-secret-key-0000000000",
    "AWS_REGION": "us-east-1",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
}


@cache
def _aws_session(_url: str) -> AwsSession:
    return _Once(environ=_AWS_ENVIRON)


def _provider(cloud: str, folder: Path, server: _Server) -> Provider:
    environ = {**_AWS_ENVIRON, "KEDGE_DIGITALOCEAN_ENDPOINT": server.url, "DIGITALOCEAN_ACCESS_TOKEN": "token"}
    context = Context(
        state_dir=folder,
        runtime_dir=folder,
        clock=_Clock(),
        key_file=folder / "key",
        environ={**environ, "KEDGE_DIGITALOCEAN_CA": server.ca_file},
    )
    provider = open_backing(cloud, context).provider
    if isinstance(provider, AwsProvider):
        # Its clients take a third of a second to make.
        return AwsProvider(replace(provider._tools, session=_aws_session(server.url)))
    return provider


class _Server(ThreadingHTTPServer):
    """Answers on a loopback address, for as long as the process lives."""

    daemon_threads = True

    def __init__(self, *, tls: bool) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.ca_file = ""
        self.asked: list[str] = []
        self._cloud = ""
        self._answer: Answer | None = None
        self._is_new = False
        self.context = self._encrypt() if tls else None
        self.url = f"http{'s' if tls else ''}://127.0.0.1:{self.server_port}"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def begin(self, cloud: str, answer: Answer | None, *, is_new: bool) -> None:
        """Give one request this answer, and the good ones to all others."""
        self._cloud, self._answer, self.asked, self._is_new = cloud, answer, [], is_new

    def choose(self, key: str) -> Answer:
        """Return what a request gets."""
        self.asked.append(key)
        if self._answer is not None and self._answer.at in {key, _FOR_ALL}:
            return self._answer
        good = recorded()[self._cloud]["answers"].get(key, _UNHEARD_OF[self._cloud])
        if self._is_new and key in _NOTHING:
            good = {"status": 200, "body": _NOTHING[key]}
        body = good["body"] if isinstance(good["body"], str) else json.dumps(good["body"])
        return Answer(at=key, status=good["status"], headers=good.get("headers", {}), body=body.encode())

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Keep quiet of clients that hang up."""

    def _encrypt(self) -> ssl.SSLContext:
        import tempfile

        authority = trustme.CA()
        self.ca_file = f"{tempfile.mkdtemp(prefix='kedge-fuzz-ca-')}/ca.pem"
        authority.cert_pem.write_to_path(self.ca_file)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("127.0.0.1").configure_cert(context)
        return context


@cache
def _server(cloud: str) -> _Server:
    return _Server(tls=cloud == "do")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 60

    def setup(self) -> None:
        context = cast("_Server", self.server).context
        if context is not None:
            self.request = context.wrap_socket(self.request, server_side=True)
        super().setup()

    def finish(self) -> None:
        try:
            super().finish()
        finally:
            # The server closes what it was before it was encrypted.
            self.request.close()

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        answer = cast("_Server", self.server).choose(self._key(body.decode("latin-1")))
        headers = {"Content-Type": "application/json", "Content-Length": str(len(answer.body)), **answer.headers}
        self.send_response(answer.status)
        for name, value in headers.items():
            self.send_header(name, value)
        # Whoever was told of more bytes than come is not to wait for them.
        self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)
        self.close_connection = True

    do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = do_GET  # noqa: N815 - the names that http.server asks for

    def log_message(self, *_args: object) -> None:
        """Log nothing."""

    def _key(self, body: str) -> str:
        """Name a request as recorded.json does."""
        url = urlsplit(self.path)
        signed = _AWS_ACTION.search(self.headers.get("Authorization", ""))
        if signed is None:
            return f"{self.command} {url.path}" + ("?type=gpus" if "type=gpus" in url.query else "")
        action = self.headers.get("X-Amz-Target") or parse_qs(body).get("Action", [""])[0]
        return f"{signed[1]} {action or f'{self.command} {url.path}'}"


TARGET = Target(
    name="answers",
    run=_run,
    allowed=(),
    tokens=(
        b"<html>",
        b'"status": 503',
        b'"content-type": "text/html"',
        b"<Errors><Error><Code>",
        b'"links": {"pages": {"next": "',
    ),
    examples=25,
)
