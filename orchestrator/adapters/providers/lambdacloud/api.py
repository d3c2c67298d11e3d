"""Lambda's HTTP API: address, key, pace, answers, and how its failures are classified."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from urllib.parse import quote

import msgspec

from orchestrator.adapters.rest.client import UNREADABLE, Client, Service, Verdict
from orchestrator.adapters.rest.failures import RefusedError, UnclearError
from orchestrator.core.values.structs import decode_json

if TYPE_CHECKING:
    from orchestrator.core.ports import Clock

KEY_NAME = "LAMBDA_API_KEY"
KEY_FROM = "https://cloud.lambda.ai/api-keys"
MISSING = "global/object-does-not-exist"

_PATH = "/api/v1"
_LAUNCH = "/instance-operations/launch"
_PACE_SECONDS, _LAUNCHES = 1.05, 12
"""One request a second, and one launch in twelve. fact: lambda-rate-limits."""
_MOST_PAGES = 500
_UNCLEAR_CODES = ("global/unknown", "global/internal-error")
_FIXES = {
    401: f"set {KEY_NAME} to an API key that is valid, from {KEY_FROM}",
    403: "see in Lambda's console what the account and its billing address lack; where no code is named, the request "
    "was blocked before it reached Lambda: try from another network",
    429: "wait a minute: the account's rate limit is shared by all that uses it",
}


class _Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A part of an answer; unknown fields are ignored (fact: lambda-unknown-fields)."""


class Region(_Answer, frozen=True):
    """A region."""

    name: str


class Specs(_Answer, frozen=True):
    """The resources of an instance type."""

    vcpus: int
    memory_gib: int
    storage_gib: int
    gpus: int


class InstanceType(_Answer, frozen=True):
    """An instance type; `architecture` is empty in older answers."""

    name: str
    gpu_description: str
    price_cents_per_hour: int
    specs: Specs
    architecture: str = ""


class Sold(_Answer, frozen=True):
    """An instance type, and the regions that have it now."""

    instance_type: InstanceType
    regions_with_capacity_available: tuple[Region, ...]


class Tag(_Answer, frozen=True):
    """A tag of an instance."""

    key: str
    value: object = None


class Listed(_Answer, frozen=True):
    """An instance, kedge's or not: fields that its end doesn't need are optional, and no secret is read.

    fact: lambda-listing-has-secrets; fact: lambda-optional-fields
    """

    id: str
    status: str
    region: Region | None = None
    name: object = None
    instance_type: object = None
    ip: object = None
    private_ip: object = None
    tags: tuple[Tag, ...] | None = None


class Image(_Answer, frozen=True):
    """An image, which is in one region."""

    id: str
    family: str
    architecture: str
    region: Region
    created_time: str = ""


class Key(_Answer, frozen=True):
    """An SSH key of the account's."""

    id: str
    name: str
    public_key: str


class _Said(_Answer, frozen=True):
    code: str
    message: str = ""


class _Refusal(_Answer, frozen=True):
    error: _Said


class _Launched(_Answer, frozen=True):
    instance_ids: tuple[str, ...]


class _Terminated(_Answer, frozen=True):
    terminated_instances: tuple[Listed, ...]


_Data = TypeVar("_Data")


class _Envelope(_Answer, Generic[_Data], frozen=True):
    data: _Data
    page_token: str | None = None


