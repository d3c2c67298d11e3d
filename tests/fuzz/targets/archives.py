"""Archives: code that an agent receives, the agent itself, kept kernels, and other people's data with `unpack`.

An input is an archive, or a description of one in JSON: checksums would stop most mutated bytes.

Promises: nothing outside of the target changes, no link in it leads out, nothing is setuid or a special file, and a
refusal is an error of the agent's.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import json
import lzma
import os
import stat
import warnings
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from orchestrator.agent.base.errors import AgentError
from orchestrator.agent.base.layout import Layout
from orchestrator.agent.base.tar_stream import DAMAGED
from orchestrator.agent.bootstrap import _FAILURES as BOOT_FAILURES
from orchestrator.agent.bootstrap import _unpack as unpack_agent
from orchestrator.agent.code.receive import receive
from orchestrator.agent.code.releases import current
from orchestrator.agent.data.sources.draft import SourceDraft
from orchestrator.agent.data.sources.transfer_progress import TransferProgress
from orchestrator.agent.data.sources.unpack import unpack
from orchestrator.agent.run.caches import _unpack as unpack_kernels
from tests.fuzz.target import Target
from tests.fuzz.trees import guarded, require_inside, walk

_BLOCK = 512
_MOST_BYTES = 1 << 20
_KINDS = {"file": b"0", "hard": b"1", "link": b"2", "char": b"3", "block": b"4", "dir": b"5", "fifo": b"6"}
_KINDS |= {"pax": b"x", "global": b"g", "longname": b"L", "longlink": b"K", "sparse": b"S", "old": b"\0", "odd": b"Z"}
_PACKERS: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress}


def _run(data: bytes, folder: Path) -> None:
    plain, packed = _archives(data)
    with guarded(folder, "receive", "bootstrap", "kernels", "draft", "archive"):
        with contextlib.suppress(AgentError, OSError):
            _receive(plain, folder / "receive")
        with contextlib.suppress(*BOOT_FAILURES):
            unpack_agent(packed, folder / "bootstrap")
        with contextlib.suppress(OSError, AgentError, *DAMAGED):
            unpack_kernels(io.BytesIO(packed), folder / "kernels")
        for made in ("bootstrap", "kernels"):
            _require_plain(folder / made)
            assert not any(os.path.islink(path) for path in walk(folder / made))  # noqa: PTH114 - as in walk
        with contextlib.suppress(AgentError):
            _unpack(packed, folder)


def _receive(content: bytes, root: Path) -> None:
    layout = Layout(root)
    layout.prepare()
    # A release lies two folders below.
    with _silent(), guarded(root, "results", "releases", "data", "code", ".receive.lock"):
        receive(layout, contextlib.nullcontext(io.BytesIO(content)))
    release = current(layout)
    assert release is not None
    _require_plain(release)


def _unpack(content: bytes, folder: Path) -> None:
    archive = folder / "archive"
    archive.write_bytes(content)
    draft = SourceDraft(folder / "draft")
    draft.prepare()
    try:
        made = unpack(archive, draft, TransferProgress("x", lambda _text: None))
    finally:
        assert not archive.exists()
    _require_plain(made)


def _require_plain(folder: Path) -> None:
    require_inside(folder)
    for path in walk(folder):
        status = os.lstat(path)
        assert not stat.S_ISREG(status.st_mode) or stat.S_IMODE(status.st_mode) & 0o7133 in {0, 0o111}, path


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    with contextlib.redirect_stdout(io.StringIO()):
        yield


def _archives(data: bytes) -> tuple[bytes, bytes]:
    """Return an input as an uncompressed tar (for code that gets it decompressed), and as it is."""
    if not data.startswith(b"{"):
        return data, data
    try:
        described = json.loads(data)
    except (ValueError, RecursionError):
        return data, data
    if described.get("kind") == "zip":
        made = _zip(described)
        return made, made
    plain = _tar(described)
    pack = _PACKERS.get(str(described.get("packed")))
    return plain, pack(plain) if pack else plain


def _tar(described: dict[str, Any]) -> bytes:
    made = b"".join(_tar_member(each) for each in _members(described))
    if "manifest" in described:
        content = described["manifest"]
        text = content if isinstance(content, str) else json.dumps(content)
        made += _tar_member({"name": ".kedge-manifest.json", "content": text})
    return made + bytes(2 * _BLOCK) + _bytes(described.get("tail"))


def _members(described: dict[str, Any]) -> list[dict[str, Any]]:
    members = described.get("members")
    return [each for each in members if isinstance(each, dict)][:200] if isinstance(members, list) else []


def _tar_member(member: dict[str, Any]) -> bytes:
    content = _content(member)
    header = bytearray(_BLOCK)

    def put(at: int, length: int, value: bytes) -> None:
        header[at : at + length] = value[:length].ljust(length, b"\0")

    put(0, 100, _bytes(member.get("name")))
    put(100, 8, _number(member.get("mode", 0o644), 8))
    put(124, 12, _number(member.get("size", len(content)), 12))
    put(136, 12, _number(member.get("mtime", 1_700_000_000), 12))
    put(156, 1, _KINDS.get(str(member.get("type", "file")), b"0"))
    put(157, 100, _bytes(member.get("link")))
    put(257, 8, b"ustar\x0000")
    put(345, 155, _bytes(member.get("prefix")))
    if member.get("type") == "sparse":
        put(386, 12, _number(0, 12))
        put(398, 12, _number(len(content), 12))
        put(483, 12, _number(member.get("real", len(content)), 12))
    put(148, 8, b" " * 8)
    put(148, 8, b"%06o\0 " % sum(header))
    return bytes(header) + content + bytes(-len(content) % _BLOCK)


def _content(member: dict[str, Any]) -> bytes:
    records = member.get("pax")
    if isinstance(records, dict):
        return b"".join(_pax_record(_bytes(name), _bytes(value)) for name, value in records.items())
    times = member.get("times", 1)
    content = _bytes(member.get("content"))
    return (content * max(1, times) if isinstance(times, int) and times * len(content) < _MOST_BYTES else content)[
        :_MOST_BYTES
    ]


def _pax_record(name: bytes, value: bytes) -> bytes:
    body = b" %b=%b\n" % (name, value)
    length = len(body)
    while len(b"%d" % length) + len(body) != length:
        length = len(b"%d" % length) + len(body)
    return b"%d%b" % (length, body)


def _number(value: object, length: int) -> bytes:
    """Write a number as tar does: octal digits, larger ones in base 256, or any given text."""
    if isinstance(value, bool) or not isinstance(value, int):
        return _bytes(value)
    if 0 <= value < 8 ** (length - 1):
        return b"%0*o\0" % (length - 1, value)
    most: int = 1 << 8 * (length - 1)
    return bytes([0x80 if value >= 0 else 0xFF]) + (value % most).to_bytes(length - 1, "big")


def _bytes(value: object) -> bytes:
    return ("" if value is None else str(value)).encode("utf-8", "surrogatepass")


def _zip(described: dict[str, Any]) -> bytes:
    packed = io.BytesIO()
    with _without_warnings(), contextlib.suppress(ValueError, OverflowError), zipfile.ZipFile(packed, "w") as archive:
        for member in _members(described):
            info = zipfile.ZipInfo(str(member.get("name", "")))
            mode = member.get("mode", 0o644)
            info.external_attr = ((mode if isinstance(mode, int) else 0) & 0xFFFF) << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            content = _bytes(member.get("link")) if member.get("type") == "link" else _content(member)
            archive.writestr(info, content)
    return packed.getvalue() + _bytes(described.get("tail"))


@contextlib.contextmanager
def _without_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a name that occurs twice
        yield


TARGET = Target(
    name="archives",
    run=_run,
    allowed=(),
    tokens=(
        b'"type":"link",',
        b'"type":"hard",',
        b'"type":"sparse",',
        b'"prefix":"',
        b'"pax":{"path":"',
        b"PK\x05\x06",
        b"ustar\x0000",
    ),
    examples=400,
)
