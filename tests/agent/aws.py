"""AWS as a machine sees it: moto's S3 behind a gate that can inject faults, and a metadata service of our own."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import urlsplit

import boto3

from tests.cloudbox.aws.rules.bucket_rules import BucketRules
from tests.cloudbox.aws.wire.moto_state import ACCOUNT

REGION: Final = "eu-west-3"
ROLE = "kedge-digits-1a2b"


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that disconnect early."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16

    def log_message(self, *_arguments: object) -> None:
        pass

    def answer(self, status: int, content: bytes = b"", headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, text in (headers or {}).items():
            self.send_header(name, text)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


@contextmanager
def _serving(handler: type[_Handler], state: Any) -> Iterator[str]:
    server = _Server(("127.0.0.1", 0), handler)
    server.state = state  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@dataclass
class Imds:
    """What the metadata service answers; IMDSv2 only.

    Attributes:
        has_role: the instance profile has arrived.
        issued: how many times credentials were issued.
        lasts: seconds until they expire.
        tokens: the valid ones.
    """

    url: str = ""
    has_role: bool = True
    issued: int = 0
    lasts: float = 3600.0
    tokens: set[str] = field(default_factory=set)
    facts: dict[str, str] = field(default_factory=lambda: {"placement/region": REGION})

    def warn(self, *, seconds: float = 120) -> float:
        """Announce the machine's interruption, and return when it comes."""
        at = float(int(time.time() + seconds))
        self.facts["spot/instance-action"] = json.dumps({"action": "terminate", "time": _stamp(at)})
        return at

    def recommend(self, at: float) -> None:
        """Recommend a rebalance."""
        self.facts["events/recommendations/rebalance"] = json.dumps({"noticeTime": _stamp(at)})

    def find(self, path: str) -> str | None:
        if self.has_role and path == "iam/security-credentials/":
            return ROLE
        if self.has_role and path == f"iam/security-credentials/{ROLE}":
            self.issued += 1
            keys = {"AccessKeyId": f"ASIA{self.issued}", "SecretAccessKey": "secret", "Token": "token"}
            return json.dumps({"Code": "Success", **keys, "Expiration": _stamp(time.time() + self.lasts)})
        return self.facts.get(path)


class _ImdsHandler(_Handler):
    def do_PUT(self) -> None:
        state: Imds = self.server.state  # type: ignore[attr-defined]
        if self.path != "/latest/api/token" or "X-aws-ec2-metadata-token-ttl-seconds" not in self.headers:
            return self.answer(400)
        token = f"token-{len(state.tokens)}-{time.monotonic()}"
        state.tokens.add(token)
        return self.answer(200, token.encode())

    def do_GET(self) -> None:
        state: Imds = self.server.state  # type: ignore[attr-defined]
        if self.headers.get("X-aws-ec2-metadata-token") not in state.tokens:
            return self.answer(401)
        found = state.find(self.path.removeprefix("/latest/meta-data/"))
        return self.answer(404) if found is None else self.answer(200, found.encode())


@dataclass
class Fault:
    """A fault that is injected into one request.

    Attributes:
        method: the request's method.
        contains: a text in the request's path and query.
        status: the answer instead of S3's, with `code` in the body.
        cut_after: bytes of the answer's body after which the connection breaks.
        lost: S3 carries the request out, but the answer never arrives.
    """

    method: str
    contains: str = ""
    status: int = 0
    code: str = ""
    cut_after: int = -1
    lost: bool = False


@dataclass
class Gate:
    """A proxy in front of S3: the faults to come, in order, and the requests so far.

    Attributes:
        refuses: the error code of every answer, as long as it is set.
        rules: which account owns which bucket.
    """

    target: str
    url: str = ""
    faults: list[Fault] = field(default_factory=list)
    asked: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    refuses: str = ""
    rules: BucketRules = field(default_factory=BucketRules)

    def fault_for(self, method: str, path: str) -> Fault | None:
        if self.refuses:
            return Fault(method, status=403, code=self.refuses)
        for fault in self.faults:
            if fault.method == method and fault.contains in path:
                self.faults.remove(fault)
                return fault
        return None


