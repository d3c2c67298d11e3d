"""Uploads files as a Kaggle data set: a new private one, or a new version of one that exists.

Kaggle's own client needs ten packages, and has its addresses built in; the same requests by the standard library are
few. Source: kaggle 2.2 (dataset_create_new, dataset_create_version, _upload_blob) and kagglesdk 0.1.38
(kaggle_http_client.py; blobs/types and datasets/types), read in November 2026:

    datasets.DatasetApiService/GetDatasetStatus     an error if there is no such data set
    blobs.BlobApiService/StartBlobUpload            for each file: a token, and an address to PUT its bytes to
    datasets.DatasetApiService/CreateDataset        with the files' tokens
    datasets.DatasetApiService/CreateDatasetVersion
"""

import base64
import json
import time
from collections.abc import Callable, Sequence
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from trainer.base.contract import KaggleAccess
from trainer.base.errors import BadRequestError, PublishError, clip, first_line, visible
from trainer.report.publish.kaggle import name_license, title_of

_ENDPOINT = "https://api.kaggle.com"
_BLOBS, _DATASETS = "blobs.BlobApiService", "datasets.DatasetApiService"
_SHORTEST_SLUG = 6
"""Kaggle's client refuses shorter ones when it creates a data set."""
_SECONDS = 120
_ATTEMPTS = 3
_SERVER_FAILED = 500
_ABSENT = (403, 404)
"""Kaggle's answers for a data set that doesn't exist, or isn't yours."""
_LARGEST_ANSWER = 1 << 20


def check_upload(dataset: str, access: KaggleAccess) -> None:
    """Check before hours of training that the settings allow an upload.

    Raises:
        BadRequestError: there is no data set's name, no token, or an address that isn't encrypted.
    """
    slug = dataset.partition("/")[2]
    if len(slug) < _SHORTEST_SLUG:
        raise _refusal(
            f"publish.kaggle_dataset={dataset} is no name for a new data set",
            fix=f"--set publish.kaggle_dataset=OWNER/SLUG, with at least {_SHORTEST_SLUG} characters in SLUG",
        )
    if not access.token and not (access.username and access.key):
        raise _refusal("there is no token", fix="set KAGGLE_API_TOKEN, or both KAGGLE_USERNAME and KAGGLE_KEY")
    if access.endpoint and not _is_safe(access.endpoint):
        raise _refusal("KAGGLE_API_ENDPOINT isn't https://", fix="unset it, or set it to an https:// address")


def upload_dataset(
    dataset: str,
    files: Sequence[Path],
    access: KaggleAccess,
    *,
    license_id: str,
    notes: str,
    pause: Callable[[float], None] = time.sleep,
) -> str:
    """Upload files, and return the data set's address.

    Args:
        dataset: OWNER/SLUG.
        files: each is in the data set by its own name.
        access: whose data set it is.
        license_id: the Hugging Face Hub's identifier; empty for none.
        notes: the version's description.
        pause: waits so many seconds, before a request is repeated.

    Raises:
        PublishError: Kaggle refuses, or can't be reached.
    """
    client = _Client(access, pause)
    try:
        answer = _upload(client, dataset, files, license_id, notes)
    except (_UploadError, HTTPException, OSError, ValueError) as err:
        raise PublishError(
            f"the results were not uploaded to Kaggle's data set {dataset}",
            why=client.without_secrets(first_line(err)),
            fix="they are safe in the output folder; run the same command again: it uploads without training",
        ) from err
    return str(answer.get("url") or f"https://www.kaggle.com/datasets/{dataset}")


def _upload(client: "_Client", dataset: str, files: Sequence[Path], license_id: str, notes: str) -> dict[str, Any]:
    owner, slug = dataset.split("/")
    exists = client.exists(owner, slug)
    uploaded = [{"token": client.upload(path)} for path in sorted(files)]
    words: dict[str, Any]
    if exists:
        body = {"versionNotes": notes, "files": uploaded, "deleteOldVersions": False}
        method, words = "CreateDatasetVersion", {"ownerSlug": owner, "datasetSlug": slug, "body": body}
    else:
        method, words = "CreateDataset", {"ownerSlug": owner, "slug": slug, "title": title_of(dataset)}
        words |= {"licenseName": name_license(license_id), "isPrivate": True, "files": uploaded}
    answer = client.call(_DATASETS, method, words)
    if str(answer.get("status", "")).lower() != "ok":
        raise _UploadError(str(answer.get("error") or answer.get("status") or "it gave no reason"))
    return answer


class _UploadError(Exception):
    """Kaggle's answer says that it refuses."""


