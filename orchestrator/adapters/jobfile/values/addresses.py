"""Parses addresses under `data`, which the machine fetches itself: s3://, https://, git+https://, hf://, kaggle://."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from urllib.parse import SplitResult, parse_qs, urlsplit

from orchestrator.adapters.jobfile.problems import quoted
from orchestrator.core.errors import BadRequestError
from orchestrator.core.values.printable import require_printable

_SCHEME = re.compile(r"\s*([A-Za-z][A-Za-z0-9+.-]*)://")
_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]*"
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_HF = re.compile(rf"hf://(datasets/)?(?!(datasets|spaces|models)/){_NAME}/{_NAME}(@[^/@\s]+)?(/.*)?")
_KAGGLE = re.compile(rf"kaggle://(competitions/{_NAME}|datasets/{_NAME}/{_NAME}(@[0-9]+)?)/?")
_SHA256 = re.compile(r"[0-9A-Fa-f]{64}")
_OPTIONS = {"sha256", "unpack"}
_SECRETS = "whoever reads the job file would have them"


def is_address(text: str) -> bool:
    """Tell whether a text is an address, rather than a path on the laptop."""
    return _SCHEME.match(text) is not None


def parse_address(text: str) -> str:
    """Return an address unchanged, if a machine can fetch it.

    Raises:
        BadRequestError: its scheme isn't supported, or the address is malformed.
    """
    address = require_printable(text.strip())
    scheme = address.partition("://")[0].lower()
    address = scheme + address[len(scheme) :]
    check = _KINDS.get(scheme)
    if check is None:
        raise BadRequestError(
            f"{quoted(text)} is not fetched: {scheme}:// is not a source that kedge knows",
            why=f"a machine fetches from {', '.join(f'{kind}://' for kind in _KINDS if not kind.endswith('http'))}",
            fix="use one of those, name a folder of this computer, or fetch it in `setup`",
        )
    try:
        check(address)
    except ValueError as err:
        raise BadRequestError(f"{quoted(text)} is not a valid address", why=str(err), fix="correct it") from err
    return address


def _check_s3(address: str) -> None:
    parts = urlsplit(address)
    options = set(parse_qs(parts.query, keep_blank_values=True)) - {"region", "endpoint"}
    if not _BUCKET.fullmatch(parts.netloc) or options or parts.fragment:
        raise _malformed(
            address, "s3://bucket/prefix/ or s3://bucket/key, with ?region=... where the bucket is elsewhere"
        )


def _check_web(address: str) -> None:
    parts = _check_host(address)
    options = parse_qs(parts.fragment, keep_blank_values=True)
    digest = options.get("sha256", ["0" * 64])[-1]
    if set(options) - _OPTIONS or not _SHA256.fullmatch(digest):
        raise _malformed(address, "https://host/file, with #sha256=<64 hex digits>, #unpack, or #sha256=...&unpack")


def _check_git(address: str) -> None:
    parts = _check_host(address.removeprefix("git+"))
    path, at, ref = parts.path.rpartition("@")
    if not at or not path.strip("/") or not re.fullmatch(r"[^\s~^:?*\[\\-][^\s~^:?*\[\\]*", ref):
        raise _malformed(address, "git+https://host/repository.git@COMMIT, with a full commit or a tag")


def _check_hf(address: str) -> None:
    if not _HF.fullmatch(address):
        raise _malformed(address, "hf://datasets/OWNER/NAME or hf://OWNER/NAME, with @REVISION and /PATH where wanted")


def _check_kaggle(address: str) -> None:
    if not _KAGGLE.fullmatch(address):
        raise _malformed(address, "kaggle://competitions/NAME or kaggle://datasets/OWNER/NAME[@VERSION]")


def _check_host(url: str) -> SplitResult:
    parts = urlsplit(url)
    if not parts.hostname:
        raise _malformed(url, "https://host/path")
    if parts.username is not None or parts.password is not None:
        raise BadRequestError(
            "this address has a user's name or password in it", why=_SECRETS, fix="name a token under `secrets`"
        )
    if parts.scheme == "http" and not _is_loopback(parts.hostname):
        raise BadRequestError(
            f"{quoted(url)} is not encrypted", why="anybody on its way could change the data", fix="use https://"
        )
    return parts


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _malformed(address: str, form: str) -> BadRequestError:
    return BadRequestError(f"{quoted(address)} can't be fetched", why=f"expected {form}", fix=f"write {form}")


_KINDS: dict[str, Callable[[str], None]] = {
    "s3": _check_s3,
    "https": _check_web,
    "http": _check_web,
    "git+https": _check_git,
    "git+http": _check_git,
    "hf": _check_hf,
    "kaggle": _check_kaggle,
}
