"""A server that answers as clouds' APIs have answered, except for one request of a test's choice."""

from __future__ import annotations

import json
import re
import ssl
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

import trustme

RECORDED = Path(__file__).parent / "targets" / "recorded.json"
# The requests before a machine is created, while there is none yet.
_NOTHING = {
    "GET /v2/droplets": {"droplets": [], "links": {}, "meta": {"total": 0}},
    "GET /v2/droplets?type=gpus": {"droplets": [], "links": {}, "meta": {"total": 0}},
    "GET /v2/volumes": {"volumes": [], "links": {}, "meta": {"total": 0}},
    "GET /v2/firewalls": {"firewalls": [], "links": {}, "meta": {"total": 0}},
    "ec2 DescribeInstances": "<DescribeInstancesResponse><reservationSet/></DescribeInstancesResponse>",
}
_AWS_ACTION = re.compile(r"Credential=[^/]+/[^/]+/[^/]+/([^/]+)/")
FOR_ALL = "*"
_UNHEARD_OF: Mapping[str, Any] = {
    "do": {"status": 404, "body": {"id": "not_found", "message": "none"}},
    "aws": {"status": 200, "body": ""},
}


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The answer to a request."""

    at: str
    status: int
    headers: Mapping[str, str]
    body: bytes


@cache
def recorded() -> dict[str, Any]:
    """Return the recorded answers of the tests' clouds, and the state folder that kedge had then."""
    return dict(json.loads(RECORDED.read_text()))


class CloudServer(ThreadingHTTPServer):
    """Answers on a loopback address, for as long as the process lives."""

    daemon_threads = True

    def __init__(self, *, tls: bool) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.ca_file = ""
        self.asked: list[str] = []
        self._cloud = ""
        self._answer: Answer | None = None
        self._is_new = False
        self.context = self._encrypt() if tls else None
        self.url = f"http{'s' if tls else ''}://127.0.0.1:{self.server_port}"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def begin(self, cloud: str, answer: Answer | None, *, is_new: bool) -> None:
        """Give one request this answer, and the recorded ones to all others."""
        self._cloud, self._answer, self.asked, self._is_new = cloud, answer, [], is_new

    def choose(self, key: str) -> Answer:
        """Choose the answer to a request."""
        self.asked.append(key)
        if self._answer is not None and self._answer.at in {key, FOR_ALL}:
            return self._answer
        good = recorded()[self._cloud]["answers"].get(key, _UNHEARD_OF[self._cloud])
        if self._is_new and key in _NOTHING:
            good = {"status": 200, "body": _NOTHING[key]}
        body = good["body"] if isinstance(good["body"], str) else json.dumps(good["body"])
        return Answer(at=key, status=good["status"], headers=good.get("headers", {}), body=body.encode())

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that disconnect."""

    def _encrypt(self) -> ssl.SSLContext:
        import tempfile

        authority = trustme.CA()
        self.ca_file = f"{tempfile.mkdtemp(prefix='kedge-fuzz-ca-')}/ca.pem"
        authority.cert_pem.write_to_path(self.ca_file)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("127.0.0.1").configure_cert(context)
        return context


@cache
def server_of(cloud: str) -> CloudServer:
    return CloudServer(tls=cloud == "do")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 60

    def setup(self) -> None:
        context = cast("CloudServer", self.server).context
        if context is not None:
            self.request = context.wrap_socket(self.request, server_side=True)
        super().setup()

    def finish(self) -> None:
        try:
            super().finish()
        finally:
            # The server would close the socket from before the encryption.
            self.request.close()

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        answer = cast("CloudServer", self.server).choose(self._key(body.decode("latin-1")))
        headers = {"Content-Type": "application/json", "Content-Length": str(len(answer.body)), **answer.headers}
        self.send_response(answer.status)
        for name, value in headers.items():
            self.send_header(name, value)
        # The client must not wait if the header announces more bytes than come.
        self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)
        self.close_connection = True

    do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = do_GET  # noqa: N815 - the names that http.server asks for

    def log_message(self, *_args: object) -> None:
        """Log nothing."""

    def _key(self, body: str) -> str:
        """Name a request as in recorded.json."""
        url = urlsplit(self.path)
        signed = _AWS_ACTION.search(self.headers.get("Authorization", ""))
        if signed is None:
            return f"{self.command} {url.path}" + ("?type=gpus" if "type=gpus" in url.query else "")
        action = self.headers.get("X-Amz-Target") or parse_qs(body).get("Action", [""])[0]
        return f"{signed[1]} {action or f'{self.command} {url.path}'}"
