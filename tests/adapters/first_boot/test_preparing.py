"""What the first boot does before the agent is there: find the image's torch, and complete machine.json."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from orchestrator.adapters.host.templates import render
from orchestrator.core.protocol.readiness import parse_ready
from tests.adapters.first_boot.scratch import (
    LIFETIME,
    ME,
    Scratch,
    arm,
    deadline_path,
    needs_root,
    run_unready_check,
)


def make_environment(folder: Path, *, torch: bool) -> Path:
    """Make a virtual environment; an import of its torch fails."""
    venv.create(folder, symlinks=True)
    if torch:
        package = next(folder.glob("lib/python*/site-packages")) / "torch"
        package.mkdir()
        (package / "__init__.py").write_text("raise SystemError('imported')")
    return folder / "bin"


def find_torch(scratch: Scratch) -> str:
    done = scratch.sh(render("boot/find-torch.sh.j2", opt=str(scratch.folder / "opt")))
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()


@pytest.mark.parametrize("place", ["opt/pytorch", "opt/conda/envs/pytorch", "opt/miniforge3", "opt/venv"])
def test_the_torch_of_the_image_is_found(scratch: Scratch, place: str) -> None:
    """In each place where images have it, without importing it.

    fact: aws-dlami-python
    """
    expected = make_environment(scratch.folder / place, torch=True)
    assert find_torch(scratch) == str(expected)


def test_an_environment_without_torch_is_passed_over(scratch: Scratch) -> None:
    """A conda image has other environments too, and they sort first."""
    make_environment(scratch.folder / "opt/conda/envs/amazonei", torch=False)
    expected = make_environment(scratch.folder / "opt/conda/envs/zoo", torch=True)
    assert find_torch(scratch) == str(expected)


def test_a_python_that_does_not_start_is_passed_over(scratch: Scratch) -> None:
    """So is a folder whose name would need quoting in JSON."""
    broken = scratch.folder / "opt/pytorch/bin/python"
    broken.parent.mkdir(parents=True)
    broken.write_text("#!/nowhere\n")
    broken.chmod(0o755)
    make_environment(scratch.folder / 'opt/conda/envs/a"b', torch=True)
    assert find_torch(scratch) == ""


def test_without_torch_the_path_stays_as_it_is(scratch: Scratch) -> None:
    """The system's python3 is on it already."""
    assert find_torch(scratch) == ""


# What the first boot writes into machine.json.


def prepare(
    scratch: Scratch, *, form: Mapping[str, Any], torch: str = "", user: str = ME
) -> subprocess.CompletedProcess[str]:
    (scratch.root / "boot" / "machine.json").write_text(json.dumps(form))
    (scratch.root / "boot" / "find-torch.sh").write_text(f"echo '{torch}'\n" if torch else "")
    script = render(
        "boot/prepare.sh.j2",
        root=str(scratch.root),
        user=user,
        deadline_file=str(deadline_path(scratch)),
        lifetime=LIFETIME,
        margin=60,
    )
    return scratch.sh(script)


FORM = {"machine": "digits-1", "created": "@created@", "deadline": "@deadline@", "path": ["@torch@"]}


@needs_root
@pytest.mark.parametrize(
    ("path", "torch", "expected"),
    [
        ([], "", []),
        ([], "/opt/pytorch/bin", ["/opt/pytorch/bin"]),
        (["/opt/x"], "", ["/opt/x"]),
        (["/opt/x"], "/opt/pytorch/bin", ["/opt/pytorch/bin", "/opt/x"]),
    ],
)
def test_the_first_boot_completes_machine_json(
    scratch: Scratch, path: list[str], torch: str, expected: list[str]
) -> None:
    """It adds the creation time, the deadline (a margin before the timer's), and the path of torch."""
    deadline, _ = arm(scratch)
    done = prepare(scratch, form={**FORM, "path": ["@torch@", *path]}, torch=torch)
    assert done.returncode == 0, done.stdout + done.stderr
    machine = json.loads((scratch.root / "machine.json").read_text())
    assert machine == {
        "machine": "digits-1",
        "created": deadline - LIFETIME,
        "deadline": deadline - 60,
        "path": expected,
    }
    assert [phase["phase"] for phase in scratch.phases()] == ["owner", "machine", "units"]
    assert all(phase["ok"] and phase["began"] <= phase["ended"] for phase in scratch.phases())
    assert scratch.systemctl_calls[-5:] == [
        "daemon-reload",
        "--no-reload enable kedge-unready.timer",
        "--no-block start kedge-unready.timer",
        "--no-reload enable kedge-watch.service kedge-boot.service",
        "--no-block start kedge-boot.service",
    ]
    assert not (scratch.root / "ready").exists()


@needs_root
def test_a_machine_that_cannot_be_prepared_says_so(scratch: Scratch) -> None:
    """In the sentinel that kedge waits for, so that it doesn't wait in vain."""
    done = prepare(scratch, form=FORM)
    assert done.returncode == 1
    ready = parse_ready((scratch.root / "ready").read_bytes())
    assert not ready.ok
    assert "No such file" in ready.phases[-1].error
    assert scratch.systemctl_calls[-1] == "--no-block start kedge-unready.timer"


@needs_root
def test_odd_characters_in_an_error_are_readable(scratch: Scratch) -> None:
    """Quotes, backslashes and non-ASCII characters don't break the line."""
    arm(scratch)
    scratch.replace_program("systemctl", r"""printf 'a "b" \\ c\n\033[1mü\n' >&2; exit 1""")
    assert prepare(scratch, form=FORM).returncode == 1
    ready = parse_ready((scratch.root / "ready").read_bytes())
    assert ready.phases[-1].error.split() == ["a", '"b"', "\\", "c", "[1m"]


def as_nobody(scratch: Scratch, script: str) -> subprocess.CompletedProcess[bytes]:
    argv = ["runuser", "-u", "nobody", "--", "sh", "-c", script]
    return subprocess.run(argv, cwd=scratch.root, check=False, timeout=60)


@needs_root
def test_a_job_cannot_misuse_root_through_the_machines_folder() -> None:
    """It can't replace root's files. Links in the sentinel's place are followed only with the job's own rights."""
    folder = Path(tempfile.mkdtemp(prefix="kedge-hostile-"))
    try:
        folder.chmod(0o755)
        scratch = Scratch(folder)
        arm(scratch)
        assert prepare(scratch, form=FORM, user="nobody").returncode == 0
        victim = folder / "victim"
        victim.write_text("root's")
        attacks = [
            *(f"mv {name} taken" for name in ("boot", "agent", "bin", "data", "volumes", "scratch", "machine.json")),
            *(f"rm -rf {name}" for name in ("machine.json", "boot.jsonl", "volumes", "scratch", "data")),
            "echo later >machine.json",
            "ln -sfT /etc data",
        ]
        for attack in attacks:
            assert as_nobody(scratch, attack).returncode != 0, attack
        plant = f"ln -s {victim} .ready; ln -s {victim} ready; echo '{{}}' >>boot.jsonl"
        assert as_nobody(scratch, plant).returncode == 0
        run_unready_check(scratch, user="nobody")
        bootstrap = "from orchestrator.agent import bootstrap; import sys; sys.exit(bootstrap.main(sys.argv[1:]))"
        done = subprocess.run([sys.executable, "-c", bootstrap, str(scratch.root), "0" * 64, "nobody"], check=False)
        assert done.returncode == 1
        assert victim.read_text() == "root's"
    finally:
        shutil.rmtree(folder)
