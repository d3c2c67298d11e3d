"""Answers of clouds' APIs, over HTTP, to the real SDKs: DigitalOcean's pydo over TLS, and AWS's botocore.

An input chooses a request of a command, and its answer: `call`, `at`, `status`, `headers`, `body`. All others get
the good ones of recorded.json. Bytes of another form are the body of every answer, as a captive portal's.

Promises: a call of the provider's returns, or fails with an error of kedge's that has an exit code.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

from orchestrator.adapters.providers import Context, open_backing
from orchestrator.adapters.providers.aws.access.session import AwsSession
from orchestrator.adapters.providers.aws.provider import make_backing
from orchestrator.core.errors import KedgeError
from orchestrator.core.job import Resources, VolumeSpec
from orchestrator.core.machine import MachineOrder
from orchestrator.core.ports import Provider
from tests.fuzz.cloud_server import FOR_ALL, Answer, CloudServer, recorded, server_of
from tests.fuzz.target import Target
from tests.support.clocks import FakeClock
from tests.support.orders import make_offer

_RUN = "digits-1121-ab2c"
_MACHINE = f"{_RUN}-m1"
_SSH_FROM = "203.0.113.9/32"
_VOLUME = VolumeSpec(name="scans", target="scans", size_gib=10)
_WISHES = {"do": Resources(volumes=(_VOLUME,)), "aws": Resources(instance_type="m5.large")}
_LONGEST = 10_000


def order(provider: str) -> MachineOrder:
    """Order the machine in recorded.json."""
    region, kind = ("us-east-1", "m5.large") if provider == "aws" else ("tor1", "gpu-mi300x1-192gb")
    zone = "us-east-1a" if provider == "aws" else ""
    return MachineOrder(
        id=_MACHINE,
        run_id=_RUN,
        offer=make_offer(provider, kind, region, zone=zone, usd_per_hour=Decimal("1.99")),
        lifetime_seconds=3600,
        authorized_key="ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGPKoMcRrkmFHYXVVT3sHqPiDRyyGHfRVGRFYT4LnNHB kedge",
        agent_archive=b"agent",
        store_url="",
        ssh_from=_SSH_FROM,
        resources=Resources(volumes=(_VOLUME,)),
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
"""The commands' calls of a provider."""


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
    """Call a provider, with this answer to one of its requests; return the requests.

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
    server = server_of(cloud)
    server.begin(cloud, answer, is_new=is_new)
    with patch.dict(os.environ, _AWS_ENVIRON | {"AWS_ENDPOINT_URL": server.url}):
        CALLS[name](_provider(cloud, place, server))
    return server.asked


def _described(data: bytes) -> dict[str, Any]:
    with suppress(ValueError, RecursionError):
        said = json.loads(data)
        if isinstance(said, dict) and "at" in said:
            return said
    return {"cloud": "aws" if data[:1] == b"<" else "do", "at": FOR_ALL, "body": data.decode("latin-1"), "raw": True}


def _answer(said: Mapping[str, Any]) -> Answer:
    body, status, headers = said.get("body"), said.get("status", 200), said.get("headers")
    content = body.encode("utf-8", "surrogatepass") if isinstance(body, str) else json.dumps(body).encode()
    named = headers.items() if isinstance(headers, dict) else ()
    return Answer(
        at=str(said.get("at")),
        # Other statuses make the client wait longer.
        status=status if isinstance(status, int) and 200 <= status < 600 else 200,
        headers={_header(name): _header(str(value)) for name, value in named if _header(name)},
        body=body.encode("latin-1") if said.get("raw") and isinstance(body, str) else content,
    )


def _header(text: str) -> str:
    return re.sub(r"[^ -~]", "", text)[:1000].strip()


class _Once(AwsSession):
    """Sends each request once: the SDK would wait between its attempts, on its own clock."""

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


def _provider(cloud: str, folder: Path, server: CloudServer) -> Provider:
    environ = {**_AWS_ENVIRON, "KEDGE_DIGITALOCEAN_ENDPOINT": server.url, "DIGITALOCEAN_ACCESS_TOKEN": "token"}
    context = Context(
        state_dir=folder,
        runtime_dir=folder,
        clock=FakeClock(datetime.fromisoformat(recorded()["at"]).astimezone(UTC)),
        key_file=folder / "key",
        environ={**environ, "KEDGE_DIGITALOCEAN_CA": server.ca_file},
    )
    if cloud == "aws":
        # Making the SDK's clients takes a third of a second.
        return make_backing(context, _aws_session(server.url)).provider
    return open_backing(cloud, context).provider


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
