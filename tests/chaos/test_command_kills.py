"""Commands on a training run are killed at times drawn from a seed; KEDGE_COMMAND_KILLS says how many."""

from __future__ import annotations

import itertools
import time

import pytest

from tests.chaos.draws import draw_kills
from tests.support.laptop import Laptop
from tests.support.samples import how_many
from tests.support.waiting import wait_until

JOB = """
    name: toy
    workdir: .
    run: python train.py
    outputs: [results]
    checkpoints: ckpt
    envs: {STEPS: 100000, PAUSE: 0.02, SAVE_EVERY: 5}
    deadline: 10m
    supervisor: {kind: nohup, restarts: 0, grace: 5s}
"""
KILLS = how_many("KEDGE_COMMAND_KILLS", usual=5, all_of_them=20)
LONGEST_S = 1.5
COMMANDS = (("stop",), ("sync-code", "--restart"), ("resume", "--yes", "--detach"), ("teardown", "--yes"), ("fetch",))


@pytest.mark.parametrize(("seconds", "words"), draw_kills(KILLS, COMMANDS, first=0.1, last=LONGEST_S))
def test_a_run_continues_whichever_command_was_killed(laptop: Laptop, seconds: float, words: tuple[str, ...]) -> None:
    """Resume continues at least from the newest checkpoint, and a teardown leaves nothing."""
    laptop.write_job(JOB)
    run = laptop.json("launch", "--yes", "--detach")["run"]
    results = laptop.state / "machines" / f"{run}-m1" / "results"
    wait_until(lambda: list(results.glob("checkpoints/step-*.txt")))
    script = laptop.home / "train.py"
    script.write_text(f"{script.read_text()}# changed\n")
    command = laptop.start(*words)
    time.sleep(seconds)
    command.kill()
    command.wait()
    laptop.kedge("resume", run, "--yes", "--detach")
    laptop.kedge("teardown", run, "--yes")
    assert laptop.processes() == []
    assert list((laptop.state / "machines").iterdir()) == []
    log = laptop.home / "kedge-results" / run / "output" / "results" / "steps.log"
    steps = [int(line.split()[0]) for line in log.read_text().splitlines()]
    lost = [earlier - later for earlier, later in itertools.pairwise(steps) if later <= earlier]
    assert set(range(1, max(steps) + 1)) == set(steps), "no step is missing"
    assert all(back < 2 * 5 for back in lost), "only steps after the newest checkpoint are repeated"
    ledger = laptop.ledger()
    assert (ledger.machines(live_only=True), ledger.runs(live_only=True)) == ((), ())
    ledger.close()
