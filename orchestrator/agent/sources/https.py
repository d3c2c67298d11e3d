"""`https://host/path/file[#sha256=...][&unpack]`: one file of a web server, or an archive's content."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import parse_qs, unquote, urldefrag, urlsplit

from ..files import read_json, write_json
from ..s3client import Patience
from .refusals import Access, explain
from .task import Fetched, Task
from .transfer import Checksum, Transfer, Wanted
from .unpack import unpack
from .web import Web, WebError, passes, shown


def fetch(task: Task) -> Fetched:
    """Fetch the file, verify it, and unpack it where the address says so.

    Raises:
        AgentError: the server refuses, or the file isn't what it should be.
        OSError: the server can't be reached.
    """
    url, fragment = urldefrag(task.address)
    asked = parse_qs(fragment, keep_blank_values=True)
    checksum = Checksum("sha256", asked["sha256"][-1]) if "sha256" in asked else None
    access = Access(
        shown(url), hint="kedge sends web servers no credentials: use a signed address, or fetch in `setup`"
    )
    return bring_file(task, Web(), url, access, checksum=checksum, unpacks="unpack" in asked)


def bring_file(
    task: Task, web: Web, url: str, access: Access, *, checksum: Checksum | None = None, unpacks: bool = False
) -> Fetched:
    """Bring a single file of the web.

    Raises:
        AgentError: the server refuses, or the file isn't what it should be.
        OSError: the server can't be reached.
    """
    name = unquote(urlsplit(url).path.rpartition("/")[2]).replace("/", "_")
    file = Wanted(path=name if name.strip(".") else "data", open=web.opener(url), checksum=checksum)
    transfer = Transfer(task.draft, task.tally, lambda: Patience(task.patience, passes))
    try:
        path, tag = _bring_once(task, transfer, file)
    except WebError as err:
        raise explain(err, access) from err
    version = f"sha256:{checksum.digest}" if checksum else tag
    return Fetched(unpack(path, task.draft, task.tally) if unpacks else path, version)


def _bring_once(task: Task, transfer: Transfer, file: Wanted) -> tuple[Path, str]:
    """Bring a file, unless an attempt that was cut while it unpacked has left it whole."""
    path, note = task.draft.place(file.path), task.draft.folder / "tag.json"
    known = read_json(note)
    if known and path.exists():
        return path, str(known["tag"])
    path, tag = transfer.bring(file)
    write_json(note, {"tag": tag})
    return path, tag
