"""A script's way: it is launched, killed, loses its machine, is resumed, and ends as if nothing had happened."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.support.laptop import KEDGE, Laptop
from tests.support.preloaded.process import PreloadedProcess, but_for_a_sample
from tests.support.waiting import wait_until

STEPS = 400
_PAUSE_S = 0.8
# An upload follows the last one after ten seconds, or three scans later, 15 seconds; a busy computer takes longer.
_STEPS_UNTIL_COPIED = 50
_MOST_STEPS_UNSAVED = 25
# docs/your-script.md says 45 seconds, the upload and what lies between two checkpoints; a busy computer takes longer.
_MOST_LOST_S = 80
_PATIENCE_S = 200


@dataclass(frozen=True, kw_only=True)
class Script:
    """One of the scripts beside this file.

    Attributes:
        name: of its folder.
        file: what its command runs.
        reached: finds the number of each step in the log.
        resumed: finds the number of the last step that it went on from.
        summary: its result, below the run's folder at home.
        has_git: its folder is a git repository.
    """

    name: str
    file: str
    reached: str
    resumed: str
    summary: str
    has_git: bool = True


SCRIPTS = (
    Script(
        name="argparse_resume",
        file="train.py",
        reached=r"Epoch \[(\d+)/",
        resumed=r"loaded checkpoint '.*' \(epoch (\d+)\)",
        summary="output/results/summary.json",
    ),
    Script(
        name="init_from",
        file="train.py",
        reached=r"iter (\d+): loss",
        resumed=r"going on after iter (\d+)",
        summary="checkpoints/summary.json",
    ),
    Script(
        name="notebook",
        file="clusters.py",
        reached=r"step (\d+) mean",
        resumed=r"welcome back, after step (\d+)",
        summary="checkpoints/summary.json",
        has_git=False,
    ),
    Script(
        name="progress_bars",
        file="train.py",
        reached=r"epochs: +\d+%\|[^|]*\| (\d+)/400",
        resumed=r"(\d+) epochs are done",
        summary="output/results/summary.json",
    ),
    Script(
        name="output_dir",
        file="run_classifier.py",
        reached=r"'step': (\d+),",
        resumed=r"will skip to step (\d+)",
        summary="checkpoints/train_results.json",
    ),
)


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where the machines are.

    Attributes:
        flags: what a launch says of it.
        state_file: tells where the agent of a run's first machine keeps the command's state.
        lose_machine: takes a run's first machine away, with its disk.
    """

    flags: tuple[str, ...]
    state_file: Callable[[str], Path]
    lose_machine: Callable[[str], None]


def make_project(laptop: Laptop, script: Script) -> Laptop:
    """Make a folder with the script, as its user has it; return the laptop, in that folder."""
    home = _copy(script, laptop.home / script.name)
    with (home / "kedge.yaml").open("a") as job:
        job.write("supervisor: {restart_after: 1s}\n")
    if script.has_git:
        git = ["git", "-c", "user.name=Me", "-c", "user.email=me@example.org"]
        for words in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "--message", "A script"]):
            subprocess.run([*git, *words], cwd=home, check=True)
    return replace(laptop, home=home)


def go_all(laptop: Laptop, place: Place, scripts: Sequence[Script] = SCRIPTS) -> None:
    """Run the journeys of all scripts in parallel."""
    projects = [make_project(laptop, script) for script in scripts]
    with ThreadPoolExecutor(len(scripts)) as pool:
        ways = [pool.submit(go, project, script, place) for project, script in zip(projects, scripts, strict=True)]
    failed = []
    for way, script in zip(ways, scripts, strict=True):
        if isinstance(error := way.exception(), Exception):
            error.add_note(f"The script was {script.name}.")
            failed.append(error)
    if failed:
        raise ExceptionGroup("not every script ended well", failed)


