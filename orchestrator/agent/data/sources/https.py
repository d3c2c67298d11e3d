"""`https://host/path/file[#sha256=...][&unpack]`: downloads one file from a web server, and unpacks an archive."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from ...base.files import read_json, write_json
from ...s3.retry import RetryBudget
from .address import parse_web
from .refusals import Access, explain
from .task import FetchedSource, Task
from .transfer import Checksum, Transfer, Wanted
from .unpack import unpack
from .web import Web, WebError, passes, shown


def fetch(task: Task) -> FetchedSource:
    """Download the file, verify it, and unpack it if the address says so.

    Raises:
        AgentError: the server refuses, or the file fails its checksum.
        OSError: the server can't be reached.
    """
    wanted = parse_web(task.address)
    checksum = Checksum("sha256", wanted.sha256) if wanted.sha256 else None
    access = Access(
        shown(wanted.url), hint="kedge sends web servers no credentials: use a signed address, or fetch in `setup`"
    )
    return download_file(task, Web(), wanted.url, access, checksum=checksum, unpacks=wanted.unpacks)


def download_file(
    task: Task, web: Web, url: str, access: Access, *, checksum: Checksum | None = None, unpacks: bool = False
) -> FetchedSource:
    """Download a single file.

    Raises:
        AgentError: the server refuses, or the file fails its checksum.
        OSError: the server can't be reached.
    """
    name = unquote(urlsplit(url).path.rpartition("/")[2]).replace("/", "_")
    file = Wanted(path=name if name.strip(".") else "data", open=web.opener(url), checksum=checksum)
    transfer = Transfer(task.draft, task.progress, lambda: RetryBudget(task.retry_seconds, passes))
    try:
        path, tag = _download_once(task, transfer, file)
    except WebError as err:
        raise explain(err, access) from err
    version = f"sha256:{checksum.digest}" if checksum else tag
    return FetchedSource(unpack(path, task.draft, task.progress) if unpacks else path, version)


def _download_once(task: Task, transfer: Transfer, file: Wanted) -> tuple[Path, str]:
    """Download a file, unless an earlier attempt that was interrupted while unpacking has it complete."""
    path, note = task.draft.place(file.path), task.draft.folder / "tag.json"
    known = read_json(note)
    if known and path.exists():
        return path, str(known["tag"])
    path, tag = transfer.download(file)
    write_json(note, {"tag": tag})
    return path, tag
