"""`hf://[datasets/]OWNER/NAME[@REVISION][/PATH]`: downloads a data set or a model from the Hugging Face Hub.

Source: huggingface_hub 2.4, hf_api.py (`repo_info`, `list_repo_tree`), utils/_pagination.py, utils/_http.py and
constants.py, read in November 2026. Large files redirect to a CDN, which never gets the token.
"""

from __future__ import annotations

import json
import re
from http.client import HTTPResponse
from typing import Any
from urllib.parse import quote, urljoin

from ...base.errors import AgentError
from ...s3.retry import RetryBudget, retry
from .address import HubAddress, parse_hub
from .refusals import Access, explain
from .task import FetchedSource, Task
from .transfer import Checksum, Transfer, Wanted
from .web import Web, WebError, passes

_ENDPOINT = "https://huggingface.co"
_SECRET = "HF_TOKEN"  # noqa: S105 - a name
_NEXT = re.compile(r'<([^>]+)>\s*;\s*rel="?next"?')


def fetch(task: Task) -> FetchedSource:
    """Download a repository's files, or those below its path, at the commit that its revision means now.

    Raises:
        AgentError: the Hub refuses, the repository or path doesn't exist, or a file fails its checksum.
        OSError: the Hub can't be reached.
    """
    repository = parse_hub(task.address)
    token = task.credential(_SECRET)
    home = task.setting("HF_ENDPOINT").rstrip("/") or _ENDPOINT
    hub = _Hub(home, token, repository, task.retry_seconds)
    try:
        return _download(task, hub, repository)
    except WebError as err:
        gate = f"ask for access at {home}/{hub.page}, if it is gated"
        what = f"{repository.name}@{repository.revision} on the Hub"
        raise explain(err, Access(what, _SECRET, is_sent=bool(token), hint=gate)) from err


def _download(task: Task, hub: _Hub, repository: HubAddress) -> FetchedSource:
    commit = hub.commit()
    task.draft.begin_anew(commit)
    entries, base = hub.files(commit)
    if not entries:
        raise AgentError(
            f"{repository.name} has nothing at {repository.path or '/'}", fix="correct the address in `data`"
        )
    transfer = Transfer(task.draft, task.progress, lambda: RetryBudget(task.retry_seconds, passes))
    transfer.download_all([hub.wanted(entry, commit, base) for entry in entries])
    only = entries[0]["path"] == repository.path
    return FetchedSource(task.draft.place(entries[0]["path"].removeprefix(base)) if only else task.draft.whole, commit)


class _Hub:
    """One repository, through the Hub's HTTP API."""

    def __init__(self, home: str, token: str, repository: HubAddress, retry_seconds: float) -> None:
        self._home = home
        self._web = Web(home, f"Bearer {token}" if token else "")
        self._repository = repository
        self._retry_seconds = retry_seconds
        self._api = f"{home}/api/{repository.kind}/{repository.name}"
        self.page = f"datasets/{repository.name}" if repository.kind == "datasets" else repository.name

    def commit(self) -> str:
        """Return the commit that the revision means now."""
        answer, _ = self._ask(f"{self._api}/revision/{quote(self._repository.revision, safe='')}")
        return str(answer["sha"])

    def files(self, commit: str) -> tuple[list[dict[str, Any]], str]:
        """List the wanted files, and the prefix to remove from their names."""
        path = self._repository.path
        if not path:
            return self._tree(commit, "", recursive=True), ""
        parent = path.rpartition("/")[0]
        found = next((entry for entry in self._tree(commit, parent, recursive=False) if entry["path"] == path), None)
        if found is None:
            return [], ""
        if found["type"] == "file":
            return [found], f"{parent}/" if parent else ""
        return self._tree(commit, path, recursive=True), f"{path}/"

    def wanted(self, entry: dict[str, Any], commit: str, base: str) -> Wanted:
        """Describe the download of one tree entry; large files have a SHA-256, others git's hash."""
        url = f"{self._home}/{self.page}/resolve/{commit}/{quote(entry['path'])}"
        large = entry.get("lfs") or {}
        checksum = Checksum("sha256", large["oid"]) if large else Checksum("git", entry["oid"])
        size = int(large.get("size", entry["size"]))
        # The commit is in the URL, so the content never changes.
        opener = self._web.opener(url, is_pinned=True)
        return Wanted(path=entry["path"].removeprefix(base), open=opener, bytes=size, checksum=checksum)

    def _tree(self, commit: str, path: str, *, recursive: bool) -> list[dict[str, Any]]:
        below = f"/{quote(path, safe='')}" if path else ""
        url = f"{self._api}/tree/{commit}{below}?recursive={recursive}&expand=False"
        found: list[dict[str, Any]] = []
        while url:
            page, url = self._ask(url)
            found += page
        return [entry for entry in found if entry["type"] == "file" or not recursive]

    def _ask(self, url: str) -> tuple[Any, str]:
        """Return the Hub's answer, and the URL of the next page; empty if there is none."""

        def once() -> tuple[Any, str]:
            with self._web.open(url) as response:
                return json.loads(response.read()), _next_page(url, response)

        try:
            return retry(once, RetryBudget(self._retry_seconds, passes))
        except ValueError as err:
            raise AgentError("the Hub's answer can't be read", why=str(err)) from err


def _next_page(url: str, response: HTTPResponse) -> str:
    found = _NEXT.search(response.headers.get("Link") or "")
    return urljoin(url, found[1]) if found else ""
