"""Signatures equal those that AWS publishes, and those of botocore."""

from __future__ import annotations

import calendar
import hashlib
import time
from urllib.parse import quote

import pytest
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials as BotoCredentials
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.agent.s3.sigv4 import UNSIGNED, Credentials, Request, render_query, sign

EMPTY = hashlib.sha256(b"").hexdigest()
SUITE = Credentials("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")
GUIDE = Credentials("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
BUCKET = "examplebucket.s3.amazonaws.com"
WRITTEN = "Welcome to Amazon S3."


def at(text: str) -> float:
    return float(calendar.timegm(time.strptime(text, "%Y%m%dT%H%M%SZ")))


def signature(headers: dict[str, str]) -> str:
    return headers["authorization"].rpartition("Signature=")[2]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({}, "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"),
        (
            {"Param2": "value2", "Param1": "value1"},
            "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
        ),
    ],
    ids=["get-vanilla", "get-vanilla-query-order-key-case"],
)
def test_the_test_suite_of_aws_is_met(query: dict[str, str], expected: str) -> None:
    """AWS's Signature Version 4 test suite, of which each case is named."""
    request = Request("GET", "/", render_query(query), {"Host": "example.amazonaws.com"}, EMPTY)
    headers = sign(request, SUITE, region="us-east-1", service="service", now=at("20150830T123600Z"))
    assert headers["authorization"] == (
        "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, "
        f"SignedHeaders=host;x-amz-date, Signature={expected}"
    )


@pytest.mark.parametrize(
    ("method", "path", "query", "more", "body", "expected"),
    [
        (
            "GET",
            "/test.txt",
            {},
            {"Range": "bytes=0-9"},
            "",
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
        ),
        (
            "PUT",
            "/test%24file.text",
            {},
            {"Date": "Fri, 24 May 2013 00:00:00 GMT", "x-amz-storage-class": "REDUCED_REDUNDANCY"},
            WRITTEN,
            "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
        ),
        ("GET", "/", {"lifecycle": ""}, {}, "", "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"),
        (
            "GET",
            "/",
            {"prefix": "J", "max-keys": "2"},
            {},
            "",
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
        ),
    ],
    ids=["get-object", "put-object", "get-lifecycle", "list-objects"],
)
def test_the_examples_of_s3_are_met(
    method: str, path: str, query: dict[str, str], more: dict[str, str], body: str, expected: str
) -> None:
    """Amazon S3 API Reference, "Signature Calculations for the Authorization Header", its four examples."""
    payload = hashlib.sha256(body.encode()).hexdigest()
    headers = {"Host": BUCKET, "x-amz-content-sha256": payload, **more}
    request = Request(method, path, render_query(query), headers, payload)
    assert signature(sign(request, GUIDE, region="us-east-1", now=at("20130524T000000Z"))) == expected


TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), max_size=12)
NAMES = st.text("abcdefghijklmnopqrstuvwxyz-", min_size=1, max_size=8).map(lambda name: f"x-amz-meta-{name}")
VALUES = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=10)


@given(
    st.sampled_from(["GET", "PUT", "POST", "DELETE", "HEAD"]),
    TEXTS,
    st.dictionaries(TEXTS.filter(bool), TEXTS, max_size=4),
    st.dictionaries(NAMES, VALUES, max_size=3),
    st.binary(max_size=40),
    st.sampled_from(["", "a/session+token=="]),
)
def test_every_signature_equals_botocores(
    method: str, key: str, query: dict[str, str], more: dict[str, str], body: bytes, token: str
) -> None:
    """Whatever the key, the query, the headers, the body and the token."""
    path = quote(f"/bucket/{key}", safe="/-_.~")
    theirs = AWSRequest(method, f"http://127.0.0.1:9{path}", headers=more, params=query, data=body)
    S3SigV4Auth(BotoCredentials("AKID", "secret", token or None), "s3", "eu-west-3").add_auth(theirs)
    payload = theirs.headers["X-Amz-Content-SHA256"]
    assert payload in (hashlib.sha256(body).hexdigest(), UNSIGNED)
    headers = {"host": "127.0.0.1:9", "x-amz-content-sha256": payload, **more}
    request = Request(method, path, render_query(query), headers, payload)
    ours = sign(request, Credentials("AKID", "secret", token), region="eu-west-3", now=at(theirs.headers["X-Amz-Date"]))
    assert ours["authorization"] == theirs.headers["Authorization"]


def test_a_payload_may_go_unsigned() -> None:
    """The literal UNSIGNED-PAYLOAD takes the place of the hash."""
    theirs = AWSRequest("PUT", "https://b.s3.eu-west-3.amazonaws.com/key", headers={}, data=b"body")
    theirs.context["client_config"] = Config(s3={"payload_signing_enabled": False})
    S3SigV4Auth(BotoCredentials("AKID", "secret"), "s3", "eu-west-3").add_auth(theirs)
    payload = theirs.headers["X-Amz-Content-SHA256"]
    assert payload == UNSIGNED
    headers = {"host": "b.s3.eu-west-3.amazonaws.com", "x-amz-content-sha256": UNSIGNED}
    request = Request("PUT", "/key", "", headers, UNSIGNED)
    ours = sign(request, Credentials("AKID", "secret"), region="eu-west-3", now=at(theirs.headers["X-Amz-Date"]))
    assert ours["authorization"] == theirs.headers["Authorization"]
