"""A stand-in for Kaggle: what its client calls to upload a data set, kept in memory.

Paths and fields are those of kagglesdk 0.1.38. Kaggle's own client (kaggle 2.2.5, `datasets create` and `datasets
version`) was run against it in November 2026, with its built-in address replaced: it makes the same requests.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.cloudbox.http_server import LoopbackServer, QuietHandler
from trainer.base.contract import KaggleAccess

BLOBS, DATASETS = "/api/v1/blobs.BlobApiService/", "/api/v1/datasets.DatasetApiService/"


@dataclass
class Kaggle:
    """A Kaggle. `versions` are the files of each version of each data set; `requests` what was asked for.

    `failures` are codes that the next requests are answered with; `authorizations` what each request was sent with.
    """

    accepted: frozenset[str]
    endpoint: str = ""
    versions: dict[str, list[dict[str, bytes]]] = field(default_factory=dict)
    created: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)
    blobs: dict[str, bytes] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    authorizations: list[tuple[str, str]] = field(default_factory=list)
    failures: list[int] = field(default_factory=list)
    complaint: str = ""
    storage: str = ""

    @property
    def access(self) -> KaggleAccess:
        """Return what a user with a token has."""
        return KaggleAccess(token=next(iter(self.accepted)).removeprefix("Bearer "), endpoint=self.endpoint)

    def answer(self, method: str, path: str, body: bytes, authorization: str) -> tuple[int, Any]:
        """Answer a request."""
        self.requests.append(f"{method} {path}")
        self.authorizations.append((path, authorization))
        if self.failures:
            return self.failures.pop(0), {"code": 500, "message": f"try again, {authorization}"}
        if method == "PUT":
            self.blobs[path.rpartition("/")[2]] = body
            return 200, {}
        if authorization not in self.accepted:
            return 401, {"code": 401, "message": f"Unauthenticated: {authorization}"}
        words = json.loads(body)
        if path == f"{BLOBS}StartBlobUpload":
            return self._start(words)
        if path.startswith(DATASETS):
            return self._dataset(path.removeprefix(DATASETS), words)
        return 404, {"code": 404, "message": "nothing here"}

    def _start(self, words: dict[str, Any]) -> tuple[int, Any]:
        token = f"blob-{len(self.names)}"
        self.names[token] = words["name"]
        assert words["type"] == "DATASET"
        assert words["contentLength"] > 0
        return 200, {"token": token, "createUrl": f"{self.storage or self.endpoint}/storage/{token}"}

    def _dataset(self, method: str, words: dict[str, Any]) -> tuple[int, Any]:
        name = f"{words['ownerSlug']}/{words.get('datasetSlug') or words.get('slug')}"
        if method == "GetDatasetStatus":
            there = name in self.versions
            return (200, {"status": "ready"}) if there else (404, {"code": 404, "message": "Not found"})
        if self.complaint:
            return 200, {"status": "error", "error": self.complaint}
        files = words["files"] if method == "CreateDataset" else words["body"]["files"]
        content = {self.names[each["token"]]: self.blobs[each["token"]] for each in files}
        self.versions.setdefault(name, []).append(content)
        if method == "CreateDataset":
            self.created.append({key: value for key, value in words.items() if key != "files"})
        else:
            self.notes.append(words["body"]["versionNotes"])
        return 200, {"status": "ok", "url": f"{self.endpoint}/datasets/{name}", "ref": name}


@contextmanager
def serving_kaggle(*accepted: str, port: int = 0) -> Iterator[Kaggle]:
    """Serve a Kaggle on a free port of this machine; it accepts these values of Authorization."""
    kaggle = Kaggle(accepted=frozenset(accepted))

    class Handler(QuietHandler):
        def respond(self) -> None:
            authorization = self.headers.get("Authorization", "")
            code, content = kaggle.answer(self.command, self.path, self.read_body(), authorization)
            elsewhere = {"Location": f"{kaggle.endpoint}/elsewhere"} if 300 <= code < 400 else {}
            self.answer(code, json.dumps(content).encode(), {"Content-Type": "application/json", **elsewhere})

    server = LoopbackServer("127.0.0.1", Handler, port=port)
    kaggle.endpoint = f"http://{server.authority}"
    server.start()
    try:
        yield kaggle
    finally:
        server.close()
