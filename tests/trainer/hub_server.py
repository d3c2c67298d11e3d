"""A stand-in for the Hugging Face Hub: what huggingface_hub calls for a push or a download, kept in memory.

Its URLs and fields are those of https://huggingface.co/docs/hub/api and of git-lfs's batch API, as the client
calls them.
"""

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import yaml

from tests.cloudbox.http_server import LoopbackServer, QuietHandler

SHA = "c0ffee" * 6 + "0000"
"""The commit of every model that can be downloaded."""
BIG_SUFFIXES = (".safetensors", ".onnx", ".png")


def _opened() -> threading.Event:
    event = threading.Event()
    event.set()
    return event


@dataclass
class Hub:
    """A Hub. `commits` are the files of each commit, by path; `tokens` may write.

    `models` are the files of public models by name and path, `downloads` the paths that were downloaded of them, and
    `readers` what readers sent as their authorization. So many of the next commits are refused as `refusals` says, and
    commits wait for `open`.
    """

    tokens: frozenset[str]
    endpoint: str = ""
    repos: dict[str, bool] = field(default_factory=dict)
    blobs: dict[str, bytes] = field(default_factory=dict)
    commits: list[dict[str, bytes]] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)
    models: dict[str, dict[str, bytes]] = field(default_factory=dict)
    downloads: list[str] = field(default_factory=list)
    readers: set[str] = field(default_factory=set)
    refusals: int = 0
    open: threading.Event = field(default_factory=_opened)

    def find_model(self, path: str) -> str | None:
        """Return the public model that a request is about."""
        return next((name for name in self.models if path.startswith((f"/api/models/{name}", f"/{name}/"))), None)

    def read(self, method: str, model: str, path: str) -> tuple[int, Any]:
        """Answer a request to read a model: a description as JSON, or a file's bytes."""
        files = self.models[model]
        if path.startswith("/api/"):
            revision = path.partition("/revision/")[2] or "main"
            siblings = [{"rfilename": name} for name in files]
            found = {"id": model, "sha": SHA, "siblings": siblings}
            return (200, found) if revision in ("main", "v1", SHA) else (404, {"error": "Invalid rev id"})
        revision, _, name = path.partition("/resolve/")[2].partition("/")
        if revision != SHA or name not in files:
            return 404, {"error": f"{name} does not exist at {revision}"}
        if method == "GET":
            self.downloads.append(name)
        return 200, files[name]

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, Any]:
        """Answer a request."""
        if method == "PUT":
            return self._store(path.rpartition("/")[2], body)
        if path == "/api/validate-yaml":
            return _validate_card(json.loads(body)["content"])
        if path == "/api/repos/create":
            return self._create(json.loads(body))
        repo = next((name for name in self.repos if f"/{name}" in path), None)
        return self._answer_for(repo, path, body) if repo else (404, {"error": "Repository not found"})

    def _answer_for(self, repo: str, path: str, body: bytes) -> tuple[int, Any]:
        if path.endswith("/preupload/main"):
            return 200, {"files": [_upload_mode(file["path"]) for file in json.loads(body)["files"]]}
        if path.endswith(".git/info/lfs/objects/batch"):
            return 200, self._batch(json.loads(body))
        if path.endswith("/commit/main"):
            self.open.wait(timeout=60)
            if self.refusals:
                self.refusals -= 1
                return 403, {"error": "Forbidden: you may not write here"}
            return self._commit(repo, [json.loads(line) for line in body.splitlines()])
        return 404, {"error": f"nothing at {path}"}

    def _create(self, asked: dict[str, Any]) -> tuple[int, Any]:
        repo = f"{asked['organization']}/{asked['name']}"
        if repo in self.repos:
            return 409, {"error": "You already created this model repo", "url": f"{self.endpoint}/{repo}"}
        self.repos[repo] = bool(asked.get("private") or asked.get("visibility") == "private")
        return 200, {"url": f"{self.endpoint}/{repo}"}

    def _batch(self, asked: dict[str, Any]) -> dict[str, Any]:
        objects = []
        for item in asked["objects"]:
            there = item["oid"] in self.blobs
            actions = {} if there else {"actions": {"upload": {"href": f"{self.endpoint}/blobs/{item['oid']}"}}}
            objects.append({"oid": item["oid"], "size": item["size"], **actions})
        return {"transfer": "basic", "objects": objects}

    def _store(self, oid: str, body: bytes) -> tuple[int, Any]:
        if hashlib.sha256(body).hexdigest() != oid:
            return 400, {"error": "the content is another"}
        self.blobs[oid] = body
        return 200, {}

    def _commit(self, repo: str, lines: list[dict[str, Any]]) -> tuple[int, Any]:
        files: dict[str, bytes] = {}
        for line in lines:
            value = line["value"]
            if line["key"] == "header":
                self.messages.append(value["summary"])
            elif line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                files[value["path"]] = self.blobs[value["oid"]]
        self.commits.append(files)
        oid = f"{len(self.commits):040x}"
        return 200, {"commitUrl": f"{self.endpoint}/{repo}/commit/{oid}", "commitOid": oid}


@contextmanager
def serving_hub(*tokens: str) -> Iterator[Hub]:
    """Serve a Hub on a free port of this machine."""
    hub = Hub(tokens=frozenset(tokens))

    class Handler(QuietHandler):
        def respond(self) -> None:
            body = self.read_body()
            # As on the real Hub, an upload's URL is enough to upload.
            may = self.path.startswith("/blobs/") or self.headers.get("Authorization", "") in {
                f"Bearer {token}" for token in hub.tokens
            }
            path = self.path.partition("?")[0]
            model = hub.find_model(path)
            if model is not None:
                hub.readers.add(self.headers.get("Authorization", ""))
                code, content = hub.read(self.command, model, path)
            else:
                code, content = hub.answer(self.command, path, body) if may else (401, {"error": "Invalid token"})
            headers = {"Content-Type": "application/json"}
            if isinstance(content, bytes):
                headers |= {"X-Repo-Commit": SHA, "ETag": f'"{hashlib.sha256(content).hexdigest()}"'}
            else:
                content = json.dumps(content).encode()
            self.answer(code, content, headers)

        do_HEAD = QuietHandler.do_GET  # noqa: N815

    server = LoopbackServer("127.0.0.1", Handler)
    hub.endpoint = f"http://{server.authority}"
    server.start()
    try:
        yield hub
    finally:
        server.close()


def _validate_card(text: str) -> tuple[int, Any]:
    head = yaml.safe_load(text.split("---\n")[1])
    missing = [{"message": f"no {name}"} for name in ("license", "tags", "model-index") if name not in head]
    return (400 if missing else 200), {"errors": missing, "warnings": []}


def _upload_mode(path: str) -> dict[str, Any]:
    mode = "lfs" if path.endswith(BIG_SUFFIXES) else "regular"
    return {"path": path, "uploadMode": mode, "shouldIgnore": False}
