"""A box's HTTPS server on 127.0.0.1, with a certificate of a temporary authority."""

from __future__ import annotations

import ssl
import sys
import traceback
from pathlib import Path
from typing import Any, Protocol, cast

import trustme

from tests.cloudbox.http_server import LoopbackServer, QuietHandler
from tests.cloudbox.rest.call import Answer, Call, parse_call


class Gate(Protocol):
    """Answers calls; `broken` lists the box's own mistakes."""

    broken: list[str]

    def answer(self, call: Call) -> Answer | None:
        """Return the answer to a call; None if it is lost together with the connection."""


class HttpsServer:
    """Serves a gate at `url` until `close`; clients have to trust `ca_file`, which is written to a folder."""

    def __init__(self, gate: Gate, folder: Path, name: str) -> None:
        authority = trustme.CA()
        self.ca_file = folder / f"{name}-ca.pem"
        authority.cert_pem.write_to_path(str(self.ca_file))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("127.0.0.1", "localhost").configure_cert(context)
        self._server = _Server(gate, context)
        self.url = self._server.url
        self._server.start()

    def close(self) -> None:
        """Stop serving."""
        self._server.close()


class _Server(LoopbackServer):
    def __init__(self, gate: Gate, context: ssl.SSLContext) -> None:
        super().__init__("127.0.0.1", _Handler)
        self.gate = gate
        self.context = context
        self.url = f"https://{self.authority}"

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - socketserver's signature
        """Ignore clients that disconnect or don't trust the certificate; record the box's own mistakes."""
        if not isinstance(sys.exception(), OSError):
            self.gate.broken.append(traceback.format_exc())


class _Handler(QuietHandler):
    def setup(self) -> None:
        # The handshake runs in the connection's thread: in the server's thread one client could block all others.
        self.request.settimeout(self.timeout)
        self.request = cast("_Server", self.server).context.wrap_socket(self.request, server_side=True)
        super().setup()

    def respond(self) -> None:
        server = cast("_Server", self.server)
        call = parse_call(self.command, self.path, dict(self.headers), self.read_body(), server.url)
        answer = server.gate.answer(call)
        if answer is None:
            self.close_connection = True
        else:
            headers = {"Content-Type": "application/json; charset=utf-8", **answer.headers}
            self.answer(answer.status, answer.encode(), headers)

    def finish(self) -> None:
        # If the client was killed, the rest can't be written.
        try:
            super().finish()
        finally:
            self.request.close()
