"""`submit.sh` of an export for Slurm: which run a job belongs to. `sbatch` is a stand-in here."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.laptop import Laptop

SBATCH = """#!/bin/sh
echo "run=$KEDGE_RUN_ID $*" >> "$CALLS"
echo 7
"""
ONE = "name: one\nrun: sleep 1\n"
TWO = "name: two\ntasks: {b: {run: sleep 1, after: a}, a: {run: sleep 1}}\n"


def submit(laptop: Laptop, tmp_path: Path, run: str = "", code: int = 0) -> list[str]:
    """Submit the exported job from within another run; return what sbatch was called with, or the error's lines."""
    (tmp_path / "sbatch").write_text(SBATCH)
    (tmp_path / "sbatch").chmod(0o755)
    (tmp_path / "calls").unlink(missing_ok=True)
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "CALLS": f"{tmp_path}/calls", "KEDGE_RUN_ID": "another"}
    argv = ["bash", str(laptop.home / "exported" / "submit.sh"), "--mem=8G"]
    done = subprocess.run(
        argv, env=env | ({"RUN": run} if run else {}), capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == code, done.stdout + done.stderr
    return (done.stderr if code else (tmp_path / "calls").read_text()).splitlines()


def test_a_job_is_a_new_run_or_goes_on_with_one(laptop: Laptop, tmp_path: Path) -> None:
    """A new one has the number of the job; the submitting shell's own run has nothing to do with it."""
    laptop.write_job(ONE)
    laptop.kedge("export", "--to", "slurm", "--output", "exported")
    assert submit(laptop, tmp_path) == ["run= --mem=8G job.sbatch"]
    (laptop.home / "exported" / "runs" / "one-40").mkdir(parents=True)
    assert submit(laptop, tmp_path, "one-40") == ["run=one-40 --mem=8G job.sbatch"]


def test_the_jobs_of_all_tasks_go_on_with_one_run(laptop: Laptop, tmp_path: Path) -> None:
    """Or are a new one together."""
    laptop.write_job(TWO)
    laptop.kedge("export", "--to", "slurm", "--output", "exported")
    new = {line.split()[0] for line in submit(laptop, tmp_path)}
    assert len(new) == 1
    assert new.pop().startswith("run=two-")
    (laptop.home / "exported" / "runs" / "two-0102-030405").mkdir(parents=True)
    calls = submit(laptop, tmp_path, "two-0102-030405")
    assert [line.split()[0] for line in calls] == ["run=two-0102-030405"] * 2
    assert calls[1].endswith("--dependency=afterok:7 --kill-on-invalid-dep=yes --mem=8G b.job.sbatch")


@pytest.mark.parametrize("job", [ONE, TWO])
def test_a_run_that_is_not_there_is_refused(laptop: Laptop, tmp_path: Path, job: str) -> None:
    """A mistyped name would begin anew; nothing is submitted."""
    laptop.write_job(job)
    laptop.kedge("export", "--to", "slurm", "--output", "exported")
    for run in ("one-41", "..", "../exported"):
        assert submit(laptop, tmp_path, run, code=2) == [f"no run: {run}"]
