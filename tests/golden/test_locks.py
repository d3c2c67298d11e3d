"""What kedge installs is locked by hash, and what kedge is built into says what it holds."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from locks.write import EXTRAS, LOCKED, MACHINE, ROOT, describe, read_pins, render_locked, requirements

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
# Once for each version of a package: a name, a version, perhaps a marker, and its files.
ENTRY = re.compile(r"[A-Za-z0-9._-]+==[^\s;]+( ; [^\\\n]+)?( \\\n    --hash=sha256:[0-9a-f]{64})+\n")


def read(lock: str) -> str:
    return (ROOT / "locks" / f"{lock}.txt").read_text()


@pytest.mark.parametrize("lock", [*EXTRAS, "machine"])
def test_a_lock_holds_hashes_and_names_no_index(lock: str) -> None:
    """Every line is a version or a hash of its files: no address, no option, no file of this computer's."""
    text = read(lock)
    assert ENTRY.sub("", text) == ""
    assert "://" not in text
    assert len(read_pins(text)) >= (len(MACHINE) if lock == "machine" else 40)


def test_the_agent_installs_what_is_locked_for_machines() -> None:
    """It brings no files but modules, so that it says the same in one; `make lock` writes both."""
    assert [name for name, _version in read_pins(read("machine"))] == list(MACHINE)
    assert LOCKED.read_text() == render_locked(read("machine"))


@pytest.mark.parametrize("lock", EXTRAS)
def test_a_lock_has_what_the_project_asks_for(lock: str) -> None:
    """In a version that it allows; a dependency that was added and not locked fails here."""
    pins: dict[str, list[str]] = {}
    for name, version in read_pins(read(lock)):
        pins.setdefault(canonicalize_name(name), []).append(version)
    for line in requirements(PROJECT, EXTRAS[lock]):
        wanted = Requirement(line)
        found = pins.get(canonicalize_name(wanted.name), [])
        assert any(wanted.specifier.contains(version) for version in found), f"{line}: {found}; run `make lock`"


@pytest.mark.parametrize("lock", EXTRAS)
def test_torch_is_in_no_lock(lock: str) -> None:
    """Machines keep the one that fits their driver, with its CUDA libraries."""
    names = {canonicalize_name(name) for name, _version in read_pins(read(lock))}
    assert not {name for name in names if name in {"torch", "triton"} or name.startswith("nvidia-")}


def test_the_locks_agree() -> None:
    """What runs on a laptop is what is tested: the same version of each package in all of them."""
    tested = set(read_pins(read("tests")))
    assert set(read_pins(read("kedge"))) <= tested
    assert set(read_pins(read("trainer"))) <= tested


def test_the_bill_of_materials_is_the_lock() -> None:
    """The wheel carries it; `make lock` writes both."""
    about = PROJECT["project"]
    written = (ROOT / "locks" / "kedge.cdx.json").read_text()
    assert written == describe(about["name"], about["version"], read_pins(read("kedge")))
    purls = [component["purl"] for component in json.loads(written)["components"]]
    assert len(purls) == len(set(purls))


def test_every_action_of_a_workflow_is_pinned_by_commit() -> None:
    """A tag can be moved to another commit by whoever takes over the action's repository."""
    used = [
        line.partition("uses:")[2].strip()
        for path in (*Path(ROOT / "infra").rglob("*.y*ml"), *Path(ROOT / ".github").rglob("*.y*ml"))
        for line in path.read_text().splitlines()
        if "uses:" in line
    ]
    assert used
    assert all(re.fullmatch(r"[\w.-]+/[\w./-]+@[0-9a-f]{40} # v[\d.]+", action) for action in used), used
