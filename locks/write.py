"""Write the locks: `make lock`, or `make lock ARGS=--upgrade` to take newer versions.

    kedge.txt        what kedge needs on a laptop, and what builds it
    trainer.txt      and what the bundled trainer needs
    tests.txt        and what lints and tests need
    docs.txt         kedge.txt, and what builds the site of docs/
    machine.txt      what the agent installs by itself, on machines that lack it; agent/python/locked.py says the same
    kedge.cdx.json   kedge.txt as a software bill of materials, which the wheel carries

Each file of a package is named by its SHA-256 as the public index has it, and no index is named: whichever one somebody
uses has to have the same files. torch is in none of them: machines keep the one that fits their driver.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
LOCKS = ROOT / "locks"
EXTRAS: dict[str, tuple[str, ...]] = {
    "kedge": (),
    "trainer": ("trainer",),
    "tests": ("trainer", "dev"),
    "docs": ("docs",),
}
"""Which extras of the project each of these locks has."""

TORCH_NEEDS = ("filelock", "fsspec", "jinja2", "networkx", "setuptools", "sympy", "typing-extensions")
"""What every build of torch requires, as its metadata say."""

MACHINE = ("pip", "uv")
"""What the agent installs by itself."""

LOCKED = ROOT / "orchestrator" / "agent" / "python" / "locked.py"
_OLDEST_MACHINE = "3.10"
"""The oldest Python that the agent runs on."""

_PIN = re.compile(r"([A-Za-z0-9._-]+)==(\S+)")
_UNLOCKED = re.compile(r"torch\b")
_OPTIONS = (
    "--no-config",
    "--universal",
    "--generate-hashes",
    "--no-emit-index-url",
    "--no-emit-find-links",
    "--no-header",
    "--no-annotate",
    "--quiet",
)


def read_pins(lock: str) -> list[tuple[str, str]]:
    """Return the names and versions of a lock."""
    return [(found[1], found[2]) for line in lock.splitlines() if (found := _PIN.match(line))]


def requirements(project: dict[str, Any], extras: Sequence[str]) -> list[str]:
    """Return what is asked for before it is locked: the build's, the project's, and the extras'."""
    optional = project["project"]["optional-dependencies"]
    wanted = [*project["build-system"]["requires"], *project["project"]["dependencies"]]
    wanted += [line for extra in extras for line in optional[extra]]
    locked = [line for line in wanted if not _UNLOCKED.match(line)]
    return locked if len(locked) == len(wanted) else [*locked, *TORCH_NEEDS]


def describe(name: str, version: str, pins: Iterable[tuple[str, str]]) -> str:
    """Write a bill of materials, the same for the same lock.

    Source: CycloneDX 1.6, JSON reference; purl's specification, type pypi.
    """
    components = [
        {"type": "library", "name": pin, "version": at, "purl": f"pkg:pypi/{pin.lower().replace('_', '-')}@{at}"}
        for pin, at in pins
    ]
    subject = {"type": "application", "name": name, "version": version, "purl": f"pkg:pypi/{name}@{version}"}
    bill = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": subject},
        "components": components,
    }
    return json.dumps(bill, indent=1) + "\n"


def render_locked(lock: str) -> str:
    """Write the agent's module: it has no other files than modules."""
    texts = dict(zip((name for name, _ in read_pins(lock)), re.split(r"\n(?=[a-z])", lock.rstrip("\n")), strict=True))
    lines = ['"""The locked versions of pip and uv, as requirements with hashes; `make lock` writes this module."""']
    lines += [f'{name.upper()} = """\\\n{text}\n"""'.replace(" \\\n", " \\\\\n") for name, text in texts.items()]
    return "\n\n".join(lines) + "\n"


def main(arguments: Sequence[str]) -> int:
    """Write all of them; what is locked stays where it is, unless an upgrade is asked for."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    oldest = project["project"]["requires-python"].removeprefix(">=")
    for lock, extras in EXTRAS.items():
        _lock(lock, requirements(project, extras), oldest, arguments)
    _lock("machine", MACHINE, _OLDEST_MACHINE, arguments)
    LOCKED.write_text(render_locked((LOCKS / "machine.txt").read_text()))
    about, pins = project["project"], read_pins((LOCKS / "kedge.txt").read_text())
    (LOCKS / "kedge.cdx.json").write_text(describe(about["name"], about["version"], pins))
    return 0


def _lock(lock: str, wanted: Iterable[str], python: str, arguments: Sequence[str]) -> None:
    with tempfile.NamedTemporaryFile("w", suffix=".in") as file:
        file.write("\n".join(wanted) + "\n")
        file.flush()
        uv = [sys.executable, "-m", "uv", "pip", "compile", *_OPTIONS, "--python-version", python, *arguments]
        subprocess.run([*uv, file.name, "-o", str(LOCKS / f"{lock}.txt")], check=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
