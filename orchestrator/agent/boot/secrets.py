"""Reads the secrets that a machine's boot order names, before its command is started. No value is ever printed.

They are parameters in AWS's parameter store, read with the machine's own role, or in a file of the machine's supplies.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import ssl
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

from ..base.errors import AgentError
from ..base.layout import Layout
from ..base.wire import RUN_SECRETS, BootOrder
from ..bootstrap import ROLE_SECONDS
from ..s3.imds import Metadata, Role, load_object
from ..s3.retry import RetryBudget, retry
from ..s3.sigv4 import Request, sign

MISSING_SECONDS = 60.0
"""How long a parameter may take to appear; AWS documents no limit, a second or two is usual. fact: ssm-appears-late."""

_AT_ONCE = 10
_TIMEOUT_SECONDS = 20.0
_FIRST_PAUSE_SECONDS = 1.0
_ANSWER_BYTES = 1 << 20
_SHOWN = 300
_EXPIRED = ("ExpiredTokenException", "ExpiredToken")
_FINAL = ("ValidationException", "SerializationException", "InvalidKeyId")
"""Answers that another try doesn't change. A denial isn't among them: a role's new policy takes seconds to work."""


class SsmError(OSError):
    """The parameter store refused a request; `code` is its name of the error."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(f"the parameter store answers {status} {code}: {message[:_SHOWN]}")
        self.code = code


class MissingError(OSError):
    """Parameters don't exist, or not yet."""


class Parameters(NamedTuple):
    """A path in the parameter store: `ssm://REGION/PATH[?endpoint=URL]`."""

    region: str
    path: str
    endpoint: str


def read_secrets(layout: Layout, order: BootOrder) -> dict[str, str]:
    """Read all secrets that an order names.

    Raises:
        AgentError: some can't be read in time.
    """
    try:
        found = _read_parameters(order) if order.secrets_url else _read_supplied(supplied_file(layout))
        missing = [name for name in order.secrets if name not in found]
        if missing:
            raise MissingError(f"{', '.join(missing)} wasn't sent with the machine's supplies")
    except (OSError, ValueError, KeyError) as err:
        said = str(err) if isinstance(err, OSError) else "a value isn't as kedge writes it"
        raise AgentError(
            f"the secrets {', '.join(order.secrets)} can't be read",
            why=said,
            fix="see `start: boot` in docs/job-file.md, or write `start: ssh`",
        ) from None
    return {name: found[name] for name in order.secrets}


def supplied_file(layout: Layout) -> Path:
    """Return the file of the machine's supplies with the secrets; only the job's user can read it."""
    return layout.root / "private" / RUN_SECRETS


def _read_supplied(path: Path) -> dict[str, str]:
    content = load_object(path.read_text())
    return {name: text for name, text in content.items() if isinstance(text, str)}


def _read_parameters(order: BootOrder) -> dict[str, str]:
    """Read the parameters, ten at a time; retry until all are there or time is up."""
    place = parse_url(order.secrets_url)
    role = Role(Metadata())
    give_up = time.monotonic() + MISSING_SECONDS

    def passes(err: Exception) -> bool:
        if isinstance(err, MissingError):
            return time.monotonic() < give_up
        if isinstance(err, SsmError) and err.code in _EXPIRED:
            role.forget()
        return not (isinstance(err, SsmError) and err.code in _FINAL)

    found: dict[str, str] = {}
    for start in range(0, len(order.secrets), _AT_ONCE):
        names = order.secrets[start : start + _AT_ONCE]
        budget = RetryBudget(ROLE_SECONDS, passes, first=_FIRST_PAUSE_SECONDS)
        found |= retry(lambda names=names: _read_some(place, role, names), budget)  # type: ignore[misc]
    return found


def parse_url(url: str) -> Parameters:
    """Parse the address of a run's parameters.

    Raises:
        ValueError: it isn't one.
    """
    parts = urlsplit(url)
    if parts.scheme != "ssm" or not parts.netloc or not parts.path.strip("/"):
        raise ValueError("not of the form ssm://REGION/PATH")
    given = parse_qs(parts.query).get("endpoint", [""])[0]
    return Parameters(parts.netloc, parts.path.rstrip("/"), given or f"https://ssm.{parts.netloc}.amazonaws.com")


def _read_some(place: Parameters, role: Role, names: Sequence[str]) -> dict[str, str]:
    asked = {"Names": [f"{place.path}/{name}" for name in names], "WithDecryption": True}
    answer = _call(place, role, "GetParameters", asked)
    found = {each["Name"].rpartition("/")[2]: _decode(each["Value"]) for each in answer["Parameters"]}
    missing = [name for name in names if name not in found]
    if missing:
        raise MissingError(f"the parameter store has no {', '.join(missing)} below {place.path}")
    return found


def _decode(text: str) -> str:
    value = json.loads(text)
    if not isinstance(value, str):
        raise ValueError("not a text in JSON")  # noqa: TRY004 - as of text that is no JSON
    return value


def _call(place: Parameters, role: Role, operation: str, content: Mapping[str, Any]) -> dict[str, Any]:
    """Send one request. Its form is that of AWS's JSON protocol 1.1, signed with the role's credentials."""
    url = urlsplit(place.endpoint)
    body = json.dumps(content).encode()
    headers = {
        "host": url.netloc,
        "content-type": "application/x-amz-json-1.1",
        "x-amz-target": f"AmazonSSM.{operation}",
    }
    request = Request("POST", "/", "", headers, hashlib.sha256(body).hexdigest())
    signed = sign(request, role.credentials(), region=place.region, service="ssm", now=time.time())
    connection = _connect(url.netloc, is_plain=url.scheme == "http")
    try:
        connection.request("POST", "/", body, signed)
        response = connection.getresponse()
        answer = load_object(response.read(_ANSWER_BYTES).decode(errors="replace"))
    except http.client.HTTPException as err:
        raise ConnectionError(f"the connection to the parameter store broke: {err!r}") from err
    finally:
        connection.close()
    if response.status != 200:
        code = str(answer.get("__type", response.reason)).rpartition("#")[2]
        raise SsmError(response.status, code, str(answer.get("message") or answer.get("Message") or ""))
    return answer


def _connect(host: str, *, is_plain: bool) -> http.client.HTTPConnection:
    if is_plain:
        return http.client.HTTPConnection(host, timeout=_TIMEOUT_SECONDS)
    return http.client.HTTPSConnection(host, timeout=_TIMEOUT_SECONDS, context=ssl.create_default_context())
