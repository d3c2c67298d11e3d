"""What a machine is brought over its first connection, taken by the script that lies on it; systemctl is a stand-in."""

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


def take(scratch: Scratch, content: bytes) -> subprocess.CompletedProcess[bytes]:
    script = scratch.folder / "supply.sh"
    script.write_text(render("boot/supply.sh.j2", root=str(scratch.root), user=ME, state=str(scratch.state)))
    return subprocess.run(
        ["sh", str(script)], input=content, env={"PATH": scratch.path}, capture_output=True, timeout=60, check=False
    )


def left_behind(scratch: Scratch) -> list[str]:
    """Everything that a machine keeps of what it was brought."""
    names = ("private", "agent", "bin", "supplied", "ready", "boot.jsonl")
    kept = [str(scratch.root / name) for name in names if (scratch.root / name).exists()]
    return [*kept, *(str(path) for path in scratch.state.glob("*.curl"))]


def test_what_is_brought_is_put_where_it_belongs(scratch: Scratch) -> None:
    """The agent works, each secret is readable for its owner alone, and no copy is left; the boot goes on."""
    done = take(scratch, WHOLE.content)
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
    assert scratch.asked_of_systemctl[-1] == "--no-block start kedge-boot.service"


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.97, "no mark"])
def test_what_arrives_in_part_changes_nothing(scratch: Scratch, share: float | str) -> None:
    """Wherever the connection broke off, also between two whole files; the next one goes on."""
    mark = WHOLE.content.index(b"complete\0")
    cut = WHOLE.content[: mark if share == "no mark" else int(mark * float(share))]
    done = take(scratch, cut)
    assert (done.returncode, b"incomplete" in done.stderr) == (1, True)
    assert left_behind(scratch) == []
    assert not any("start" in line for line in scratch.asked_of_systemctl)
    assert take(scratch, WHOLE.content).returncode == 0


def test_what_is_brought_again_is_not_taken_again(scratch: Scratch) -> None:
    """A caller who was cut off before the answer gets it now; nothing moves under the agent's feet."""
    take(scratch, WHOLE.content)
    done = take(scratch, pack_bootstrap_bundle("/opt/kedge", b"another", for_root={"api.curl": "other"}).content)
    assert (done.returncode, done.stdout.split()[-1:]) == (0, [b"supplied"])
    assert (scratch.state / "api.curl").read_text() == ROOT_SECRET
    assert len(scratch.phases()) == 2


def test_a_machine_that_is_not_prepared_takes_nothing_yet(scratch: Scratch) -> None:
    """Whose its folder will be has not been settled: a later try succeeds."""
    scratch.replace_program("systemctl", '[ "$2" != is-enabled ]')
    done = take(scratch, WHOLE.content)
    assert (done.returncode, b"isn't prepared yet" in done.stderr) == (1, True)
    assert left_behind(scratch) == []


def test_an_agent_that_does_not_install_is_told_in_the_sentinel(scratch: Scratch) -> None:
    """Nobody waits for a machine that can't come up."""
    done = take(scratch, pack_bootstrap_bundle("/opt/kedge", b"no archive").content)
    assert done.returncode == 1
    ready = parse_ready((scratch.root / "ready").read_bytes())
    assert (ready.ok, ready.phases[-1].phase, ready.phases[-1].ok) == (False, "agent", False)


def test_secrets_are_in_no_argument_and_in_no_representation() -> None:
    """They would be seen in a list of processes, or in a log."""
    assert WHOLE.argv == ("sudo", "-n", "sh", "/opt/kedge/boot/supply.sh")
    assert "dop_v1_x" not in repr(WHOLE)
    assert "SPACES-KEY" not in repr(WHOLE)
