"""Web servers as machines meet them: files with ranges, the Hub, Kaggle, and git over HTTP."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar
from urllib.parse import parse_qs, unquote, urlsplit


class Answer(NamedTuple):
    """A site's answer; a request may ask for a part of a file."""

    status: int = 200
    content: bytes = b""
    headers: dict[str, str] = {}  # noqa: RUF012 - never changed
    is_file: bool = False


@dataclass
class Asked:
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    body: bytes = b""
    method: str = "GET"


@dataclass
class Site:
    """Files by path, the faults to come, and the requests so far.

    Attributes:
        cuts: the bytes after which each of the next file downloads breaks off.
        refusals: the status codes of the next answers, whatever the request.
        holds_from: from this request on, answers wait until `goes` is set; 0 for none.
    """

    files: dict[str, bytes] = field(default_factory=dict)
    moved: dict[str, str] = field(default_factory=dict)
    claims: dict[str, int] = field(default_factory=dict)
    cuts: list[int] = field(default_factory=list)
    refusals: list[int] = field(default_factory=list)
    holds_from: int = 0
    goes: threading.Event = field(default_factory=threading.Event)
    asked: list[Asked] = field(default_factory=list)
    url: str = ""

    def answer(self, asked: Asked) -> Answer:
        if asked.path in self.moved:
            return Answer(302, headers={"Location": self.moved[asked.path]})
        if asked.path not in self.files:
            return Answer(404, b"no such page", {"Content-Type": "text/plain"})
        return Answer(200, self.files[asked.path], is_file=True)

    def sent(self, header: str) -> list[str]:
        """Return a header's value in every request; empty where it was missing."""
        return [asked.headers.get(header, "") for asked in self.asked]


@dataclass
class Hub(Site):
    """The Hugging Face Hub: one repository at one commit, whose large files are on another host.

    Attributes:
        storage: that other host.
        large: names of the files that are kept there.
    """

    name: str = "datasets/me/faces"
    commit: str = "c0ffee" + "0" * 34
    revisions: tuple[str, ...] = ("main", "v1")
    token: str = ""
    storage: Site = field(default_factory=Site)
    large: tuple[str, ...] = ()
    page: int = 2

    def answer(self, asked: Asked) -> Answer:
        if self.token and asked.headers.get("authorization") != f"Bearer {self.token}":
            return Answer(401, b"{}", {"X-Error-Code": "RepoNotFound", "X-Error-Message": "Repository not found"})
        kind = "" if self.name.startswith("datasets/") else "models/"
        api = f"/api/{kind}{self.name}"
        for revision in self.revisions:
            if asked.path == f"{api}/revision/{revision}":
                return Answer(200, json.dumps({"sha": self.commit}).encode())
        if asked.path.startswith(f"{api}/tree/{self.commit}"):
            return self._tree(asked, unquote(asked.path.removeprefix(f"{api}/tree/{self.commit}")).strip("/"))
        path = unquote(asked.path.removeprefix(f"/{self.name}/resolve/{self.commit}/"))
        if path in self.large:
            self.storage.files[f"/blobs/{self._oid(path)}"] = self.files[path]
            return Answer(302, headers={"Location": f"{self.storage.url}/blobs/{self._oid(path)}?Signature=s3cr3t"})
        if path in self.files:
            return Answer(200, self.files[path], is_file=True)
        return Answer(404, headers={"X-Error-Code": "EntryNotFound", "X-Error-Message": "Entry not found"})

    def _tree(self, asked: Asked, folder: str) -> Answer:
        below = f"{folder}/" if folder else ""
        entries = [self._entry(path) for path in sorted(self.files) if path.startswith(below)]
        folders = {below + entry["path"].removeprefix(below).split("/")[0] for entry in entries}
        folders -= set(self.files)
        if asked.query["recursive"] == ["False"]:
            entries = [entry for entry in entries if "/" not in entry["path"].removeprefix(below)]
        entries += [{"type": "directory", "oid": "0" * 40, "size": 0, "path": path} for path in sorted(folders)]
        start = int(asked.query.get("cursor", ["0"])[0])
        link = (
            f'<{self.url}{asked.path}?recursive={asked.query["recursive"][0]}&cursor={start + self.page}>; rel="next"'
        )
        more = {"Link": link} if start + self.page < len(entries) else {}
        return Answer(200, json.dumps(entries[start : start + self.page]).encode(), more)

    def _entry(self, path: str) -> dict[str, Any]:
        content = self.files[path]
        size = self.claims.get(path, len(content))
        oid = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
        entry: dict[str, Any] = {"type": "file", "oid": oid, "size": size, "path": path}
        return entry | ({"lfs": {"oid": self._oid(path), "size": size}} if path in self.large else {})

    def _oid(self, path: str) -> str:
        return hashlib.sha256(self.files[path]).hexdigest()


