"""Golden files: what kedge sends to clouds and writes to disks, for people to read and tests to compare with."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cloudbox.digitalocean.box import DigitalOceanBox

GOLDEN = Path(__file__).parent / "golden"
START = datetime(2031, 3, 4, 5, 6, 7, 891011, tzinfo=UTC)
"""When every life of a golden file begins."""
AGENT = b"the agent's archive"
"""In the place of the real one, whose digest changes with every line of the agent."""

_MODULES = re.compile(r'(?:  - path: "[^\n]*/kedge_agent/[^\n]*\n    content: [^\n]*\n(?:      [^\n]*\n|\n)*)+')


class FixedClock:
    """A clock that begins at START. A sleep returns at once, and advances it and the box."""

    def __init__(self, box: DigitalOceanBox | None = None) -> None:
        self._now = START
        self._box = box

    def now(self) -> datetime:
        return self._now

    def sleep(self, duration: timedelta) -> None:
        self._now += duration
        if self._box is not None:
            self._box.advance(duration.total_seconds())


@dataclass(frozen=True)
class Golden:
    """The golden files. A result that differs from its file is written to a folder of the test."""

    came_out: Path

    def read(self, name: str) -> Any:
        """Read a golden file as JSON."""
        return json.loads((GOLDEN / name).read_text())

    def compare(self, name: str, value: object) -> None:
        """Compare a value that JSON can represent with a golden file."""
        self.compare_text(name, json.dumps(value, indent=2, ensure_ascii=False) + "\n")

    def compare_text(self, name: str, text: str) -> None:
        """Compare a text with a golden file."""
        golden, came_out = GOLDEN / name, self.came_out / Path(name).name
        before = golden.read_text() if golden.exists() else ""
        if text != before:
            came_out.write_text(text)
            changes = difflib.unified_diff(before.splitlines(), text.splitlines(), name, "now", lineterm="")
            pytest.fail("\n".join(("if the change is intended:", f"cp {came_out} {golden}", *changes)), pytrace=False)


def name_all(value: Any, names: Mapping[str, str]) -> Any:
    """Replace what differs in each run by names: ids that the cloud assigns, keys, addresses of the box."""
    text = json.dumps(value, ensure_ascii=False)
    # The longest first: a short value may be a part of a longer one.
    for found in sorted(names, key=len, reverse=True):
        text = text.replace(json.dumps(found, ensure_ascii=False)[1:-1], names[found])
    return json.loads(text)


def read_user_data(text: str, names: Mapping[str, str]) -> str:
    """Return user-data as in the golden file, without the machine's own key and the agent's source."""
    keys = yaml.safe_load(text)["ssh_keys"]
    for kind, key in keys.items():
        text = text.replace(json.dumps(key), json.dumps(f"<{kind}>"))
    text = text.replace(keys["ecdsa_public"], "<ecdsa_public>")
    for found in sorted(names, key=len, reverse=True):
        text = text.replace(found, names[found])
    return _MODULES.sub("  # here the agent's own modules\n", text)


def state_files(folder: Path) -> list[str]:
    """List the files of a state folder."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
