"""`s3://bucket/prefix/` or `s3://bucket/key`: what lies below a prefix, or one object.

Asked with the keys among the secrets, else with the machine's own role. Where S3 refuses those, it is asked without
any: it answers a signed request for public data with 403 if the signer's own policy doesn't allow it.

`?region=...` and `&endpoint=...` say where the bucket is, if it isn't where the machine's own store is; a region that
is left out, or is wrong, is learnt from S3's refusal. `&owner=ACCOUNT` says whose bucket it must be.
"""

from __future__ import annotations

import calendar
import html
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from ..errors import AgentError
from ..imds import Metadata, Role
from ..s3client import Client, Place, S3Error, parse_place
from ..sigv4 import Credentials
from .task import Fetched, Task
from .transfer import Body, Opener, Transfer, Wanted

_KEYS = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
_ELSEWHERE = ("PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException")
_FIRST_REGION = "us-east-1"
_ANONYMOUS = Credentials("", "")


def fetch(task: Task, *, page: int = 1000) -> Fetched:
    """Fetch an object, or everything below a prefix.

    Args:
        task: what, and where to.
        page: keys that a listing asks for at once; 1,000 is S3's most.

    Raises:
        AgentError: S3 refuses, or has nothing there.
        OSError: S3 can't be reached.
    """
    way = _first_way(task)
    key = way.place.prefix + ("/" if _is_folder(task.address) and way.place.prefix else "")
    refusal: AgentError | None = None
    while True:
        client = _KeyedClient(way.place, way.keys, patience=task.patience)
        try:
            return _bring(task, client, key, page)
        except S3Error as err:
            if not (refusal and _is_locked(err)):
                refusal = _explain(err, way, key)
            following = _next_way(way, err)
            if following is None:
                raise refusal from err
            way = following
        finally:
            client.close()


class _Way(NamedTuple):
    """How a bucket is asked.

    Attributes:
        keys: None for the machine's role, empty ones for a request that isn't signed.
        is_own: it is the machine's own store.
        is_told: S3 has said which region it is in.
    """

    place: Place
    keys: Credentials | None
    is_own: bool
    is_told: bool = False


def _first_way(task: Task) -> _Way:
    place = parse_place(task.address)
    store = task.machine.store_url
    own = parse_place(store) if store.startswith("s3://") else Place("", "", "", "")
    endpoint = place.endpoint or task.setting("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL") or own.endpoint
    region = place.region or task.setting("AWS_REGION", "AWS_DEFAULT_REGION") or own.region or _FIRST_REGION
    is_own = (place.bucket, endpoint) == (own.bucket, own.endpoint)
    owner = place.owner or (own.owner if is_own else "")
    has_role = bool(own.bucket) and not own.keys
    keys = _keys(task) or (None if has_role else _ANONYMOUS)
    return _Way(place._replace(endpoint=endpoint, region=region, owner=owner, keys=""), keys, is_own)


def _next_way(way: _Way, err: S3Error) -> _Way | None:
    """Return what to try after a refusal; None where nothing is left."""
    if err.region and err.region != way.place.region and not way.is_told:
        return way._replace(place=way.place._replace(region=err.region), is_told=True)
    is_signed = way.keys != _ANONYMOUS
    return way._replace(keys=_ANONYMOUS) if is_signed and not way.is_own and err.status == 403 else None


def _is_locked(err: S3Error) -> bool:
    return err.status in (400, 401, 403)


def _bring(task: Task, client: Client, key: str, page: int) -> Fetched:
    transfer = Transfer(task.draft, task.tally, client.patience)
    found = _find(client, key) if key and not key.endswith("/") else None
    if found is not None:
        name = key.rpartition("/")[2]
        transfer.bring_all([_wanted(client, found, name)])
        return Fetched(task.draft.place(name), found.tag)
    prefix = f"{key.rstrip('/')}/" if key else ""
    objects = [entry for entry in _list(client, prefix, page) if not entry.key.endswith("/")]
    if not objects:
        raise AgentError(f"there is nothing at {task.address}", fix="correct the address in `data`")
    transfer.bring_all([_wanted(client, entry, entry.key.removeprefix(prefix)) for entry in objects])
    return Fetched(task.draft.whole)


