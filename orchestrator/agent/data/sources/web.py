"""HTTP requests that follow redirects, and send credentials only to the host that they are for."""

from __future__ import annotations

import ipaddress
import re
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from email.message import Message
from http.client import HTTPException, HTTPMessage, HTTPResponse
from typing import IO
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import BaseHandler, HTTPRedirectHandler, OpenerDirector, Request, build_opener

from ...base.errors import AgentError
from .transfer import Body, Opener

_TIMEOUT_SECONDS = 30.0
_LONGEST_WAIT_SECONDS = 60.0
_PASSING = (408, 425, 429)
_SHOWN_BYTES = 200


class WebError(OSError):
    """The server refused a request.

    Attributes:
        said: the server's message; empty if it isn't readable.
        after: seconds to wait before a retry, as the server asks.
    """

    def __init__(self, status: int, url: str, *, said: str = "", after: float = 0.0) -> None:
        super().__init__(f"HTTP {status} for {shown(url)}{f': {said}' if said else ''}")
        self.status = status
        self.said = said
        self.after = after


class Web:
    """Sends requests to web servers.

    Args:
        home: the URL whose host gets the credentials.
        authorization: the Authorization header's value; empty for none.
    """

    def __init__(self, home: str = "", authorization: str = "") -> None:
        handlers = [_Redirects(), *([_Credentials(home, authorization)] if authorization else [])]
        self._opener: OpenerDirector = build_opener(*handlers)

    @contextmanager
    def open(self, url: str, headers: dict[str, str] | None = None) -> Iterator[HTTPResponse]:
        """Get a URL, without retries.

        Raises:
            WebError: the server refuses.
            OSError: it can't be reached.
        """
        require_safe(url)
        request = Request(url, headers={"User-Agent": "kedge", **(headers or {})})  # noqa: S310 - see require_safe
        try:
            response = self._opener.open(request, timeout=_TIMEOUT_SECONDS)
        except HTTPError as err:
            with err:
                raise _refusal(err, url) from err
        with response:
            yield response

    def opener(self, url: str, *, is_pinned: bool = False) -> Opener:
        """Return a function that starts or resumes a download.

        Args:
            url: the file's URL.
            is_pinned: the content never changes, so that there is no need to check its tag.
        """

        @contextmanager
        def begin(start: int, tag: str) -> Iterator[Body]:
            headers = {"Range": f"bytes={start}-"} if start else {}
            if start and not is_pinned:
                headers["If-Range"] = tag
            with self.open(url, headers) as response:
                yield _body(response, "pinned" if is_pinned else _validator(response.headers))

        return begin


def passes(err: Exception) -> bool:
    """Whether a failure is temporary and worth a retry."""
    if isinstance(err, WebError):
        return err.status >= 500 or err.status in _PASSING
    reason = err.reason if isinstance(err, URLError) else err
    return isinstance(reason, OSError | HTTPException) and not isinstance(reason, ssl.SSLCertVerificationError)


def require_safe(url: str) -> None:
    """Refuse unencrypted connections.

    Raises:
        AgentError: the URL is neither https:// nor on this machine.
    """
    parts = urlsplit(url)
    if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(parts.hostname or "")):
        raise AgentError(f"{shown(url)} is not fetched", why="it isn't encrypted", fix="use an https:// address")


def is_loopback(host: str) -> bool:
    """Whether a host is this machine itself."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def shown(url: str) -> str:
    """Return a URL without its query, which may be a signature, for printing."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname or ''}{f':{parts.port}' if parts.port else ''}{parts.path}"


class _Credentials(BaseHandler):
    """Authorizes requests to one origin; checked again for every redirect."""

    def __init__(self, home: str, authorization: str) -> None:
        self._home = _origin(home)
        self._authorization = authorization

    def http_request(self, request: Request) -> Request:
        if _origin(request.full_url) == self._home:
            request.add_unredirected_header("Authorization", self._authorization)
        return request

    https_request = http_request


class _Redirects(HTTPRedirectHandler):
    """Follows redirects, but never from an encrypted to an unencrypted URL."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> Request | None:
        try:
            _require_no_worse(req.full_url, newurl)
        except AgentError:
            fp.close()
            raise
        # Python 3.10 doesn't support 308.
        return super().redirect_request(req, fp, 307 if code == 308 else code, msg, headers, newurl)

    http_error_308 = HTTPRedirectHandler.http_error_302


def _require_no_worse(url: str, next_url: str) -> None:
    require_safe(next_url)
    if url.startswith("https:") and not next_url.startswith("https:"):
        raise AgentError(
            f"{shown(url)} redirects to {shown(next_url)}",
            why="that isn't encrypted",
            fix="use an address that stays on https://",
        )


def _origin(url: str) -> tuple[str, str, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname or "", parts.port or {"https": 443, "http": 80}.get(parts.scheme)


def _body(response: HTTPResponse, tag: str) -> Body:
    if response.status == 206:
        found = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", response.headers.get("Content-Range", ""))
        if found is None:
            raise ConnectionError("the server sent a part of the file without saying which")
        return Body(int(found[1]), None if found[2] == "*" else int(found[2]), tag, response.read)
    length = response.headers.get("Content-Length")
    return Body(0, int(length) if length and length.isdigit() else None, tag, response.read)


def _validator(headers: Message) -> str:
    """Return the tag of this version of the content; empty if it can't be resumed (RFC 9110, 13.1.5)."""
    tag = headers.get("ETag", "")
    return tag if tag and not tag.startswith("W/") else headers.get("Last-Modified", "")


def _refusal(err: HTTPError, url: str) -> WebError:
    told = err.headers.get("X-Error-Message") or ""
    if not told and err.headers.get_content_type() in ("application/json", "text/plain"):
        told = err.read(_SHOWN_BYTES).decode(errors="replace")
    after = err.headers.get("Retry-After", "")
    return WebError(
        err.code,
        url,
        said=" ".join(told.split()),
        after=min(float(after), _LONGEST_WAIT_SECONDS) if after.isdigit() else 0.0,
    )
