"""Kills `kedge launch` and `kedge teardown` at DigitalOcean with SIGKILL at random points, reaps once, and looks.

A blow is drawn from its number alone. Against the API it falls after so many calls, and a little later, so that it
falls before a call is answered, before it has had an effect, and between two calls; with machines it falls after a
time. Reap then looks at once, or, where machines train, an hour later, when they are past their deadline.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

from orchestrator.core.actions import AwaitMachine
from tests.cloudbox.digitalocean.box import DigitalOceanBox
from tests.cloudbox.rest.calls import CallBook
from tests.support.laptop import TRAIN, Laptop
from tests.support.waiting import wait_until

JOB = """
    name: toy
    workdir: .
    run: python3 train.py
    outputs: [results]
    envs: {{STEPS: 30, PAUSE: 0.2}}
    deadline: 10m
    budget: 5
    resources: {{infra: do, {wish}}}
    supervisor: {{kind: tmux, restarts: 0, grace: 5s}}
    volumes:
      data/scratch: {{name: scratch, size: 1, at_end: delete}}
      data/keep: {{name: keep, size: 1}}
"""
GPU, BOOTED = "accelerators: H100", "instance_type: s-2vcpu-4gb"
"""What is asked for: of the API, and where there is no such GPU, since it boots here."""
KEPT = ["keep"]

_MOST_CALLS = {"launch": 36, "teardown": 24}
"""A little more than either command makes before it waits."""
_CREATION = 0.6
"""Where in a launch the calls lie that make something: as a part of its calls, most likely to be hit."""
_LATER_SECONDS = 0.02
_SLOW_SECONDS = 2.0
"""How long a droplet is unknown, unlisted and inactive when it is new, and still there when it is deleted."""
_WHOLE_SECONDS = {"launch": 16.0, "teardown": 1.5}
"""What either command takes with machines: a launch boots, sends, trains, fetches and ends."""
HOUR = 3600.0
_PATIENCE_SECONDS = 6
"""For a command that makes fewer calls than the blow waits for, from its last one on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Blow:
    """One SIGKILL: during which command, after how many calls of it, and how much later.

    Attributes:
        machines: droplets boot, and train.
        slow: DigitalOcean takes its time to know of new droplets, and to let old ones go.
    """

    number: int
    during: str
    after_calls: int
    later_seconds: float
    slow: bool = False
    machines: bool = False

    @property
    def command(self) -> str:
        """What is launched: with machines it is followed until it is over, and its results are fetched."""
        return "launch --yes" if self.machines else "launch --yes --detach"


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """What a blow hit, and what was left when `kedge reap --yes` had been given once.

    Attributes:
        where: the last call that had arrived when it fell; with machines the newest entry of the ledger.
        there: what billed then.
        left: what shouldn't be there any more; empty when all is well.
    """

    blow: Blow
    calls: int
    where: str
    there: str
    reap_seconds: float
    left: tuple[str, ...]


def draw(number: int) -> Blow:
    """Draw a blow; the same number is the same blow, as far as a computer's speed allows."""
    random = Random(number)
    during = random.choice(("launch", "launch", "teardown"))
    return Blow(
        number=number,
        during=during,
        after_calls=round(random.triangular(1, _MOST_CALLS[during], _CREATION * _MOST_CALLS[during])),
        later_seconds=random.uniform(0, _LATER_SECONDS),
        slow=random.random() < 1 / 3,
    )


def draw_with_machines(number: int) -> Blow:
    """Draw a blow that falls at any time of a whole run."""
    random = Random(number)
    during = random.choice(("launch", "launch", "teardown"))
    later = random.uniform(0, _WHOLE_SECONDS[during])
    return Blow(number=number, during=during, after_calls=1, later_seconds=later, machines=True)


def strike(do: DigitalOceanBox, laptop: Laptop, blow: Blow) -> Story:
    """Give the command, kill it, reap once, and tell what there was and is."""
    if blow.slow:
        slow_down(do)
    write_job(laptop, BOOTED if blow.machines else GPU)
    command = blow.command.split()
    if blow.during == "teardown":
        run = launch(laptop) if blow.machines else launch_and_die(laptop)
        command = ["teardown", run, "--yes", *([] if blow.machines else ["--no-fetch"])]
    do.calls.reset()
    kill_at(do.calls, laptop.start(*command), blow)
    calls = list(do.calls)
    where = _newest_entry(laptop) if blow.machines else " ".join((calls[-1].method, calls[-1].path) if calls else "-")
    there = ", ".join(sorted(f"{bill.kind} {bill.what}" for bill in do.meter.billing()))
    began = time.monotonic()
    done = reap_once(laptop, seconds_later=HOUR if blow.machines else 0)
    seconds = time.monotonic() - began
    said = [f"reap exits {done.returncode}: {done.stderr.strip()}"] if done.returncode else []
    return Story(
        blow=blow,
        calls=len(calls),
        where=where,
        there=there,
        reap_seconds=seconds,
        left=(*said, *leftovers(do, laptop)),
    )