class _Object(NamedTuple):
    key: str
    bytes: int
    tag: str
    modified: float | None


class _Keys(Role):
    """Keys that somebody has sent, in the place of a role's."""

    def __init__(self, credentials: Credentials) -> None:
        super().__init__(Metadata())
        self._credentials = credentials

    def credentials(self) -> Credentials:
        return self._credentials


class _KeyedClient(Client):
    """Talk to a bucket with keys instead of the machine's role, where there are any."""

    def __init__(self, place: Place, keys: Credentials | None, *, patience: float) -> None:
        super().__init__(place, patience=patience)
        if keys is not None:
            self._role = _Keys(keys)


def _keys(task: Task) -> Credentials | None:
    access, secret = task.credential("AWS_ACCESS_KEY_ID"), task.credential("AWS_SECRET_ACCESS_KEY")
    return Credentials(access, secret, task.credential("AWS_SESSION_TOKEN")) if access and secret else None


def _is_folder(address: str) -> bool:
    return address.partition("?")[0].endswith("/")


def _find(client: Client, key: str) -> _Object | None:
    try:
        headers = client.call("HEAD", key).headers
    except S3Error as err:
        if err.status == 404:
            return None
        raise
    return _Object(key, int(headers["content-length"]), headers["etag"], None)


def _list(client: Client, prefix: str, page: int) -> Iterator[_Object]:
    query = {"list-type": "2", "prefix": prefix, "max-keys": str(page)}
    while True:
        listing = client.call("GET", "", query=query).body.decode()
        for entry in re.findall(r"<Contents>(.*?)</Contents>", listing, re.DOTALL):
            yield _Object(_text(entry, "Key"), int(_text(entry, "Size")), _text(entry, "ETag"), _modified(entry))
        more = _text(listing, "NextContinuationToken")
        if not more:
            return
        query = {**query, "continuation-token": more}


def _wanted(client: Client, found: _Object, path: str) -> Wanted:
    return Wanted(path=path, open=_opener(client, found), bytes=found.bytes, modified=found.modified)


def _opener(client: Client, found: _Object) -> Opener:
    @contextmanager
    def begin(start: int, tag: str) -> Iterator[Body]:
        # Only of what was listed: half of the old and half of the new would be neither.
        headers = {"if-match": found.tag}
        goes_on = start > 0 and tag == found.tag
        if goes_on:
            headers["range"] = f"bytes={start}-"
        with client.begin("GET", found.key, headers=headers) as response:
            yield Body(start if goes_on else 0, found.bytes, found.tag, response.read)

    return begin


def _text(listing: str, name: str) -> str:
    found = re.search(f"<{name}>([^<]*)</{name}>", listing)
    return html.unescape(found[1]) if found else ""


def _modified(entry: str) -> float:
    """Return Unix seconds of a time such as 2026-11-21T08:22:00.000Z; fractions are always zero."""
    return float(calendar.timegm(time.strptime(_text(entry, "LastModified")[:19], "%Y-%m-%dT%H:%M:%S")))


def _explain(err: S3Error, way: _Way, key: str) -> AgentError:
    place, has_keys = way.place, way.keys not in (None, _ANONYMOUS)
    what = f"s3://{place.bucket}/{key}"
    if err.status == 301 or err.code in _ELSEWHERE:
        fix = f"add ?region=REGION to the address, the region of {place.bucket}"
        return AgentError(f"{what} is in another region than {place.region}", why=str(err), fix=fix)
    if err.code == "NoSuchBucket" or err.status == 404:
        return AgentError(f"there is no {what}", why=str(err), fix="correct the address in `data`")
    if err.status == 412:
        return AgentError(f"{what} was changed while it was fetched", why=str(err), fix="start again")
    if _is_locked(err):
        fix = (
            f"name {_KEYS} under `secrets`, and launch with --allow-secret for each; "
            "or, for a bucket of your own AWS account, let runs read it: "
            f"kedge bootstrap --provider aws --read-bucket {place.bucket}"
        )
        held = f"see whether {_KEYS} are right and may read it (s3:GetObject, s3:ListBucket)"
        return AgentError(f"{what} is refused", why=str(err), fix=held if has_keys else fix)
    return AgentError(f"{what} can't be fetched", why=str(err), fix="start again later: it goes on from where it was")