class Api:
    """One account."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.key_digest = hashlib.sha256(client.service.key.encode()).hexdigest()[:16]

    def types(self) -> Mapping[str, Sold]:
        """Return every instance type, including those without capacity."""
        path = f"{_PATH}/instance-types"
        return self._client.read("the instance types can't be listed", path, _Envelope[dict[str, Sold]]).data

    def regions(self) -> list[str]:
        """Return the names of all regions."""
        return [each.name for each in self._list("the regions can't be listed", "/regions", Region)]

    def images(self) -> list[Image]:
        """Return all images."""
        return list(self._list("the images can't be listed", "/images", Image))

    def ssh_keys(self, *, once: bool = False) -> list[Key]:
        """Return all SSH keys; `once`: without retries, for callers that prefer an error to a wait."""
        what, path, kind = "the account's SSH keys can't be listed", f"{_PATH}/ssh-keys", _Envelope[list[Key]]
        return self._client.ask_once(what, path, kind).data if once else self._client.read(what, path, kind).data

    def add_key(self, name: str, public_key: str) -> Key:
        """Add an SSH key; never without its public half (fact: lambda-makes-key-pairs)."""
        what, body = "the SSH key can't be given to the account", {"name": name, "public_key": public_key}
        return self._client.act(what, f"{_PATH}/ssh-keys", body, _Envelope[Key]).data

    def instances(self) -> list[Listed]:
        """Return all instances of the account, whoever created them. fact: lambda-no-filters."""
        return list(self._list("the instances can't be listed", "/instances", Listed))

    def instance(self, instance_id: str) -> Listed | None:
        """Read one instance; None if Lambda doesn't know it: it is gone, or too young."""
        what, path = f"instance {instance_id} can't be read", f"{_PATH}/instances/{instance_id}"
        try:
            return self._client.read(what, path, _Envelope[Listed]).data
        except RefusedError as err:
            if err.status == 404 and err.code == MISSING:
                return None
            raise

    def launch(self, what: str, body: Mapping[str, Any]) -> str:
        """Launch an instance, and return its id.

        Raises:
            RefusedError: Lambda refuses; nothing was created.
            UnclearError: it may have been created.
        """
        # inferred: lambda-429-did-nothing
        made = self._client.act(what, _PATH + _LAUNCH, body, _Envelope[_Launched]).data.instance_ids
        if not made:
            raise UnclearError(what, why="Lambda's answer names no instance")
        return made[0]

    def terminate(self, instance_id: str) -> bool:
        """Request an instance's end; False if the answer doesn't name it. fact: lambda-accepted-is-not-done."""
        what, path = f"instance {instance_id} can't be terminated", f"{_PATH}/instance-operations/terminate"
        ended = self._client.act(what, path, {"instance_ids": [instance_id]}, _Envelope[_Terminated]).data
        return any(each.id == instance_id for each in ended.terminated_instances)

    def _list(self, what: str, path: str, kind: type[_Data]) -> Iterator[_Data]:
        """List all items: half a list never counts as the whole."""
        asked = _PATH + path
        for _page in range(_MOST_PAGES):
            answer = self._client.read(what, asked, _Envelope[list[kind]])  # type: ignore[valid-type]
            yield from answer.data
            if not answer.page_token:
                return
            asked = f"{_PATH}{path}?page_token={quote(answer.page_token, safe='')}"
        raise UnclearError(what, why=f"Lambda's list has more than {_MOST_PAGES} pages")


def open_api(environ: Mapping[str, str], clock: Clock) -> Api:
    """Open the account of the environment's key; nothing is contacted."""
    return Api(Client(read_service(environ), clock))


def read_service(environ: Mapping[str, str]) -> Service:
    """Read LAMBDA_API_KEY, and kedge's own variables: endpoint, certificates and pace."""
    said = environ.get("KEDGE_LAMBDA_PACE", "")
    pace = float(said) if said.replace(".", "", 1).isdecimal() else _PACE_SECONDS
    return Service(
        speaker="Lambda",
        endpoint=environ.get("KEDGE_LAMBDA_ENDPOINT") or "https://cloud.lambda.ai",
        key=environ.get(KEY_NAME, "").strip(),
        key_name=KEY_NAME,
        key_from=KEY_FROM,
        read_refusal=_read_refusal,
        judge=_judge,
        fixes=_FIXES,
        paces={"": pace, _PATH + _LAUNCH: pace * _LAUNCHES},
        ca_file=environ.get("KEDGE_LAMBDA_CA", ""),
    )


def _read_refusal(content: bytes) -> tuple[str, str] | None:
    try:
        said = decode_json(content, _Refusal).error
    except UNREADABLE:
        return None
    return said.code, said.message


def _judge(status: int, code: str, message: str) -> Verdict:
    """Classify an answer: only one of Lambda's own codes means that nothing was done.

    fact: lambda-429-is-no-json; fact: lambda-unknown-codes; fact: lambda-provider-errors
    """
    if status == 429 or (status == 403 and "error code: 1015" in message):
        return Verdict.BUSY
    if not 400 <= status < 500 or code.startswith("provider/") or code in _UNCLEAR_CODES:
        return Verdict.UNCLEAR
    # A 403 that isn't Lambda's means that the request was blocked on its way: fact: lambda-cloudflare-answers.
    return Verdict.REFUSED if code or status == 403 else Verdict.UNCLEAR
