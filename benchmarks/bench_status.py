"""How long `kedge status` takes with many machines at two clouds."""

from __future__ import annotations

import contextlib
import json
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.laptop import KEDGE, BenchLaptop, bench_laptop
from benchmarks.rounds import Benchmark, Contender, main, timed
from orchestrator.adapters.host.settings import read_settings
from orchestrator.app.root import App
from orchestrator.core.job import Job, LaunchSpec
from orchestrator.core.machine import Machine, MachineOrder
from orchestrator.core.task import Task
from tests.cloudbox.digitalocean.box import DigitalOceanBox
from tests.cloudbox.digitalocean.box import start_box as start_digitalocean
from tests.cloudbox.lambdacloud.box import LambdaBox
from tests.cloudbox.lambdacloud.box import start_box as start_lambda
from tests.support.orders import make_offer

ROUNDS = 15
RUNS, NODES = 20, 4
LIMIT_SECONDS = 1.0
CLOUD_SECONDS = 0.2
"""How long each cloud takes for each answer, besides the box's own time."""
AGENT_SECONDS = 0.1
"""How long a machine takes for its report: more than `kedge-agent report` takes on this computer (20 to 90 ms)."""
STATUS = "kedge status, 20 runs x 4 machines"
LEDGER = "kedge status --ledger, the same runs"


@dataclass
class Timed:
    """Runs a command, and keeps its times."""

    run: Callable[[], float]
    seconds: list[float] = field(default_factory=list)

    def __call__(self) -> float:
        """Run it once."""
        self.seconds.append(self.run())
        return self.seconds[-1]


def fill(benchmark: Benchmark) -> None:
    """Time `status` of all runs, of one, and of the ledger alone."""
    with bench_laptop() as laptop, _clouds(laptop.root) as (do, lam):
        environ = {**laptop.env, **do.environ, **lam.environ, "KEDGE_LAMBDA_PACE": "0"}
        machines = _rent(laptop, environ)
        with _serve(laptop.root, machines):
            run = partial(timed, cwd=laptop.home, env=environ)
            # The first one opens a connection to each machine, as launches do, and leaves them open.
            first = run([KEDGE, "status"])
            _require_complete(laptop, environ)
            for box in (do, lam):
                box.faults.delay_next("GET", "", CLOUD_SECONDS, times=None)
            status = Timed(partial(run, [KEDGE, "status"]))
            benchmark.measure(
                [
                    Contender(name=LEDGER, run=partial(run, [KEDGE, "status", "--ledger"])),
                    Contender(name=STATUS, run=status, against=LEDGER),
                    Contender(
                        name="kedge status RUN, 4 machines",
                        run=partial(run, [KEDGE, "status", machines[0].run_id]),
                        against=LEDGER,
                    ),
                ]
            )
            _require_complete(laptop, environ)
        median = statistics.median(status.seconds)
        benchmark.check(f"{RUNS} runs x {NODES} machines: {median:.2f} s of {LIMIT_SECONDS:g} s", met=median <= 1.0)
        benchmark.notes += [
            f"two clouds (DigitalOcean's and Lambda's boxes), {RUNS // 2} runs each; each answer of theirs takes "
            f"{CLOUD_SECONDS * 1000:.0f} ms more",
            f"machines: one SSH server on this computer with {RUNS * NODES} addresses; a recorded report after "
            f"{AGENT_SECONDS * 1000:.0f} ms",
            f"connections were open; the first status, which opens all {RUNS * NODES}, took {first:.1f} s",
        ]


@contextlib.contextmanager
def _clouds(root: Path) -> Iterator[tuple[DigitalOceanBox, LambdaBox]]:
    for name in ("do", "lambda"):
        (root / name).mkdir()
    with start_digitalocean(root / "do", checked=False) as do, start_lambda(root / "lambda") as lam:
        do.settings.droplet_limit, do.settings.requests_per_minute = 1000, 100_000
        do.settings.key_seconds = do.settings.firewall_seconds = 0
        lam.settings.remove_delays()
        lam.settings.instance_limit = 1000
        yield do, lam


