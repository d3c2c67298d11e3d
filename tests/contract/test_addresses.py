"""Addresses under `data`: the machine reads an address that the laptop accepts with the same meaning."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from orchestrator.adapters.jobfile.values.addresses import parse_address
from orchestrator.agent.data.sources.address import (
    GitAddress,
    HubAddress,
    KaggleAddress,
    WebAddress,
    parse_git,
    parse_hub,
    parse_kaggle,
    parse_scheme,
    parse_web,
)
from orchestrator.agent.s3.client import BucketPrefix, parse_s3_url
from orchestrator.core.errors import BadRequestError

SHA = "ab" * 32
COMMIT = "0123456789abcdef" * 2 + "01234567"
PARSERS: dict[str, Callable[[str], object]] = {
    "s3": parse_s3_url,
    "https": parse_web,
    "http": parse_web,
    "git+https": parse_git,
    "git+http": parse_git,
    "hf": parse_hub,
    "kaggle": parse_kaggle,
}
EXPECTED = {
    "s3://scans": BucketPrefix("scans", "", "", ""),
    "s3://scans/2024/": BucketPrefix("scans", "2024", "", ""),
    "s3://scans/a/b.tar?region=eu-west-1": BucketPrefix("scans", "a/b.tar", "eu-west-1", ""),
    "s3://scans/a?endpoint=https://r2.example&region=auto": BucketPrefix("scans", "a", "auto", "https://r2.example"),
    "https://host.example/file.tar": WebAddress("https://host.example/file.tar"),
    "HTTPS://host.example/file.tar": WebAddress("https://host.example/file.tar"),
    f"https://host.example/f?sig=a%26b#sha256={SHA}": WebAddress("https://host.example/f?sig=a%26b", SHA),
    f"https://host.example/f.zip#sha256={SHA}&unpack": WebAddress("https://host.example/f.zip", SHA, unpacks=True),
    "https://host.example/f.zip#unpack": WebAddress("https://host.example/f.zip", unpacks=True),
    "http://localhost:8080/f": WebAddress("http://localhost:8080/f"),
    f"git+https://host.example/a/b.git@{COMMIT}": GitAddress("https://host.example/a/b.git", COMMIT),
    "git+https://host.example/a/b@c.git@v1.2": GitAddress("https://host.example/a/b@c.git", "v1.2"),
    "git+https://host.example/b.git@release/1": GitAddress("https://host.example/b.git", "release/1"),
    "git+http://127.0.0.1:3000/b.git@v1": GitAddress("http://127.0.0.1:3000/b.git", "v1"),
    "hf://datasets/owner/name": HubAddress("datasets", "owner/name", "main", ""),
    "hf://owner/name": HubAddress("models", "owner/name", "main", ""),
    "hf://owner/name@refs%2Fpr%2F1/a/b/": HubAddress("models", "owner/name", "refs/pr/1", "a/b"),
    "hf://datasets/owner/na.me@v1/train.csv": HubAddress("datasets", "owner/na.me", "v1", "train.csv"),
    "kaggle://competitions/titanic": KaggleAddress("competitions", "titanic", ""),
    "kaggle://competitions/titanic/": KaggleAddress("competitions", "titanic", ""),
    "kaggle://datasets/owner/name": KaggleAddress("datasets", "owner/name", ""),
    "kaggle://datasets/owner/name@12": KaggleAddress("datasets", "owner/name", "12"),
}


@pytest.mark.parametrize("address", EXPECTED)
def test_an_address_means_the_same_on_the_machine(address: str) -> None:
    """Each kind has one form, which the laptop checks and the agent parses."""
    accepted = parse_address(address)
    assert PARSERS[parse_scheme(accepted)](accepted) == EXPECTED[address]


@pytest.mark.parametrize(
    "address",
    [
        "ftp://host.example/f",
        "s3://UPPER/a",
        "s3://scans/a?acl=public",
        "https:///f",
        "https://user:secret@host.example/f",
        "http://host.example/f",
        "https://host.example/f#md5=00",
        f"https://host.example/f#sha256={SHA[:-1]}",
        "git+https://host.example/a.git",
        "git+https://host.example/a.git@-branch",
        "hf://name",
        "hf://datasets/name",
        "hf://spaces/owner/name",
        "kaggle://owner/name",
        "kaggle://datasets/owner/name@latest",
    ],
)
def test_an_invalid_address_never_reaches_a_machine(address: str) -> None:
    """The laptop refuses it before anything is rented."""
    with pytest.raises(BadRequestError):
        parse_address(address)
