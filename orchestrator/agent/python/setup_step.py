"""Decides whether `setup` has to run, and records what it depended on.

It runs again when its text, its variables, its inputs or the Python environment have changed; and in the folder of new
code, if what it did is tied to the folder of the old one. Values of variables are recorded only as salted hashes.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..base.files import read_json, write_json
from ..base.layout import Layout
from ..base.wire import RunConfig
from ..code.releases import originals
from .code_ties import Tree, find_in_setup, find_installed, find_written, read_sent_tree, read_tree
from .job_env import read_job_environment
from .setup_inputs import find_inputs, find_unmatched, find_variables, texts_of

_FORMAT = 2
"""Format 1, of older agents, counts as no record: then `setup` runs."""
_NAMED = 3
_CHUNK_BYTES = 1 << 20


def last_setup(layout: Layout) -> str:
    """Return what identifies the last run of `setup` on this machine; empty for none."""
    return str(read_json(layout.note("setup")).get("run", ""))


class SetupStep:
    """The `setup` of one attempt.

    Args:
        layout: the machine's paths.
        config: the run's configuration.
        release: the code's folder.
    """

    def __init__(self, layout: Layout, config: RunConfig, release: Path) -> None:
        self._layout = layout
        self._setup = config.setup
        self._release = release
        self._inputs = find_inputs(release, config.setup, config.setup_inputs)
        self._unmatched = find_unmatched(release, config.setup_inputs)
        self._file = layout.note("setup")
        self._last = _read_record(self._file)
        self._salt = str(self._last.get("salt") or secrets.token_hex(16))
        self._is_new_code = self._last.get("release") != release.name
        self._now = self._describe({**config.envs, **config.secrets})
        self._before: Tree = {}
        self._why = self._find_reason() if self._last else ""

    @property
    def is_due(self) -> bool:
        """Whether it has to run."""
        return not self._last or bool(self._why)

    @property
    def remark(self) -> str:
        """What the log says about it; empty if nothing has changed since its last run."""
        if self.is_due:
            missing = "".join(
                f"; no file of the code matches {pattern!r} of setup_inputs" for pattern in self._unmatched
            )
            return (f"setup runs again: {self._why}" if self._last else "setting up") + missing
        same = "its text, its variables and the files it depends on are the same"
        return f"setup is not repeated for the new code: {same}" if self._is_new_code else ""

    def skip(self) -> None:
        """Record that the last run is good for this code, too."""
        if self._is_new_code:
            self._write(is_done=True, tie="")

    def begin(self) -> None:
        """Record that it runs, before it does: a run that is killed has to be repeated."""
        was_cut_short = not self._is_new_code and not self._last["done"]
        self._before = read_sent_tree(self._release) if was_cut_short else read_tree(self._release)
        self._write(is_done=False, tie=self._known_tie())

    def finish(self) -> None:
        """Record that it has succeeded, and whether that is tied to the code's folder."""
        self._now["run"] = secrets.token_hex(8)
        self._write(is_done=True, tie=self._known_tie() or self._find_tie())

    def _find_reason(self) -> str:
        if not self._last["done"]:
            return "it has not succeeded yet"
        if self._last["text"] != self._now["text"]:
            return "its text has changed"
        if self._last["python"] != self._now["python"]:
            return "its Python environment was made anew"
        if names := _differences(self._last["variables"], self._now["variables"]):
            return f"{names} changed"
        if paths := _differences(self._last["inputs"], self._now["inputs"]):
            return f"{paths} changed"
        return str(self._last["tie"]) if self._is_new_code else ""

    def _known_tie(self) -> str:
        """Return what an earlier run in the same folder has tied to it."""
        return "" if self._is_new_code else str(self._last["tie"])

    def _find_tie(self) -> str:
        return (
            find_written(self._before, read_tree(self._release))
            or find_installed(self._layout, self._release)
            or find_in_setup(self._release, self._setup, texts_of(self._release, self._inputs))
        )

    def _describe(self, variables: Mapping[str, str]) -> dict[str, Any]:
        made = read_job_environment(self._layout)
        used = find_variables(self._release, self._setup, self._inputs, variables)
        return {
            "format": _FORMAT,
            "salt": self._salt,
            "text": self._hash_text(self._setup),
            "python": made.identity if made else "",
            "variables": {name: self._hash_text(f"{name}={variables[name]}") for name in used},
            "inputs": {path: self._hash_input(path) for path in self._inputs},
            "release": self._release.name,
            "run": self._last.get("run", ""),
        }

    def _write(self, *, is_done: bool, tie: str) -> None:
        write_json(self._file, {**self._now, "done": is_done, "tie": tie}, mode=0o600, durable=True)

    def _hash_text(self, text: str) -> str:
        return hmac.new(self._salt.encode(), text.encode(errors="surrogateescape"), "sha256").hexdigest()

    def _hash_input(self, path: str) -> str:
        """Hash a file as it was sent: in a folder where `setup` has run, it may have changed the file."""
        if not self._is_new_code and path in self._last["inputs"]:
            return str(self._last["inputs"][path])
        hashed = hmac.new(self._salt.encode(), digestmod="sha256")
        try:
            with open(originals(self._release)(path), "rb") as stream:  # noqa: PTH123 - `originals` has strings
                while chunk := stream.read(_CHUNK_BYTES):
                    hashed.update(chunk)
        except OSError as err:
            return f"can't be read: {err.errno}"
        return hashed.hexdigest()


def _read_record(file: Path) -> dict[str, Any]:
    """Return the last run's record; empty for none, or for one of an older agent."""
    found = read_json(file)
    kinds = {"salt": str, "text": str, "python": str, "variables": dict, "inputs": dict, "release": str, "tie": str}
    is_ours = found.get("format") == _FORMAT and all(isinstance(found.get(key), kind) for key, kind in kinds.items())
    return found if is_ours and isinstance(found.get("done"), bool) else {}


def _differences(last: Mapping[str, str], now: Mapping[str, str]) -> str:
    """Name what has changed; empty for nothing."""
    names = sorted(name for name in {*last, *now} if last.get(name) != now.get(name))
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(name if name.isprintable() else ascii(name) for name in names[:_NAMED]) + more
