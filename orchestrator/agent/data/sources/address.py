"""Parses the addresses of data sources; no other module of the agent does.

The laptop has validated each one's form (adapters/jobfile/values/addresses.py); tests/contract/test_addresses.py checks
both against the same cases. An `s3://` address is a `BucketPrefix`, like the machine's own store (agent/s3/client.py).
"""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import parse_qs, unquote, urldefrag

from ...base.errors import AgentError

_HUB = re.compile(r"hf://(datasets/)?([^/@]+/[^/@]+)(?:@([^/]+))?(?:/(.*))?")


class WebAddress(NamedTuple):
    """A file on a web server.

    Attributes:
        sha256: the required SHA-256 in hex; empty for any.
        unpacks: whether to unpack it as an archive.
    """

    url: str
    sha256: str = ""
    unpacks: bool = False


class GitAddress(NamedTuple):
    """A commit of a repository.

    Attributes:
        ref: a full commit or a tag.
    """

    url: str
    ref: str


class HubAddress(NamedTuple):
    """Files of a repository on the Hugging Face Hub; revision and path are as the user wrote them.

    Attributes:
        kind: `datasets` or `models`, as in the Hub's API.
    """

    kind: str
    name: str
    revision: str
    path: str


class KaggleAddress(NamedTuple):
    """An archive on Kaggle.

    Attributes:
        kind: `competitions` or `datasets`.
        version: the data set's version; empty for the newest.
    """

    kind: str
    name: str
    version: str


def parse_scheme(address: str) -> str:
    """Return the scheme, which selects the kind of source: `s3`, `https`, `git+https`, `hf`, `kaggle` or another."""
    return address.partition("://")[0]


def parse_web(address: str) -> WebAddress:
    """Parse `https://host/path/file[#sha256=...][&unpack]`."""
    url, fragment = urldefrag(address)
    asked = parse_qs(fragment, keep_blank_values=True)
    return WebAddress(url, asked.get("sha256", [""])[-1], "unpack" in asked)


def parse_git(address: str) -> GitAddress:
    """Parse `git+https://host/repo.git@COMMIT`."""
    url, _, ref = address.removeprefix("git+").rpartition("@")
    return GitAddress(url, ref)


def parse_hub(address: str) -> HubAddress:
    """Parse `hf://[datasets/]OWNER/NAME[@REVISION][/PATH]`.

    Raises:
        AgentError: it has another form.
    """
    found = _HUB.fullmatch(address)
    if found is None:
        raise AgentError(f"{address} is not a valid address", fix="write hf://datasets/OWNER/NAME or hf://OWNER/NAME")
    kind = "datasets" if found[1] else "models"
    return HubAddress(kind, found[2], unquote(found[3] or "main"), (found[4] or "").strip("/"))


def parse_kaggle(address: str) -> KaggleAddress:
    """Parse `kaggle://competitions/NAME` or `kaggle://datasets/OWNER/NAME[@VERSION]`."""
    kind, _, rest = address.removeprefix("kaggle://").strip("/").partition("/")
    name, _, version = rest.partition("@")
    return KaggleAddress(kind, name, version)