class _GateHandler(_Handler):
    def _pass_on(self) -> None:
        gate: Gate = self.server.state  # type: ignore[attr-defined]
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        gate.asked.append((self.command, self.path, {name.lower(): text for name, text in self.headers.items()}))
        fault = gate.fault_for(self.command, self.path)
        if fault and fault.status:
            return self.answer(fault.status, f"<Error><Code>{fault.code}</Code></Error>".encode())
        if refused := gate.rules.check(self.command, self.path, gate.asked[-1][2]):
            body = b"" if self.command == "HEAD" else f"<Error><Code>{refused.code}</Code></Error>".encode()
            return self.answer(refused.status, body, {"x-amz-bucket-region": refused.region})
        upstream = http.client.HTTPConnection(urlsplit(gate.target).netloc, timeout=30)
        try:
            upstream.request(self.command, self.path, body or None, dict(self.headers.items()))
            response = upstream.getresponse()
            content = response.read()
        finally:
            upstream.close()
        if fault and fault.lost:
            self.close_connection = True
            return None
        hidden = ("content-length", "connection", "transfer-encoding", "date", "server")
        self.send_response(response.status)
        for name, text in response.getheaders():
            if name.lower() not in hidden:
                self.send_header(name, text)
        told = response.headers["content-length"] if self.command == "HEAD" else str(len(content))
        self.send_header("Content-Length", told or "0")
        self.end_headers()
        self.wfile.write(content[: fault.cut_after] if fault and fault.cut_after >= 0 else content)
        self.close_connection = bool(fault)
        return None

    def do_GET(self) -> None:
        self._pass_on()

    def do_PUT(self) -> None:
        self._pass_on()

    def do_POST(self) -> None:
        self._pass_on()

    def do_DELETE(self) -> None:
        self._pass_on()

    def do_HEAD(self) -> None:
        self._pass_on()


class Aws:
    """A bucket, its gate, and the metadata service."""

    def __init__(self, moto: str, bucket: str, gate: Gate, imds: Imds) -> None:
        self.bucket = bucket
        self.gate = gate
        self.imds = imds
        self._moto = moto
        self.s3 = self._client(REGION)
        self.s3.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": REGION})

    @property
    def store_url(self) -> str:
        return f"s3://{self.bucket}/runs?region={REGION}&endpoint={self.gate.url}&owner={ACCOUNT}"

    def publish(self, bucket: str, *, region: str, files: dict[str, bytes]) -> None:
        """Make another account's bucket that everybody may read."""
        s3 = self._client(region)
        s3.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": region})
        arn = f"arn:aws:s3:::{bucket}"
        reading = {"Effect": "Allow", "Principal": "*", "Action": ["s3:GetObject", "s3:ListBucket"]}
        policy = {"Version": "2012-10-17", "Statement": [{**reading, "Resource": [arn, f"{arn}/*"]}]}
        s3.put_bucket_policy(Bucket=bucket, Policy=json.dumps(policy))
        for name, content in files.items():
            # In addition to the policy, which moto doesn't check for a HEAD.
            s3.put_object(Bucket=bucket, Key=name, Body=content, ACL="public-read")
        s3.close()
        self.gate.rules.give_away(bucket)

    def read(self, key: str) -> bytes | None:
        try:
            return bytes(self.s3.get_object(Bucket=self.bucket, Key=key)["Body"].read())
        except self.s3.exceptions.NoSuchKey:
            return None

    def write(self, key: str, content: bytes) -> None:
        self.s3.put_object(Bucket=self.bucket, Key=key, Body=content)

    def keys(self, prefix: str = "") -> list[str]:
        pages = self.s3.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=prefix)
        return [entry["Key"] for page in pages for entry in page.get("Contents", ())]

    def _client(self, region: str) -> Any:
        return boto3.client(
            "s3", endpoint_url=self._moto, region_name=region, aws_access_key_id="laptop", aws_secret_access_key="s"
        )

    def unfinished(self) -> int:
        """List multipart uploads that were neither completed nor aborted."""
        return len(self.s3.list_multipart_uploads(Bucket=self.bucket).get("Uploads", ()))


@contextmanager
def running_aws(moto: str, bucket: str) -> Iterator[Aws]:
    gate, imds = Gate(moto), Imds()
    with _serving(_GateHandler, gate) as gate.url, _serving(_ImdsHandler, imds) as imds.url:
        aws = Aws(moto, bucket, gate, imds)
        yield aws
        aws.s3.close()


def _stamp(at: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))
