"""`s3://bucket/prefix/` or `s3://bucket/key`: downloads everything below a prefix, or one object.

Requests are signed with the keys among the secrets, else with the machine's own role. If S3 refuses, they are repeated
unsigned, because S3 answers a signed request for public data with 403 if the signer's own policy doesn't allow it.

`?region=...` and `&endpoint=...` say where the bucket is, if not where the machine's own store is; a missing or wrong
region is corrected from S3's error. `&owner=ACCOUNT` names the account that must own the bucket.
"""

from __future__ import annotations

import calendar
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from ...base.errors import AgentError
from ...s3.client import BucketPrefix, Client, S3Error, parse_s3_url
from ...s3.imds import Metadata, Role
from ...s3.listing import find_text, list_objects
from ...s3.sigv4 import Credentials
from .task import FetchedSource, Task
from .transfer import Body, Opener, Transfer, Wanted

_KEYS = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
_ELSEWHERE = ("PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException")
_FIRST_REGION = "us-east-1"
_ANONYMOUS = Credentials("", "")


def fetch(task: Task, *, page: int = 1000) -> FetchedSource:
    """Download an object, or everything below a prefix.

    Args:
        task: the source and its target.
        page: keys per page of a listing; S3's maximum is 1,000.

    Raises:
        AgentError: S3 refuses, or there is nothing at the address.
        OSError: S3 can't be reached.
    """
    mode = _first_mode(task)
    key = mode.place.prefix + ("/" if _is_folder(task.address) and mode.place.prefix else "")
    refusal: AgentError | None = None
    while True:
        client = _KeyedClient(mode.place, mode.keys, retry_seconds=task.retry_seconds)
        try:
            return _download(task, client, key, page)
        except S3Error as err:
            if not (refusal and _is_locked(err)):
                refusal = _explain(err, mode, key)
            following = _next_mode(mode, err)
            if following is None:
                raise refusal from err
            mode = following
        finally:
            client.close()


class _AccessMode(NamedTuple):
    """How a bucket is accessed.

    Attributes:
        keys: None for the machine's role, empty ones for unsigned requests.
        is_own: the bucket is the machine's own store.
        is_told: S3 has told the bucket's region.
    """

    place: BucketPrefix
    keys: Credentials | None
    is_own: bool
    is_told: bool = False


def _first_mode(task: Task) -> _AccessMode:
    place = parse_s3_url(task.address)
    store = task.machine.store_url
    own = parse_s3_url(store) if store.startswith("s3://") else BucketPrefix("", "", "", "")
    endpoint = place.endpoint or task.setting("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL") or own.endpoint
    region = place.region or task.setting("AWS_REGION", "AWS_DEFAULT_REGION") or own.region or _FIRST_REGION
    is_own = (place.bucket, endpoint) == (own.bucket, own.endpoint)
    owner = place.owner or (own.owner if is_own else "")
    has_role = bool(own.bucket) and not own.keys
    keys = _keys(task) or (None if has_role else _ANONYMOUS)
    return _AccessMode(place._replace(endpoint=endpoint, region=region, owner=owner, keys=""), keys, is_own)


def _next_mode(mode: _AccessMode, err: S3Error) -> _AccessMode | None:
    """Return the mode to try after a refusal; None if there is none left."""
    if err.region and err.region != mode.place.region and not mode.is_told:
        return mode._replace(place=mode.place._replace(region=err.region), is_told=True)
    is_signed = mode.keys != _ANONYMOUS
    return mode._replace(keys=_ANONYMOUS) if is_signed and not mode.is_own and err.status == 403 else None


def _is_locked(err: S3Error) -> bool:
    return err.status in (400, 401, 403)


def _download(task: Task, client: Client, key: str, page: int) -> FetchedSource:
    transfer = Transfer(task.draft, task.progress, client.budget)
    found = _find(client, key) if key and not key.endswith("/") else None
    if found is not None:
        name = key.rpartition("/")[2]
        transfer.download_all([_wanted(client, found, name)])
        return FetchedSource(task.draft.place(name), found.tag)
    prefix = f"{key.rstrip('/')}/" if key else ""
    objects = [entry for entry in _list(client, prefix, page) if not entry.key.endswith("/")]
    if not objects:
        raise AgentError(f"there is nothing at {task.address}", fix="correct the address in `data`")
    transfer.download_all([_wanted(client, entry, entry.key.removeprefix(prefix)) for entry in objects])
    return FetchedSource(task.draft.whole)


class _Object(NamedTuple):
    key: str
    bytes: int
    tag: str
    modified: float | None


class _Keys(Role):
    """Keys from the secrets, in place of a role's."""

    def __init__(self, credentials: Credentials) -> None:
        super().__init__(Metadata())
        self._credentials = credentials

    def credentials(self) -> Credentials:
        return self._credentials


class _KeyedClient(Client):
    """A client that uses keys, if there are any, instead of the machine's role."""

    def __init__(self, place: BucketPrefix, keys: Credentials | None, *, retry_seconds: float) -> None:
        super().__init__(place, retry_seconds=retry_seconds)
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
    for key, entry in list_objects(client, prefix, page=page):
        modified = _parse_time(find_text(entry, "LastModified"))
        yield _Object(key, int(find_text(entry, "Size")), find_text(entry, "ETag"), modified)


def _wanted(client: Client, found: _Object, path: str) -> Wanted:
    return Wanted(path=path, open=_opener(client, found), bytes=found.bytes, modified=found.modified)


def _opener(client: Client, found: _Object) -> Opener:
    @contextmanager
    def begin(start: int, tag: str) -> Iterator[Body]:
        # Only the listed version: half of the old and half of the new object would be neither.
        headers = {"if-match": found.tag}
        goes_on = start > 0 and tag == found.tag
        if goes_on:
            headers["range"] = f"bytes={start}-"
        with client.begin("GET", found.key, headers=headers) as response:
            yield Body(start if goes_on else 0, found.bytes, found.tag, response.read)

    return begin


def _parse_time(text: str) -> float:
    """Return Unix seconds of a time such as 2026-11-21T08:22:00.000Z; fractions are always zero."""
    return float(calendar.timegm(time.strptime(text[:19], "%Y-%m-%dT%H:%M:%S")))


def _explain(err: S3Error, mode: _AccessMode, key: str) -> AgentError:
    place, has_keys = mode.place, mode.keys not in (None, _ANONYMOUS)
    what = f"s3://{place.bucket}/{key}"
    if err.status == 301 or err.code in _ELSEWHERE:
        fix = f"add ?region=REGION to the address, the region of {place.bucket}"
        return AgentError(f"{what} is in another region than {place.region}", why=str(err), fix=fix)
    if err.code == "NoSuchBucket" or err.status == 404:
        return AgentError(f"{what} does not exist", why=str(err), fix="correct the address in `data`")
    if err.status == 412:
        return AgentError(f"{what} was changed during the download", why=str(err), fix="start again")
    if _is_locked(err):
        fix = (
            f"name {_KEYS} under `secrets`, and launch with --allow-secret for each; "
            "or, for a bucket of your own AWS account, let runs read it: "
            f"kedge bootstrap --provider aws --read-bucket {place.bucket}"
        )
        held = f"check that {_KEYS} are right and may read it (s3:GetObject, s3:ListBucket)"
        return AgentError(f"access to {what} was denied", why=str(err), fix=held if has_keys else fix)
    return AgentError(f"{what} can't be fetched", why=str(err), fix="start again later: the download resumes")
