"""How long the quick commands take, measured against invoke with a single task."""

from __future__ import annotations

import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path

from benchmarks.laptop import BenchLaptop, bench_laptop
from benchmarks.rounds import BIN, CHECKOUT, Benchmark, Contender, main, timed
from orchestrator.adapters.host.clock import SystemClock
from orchestrator.adapters.jobfile.overrides import Overrides
from orchestrator.adapters.jobfile.read import read_job
from orchestrator.adapters.ledger.sqlite import SqliteLedger
from orchestrator.core.job import LaunchSpec
from orchestrator.core.machine import Machine, MachineState, SshAddress

ROUNDS = 25
LIST = ["invoke", "--list"]
STATUS = ["kedge", "status", "--all", "--ledger"]
RUNS = 20
BARE = "bare invoke --list, one task"
TASKS = """\
from invoke import task


@task
def hello(c):
    \"\"\"Say hello.\"\"\"
"""
HEAVY = frozenset(
    {
        *("boto3", "botocore", "fabric", "jinja2", "numpy", "paramiko", "pydantic", "pydo"),
        *("rich", "torch"),
    }
)


def fill(benchmark: Benchmark) -> None:
    """Time --list and status."""
    with bench_laptop() as laptop:
        (laptop.home / "tasks.py").write_text(TASKS)
        record_runs(laptop.state)
        contenders = list_contenders(laptop)
        for contender in contenders:
            contender.run()  # compiles the modules that aren't compiled yet
        benchmark.measure(contenders)
        for words, folder in ((LIST, CHECKOUT), (STATUS, laptop.home)):
            heavy = sorted(loaded(laptop, words, folder) & HEAVY)
            benchmark.check(f"`{' '.join(words)}` loads {', '.join(heavy) or 'nothing heavy'}", met=not heavy)
        benchmark.notes.append(f"heavy: {', '.join(sorted(HEAVY))}")
        benchmark.notes.append(f"status: {RUNS} runs in the ledger, one of them live; state folder from XDG_STATE_HOME")


def list_contenders(laptop: BenchLaptop) -> list[Contender]:
    """List the commands."""
    invoke, kedge = str(BIN / "invoke"), str(BIN / "kedge")
    run = partial(timed, env=laptop.env)
    status = [kedge, "status", "--all"]
    return [
        Contender(name=BARE, run=partial(run, [invoke, "--list"], cwd=laptop.home)),
        Contender(
            name="invoke --list, all tasks",
            run=partial(run, [invoke, "--list"], cwd=CHECKOUT),
            against=BARE,
            bar=1.10,
        ),
        Contender(name="kedge --list", run=partial(run, [kedge, "--list"], cwd=laptop.home), against=BARE),
        Contender(
            name="kedge status --all --ledger",
            run=partial(run, [*status, "--ledger"], cwd=laptop.home),
            against=BARE,
            bar=1.50,
        ),
        Contender(name="kedge status --all", run=partial(run, status, cwd=laptop.home), against=BARE),
    ]


def loaded(laptop: BenchLaptop, words: list[str], cwd: Path) -> set[str]:
    """Return the top-level packages that a command imports."""
    argv = [sys.executable, "-X", "importtime", str(BIN / words[0]), *words[1:]]
    done = subprocess.run(argv, cwd=cwd, env=laptop.env, capture_output=True, text=True, check=True)
    return set(re.findall(r"^import time:.*\| +([A-Za-z_]\w*)", done.stderr, re.MULTILINE))


def record_runs(state: Path) -> None:
    """Write a ledger of runs of a real job, each with a machine, the newest one live."""
    path = CHECKOUT / "infra" / "jobs" / "digits.yaml"
    job = read_job(path, mode="full", overrides=Overrides(), environ={}, providers=("local",))
    ledger = SqliteLedger(state, SystemClock())
    now = datetime.now(UTC)
    for number in range(RUNS):
        began = now - timedelta(hours=RUNS - number)
        spec = LaunchSpec(run_id=f"digits-1121-{number:04}", provider="local", job=job)
        ledger.open_run(spec, began)
        ledger.put_machine(a_machine(spec.run_id, began))
        ledger.note_outcome(spec.run_id, "succeeded", timedelta(minutes=20))
        if number < RUNS - 1:
            ledger.record_machine_end(f"{spec.run_id}-m1", began + timedelta(minutes=21))
            ledger.end_run(spec.run_id, began + timedelta(minutes=21))
    ledger.close()


def a_machine(run_id: str, created: datetime) -> Machine:
    """Make up a machine."""
    return Machine(
        id=f"{run_id}-m1",
        run_id=run_id,
        provider="local",
        provider_id=f"{run_id}-m1",
        state=MachineState.READY,
        root=f"/tmp/{run_id}-m1",
        created_at=created,
        deadline_at=created + timedelta(hours=48),
        usd_per_hour=Decimal("1.99"),
        address=SshAddress(host="127.0.0.1", port=22, user="root", host_key="ssh-ed25519 AAAA", key_file="/tmp/key"),
    )


if __name__ == "__main__":
    main("cli", "Quick commands, as whole processes", fill, rounds=ROUNDS)