def go(laptop: Laptop, script: Script, place: Place) -> None:
    """Train with two interruptions, and compare what comes home with a training that had none."""
    run = laptop.json("launch", *place.flags, "--yes", "--detach")["run"]
    expected = train_without_interruption(script)
    with following(laptop, run) as log:
        killed_at = _await_copy(laptop, run, script, log, after=0)
        kill_command(laptop, run, script, place.state_file(run))
        wait_until(lambda: _found(script.resumed, log()), seconds=_PATIENCE_S)
        lost_at = _await_copy(laptop, run, script, log, after=_found(script.resumed, log())[-1])
    place.lose_machine(run)
    job = laptop.home / "kedge.yaml"
    job.write_text(job.read_text().replace(str(_PAUSE_S), "0"))
    laptop.kedge("resume", run, "--reread", "--yes")
    results = laptop.home / "kedge-results" / run
    assert json.loads((results / script.summary).read_text()) == expected
    whole_log = (results / "run.log").read_text()
    resumed = _found(script.resumed, whole_log)
    assert len(resumed) == 2, whole_log
    first, second = resumed
    assert killed_at - _MOST_STEPS_UNSAVED < first < second, (killed_at, resumed, lost_at)
    assert (lost_at - second) * _PAUSE_S <= _MOST_LOST_S, (lost_at, second)
    (status,) = laptop.json("status", run)
    assert (status["state"], status["stage"]) == ("succeeded", "ended")


@contextmanager
def following(laptop: Laptop, run: str) -> Iterator[Callable[[], str]]:
    """Follow a run's log; what is given reads what has come so far. One program does it for all the looks of a test."""
    path = laptop.home.parent / f"{run}.log"
    argv = [*laptop.program, "logs", run, "--follow", "--lines", "100000"]
    preload = but_for_a_sample(KEDGE)
    with (
        path.open("wb") as file,
        PreloadedProcess(argv, preload=preload, cwd=laptop.home, env=laptop.env, stdout=file, stderr=file) as follower,
    ):

        def read() -> str:
            time.sleep(0.5)  # five wait at a time
            log = path.read_text(errors="replace")
            assert follower.poll() is None, log[-3000:]
            assert "[kedge] failed" not in log, log[-3000:]
            return log

        try:
            yield read
        finally:
            follower.kill()


def kill_command(laptop: Laptop, run: str, script: Script, state_file: Path) -> None:
    """End the script as the kernel does when memory is short."""
    group = f"""$(python3 -c "import json; print(json.load(open('{state_file}'))['group'])")"""
    pattern = f"[{script.file[0]}]{script.file[1:]}"
    laptop.kedge("exec", run, "--", "sh", "-c", f'pkill -9 -g "{group}" -f "{pattern}"')


@cache
def train_without_interruption(script: Script) -> Any:
    """Return the result of the job's command in a shell, without kedge and without pauses: the same for all places."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = _copy(script, Path(scratch) / script.name)
        job = yaml.safe_load((folder / "kedge.yaml").read_text())
        checkpoints = folder / job["checkpoints"]
        checkpoints.mkdir()
        programs = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        argv = ["bash", "-c", job["run"].replace(str(_PAUSE_S), "0")]
        subprocess.run(argv, cwd=folder, env={**os.environ, "PATH": programs}, check=True, capture_output=True)
        where, _, path = script.summary.partition("/")
        result = json.loads((checkpoints / path if where == "checkpoints" else folder / path).read_text())
    assert len(result["losses"]) == STEPS
    return result


def _copy(script: Script, folder: Path) -> Path:
    """Copy a script's folder, and prepare its data there."""
    shutil.copytree(Path(__file__).parent / script.name, folder, ignore=shutil.ignore_patterns("__pycache__"))
    if (folder / "prepare.py").exists():
        subprocess.run([sys.executable, "prepare.py"], cwd=folder, check=True)
    return folder


def _await_copy(laptop: Laptop, run: str, script: Script, log: Callable[[], str], *, after: int) -> int:
    """Wait until the store has a checkpoint that is further than a step; return how far the script is then."""
    wait_until(lambda: _reached(script, log()) > after + _STEPS_UNTIL_COPIED, seconds=_PATIENCE_S)
    there = time.time()
    wait_until(lambda: _copied_at(laptop, run) > there, seconds=_PATIENCE_S)
    return _reached(script, log())


def _copied_at(laptop: Laptop, run: str) -> float:
    """Return when the newest copy with a checkpoint began; 0 for none."""
    time.sleep(5)  # each look is a program that starts, and a copy is made every ten seconds at most
    shipped = (laptop.json("status", run)[0].get("report") or {}).get("shipped") or {}
    return float(shipped["time"]) if shipped.get("checkpoint") else 0


def _reached(script: Script, log: str) -> int:
    return max(_found(script.reached, log), default=0)


def _found(pattern: str, log: str) -> list[int]:
    return [int(number) for number in re.findall(pattern, log)]