def write_job(laptop: Laptop, wish: str = GPU) -> None:
    """Write the user's job."""
    laptop.write_job(JOB.format(wish=wish))


def slow_down(do: DigitalOceanBox) -> None:
    """Let droplets appear late and go late."""
    do.settings.not_found_seconds = do.settings.unlisted_seconds = _SLOW_SECONDS
    do.settings.activation_seconds = do.settings.deletion_seconds = _SLOW_SECONDS


def reap_once(laptop: Laptop, *words: str, seconds_later: float = 0) -> subprocess.CompletedProcess[str]:
    """Give `kedge reap --provider do --yes`, so much later; its waits take a twentieth of their time."""
    return laptop.drive("reaping_later.py", str(seconds_later), "do", *words)


def leftovers(do: DigitalOceanBox, laptop: Laptop) -> list[str]:
    """Name what shouldn't be there: at DigitalOcean besides the volume that is kept, and in the ledger."""
    client = do.client()
    volumes = [volume["name"] for volume in client.volumes.list()["volumes"]]
    return [
        *(f"droplet {droplet.name}" for droplet in do.droplets()),
        *(f"volume {name}" for name in volumes if name not in KEPT),
        *(f"firewall {firewall['name']}" for firewall in client.firewalls.list()["firewalls"]),
        *unsettled(laptop),
    ]


def unsettled(laptop: Laptop) -> list[str]:
    """Name what the ledger holds to be alive or unclear."""
    ledger = laptop.ledger()
    intents = [intent for run in ledger.runs() for intent in ledger.open_intents(run.run_id)]
    found = [
        *(f"live machine {machine.id} in the ledger" for machine in ledger.machines(live_only=True)),
        *(f"live run {run.run_id} in the ledger" for run in ledger.runs(live_only=True)),
        *(f"open {intent.kind} in the ledger" for intent in intents),
    ]
    ledger.close()
    return found


def launch(laptop: Laptop) -> str:
    """Leave a run whose command was started, and return it."""
    run: str = laptop.json("launch", "--yes", "--detach")["run"]
    return run


def launch_and_die(laptop: Laptop) -> str:
    """Leave a run whose machine is there and boots, and return it."""
    process = laptop.start("launch", "--yes", "--detach")
    try:
        wait_until(lambda: _awaited(laptop) != "" or process.poll() is not None, seconds=60)
    finally:
        process.kill()
        _, said = process.communicate()
    assert _awaited(laptop), said
    return _awaited(laptop)


def _awaited(laptop: Laptop) -> str:
    """Return the run whose machine is waited for."""
    ledger = laptop.ledger()
    runs = [run.run_id for run in ledger.runs(live_only=True)]
    found = [run for run in runs if any(i.kind == AwaitMachine.__name__ for i in ledger.open_intents(run))]
    ledger.close()
    return found[0] if found else ""


def _newest_entry(laptop: Laptop) -> str:
    """Say what the ledger's newest intent is, and what became of it."""
    ledger = laptop.ledger()
    intents = [intent for run in ledger.runs() for intent in ledger.intents(run.run_id)]
    ledger.close()
    newest = max(intents, key=lambda intent: intent.id, default=None)
    return f"{newest.kind} {newest.state}" if newest else "-"


def kill_at(arrived: CallBook, process: subprocess.Popen[str], blow: Blow) -> None:
    """Kill a command when so many of its calls have arrived, and a little later."""
    seen, changed = 0, time.monotonic()
    while process.poll() is None and len(arrived) < blow.after_calls:
        if len(arrived) > seen:
            seen, changed = len(arrived), time.monotonic()
        if seen and time.monotonic() - changed > _PATIENCE_SECONDS:
            break
        time.sleep(0.0005)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.communicate(timeout=blow.later_seconds)
    process.kill()
    process.communicate()


@contextmanager
def make_laptop(environ: Mapping[str, str]) -> Iterator[Laptop]:
    """Make a laptop with an account at a box, by the box's variables, and clear it away."""
    folder = Path(tempfile.mkdtemp(prefix="kedge-chaos-"))
    (folder / "home").mkdir()
    shutil.copy(TRAIN, folder / "home" / "train.py")
    laptop = Laptop(home=folder / "home", state=folder / "state", runtime=folder / "runtime")
    laptop.extra_env |= {**environ, "KEDGE_SSH_FROM": "127.0.0.1/32"}
    try:
        yield laptop
    finally:
        laptop.end()
        shutil.rmtree(folder)
