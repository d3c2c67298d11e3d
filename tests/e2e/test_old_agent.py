"""A machine whose agent is of the version whose jobs had one command: this version's laptop works with it.

The machine was rented before kedge was upgraded on the laptop.
"""

from __future__ import annotations

import gzip
import lzma
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.adapters.host.settings import read_settings
from orchestrator.adapters.jobfile.overrides import Overrides
from orchestrator.app.launch.launching import new_launch, observe_and_plan
from orchestrator.app.root import App
from orchestrator.engine.world import World
from tests.e2e.runs import await_running, log, step
from tests.support.laptop import Laptop
from tests.support.waiting import wait_until

ARCHIVE = Path(__file__).parent / "agent_of_22dcda2.tar.xz"
"""What `agent_archive()` of commit 22dcda2 returned on 2026-11-23, packed with `xz -9e` instead of gzip."""
JOB = """
    name: toy
    workdir: .
    setup: echo set up
    run: python train.py
    resume: {args: --again}
    outputs: [results]
    checkpoints: ckpt
    envs: {STEPS: 100000, SAVE_EVERY: 20, PAUSE: 0.05}
    deadline: 10m
    supervisor: {kind: tmux, restarts: 0, grace: 10s}
"""


class BeforeUpgrade(App):
    """kedge, with the agent of the version before."""

    def world(self, provider: str) -> World:
        """Make the world, whose machines get the old agent."""
        return replace(
            super().world(provider), agent_archive=lambda: gzip.compress(lzma.decompress(ARCHIVE.read_bytes()))
        )


def launch(laptop: Laptop) -> str:
    """Launch this folder's job on a machine with the old agent."""
    app = BeforeUpgrade(read_settings(laptop.env))
    spec = new_launch(app, None, None, Overrides())
    app.apply(spec, observe_and_plan(app, spec, follow=False), lambda _event: None)
    app.ledger.close()
    return spec.run_id


def test_the_only_command_of_an_old_agent_is_followed_stopped_and_started(
    laptop: Laptop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its report, its log and its results are read; it gets its configuration as it was written then."""
    laptop.write_job(JOB)
    monkeypatch.chdir(laptop.home)
    run = launch(laptop)
    agent = laptop.state / "machines" / f"{run}-m1" / "agent" / "kedge_agent"
    assert not (agent / "nodes").exists(), "it is the old agent"
    await_running(laptop)
    (status,) = laptop.json("status", run)
    assert (status["state"], status["report"]["command"]["attempt"]) == ("running", 1)
    assert [(task["task"], task["state"]) for task in status["tasks"]] == [("", "running")], status["tasks"]
    wait_until(lambda: step(laptop) > 20)

    followed = laptop.start("logs", run, "--follow")
    laptop.kedge("stop", run)
    said, _ = followed.communicate(timeout=120)
    assert "set up\n" in said
    assert "[kedge] stopped" in said
    reached = step(laptop)

    laptop.kedge("start", run)
    await_running(laptop)
    wait_until(lambda: step(laptop) > reached)
    assert "going on from step" in log(laptop)
    (status,) = laptop.json("status", run)
    assert (status["state"], status["report"]["command"]["attempt"]) == ("running", 1)
    assert "earlier version" in refusal(laptop, "extend", run, "20m", "--yes")

    laptop.kedge("teardown", run, "--yes")
    results = laptop.home / "kedge-results" / run
    assert int((results / "output/results/steps.log").read_text().split()[-2] or 0) > reached
    assert list((results / "checkpoints").iterdir())
    assert not laptop.processes()


def refusal(laptop: Laptop, *words: str) -> str:
    laptop.kedge(*words, code=2)
    return laptop.errors
