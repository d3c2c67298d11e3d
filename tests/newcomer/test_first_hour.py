"""The first hour on a bare Debian, as an ordinary user with sudo, with README only."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cloudbox.nspawn.needs import prepare_machines
from tests.newcomer.desk import Desk, switched_on
from tests.newcomer.handing import index_environment, index_folders
from tests.support.box_cache import ALL
from tests.support.checkout import CHECKOUT, copy_tracked

SCRIPT = """
import pathlib
pathlib.Path("results").mkdir(exist_ok=True)
pathlib.Path("results/model.txt").write_text("trained")
print("step 3 of 3")
"""
LAUNCH = """\
timeout 100 script --quiet --return --command 'stty cols 80; kedge launch' typescript \
  < <(exec 2>/dev/null; sleep 2; echo y; sleep 2; echo n; sleep 100)"""
"""`kedge launch` in a terminal, with a yes to the plan, and a no to a line in ~/.ssh/config."""
EPOCHS = "  EPOCHS: 20\n"
FEW_EPOCHS = "  EPOCHS: 3\n  OMP_NUM_THREADS: 1\n"
"""The threads of a small network wait for each other, which takes CPU time from the other tests."""


def path_of_readme() -> list[str]:
    """Return the commands from the clone to the user's first own run."""
    section = (
        (CHECKOUT / "README.md").read_text().partition("## From a clone to your first run")[2].partition("\n## ")[0]
    )
    blocks = re.findall(r"```console\n(.*?)```", section, re.DOTALL)
    return [line.strip() for block in blocks for line in block.splitlines() if line.strip()]


@pytest.fixture
def repository(tmp_path: Path) -> str:
    """The repository to clone: this checkout with its uncommitted changes; the argument that mounts it.

    Its demo is shorter, except in `make nightly`; tests/trainer/test_digits.py trains for longer.
    """
    folder = copy_tracked(tmp_path / "repository")
    if ALL not in os.environ:
        job = folder / "infra/jobs/digits.yaml"
        text = job.read_text()
        assert EPOCHS in text
        job.write_text(text.replace(EPOCHS, FEW_EPOCHS))
    author = ("-c", "user.name=kedge", "-c", "user.email=kedge@example.org", "-c", "commit.gpgsign=false")
    for words in (("init",), ("add", "--all", "--force"), (*author, "commit", "--message=all")):
        subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True)
    # git refuses to clone from another user's folder.
    subprocess.run(["chown", "-R", "1000:1000", folder], check=True)
    return f"--bind-ro={folder}:/srv/kedge"


@pytest.fixture
def desk(tmp_path: Path, repository: str) -> Iterator[Desk]:
    """A computer with this one's network and pip configuration."""
    if reason := prepare_machines():
        pytest.skip(reason)
    environment = index_environment()
    with switched_on(
        tmp_path / "desk", "--hostname=localhost", repository, *index_folders(environment), environment=environment
    ) as desk:
        yield desk


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_readme_leads_from_a_clone_to_the_first_own_run(desk: Desk) -> None:
    """In at most ten commands: the demo trains, the command is found, and the user's own script returns results."""
    commands = path_of_readme()
    assert commands[0].startswith("git clone ")
    assert commands[-1] == "kedge launch"
    assert len(commands) <= 10
    desk.root(f"install -d -o ada /home/ada/my-project && cat >/home/ada/my-project/train.py <<'END'{SCRIPT}END")
    typed = [re.sub("^git clone .*", "git clone /srv/kedge kedge", commands[0]), *commands[1:-1], LAUNCH]
    typed = [f"{command}\necho --- $SECONDS s, $(du --summarize --block-size=MB ~)" for command in typed]
    done = desk.type("\n".join(["set -e", *typed]), timeout=560)
    print(done.stdout)
    assert done.returncode == 0, done.stdout
    # Without pip's cache, which is in another folder.
    megabytes = [int(found) for found in re.findall(r"^--- \d+ s, (\d+)MB", done.stdout, re.MULTILINE)]
    assert megabytes[commands.index("make demo")] <= 1500
    demo, _, rest = done.stdout.partition("What next:\n")
    assert "kedge goes into .venv: 1.5 GB of disk" in demo
    assert re.search(r"best val_accuracy 9\d\.\d\d%", demo)
    assert len(rest.partition("\n---")[0].strip().splitlines()) == 3
    assert "step 3 of 3" in rest
    assert desk.root("cat /home/ada/my-project/kedge-results/*/output/results/model.txt") == "trained"
    assert desk.root("systemctl is-enabled ssh.service || true") == "disabled"

    done = desk.type("cd kedge && make uninstall && ! command -v ~/.local/bin/kedge && ls -A ~/.local/share")
    assert done.returncode == 0, done.stdout
    assert done.stdout.splitlines()[-1] == "kedge"


def test_too_little_disk_space_is_reported_before_anything_is_installed(tmp_path: Path, repository: str) -> None:
    """The error says what to do, and that helps."""
    if reason := prepare_machines():
        pytest.skip(reason)
    with switched_on(tmp_path / "desk", "--private-network", repository) as desk:
        desk.root("mount -t tmpfs -o size=100m tmpfs /tmp")
        done = desk.type("git clone -q /srv/kedge kedge && cd kedge && make demo")
        assert done.returncode == 2
        assert "kedge: too little room in /tmp: 104 MB free, 500 MB needed.\n" in done.stdout
        assert "\nInstalling" not in done.stdout
        (fix,) = re.findall(r"(mkdir -p \S+ && TMPDIR=\S+) make", done.stdout)
        assert desk.type(f"cd kedge && {fix} bash infra/setup/room.sh .venv trainer").returncode == 0
        desk.root("mount -t tmpfs -o size=200m tmpfs /home/ada/kedge/docs")
        done = desk.type("cd kedge && make demo TMPDIR=/var/tmp VENV=docs/venv")
        assert done.returncode == 2
        assert "kedge: too little room in /home/ada/kedge/docs: 209 MB free, 1.5 GB needed.\n" in done.stdout
        assert "VENV=" in done.stdout
