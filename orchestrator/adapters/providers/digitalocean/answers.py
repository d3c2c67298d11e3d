"""Validates the API's answers: the types of every field that kedge reads.

A proxy or a captive portal may answer in the API's place, and the SDK returns whatever JSON that is. Each key below
has the same meaning in all answers. Source: the API's description (docs.digitalocean.com/reference/api), 2026-11.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, NoReturn, TypedDict

import msgspec

from orchestrator.adapters.rest.failures import UnclearError
from orchestrator.core.protocol.decoding import clip
from orchestrator.core.values.structs import convert

_FIX = "check whether a proxy or a login page of the network answers in its place, then run the command again"
_EMPTY = frozenset({202, 204})
"""Statuses of answers without a body."""
_YEARS = range(2000, 2500)

_Id = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 31)]
_Amount = Annotated[float, msgspec.Meta(ge=0, le=1e12)]
_Text = Annotated[str, msgspec.Meta(max_length=1 << 16)]
_Texts = list[_Text] | None


class _Time:
    """A timestamp in the API's format."""


class _Region(TypedDict):
    slug: _Text


class _Address(TypedDict):
    ip_address: _Text
    type: _Text


class _Networks(TypedDict, total=False):
    v4: list[_Address] | None


class _Price(TypedDict, total=False):
    price_hourly: _Amount | None


class _DropletNeeds(TypedDict):
    id: _Id
    status: _Text
    region: _Region
    created_at: _Time


class _Droplet(_DropletNeeds, total=False):
    tags: _Texts
    networks: _Networks | None
    volume_ids: _Texts
    size: _Price | None


class _Unit(TypedDict):
    amount: _Amount


class _Disk(TypedDict):
    type: _Text
    size: _Unit


class _Gpu(TypedDict, total=False):
    count: _Count | None
    model: _Text | None
    vram: _Unit | None


class _SizeNeeds(TypedDict):
    slug: _Text
    vcpus: _Count
    memory: _Count
    disk: _Count
    price_hourly: _Amount
    regions: _Texts


class _Size(_SizeNeeds, total=False):
    available: bool
    disk_info: list[_Disk] | None
    gpu_info: _Gpu | None


class _SoldRegion(TypedDict):
    slug: _Text
    available: bool
    features: list[_Text]


class _VolumeNeeds(TypedDict):
    id: _Text
    name: _Text
    region: _Region
    size_gigabytes: _Count
    created_at: _Time


class _Volume(_VolumeNeeds, total=False):
    tags: _Texts
    droplet_ids: list[_Id] | None


class _Snapshot(TypedDict):
    id: _Text | _Id
    name: _Text


class _ImageNeeds(TypedDict):
    id: _Id
    name: _Text
    created_at: _Text


class _Image(_ImageNeeds, total=False):
    slug: _Text | None
    min_disk_size: _Count | None
    regions: _Texts


class _Action(TypedDict):
    id: _Id
    status: _Text
    type: _Text


class _FirewallNeeds(TypedDict):
    id: _Text
    name: _Text
    created_at: _Time


class _Firewall(_FirewallNeeds, total=False):
    tags: _Texts
    pending_changes: list[Any] | None


class _Key(TypedDict):
    fingerprint: _Text


class _Project(TypedDict):
    id: _Text
    name: _Text
    created_at: _Time


class _Uses(TypedDict, total=False):
    count: _Count | None


class _TagNeeds(TypedDict):
    name: _Text


class _Tag(_TagNeeds, total=False):
    resources: _Uses | None


class _Holder(TypedDict, total=False):
    id: _Id


class _ReservedNeeds(TypedDict):
    ip: _Text


class _Reserved(_ReservedNeeds, total=False):
    droplet: _Holder | None


class _Team(TypedDict, total=False):
    uuid: _Text
    name: _Text


class _Account(TypedDict, total=False):
    uuid: _Text
    email: _Text
    status: _Text
    status_message: _Text
    droplet_limit: _Count | None
    team: _Team | None


class _Vpc(TypedDict, total=False):
    default: bool


class _Pages(TypedDict, total=False):
    next: _Text | None


class _LinkedActionNeeds(TypedDict):
    id: _Id


class _LinkedAction(_LinkedActionNeeds, total=False):
    rel: _Text | None


class _Links(TypedDict, total=False):
    pages: _Pages | None
    actions: list[_LinkedAction] | None


class _Body(TypedDict, total=False):
    links: _Links | None
    account: _Account
    action: _Action
    actions: list[_Action] | None
    droplet: _Droplet
    droplets: list[_Droplet] | None
    firewall: _Firewall
    firewalls: list[_Firewall] | None
    image: _Image
    images: list[_Image] | None
    project: _Project
    projects: list[_Project] | None
    regions: list[_SoldRegion] | None
    reserved_ips: list[_Reserved] | None
    sizes: list[_Size] | None
    snapshot: _Snapshot
    snapshots: list[_Snapshot] | None
    ssh_keys: list[_Key] | None
    tag: _Tag
    tags: list[_Tag] | None
    volume: _Volume
    volumes: list[_Volume] | None
    vpcs: list[_Vpc] | None


class _Answer(dict[str, Any]):
    """The body of an answer; reading a missing key raises UnclearError."""

    def __init__(self, body: dict[str, Any], what: str) -> None:
        super().__init__(body)
        self._what = what

    def __missing__(self, name: str) -> NoReturn:
        raise _unclear(self._what, f"it lacks {name!r}")


def understand(what: str, status: int, body: object) -> dict[str, Any]:
    """Return an answer's body after checking every field that kedge reads.

    Args:
        what: the error's first line.
        status: of the answer, below 400.
        body: as the SDK decoded it.

    Raises:
        UnclearError: the answer isn't the API's.
    """
    if body is None and status in _EMPTY:
        return {}
    if not isinstance(body, dict) or status >= 300:  # a redirection leads to no API
        raise _unclear(what, f"it isn't a JSON object, with status {status}: {clip(repr(body), 100)}")
    try:
        convert(body, _Body, dec_hook=_decode)
    except (msgspec.ValidationError, RecursionError) as err:
        raise _unclear(what, clip(str(err))) from err
    return _Answer(body, what)


def _decode(kind: type, value: Any) -> Any:
    if kind is not _Time or not isinstance(value, str):
        raise ValueError(f"{value!r} is not a time")
    # Adding a deadline to it must not overflow datetime.
    if datetime.fromisoformat(value).year not in _YEARS:
        raise ValueError(f"{value!r} is too far from today")
    return kind()


def _unclear(what: str, why: str) -> UnclearError:
    return UnclearError(what, why=f"the answer isn't the API's: {why}", fix=_FIX)
