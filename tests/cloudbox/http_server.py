"""Small HTTP servers on a loopback address, in threads of their own."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any, cast


class LoopbackServer(ThreadingHTTPServer):
    """Serves from `start` to `close`, on a free port where none is named; clients that hang up are nobody's mistake."""

    daemon_threads = True

    def __init__(self, address: str, handler: type[QuietHandler], *, port: int = 0) -> None:
        super().__init__((address, port), handler)
        self._thread = threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True)

    @property
    def authority(self) -> str:
        """The address and the port."""
        return f"{self.server_name}:{self.server_port}"

    def start(self) -> None:
        """Answer from now on."""
        self._thread.start()

    def close(self) -> None:
        """Stop answering."""
        self.shutdown()
        self._thread.join()
        self.server_close()

    def server_bind(self) -> None:
        """Bind, without asking the name service for this address's name as http.server does."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = cast("tuple[str, int]", self.server_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Keep quiet: a client that goes away, or doesn't trust a certificate, is seen on its own side."""


class QuietHandler(BaseHTTPRequestHandler):
    """Answers in one piece, and logs nothing: the boxes record calls themselves."""

    protocol_version = "HTTP/1.1"
    # A whole answer is one packet: unbuffered, each line waits for the acknowledgement of the one before.
    wbufsize = 65536
    timeout = 60

    def do_GET(self) -> None:
        self.respond()

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET  # noqa: N815 - the names that http.server asks for

    def respond(self) -> None:
        """Answer the request: `command`, `path`, `headers` and `read_body()`."""
        raise NotImplementedError

    def answer(self, status: int, body: bytes = b"", headers: Mapping[str, str] | None = None) -> None:
        """Send an answer."""
        self.send_response(status)
        for name, value in {"Content-Type": "text/plain", **(headers or {})}.items():
            self.send_header(name, value)
        if body or status != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def read_body(self) -> bytes:
        """Return what the client sent."""
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's name
        """Keep quiet."""
