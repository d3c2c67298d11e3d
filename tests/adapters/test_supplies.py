"""The script on a machine that unpacks the bundle from the first SSH connection; systemctl is a stand-in."""

from __future__ import annotations

import pwd
import stat
import subprocess
from pathlib import Path

import pytest

from orchestrator.adapters.cloud.boot.bootstrap_bundle import agent_archive, pack_bootstrap_bundle
from orchestrator.adapters.host.templates import render
from orchestrator.core.protocol.readiness import parse_ready
from tests.adapters.first_boot.scratch import ME, Scratch, needs_root

USER_SECRET = '{"access_key": "SPACES-KEY"}'
ROOT_SECRET = 'header = "Authorization: Bearer dop_v1_x"'
WHOLE = pack_bootstrap_bundle(
    "/opt/kedge", agent_archive(), for_user={"spaces.json": USER_SECRET}, for_root={"api.curl": ROOT_SECRET}
)

pytestmark = needs_root


@pytest.fixture
def scratch(tmp_path: Path) -> Scratch:
    return Scratch(tmp_path)


def unpack(scratch: Scratch, content: bytes) -> subprocess.CompletedProcess[bytes]:
    script = scratch.folder / "supply.sh"
    script.write_text(render("boot/supply.sh.j2", root=str(scratch.root), user=ME, state=str(scratch.state)))
    return subprocess.run(
        ["sh", str(script)], input=content, env={"PATH": scratch.path}, capture_output=True, timeout=60, check=False
    )


def left_behind(scratch: Scratch) -> list[str]:
    """List the files that the script has left on the machine."""
    names = ("private", "agent", "bin", "supplied", "ready", "boot.jsonl")
    kept = [str(scratch.root / name) for name in names if (scratch.root / name).exists()]
    return [*kept, *(str(path) for path in scratch.state.glob("*.curl"))]


def test_the_bundle_is_unpacked_to_its_places(scratch: Scratch) -> None:
    """The agent works, only the owner can read each secret, no copy is left, and the boot continues."""
    done = unpack(scratch, WHOLE.content)
    assert (done.returncode, done.stdout.split()[-1:]) == (0, [b"supplied"]), done.stderr
    for path, text in {
        scratch.root / "private/spaces.json": USER_SECRET,
        scratch.state / "api.curl": ROOT_SECRET,
    }.items():
        assert path.read_text() == text
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert path.stat().st_uid == pwd.getpwnam(ME).pw_uid
    assert stat.S_IMODE((scratch.root / "private").stat().st_mode) == 0o700
    assert not (scratch.state / "incoming").exists()
    agent = subprocess.run([str(scratch.root / "bin/kedge-agent"), "code-hash"], capture_output=True, check=False)
    assert agent.returncode == 0, agent.stderr
    assert [(phase["phase"], phase["ok"]) for phase in scratch.phases()] == [("secrets", True), ("agent", True)]
    assert scratch.systemctl_calls[-1] == "--no-block start kedge-boot.service"


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.97, "no mark"])
def test_an_incomplete_bundle_changes_nothing(scratch: Scratch, share: float | str) -> None:
    """Wherever the connection broke, even between two complete files. The next connection succeeds."""
    mark = WHOLE.content.index(b"complete\0")
    cut = WHOLE.content[: mark if share == "no mark" else int(mark * float(share))]
    done = unpack(scratch, cut)
    assert (done.returncode, b"incomplete" in done.stderr) == (1, True)
    assert left_behind(scratch) == []
    assert not any("start" in line for line in scratch.systemctl_calls)
    assert unpack(scratch, WHOLE.content).returncode == 0


def test_a_second_bundle_is_ignored(scratch: Scratch) -> None:
    """A caller who lost the first answer gets it now. The files of a running agent don't change."""
    unpack(scratch, WHOLE.content)
    done = unpack(scratch, pack_bootstrap_bundle("/opt/kedge", b"another", for_root={"api.curl": "other"}).content)
    assert (done.returncode, done.stdout.split()[-1:]) == (0, [b"supplied"])
    assert (scratch.state / "api.curl").read_text() == ROOT_SECRET
    assert len(scratch.phases()) == 2


def test_a_machine_that_is_not_prepared_refuses_the_bundle(scratch: Scratch) -> None:
    """The owner of its folder isn't decided yet. The caller tries again later."""
    scratch.replace_program("systemctl", '[ "$2" != is-enabled ]')
    done = unpack(scratch, WHOLE.content)
    assert (done.returncode, b"isn't prepared yet" in done.stderr) == (1, True)
    assert left_behind(scratch) == []


def test_an_agent_that_cannot_be_installed_is_reported_in_the_sentinel(scratch: Scratch) -> None:
    """So nobody waits for a machine that can't come up."""
    done = unpack(scratch, pack_bootstrap_bundle("/opt/kedge", b"no archive").content)
    assert done.returncode == 1
    ready = parse_ready((scratch.root / "ready").read_bytes())
    assert (ready.ok, ready.phases[-1].phase, ready.phases[-1].ok) == (False, "agent", False)


def test_secrets_are_in_no_argument_and_in_no_repr() -> None:
    """They would show up in a list of processes or in a log."""
    assert WHOLE.argv == ("sudo", "-n", "sh", "/opt/kedge/boot/supply.sh")
    assert "dop_v1_x" not in repr(WHOLE)
    assert "SPACES-KEY" not in repr(WHOLE)