@dataclass
class Kaggle(Site):
    """Kaggle's API: each authenticated download is a redirect to the storage host."""

    accepts: tuple[str, ...] = ()
    storage: Site = field(default_factory=Site)
    has_rules: bool = False

    def answer(self, asked: Asked) -> Answer:
        if asked.headers.get("authorization") not in self.accepts:
            said = b'{"code":401,"message":"Unauthenticated"}'
            return Answer(401, said, {"Content-Type": "application/json"})
        if self.has_rules:
            said = b'{"code":403,"message":"You must accept this competition\'s rules"}'
            return Answer(403, said, {"Content-Type": "application/json"})
        if asked.path not in self.files:
            return Answer(404)
        self.storage.files["/bundle/archive.zip"] = self.files[asked.path]
        return Answer(302, headers={"Location": f"{self.storage.url}/bundle/archive.zip?GoogleAccessId=x&Signature=y"})


@dataclass
class GitHost(Site):
    """Repositories behind git's own http-backend."""

    folder: Path = Path()
    token: str = ""

    def answer(self, asked: Asked) -> Answer:
        wanted = f"Basic {base64.b64encode(f'x-access-token:{self.token}'.encode()).decode()}"
        if self.token and asked.headers.get("authorization") != wanted:
            return Answer(401, headers={"WWW-Authenticate": 'Basic realm="git"'})
        env = {
            **os.environ,
            "GIT_PROJECT_ROOT": str(self.folder),
            "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": asked.path,
            "QUERY_STRING": "&".join(f"{name}={text}" for name, [text] in asked.query.items()),
            "REQUEST_METHOD": asked.method,
            "CONTENT_TYPE": asked.headers.get("content-type", ""),
            "CONTENT_LENGTH": str(len(asked.body)),
            "HTTP_CONTENT_ENCODING": asked.headers.get("content-encoding", ""),
            "GIT_PROTOCOL": asked.headers.get("git-protocol", ""),
        }
        done = subprocess.run(["git", "http-backend"], input=asked.body, capture_output=True, env=env, check=False)
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        return Answer(int(headers.pop("Status", "200").split()[0]), content, headers)


_Served = TypeVar("_Served", bound=Site)


class Serve(Protocol):
    """Serve a site until the test ends; `host` is its name in URLs."""

    def __call__(self, site: _Served, *, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None) -> _Served: ...


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    site: Site
    tls: ssl.SSLContext | None = None

    def finish_request(self, request: Any, client_address: Any) -> None:
        if self.tls is None:
            return super().finish_request(request, client_address)
        with self.tls.wrap_socket(request, server_side=True) as secured:
            return super().finish_request(secured, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that disconnect early."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, *_arguments: object) -> None:
        pass

    def do_GET(self) -> None:
        site, url = self.server.site, urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name.lower(): text for name, text in self.headers.items()}
        asked = Asked(unquote(url.path), parse_qs(url.query, keep_blank_values=True), headers, body, self.command)
        if isinstance(site, Hub):
            asked.path = url.path
        site.asked.append(asked)
        if site.holds_from and len(site.asked) >= site.holds_from:
            site.goes.wait(30)
        if site.refusals:
            return self._send(Answer(site.refusals.pop(0), headers={"Retry-After": "0"}))
        answer = site.answer(asked)
        return self._send_file(answer, asked) if answer.is_file else self._send(answer)

    do_POST = do_PUT = do_GET  # noqa: N815

    def _send_file(self, answer: Answer, asked: Asked) -> None:
        tag = f'"{hashlib.md5(answer.content).hexdigest()}"'
        start, content, status = 0, answer.content, 200
        wanted = asked.headers.get("range", "")
        if wanted and asked.headers.get("if-range", tag) == tag:
            start, status = int(wanted.removeprefix("bytes=").rstrip("-")), 206
        headers = {"ETag": tag, "Accept-Ranges": "bytes"}
        if status == 206:
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        length = self.server.site.claims.get(asked.path, len(content) - start)
        self._send(Answer(status, content[start:], {**headers, "Content-Length": str(length)}))

    def _send(self, answer: Answer) -> None:
        site = self.server.site
        cut = site.cuts.pop(0) if site.cuts and "ETag" in answer.headers else None
        self.send_response(answer.status)
        for name, text in {"Content-Length": str(len(answer.content)), **answer.headers}.items():
            self.send_header(name, text)
        self.end_headers()
        self.wfile.write(answer.content[:cut])
        self.close_connection = cut is not None


@contextmanager
def serving(site: Site, *, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None) -> Iterator[None]:
    """Serve a site during the block; `host` is its name in URLs."""
    server = _Server(("127.0.0.1", 0), _Handler)
    server.site = site
    server.tls = tls
    site.url = f"{'https' if tls else 'http'}://{host}:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        site.goes.set()
        server.shutdown()
        server.server_close()
        thread.join()