class _NoRedirects(HTTPRedirectHandler):
    """An answer that names another place is an error: the token is for Kaggle alone."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        """Follow none."""


class _Client:
    """Makes requests of Kaggle, in one user's name."""

    def __init__(self, access: KaggleAccess, pause: Callable[[float], None]) -> None:
        self._access = access
        self._pause = pause
        self._home = f"{access.endpoint.rstrip('/')}/api" if access.endpoint else _ENDPOINT
        self._opener = build_opener(_NoRedirects)

    def exists(self, owner: str, slug: str) -> bool:
        """Tell whether there is such a data set that this user sees."""
        try:
            self.call(_DATASETS, "GetDatasetStatus", {"ownerSlug": owner, "datasetSlug": slug})
        except _UploadError as err:
            if isinstance(err.__cause__, HTTPError) and err.__cause__.code in _ABSENT:
                return False
            raise
        return True

    def upload(self, path: Path) -> str:
        """Upload a file's bytes, and return the token by which a data set names them.

        Raises:
            _UploadError: Kaggle refuses, or names an address that isn't encrypted.
        """
        stat = path.stat()
        words = {"type": "DATASET", "name": path.name, "contentLength": stat.st_size}
        answer = self.call(_BLOBS, "StartBlobUpload", words | {"lastModifiedEpochSeconds": int(stat.st_mtime)})
        address, token = answer.get("createUrl"), answer.get("token")
        if not isinstance(address, str) or not isinstance(token, str) or not _is_safe(address):
            raise _UploadError(f"it didn't say where to upload {path.name}")
        for attempt in range(_ATTEMPTS):
            # Each attempt sends the whole file. The storage gets no credentials: its address is one.
            with path.open("rb") as stream:
                request = Request(address, data=stream, method="PUT", headers={"Content-Length": str(stat.st_size)})  # noqa: S310
                if self._open(request, attempt) is not None:
                    break
        return token

    def call(self, service: str, method: str, words: dict[str, Any]) -> dict[str, Any]:
        """Call a method of a service, and return its answer.

        Raises:
            _UploadError: the answer is an error, or none of Kaggle's.
        """
        headers = {"Authorization": self._authorization(), "Content-Type": "application/json"}
        data = json.dumps(words).encode()
        for attempt in range(_ATTEMPTS):
            request = Request(f"{self._home}/v1/{service}/{method}", data=data, method="POST", headers=headers)  # noqa: S310
            answer = self._open(request, attempt)
            if answer is not None:
                content = json.loads(answer or b"{}")
                if isinstance(content, dict):
                    return content
                break
        raise _UploadError(f"{method}: the answer isn't Kaggle's")

    def without_secrets(self, text: str) -> str:
        """Remove the credentials from a message: a server may repeat what it was sent."""
        for secret in filter(None, (self._access.token, self._access.key, self._authorization().partition(" ")[2])):
            text = text.replace(secret, "***")
        return text

    def _authorization(self) -> str:
        if self._access.token:
            return f"Bearer {self._access.token}"
        pair = f"{self._access.username}:{self._access.key}"
        return f"Basic {base64.b64encode(pair.encode()).decode()}"

    def _open(self, request: Request, attempt: int) -> bytes | None:
        """Send a request and return the answer's body; None after a failure that may pass, but for the last attempt."""
        is_last = attempt == _ATTEMPTS - 1
        try:
            response: HTTPResponse
            with self._opener.open(request, timeout=_SECONDS) as response:
                return response.read(_LARGEST_ANSWER)
        except HTTPError as err:
            if err.code < _SERVER_FAILED or is_last:
                raise _UploadError(_describe(request, err)) from err
        except (URLError, ConnectionError, TimeoutError):
            if is_last:
                raise
        self._pause(2.0**attempt)
        return None


def _describe(request: Request, err: HTTPError) -> str:
    """Say what an answer means: its own message if it has one."""
    try:
        message = json.loads(err.read(_LARGEST_ANSWER)).get("message", "")
    except (OSError, ValueError, AttributeError):
        message = ""
    what = urlsplit(request.full_url).path.rpartition("/")[2] if request.method == "POST" else "the upload"
    return visible(clip(f"{what}: HTTP {err.code} {message or err.reason}"))


def _is_safe(address: str) -> bool:
    parts = urlsplit(address)
    return parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in ("127.0.0.1", "localhost"))


def _refusal(why: str, *, fix: str) -> BadRequestError:
    return BadRequestError("--set publish.kaggle_upload=true can't be done", why=why, fix=fix)