def _rent(laptop: BenchLaptop, environ: dict[str, str]) -> list[Machine]:
    """Create all machines with kedge's own providers, and record them as a launch does."""
    own = {"KEDGE_STATE_DIR": str(laptop.state), "KEDGE_RUNTIME_DIR": str(laptop.runtime)}
    app = App(read_settings({**environ, **own}))
    host_key = _make_host_key(laptop.root / "host_key")
    kinds = {"do": ("s-2vcpu-4gb", "tor1"), "lambda": ("gpu_1x_h100_sxm5", "us-east-1")}
    found = []
    for number in range(RUNS):
        name = ("do", "lambda")[number % 2]
        job = Job(name="digits", tasks=(Task(run="train"),), num_nodes=NODES)
        run = f"digits-1121-{number:04}"
        spec = LaunchSpec(run_id=run, provider=name, job=job, without_reaper=True, ssh_from="203.0.113.7/32")
        app.ledger.open_run(spec, datetime.now(UTC))
        app.ledger.note_outcome(run, "running", timedelta(0))
        provider, world = app.world(name).provider, app.world(name)
        for rank in range(NODES):
            kind, region = kinds[name]
            order = MachineOrder(
                id=f"{run}-m{rank + 1}",
                run_id=run,
                offer=make_offer(name, kind, region, usd_per_hour=Decimal(2)),
                lifetime_seconds=36_000,
                authorized_key=world.authorized_key,
                agent_archive=b"",
                store_url="",
                ssh_from="203.0.113.7/32",
                rank=rank,
            )
            provider.create(order)
            provider.pin(order.id, host_key)
        for machine in provider.machines():
            if machine.run_id == run:
                app.ledger.put_machine(machine)
                found.append(machine)
    app.ledger.close()
    return found


def _make_host_key(path: Path) -> str:
    argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(path)]
    subprocess.run(argv, check=True, stdin=subprocess.DEVNULL)
    return path.with_suffix(".pub").read_text().strip()


@contextlib.contextmanager
def _serve(root: Path, machines: list[Machine]) -> Iterator[None]:
    """Let the machines answer."""
    reports = {machine.require_address().host: _report(machine) for machine in machines}
    argv = [sys.executable, str(Path(__file__).with_name("machines.py")), str(root / "host_key"), str(AGENT_SECONDS)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(json.dumps(reports) + "\n")
        server.stdin.flush()
        if server.stdout.readline() != "ready\n":
            raise RuntimeError("the machines don't listen: port 22 of a loopback address is taken, or needs root")
        try:
            yield
        finally:
            server.stdin.close()


def _report(machine: Machine) -> dict[str, Any]:
    now = datetime.now(UTC).timestamp()
    memory = {"memory_used_mib": 70_000, "memory_total_mib": 81_559}
    gpu = {"name": "NVIDIA H100 80GB HBM3", "use_percent": 97.0, **memory}
    sample = {"time": now, "cpu_percent": 20.0, **memory, "gpus": [{**gpu, "index": index} for index in range(8)]}
    return {
        "machine": machine.id,
        "run": machine.run_id,
        "created": now,
        "deadline": now + 36_000,
        "usd_per_hour": "2",
        "heartbeat": now + 36_000,
        "command": {"state": "running", "attempt": 1, "since": now, "started": now},
        "progress": {"epoch": 3, "epochs": 90, "step": 1200, "metrics": {"loss": 0.51, "accuracy": 0.87}},
        "checkpoint": {"name": "step1000", "bytes": 1 << 30, "written": now},
        "advanced": now + 36_000,
        "sample": sample,
    }


def _require_complete(laptop: BenchLaptop, environ: dict[str, str]) -> None:
    """Fail unless `status` shows every machine's report, and nothing else."""
    done = subprocess.run(
        [KEDGE, "status", "--json"], cwd=laptop.home, env=environ, check=True, capture_output=True, text=True
    )
    shown = json.loads(done.stdout)
    reports = sum(len(status["reports"]) for status in shown)
    findings = [line for status in shown for line in status["findings"] if "ends" not in line]
    if (len(shown), reports) != (RUNS, RUNS * NODES):
        raise RuntimeError(f"status shows {len(shown)} runs and {reports} reports; {findings[:3]}; {done.stderr}")


if __name__ == "__main__":
    main("status", "kedge status of many machines, as whole processes", fill, rounds=ROUNDS)
