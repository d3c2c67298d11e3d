"""The metadata service of an instance, as its SDKs and our agent ask it."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from urllib.parse import urlsplit

import pytest
from botocore.utils import InstanceMetadataFetcher

from tests.cloudbox.aws.life.metadata import MetadataService

_ROLE = {
    "RoleName": "run-role",
    "AccessKeyId": "ASIAEXAMPLE",
    "SecretAccessKey": "not-a-secret",
    "Token": "session",
    "Expiration": "2099-01-01T00:00:00Z",
}


@pytest.fixture
def service() -> Iterator[MetadataService]:
    service = make_service(_ROLE)
    yield service
    service.close()


def make_service(role: Mapping[str, str] | None) -> MetadataService:
    return MetadataService(
        "127.0.0.1",
        instance_id="i-0abc",
        region="us-east-1",
        zone="us-east-1b",
        instance_type="g4dn.xlarge",
        user_data=b"\x1f\x8b not text",
        credentials=lambda: role,
    )


def ask(service: MetadataService, method: str, path: str, **headers: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(urlsplit(service.url).netloc, timeout=5)
    names = {name: name.replace("_", "-") for name in headers}
    connection.request(method, path, headers={names[name]: value for name, value in headers.items()})
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, body


def token(service: MetadataService, seconds: int = 60) -> str:
    status, body = ask(service, "PUT", "/latest/api/token", X_aws_ec2_metadata_token_ttl_seconds=str(seconds))
    assert status == 200
    return body.decode()


def get(service: MetadataService, path: str) -> tuple[int, bytes]:
    return ask(service, "GET", f"/latest/{path}", X_aws_ec2_metadata_token=token(service))


def test_nothing_is_answered_without_a_good_token(service: MetadataService) -> None:
    """Version 1's requests, a made-up token and a request for a token without a lifetime are refused."""
    assert ask(service, "GET", "/latest/meta-data/instance-id")[0] == 401
    assert ask(service, "GET", "/latest/meta-data/instance-id", X_aws_ec2_metadata_token="guess")[0] == 401
    assert ask(service, "PUT", "/latest/api/token")[0] == 400
    assert ask(service, "PUT", "/latest/api/token", X_aws_ec2_metadata_token_ttl_seconds="21601")[0] == 400


def test_an_instance_learns_what_it_is(service: MetadataService) -> None:
    """Plain categories are answered as they are, user-data byte for byte, and unknown ones with 404."""
    values = {
        "meta-data/instance-id": b"i-0abc",
        "meta-data/instance-type": b"g4dn.xlarge",
        "meta-data/placement/availability-zone": b"us-east-1b",
        "meta-data/placement/region": b"us-east-1",
        "user-data": b"\x1f\x8b not text",
    }
    assert {path: get(service, path) for path in values} == {path: (200, value) for path, value in values.items()}
    document = json.loads(get(service, "dynamic/instance-identity/document")[1])
    assert (document["instanceId"], document["region"]) == ("i-0abc", "us-east-1")
    assert get(service, "meta-data/no-such-category")[0] == 404


def test_an_sdk_finds_the_credentials_of_the_role(service: MetadataService) -> None:
    """Botocore's own client gets them from here, token and all."""
    fetcher = InstanceMetadataFetcher(timeout=5, num_attempts=1, base_url=f"{service.url}/")
    assert fetcher.retrieve_iam_role_credentials() == {
        "role_name": "run-role",
        "access_key": "ASIAEXAMPLE",
        "secret_key": "not-a-secret",
        "token": "session",
        "expiry_time": "2099-01-01T00:00:00Z",
    }
    assert get(service, "meta-data/iam/security-credentials/another-role")[0] == 404


def test_an_instance_without_a_role_has_no_credentials() -> None:
    """The category isn't there at all."""
    service = make_service(None)
    assert get(service, "meta-data/iam/security-credentials/")[0] == 404
    service.close()


def test_notices_appear_when_they_are_given(service: MetadataService) -> None:
    """Until then both categories are 404, as on an instance that nobody wants back."""
    action, recommendation = "meta-data/spot/instance-action", "meta-data/events/recommendations/rebalance"
    assert (get(service, action)[0], get(service, recommendation)[0]) == (404, 404)
    service.notice = datetime(2026, 11, 21, 10, 2, tzinfo=UTC)
    service.rebalance = datetime(2026, 11, 21, 10, 0, tzinfo=UTC)
    assert json.loads(get(service, action)[1]) == {"action": "terminate", "time": "2026-11-21T10:02:00Z"}
    assert json.loads(get(service, recommendation)[1]) == {"noticeTime": "2026-11-21T10:00:00Z"}
