"""What `start.sh` of an export does with a job's code, `setup` and environment, whichever scheduler starts it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from uuid import uuid4

import psutil
import pytest

from tests.support.laptop import Laptop
from tests.support.waiting import wait_until


class Started:
    """An export for Slurm whose `start.sh` runs here, in the run's folder beside it."""

    def __init__(self, laptop: Laptop, root: Path) -> None:
        self.laptop = laptop
        self.root = root
        self.folder = laptop.home / "exported"

    def export(self, job: str) -> None:
        self.laptop.write_job(job)
        self.laptop.kedge("export", "--to", "slurm", "--output", "exported", "--force")

    def start(self, *words: str, task: str = "", env: Mapping[str, str] | None = None, code: int = 0) -> str:
        """Run it to its end, and return what it prints."""
        names = ("KEDGE_RUN_ID", "KEDGE_PORT", "KEDGE_NODE_RANK", "MASTER_ADDR")
        variables = dict.fromkeys(names, "0") | {
            **{"PATH": os.environ["PATH"], "VIRTUAL_ENV": "/usr", "KEDGE_DEADLINE": "9999999999"},
            **{"KEDGE_ROOT": str(self.root), "KEDGE_WORK": f"{self.root}/work", "KEDGE_DATA": f"{self.root}/data"},
            "KEDGE_NUM_NODES": "1",
        }
        argv = ["bash", str(self.folder / f"{task}start.sh"), *words]
        done = subprocess.run(
            argv, env={**variables, **(env or {})}, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr


@pytest.fixture
def exported(laptop: Laptop, tmp_path: Path) -> Started:
    return Started(laptop, tmp_path / "run")


def test_setup_of_a_job_without_code_runs_once(exported: Started) -> None:
    """There is no archive of code then, in an export that would have one otherwise."""
    exported.export("name: bare\nsetup: echo once >> made\nrun: cat made > $KEDGE_OUTPUT_DIR/said\n")
    assert not (exported.folder / "code.tar.gz").exists()
    for _ in range(2):
        exported.start()
    assert (exported.root / "output" / "said").read_text() == "once\n"


def test_code_that_was_exported_anew_replaces_the_old_one(exported: Started) -> None:
    """A run goes on with it; what an attempt has written among the same code stays."""
    job = (
        "name: shapes\nworkdir: .\nrun: touch here; cat train.py > $KEDGE_OUTPUT_DIR/said; ls > $KEDGE_OUTPUT_DIR/ls\n"
    )
    script = exported.laptop.home / "train.py"
    for text in ("first", "second"):
        script.write_text(text)
        exported.export(job)
        exported.start()
        assert (exported.root / "output" / "said").read_text() == text
        assert not (exported.root / "work" / "code" / "mine").exists()
        (exported.root / "work" / "code" / "mine").touch()
        exported.start()
        assert "mine" in (exported.root / "output" / "ls").read_text().split()


PYTHON = """#!/bin/sh
[ "$1 $2" != "-m venv" ] || { mkdir -p "$4/bin"; exit; }
exec /usr/bin/env -i PATH=/usr/local/bin:/usr/bin:/bin python3 "$@"
"""


def test_tasks_have_an_environment_each(exported: Started, tmp_path: Path) -> None:
    """They start at the same time, and each runs `setup`; `python3 -m venv` is a stand-in here."""
    exported.export("name: two\ntasks: {a: {run: 'true'}, b: {run: 'true'}}\nsetup: echo made in $VIRTUAL_ENV\n")
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "python3").write_text(PYTHON)
    (programs / "python3").chmod(0o755)
    env = {"PATH": f"{programs}:/usr/local/bin:/usr/bin:/bin", "VIRTUAL_ENV": ""}
    said = [exported.start("prepare", task=f"{task}.", env=env) for task in ("a", "b")]
    made = [line for text in said for line in text.splitlines() if line.startswith("made in ")]
    assert made == [f"made in {exported.root}/work/env-{task}" for task in ("a", "b")]


def test_a_start_behind_the_deadline_leaves_nothing_behind(exported: Started) -> None:
    """Not even the process with which it tells signals apart, which would keep a job's output open."""
    exported.export("name: late\nrun: sleep 1\n")
    name = f"late-{uuid4()}"
    said = exported.start(env={"KEDGE_DEADLINE": "1", "KEDGE_RUN_ID": name}, code=143)
    assert "the deadline has passed" in said

    def left() -> list[psutil.Process]:
        return [process for process in psutil.process_iter() if name in _environment(process).values()]

    try:
        # They are sent a signal, and nobody waits until each has died of it.
        wait_until(lambda: not left(), seconds=20)
    finally:
        for process in left():
            process.kill()


def _environment(process: psutil.Process) -> Mapping[str, str]:
    try:
        return process.environ()
    except psutil.Error:
        return {}
