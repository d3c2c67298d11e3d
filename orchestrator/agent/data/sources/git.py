"""`git+https://host/repo.git@COMMIT`: downloads the files of one commit or tag, without history.

The token is never in argv or in the repository's configuration: git gets it from a credential helper that reads the
environment, and only for the repository's own host (gitcredentials(7)).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

from ...base.errors import AgentError
from ...s3.retry import RetryBudget, retry
from .address import parse_git
from .draft import full_disk, writing
from .task import FetchedSource, Task
from .transfer_progress import TransferProgress
from .web import require_safe

_COMMIT = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
_LOOK_SECONDS = 1.0
_LONGEST_SECONDS = 6 * 3600.0
# Source: git-config(1), http.lowSpeedLimit and http.lowSpeedTime: a stalled transfer is aborted.
_STALLED = {"http.lowSpeedLimit": "1000", "http.lowSpeedTime": "60"}
_HELPER = '!f() { test "$1" = get && printf "username=%s\\npassword=%s\\n" "$KEDGE_GIT_USER" "$KEDGE_GIT_TOKEN"; }; f'
_LOCKED = ("could not read Username", "Authentication failed", "error: 401", "error: 403")
_MISSING = ("error: 404", "not found")
_NO_REF = ("couldn't find remote ref", "not our ref", "unadvertised object", "no such ref")


def fetch(task: Task) -> FetchedSource:
    """Download the files of a commit.

    Raises:
        AgentError: git isn't installed, the repository or commit doesn't exist, or it is private.
        OSError: the server can't be reached.
    """
    url, ref = parse_git(task.address)
    require_safe(url)
    if shutil.which("git") is None:
        raise AgentError(
            "this machine has no git", why=f"{url} needs it", fix="choose an image with git, or use https://"
        )
    repository = _Repository(task, url, ref)
    commit = repository.check_out()
    return FetchedSource(task.draft.whole, commit)


class _Repository:
    def __init__(self, task: Task, url: str, ref: str) -> None:
        self._task = task
        self._url = url
        self._ref = ref
        self._token = task.credential("GIT_TOKEN")
        self._folder = task.draft.whole
        self._metadata = task.draft.folder / "git"

    def check_out(self) -> str:
        """Check out the commit's files, and return its hash."""
        self._begin()
        budget = RetryBudget(self._task.retry_seconds, lambda err: isinstance(err, ConnectionError))
        retry(lambda: self._call("fetch", "--quiet", "--depth=1", "--no-tags", self._url, self._wanted()), budget)
        self._call("checkout", "--quiet", "--force", "--detach", "FETCH_HEAD")
        commit = self._call("rev-parse", "HEAD").strip()
        shutil.rmtree(self._metadata)
        self._count()
        return commit

    def _begin(self) -> None:
        for folder in (self._folder, self._metadata):
            shutil.rmtree(folder, ignore_errors=True)
        with writing():
            self._folder.mkdir(parents=True)
        self._call("init", "--quiet")

    def _wanted(self) -> str:
        # Only commits and tags: a branch means something else tomorrow.
        return self._ref if _COMMIT.fullmatch(self._ref) else f"refs/tags/{self._ref}"

    def _call(self, *argv: str) -> str:
        try:
            return _run(["git", *argv], self._environment(), self._folder, self._metadata, self._task.progress)
        except subprocess.CalledProcessError as err:
            raise self._explain(str(err.stderr)) from err

    def _environment(self) -> dict[str, str]:
        known = {name: text for name, text in os.environ.items() if not name.startswith("GIT_")}
        settings = [*_STALLED.items()]
        host = "{0.scheme}://{0.netloc}".format(urlsplit(self._url))
        if self._token:
            settings += [(f"credential.{host}.helper", ""), (f"credential.{host}.helper", _HELPER)]
        for number, (name, text) in enumerate(settings):
            known |= {f"GIT_CONFIG_KEY_{number}": name, f"GIT_CONFIG_VALUE_{number}": text}
        return {
            **known,
            "GIT_CONFIG_COUNT": str(len(settings)),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_ALLOW_PROTOCOL": urlsplit(self._url).scheme,
            "GIT_DIR": str(self._metadata),
            "GIT_WORK_TREE": str(self._folder),
            "GIT_TERMINAL_PROMPT": "0",
            "KEDGE_GIT_USER": self._task.credential("GIT_USERNAME") or "x-access-token",
            "KEDGE_GIT_TOKEN": self._token,
            "LC_ALL": "C",
        }

    def _explain(self, said: str) -> Exception:
        why = " ".join(said.split())[-300:]
        if any(words in said for words in _LOCKED):
            sent = "check that GIT_TOKEN is right and may read it"
            fix = sent if self._token else "name GIT_TOKEN under `secrets`, and set it in your shell before the launch"
            return AgentError(f"access to {self._url} was denied", why=why, fix=fix)
        if any(words in said for words in _NO_REF):
            fix = "write the full commit or a tag: a branch moves, so that nobody would know what was trained on"
            return AgentError(f"{self._url} has no commit or tag {self._ref}", why=why, fix=fix)
        if any(words in said for words in _MISSING):
            fix = "correct the address in `data`; if it is private, name GIT_TOKEN under `secrets`"
            return AgentError(f"{self._url} does not exist", why=why, fix=fix)
        if "No space left" in said:
            return full_disk(why)
        return ConnectionError(f"git says: {why}")

    def _count(self) -> None:
        size, files = _measure(self._folder)
        self._task.progress.set(size)
        for _ in range(files):
            self._task.progress.add_file()


def _run(argv: list[str], env: dict[str, str], folder: Path, growing: Path, progress: TransferProgress) -> str:
    with subprocess.Popen(
        argv, cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        left = _LONGEST_SECONDS
        while True:
            try:
                out, complaint = process.communicate(timeout=_LOOK_SECONDS)
                break
            except subprocess.TimeoutExpired:
                left -= _LOOK_SECONDS
                progress.set(_measure(growing)[0])
                if left <= 0:
                    process.kill()
    if process.returncode != 0:
        raise subprocess.CalledProcessError(process.returncode, argv, out, complaint)
    return out


def _measure(folder: Path) -> tuple[int, int]:
    """Return bytes and number of the files below a folder that another process is changing."""
    size = count = 0
    for here, _, names in os.walk(folder):
        for name in names:
            try:
                size += (Path(here) / name).lstat().st_size
            except FileNotFoundError:
                continue
            count += 1
    return size, count
