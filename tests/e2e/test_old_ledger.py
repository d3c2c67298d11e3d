"""A ledger of the version whose jobs had one command: this version reads it, and continues its runs."""

from __future__ import annotations

import shutil
import signal
import sqlite3
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from orchestrator.adapters.host.clock import SystemClock
from orchestrator.adapters.jobfile.overrides import Overrides
from orchestrator.adapters.jobfile.read import read_job
from orchestrator.adapters.ledger.sqlite import SqliteLedger
from orchestrator.core.job import Job
from orchestrator.core.ledger import RunStage
from tests.support.laptop import Laptop

WRITTEN = Path(__file__).parent / "ledger_of_schema_1"
"""What commit 22dcda2 wrote: two local launches, one of them at work when its ledger was copied, and runs at AWS and
DigitalOcean that were recorded there with its code; beside it the job files that they were launched with."""
ENDED, LIVE = "digits-1123-6vr9", "digits-1123-rwt6"
CLOUDS = {"fine-1120-aaaa": ("fine", None), "fine-1120-bbbb": ("fine", "fast"), "train-1120-cccc": ("train", None)}


def restore(home: Path, state: Path, runtime: Path, *, only_local: bool = False) -> None:
    """Put the ledger into a state folder, and the job files and the script into a working folder."""
    (home / "data" / "images").mkdir(parents=True)
    for path in (*WRITTEN.glob("*.yaml"), WRITTEN / "train.py"):
        shutil.copy(path, home)
    text = (WRITTEN / "ledger.sql").read_text()
    places = {"@HOME@": home, "@STATE@": state, "@RUNTIME@": runtime, "@PYTHON@": Path(sys.executable).resolve()}
    for place, path in places.items():
        text = text.replace(place, str(path))
    state.mkdir(exist_ok=True)
    with closing(sqlite3.connect(state / "ledger.db")) as db:
        db.executescript(text)
        if only_local:  # others would be asked for at their providers, which takes credentials
            db.executescript(
                "DELETE FROM intents WHERE run_id NOT LIKE 'digits%'; DELETE FROM machines WHERE run_id NOT LIKE"
                " 'digits%'; DELETE FROM runs WHERE run_id NOT LIKE 'digits%'"
            )


def read_again(home: Path, name: str, mode: str | None) -> Job:
    return read_job(
        home / f"{name}.yaml",
        mode=mode,
        overrides=Overrides(),
        environ={"HF_TOKEN": "x"},
        providers=("aws", "do", "local"),
    )


def test_each_recorded_job_is_what_its_file_says_today(tmp_path: Path) -> None:
    """The command, its resume command, outputs and checkpoints are the job's only task; a plain machine has none."""
    home, state = tmp_path / "home", tmp_path / "state"
    restore(home, state, tmp_path)
    ledger = SqliteLedger(state, SystemClock())
    found = {record.run_id: record for record in ledger.runs()}
    for run, (name, mode) in CLOUDS.items():
        assert found[run].spec.job == read_again(home, name, mode)
        assert (found[run].stage, found[run].outcome) == (RunStage.ENDED, "succeeded")
    assert found[ENDED].spec.job == read_again(home, "kedge", None)
    assert found["plain-1120-dddd"].spec.job == read_again(home, "plain", None)
    assert found["plain-1120-dddd"].spec.job.tasks == ()
    assert len(ledger.machines()) == len(found) == 6
    assert [intent.kind for intent in ledger.intents("fine-1120-aaaa")][3:5] == ["StartCommand", "StopCommand"]
    ledger.close()


def test_a_killed_migration_is_repeated_by_several_commands_at_once(tmp_path: Path) -> None:
    """It is one transaction: after SIGKILL just before its end, the ledger is as it was."""
    home, state = tmp_path / "home", tmp_path / "state"
    restore(home, state, tmp_path)
    script = f"""
    import os, signal, sqlite3
    from orchestrator.adapters.ledger.migrations import MIGRATIONS
    db = sqlite3.connect({str(state / "ledger.db")!r}, isolation_level=None)
    db.execute("PRAGMA journal_mode=WAL")
    db.execute("BEGIN IMMEDIATE")
    MIGRATIONS[1](db)
    db.execute("PRAGMA user_version = 2")
    os.kill(os.getpid(), signal.SIGKILL)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=False)
    assert done.returncode == -signal.SIGKILL

    def read(_: int) -> Job:
        ledger = SqliteLedger(state, SystemClock())
        record = ledger.run(LIVE)
        ledger.close()
        assert record is not None
        return record.spec.job

    with ThreadPoolExecutor(4) as pool:
        assert set(map(repr, pool.map(read, range(4)))) == {repr(read_again(home, "kedge", None))}


def test_a_process_of_the_version_before_can_write_no_run_any_more(tmp_path: Path) -> None:
    """It was started before the upgrade and takes every run for a plain machine: it would rent one for nothing."""
    restore(tmp_path / "home", tmp_path / "state", tmp_path)
    with closing(sqlite3.connect(tmp_path / "state" / "ledger.db")) as before:
        old = before.execute("SELECT * FROM runs WHERE run_id = ?", (LIVE,)).fetchone()
        SqliteLedger(tmp_path / "state", SystemClock()).close()
        with pytest.raises(sqlite3.IntegrityError, match="newer kedge"):
            before.execute(
                "INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (run_id) DO UPDATE"
                " SET spec = excluded.spec",
                old,
            )


def test_a_run_of_the_version_before_is_shown_resumed_fetched_and_torn_down(laptop: Laptop) -> None:
    """Its machine is gone: `resume` starts the recorded command on another one."""
    restore(laptop.home, laptop.state, laptop.runtime, only_local=True)
    status = laptop.json("status", LIVE)[0]
    assert (status["run"], status["stage"], status["job"]) == (LIVE, "live", "digits")
    assert {line["run"] for line in laptop.json("cost")} == {LIVE, ENDED}
    said = laptop.kedge("resume", LIVE, "--yes", "--keep")
    assert "arguments: --epochs 2\n" in said
    assert (laptop.home / "kedge-results" / LIVE / "output" / "results" / "score.txt").read_text() == "1.0"
    assert (laptop.home / "kedge-results" / LIVE / "checkpoints" / "epoch-1.pt").exists()
    shutil.rmtree(laptop.home / "kedge-results")
    assert laptop.json("fetch", LIVE)["run"] == LIVE
    assert "set up\n" in laptop.kedge("logs", LIVE)
    laptop.kedge("teardown", LIVE, "--yes")
    assert laptop.json("status", LIVE)[0]["stage"] == "ended"
