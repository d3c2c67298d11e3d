"""How a launch is judged if its TLS connection breaks before or after the request."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import threading
from pathlib import Path

import pytest
import trustme

from orchestrator.adapters.cloud.refusals import Reaction, Refusal
from orchestrator.adapters.providers.aws.access.session import AwsSession
from orchestrator.core.errors import KedgeError, StillBillingError, UnreachableError
from tests.adapters.aws.account_moto import environment
from tests.adapters.aws.test_refusals import refused

RECORD = b"\x17\x03\x03\x00\x30" + b"y" * 48
ALERT = b"\x15\x03\x03\x00\x02\x02\x28"
PROXY = b"HTTP/1.1 502 Bad Gateway\r\n\r\n" + b"x" * 50


class Endpoint:
    """Accepts one TLS request, and answers with bytes that are not valid TLS on that connection."""

    def __init__(self, authority: trustme.CA, answer: bytes) -> None:
        self.request = b""
        self._answer = answer
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("127.0.0.1").configure_cert(self._context)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve)

    @property
    def url(self) -> str:
        """The URL that it listens on."""
        return f"https://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Endpoint:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join()
        self._listener.close()

    def _serve(self) -> None:
        plain, _ = self._listener.accept()
        # The client doesn't trust the certificate, or closes the connection first.
        with contextlib.suppress(OSError), self._context.wrap_socket(plain, server_side=True) as encrypted:
            self.request = encrypted.recv(1 << 16)
            with socket.socket(fileno=os.dup(encrypted.fileno())) as raw:
                raw.sendall(self._answer)
                # The client closes the connection once it has read the answer.
                while raw.recv(1 << 16):
                    pass


@pytest.fixture
def authority(tmp_path: Path) -> trustme.CA:
    """A certificate authority that signs the endpoint's certificate."""
    made = trustme.CA()
    made.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    return made


def launch(endpoint: Endpoint, shell: pytest.MonkeyPatch) -> tuple[Refusal, KedgeError]:
    for name, value in environment(endpoint.url).items():
        shell.setenv(name, value)
    return refused(AwsSession())


@pytest.mark.parametrize("answer", [RECORD, ALERT, PROXY], ids=["record", "alert", "proxy"])
def test_a_connection_that_breaks_after_the_request_may_have_launched_a_machine(
    authority: trustme.CA, answer: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cloud has read the request. An answer that is not TLS does not tell what it did."""
    with Endpoint(authority, answer) as endpoint:
        monkeypatch.setenv("AWS_CA_BUNDLE", str(tmp_path / "ca.pem"))
        refusal, error = launch(endpoint, monkeypatch)
    assert b"POST" in endpoint.request
    assert (refusal.reaction, type(error)) == (Reaction.UNCLEAR, StillBillingError)


def test_nothing_is_launched_through_an_untrusted_certificate(
    authority: trustme.CA, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client sends no request to such an endpoint."""
    with Endpoint(authority, PROXY) as endpoint:
        refusal, error = launch(endpoint, monkeypatch)
    assert endpoint.request == b""
    assert (refusal.reaction, type(error)) == (Reaction.STOP, UnreachableError)
