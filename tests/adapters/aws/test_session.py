"""AWS sessions: clients, regions, and the translation of the SDK's failures."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    EndpointConnectionError,
    NoCredentialsError,
    NoRegionError,
    ProfileNotFound,
)

from orchestrator.adapters.aws_sdk import translate
from orchestrator.adapters.providers.aws.access.session import AwsSession
from orchestrator.core.errors import BadRequestError, KedgeError, UnreachableError
from tests.adapters.aws.account_moto import REGION, environment


class Unavailable(BaseHTTPRequestHandler):
    """An AWS endpoint whose every answer is 503."""

    def do_POST(self) -> None:
        """Count the request, and refuse it."""
        assert isinstance(self.server, CountingServer)
        self.server.requests += 1
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(503)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Log nothing."""


class CountingServer(ThreadingHTTPServer):
    """Counts its requests."""

    requests = 0


@pytest.fixture
def unavailable(monkeypatch: pytest.MonkeyPatch) -> Iterator[CountingServer]:
    """An endpoint that refuses everything, and an environment that points to it."""
    server = CountingServer(("127.0.0.1", 0), Unavailable)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
    for name, value in environment(f"http://127.0.0.1:{server.server_address[1]}").items():
        monkeypatch.setenv(name, value)
    yield server
    server.shutdown()
    server.server_close()


def answer(code: str, message: str = "no") -> ClientError:
    """Return what the SDK raises for an error code of AWS."""
    return ClientError({"Error": {"Code": code, "Message": message}}, "RunInstances")


def test_a_client_that_creates_sends_each_request_once(unavailable: CountingServer) -> None:
    """A repeated creation could make a second machine. Other requests are sent at most four times."""
    session = AwsSession()
    with pytest.raises(ClientError):
        session.client("ec2", single_shot=True).describe_regions()
    assert unavailable.requests == 1
    patient: Any = session.client("ec2").meta.config
    assert (patient.retries["mode"], patient.retries["total_max_attempts"]) == ("standard", 4)
    assert (patient.connect_timeout, patient.read_timeout) == (5, 30)


def test_a_client_is_made_once_for_each_region(unavailable: CountingServer) -> None:
    """Creating a client costs more than a call. A client uses the session's region by default."""
    session = AwsSession()
    assert session.client("ec2") is session.client("ec2", REGION)
    assert session.client("ec2", "us-east-1").meta.region_name == "us-east-1"
    assert session.client("ec2", "us-east-1") is not session.client("ec2")


def test_a_session_without_a_region_says_how_to_name_one(
    unavailable: CountingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A guess could start a machine in a region where nobody notices its costs."""
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    with pytest.raises(BadRequestError) as caught:
        AwsSession().client("ec2")
    assert "--region" in caught.value.fix
    assert unavailable.requests == 0


def test_a_session_without_a_region_still_knows_its_account(
    unavailable: CountingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is the same in every region is queried in one that no account can disable. fact: aws-first-region."""
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    session = AwsSession()
    assert {session.client("sts").meta.region_name, session.client("iam").meta.region_name} <= {
        "us-east-1",
        "aws-global",
    }
    assert session.client("ec2", REGION).meta.region_name == REGION


def test_an_invalid_region_name_is_refused(unavailable: CountingServer) -> None:
    """The SDK would build a host name from it."""
    with pytest.raises(BadRequestError) as caught:
        AwsSession(region="eu west").client("ec2")
    assert "'eu west'" in caught.value.why
    assert "eu-west-1" in caught.value.fix


@pytest.mark.parametrize(
    ("err", "kind", "fix"),
    [
        (NoCredentialsError(), BadRequestError, "aws configure"),
        (ProfileNotFound(profile="x"), BadRequestError, "AWS_PROFILE"),
        (NoRegionError(), BadRequestError, "--region"),
        (EndpointConnectionError(endpoint_url="https://ec2.eu-wst-1.amazonaws.com"), UnreachableError, "network"),
        (answer("ExpiredToken"), KedgeError, "aws sso login"),
        (answer("InvalidClientTokenId"), KedgeError, "aws configure"),
        (answer("UnauthorizedOperation"), KedgeError, "allow RunInstances"),
        (answer("RequestLimitExceeded"), KedgeError, "try again"),
    ],
)
def test_a_failure_of_any_call_has_a_fix(err: ClientError | BotoCoreError, kind: type[KedgeError], fix: str) -> None:
    """It has one line, and a class that says how to react."""
    made = translate(err, "the machine can't be made")
    assert type(made) is kind
    assert made.what == "the machine can't be made"
    assert fix in made.fix


def test_an_unexpected_answer_is_quoted_in_one_line() -> None:
    """The user can search for the code and the message."""
    made = translate(answer("Strange", "two\n lines"), "it failed")
    assert made.why == "AWS answered RunInstances with Strange: two lines"
