"""Kills `kedge launch` and `kedge teardown` at DigitalOcean with SIGKILL at random points, then runs `kedge reap`.

The number of a kill is its random seed. Against the API alone a kill comes after a number of calls and a short delay:
before a call is answered, before it has an effect, or between two calls. With machines it comes after a time. Reap then
runs at once, or, with machines, one hour later, when they are past their deadline.
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
from orchestrator.core.errors import StillBillingError
from tests.cloudbox.digitalocean.box import DigitalOceanBox
from tests.cloudbox.rest.calls import CallBook
from tests.support.laptop import TRAIN, Laptop, remove_runtime
from tests.support.waiting import wait_until

JOB = """
    name: toy
    workdir: .
    run: python3 train.py
    outputs: [results]
    envs: {{STEPS: 30, PAUSE: 0.2}}
    deadline: 10m
    budget: 5
    resources: {{infra: do, {requirements}}}
    supervisor: {{kind: tmux, restarts: 0, grace: 5s}}
    volumes:
      data/scratch: {{name: scratch, size: 1, at_end: delete}}
      data/keep: {{name: keep, size: 1}}
"""
GPU, BOOTED = "accelerators: H100", "instance_type: s-2vcpu-4gb"
"""The job's requirements: against the API alone, and with machines, which boot on this computer without a GPU."""
KEPT = ["keep"]

_MOST_CALLS = {"launch": 36, "teardown": 24}
"""A few more calls than either command makes before it waits."""
_CREATION = 0.6
"""The share of a command's calls after which a kill is most likely: a launch creates its resources there."""
_LATER_SECONDS = 0.02
_SLOW_SECONDS = 2.0
"""How long a new droplet is unknown, unlisted and inactive, and how long a deleted one is still there."""
_WHOLE_SECONDS = {"launch": 16.0, "teardown": 1.5}
"""How long either command takes with machines: a launch boots, sends, trains, fetches and ends."""
HOUR = 3600.0
REAP_SPEED = 20
"""How much faster than the box's clock the waits of reaping_later.py pass."""
UNCLEAR_SECONDS = 900.0
"""How long an unanswered creation counts as a droplet (`Traits.unclear_for`); a reap before that exits with 5."""
_PATIENCE_SECONDS = 6
"""How long to wait after the last call of a command that makes fewer calls than the kill expects."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """One SIGKILL: during which command, after how many of its calls, and how much later.

    Attributes:
        machines: droplets boot and train.
        slow: new droplets appear late, and deleted ones disappear late.
    """

    number: int
    during: str
    after_calls: int
    later_seconds: float
    slow: bool = False
    machines: bool = False

    @property
    def command(self) -> str:
        """The launch command. With machines it follows the run to its end and fetches the results."""
        return "launch --yes" if self.machines else "launch --yes --detach"


@dataclass(frozen=True, slots=True, kw_only=True)
class KillResult:
    """What was going on at a kill, and what was left after `kedge reap --yes`.

    Attributes:
        where: the last call before the kill; with machines the newest entry of the ledger.
        there: what was billing then.
        left: what should be gone by now; empty if all is well.
    """

    kill: Kill
    calls: int
    where: str
    there: str
    reap_seconds: float
    left: tuple[str, ...]


def draw(number: int) -> Kill:
    """Draw a kill; the same number gives the same kill, as far as the computer's speed allows."""
    random = Random(number)
    during = random.choice(("launch", "launch", "teardown"))
    return Kill(
        number=number,
        during=during,
        after_calls=round(random.triangular(1, _MOST_CALLS[during], _CREATION * _MOST_CALLS[during])),
        later_seconds=random.uniform(0, _LATER_SECONDS),
        slow=random.random() < 1 / 3,
    )


def draw_with_machines(number: int) -> Kill:
    """Draw a kill at any time of a whole run."""
    random = Random(number)
    during = random.choice(("launch", "launch", "teardown"))
    later = random.uniform(0, _WHOLE_SECONDS[during])
    return Kill(number=number, during=during, after_calls=1, later_seconds=later, machines=True)


def kill_and_reap(do: DigitalOceanBox, laptop: Laptop, kill: Kill) -> KillResult:
    """Start the command, kill it, reap, and return what was found."""
    if kill.slow:
        slow_down(do)
    write_job(laptop, BOOTED if kill.machines else GPU)
    command = kill.command.split()
    if kill.during == "teardown":
        run = launch(laptop) if kill.machines else launch_and_die(laptop)
        command = ["teardown", run, "--yes", *([] if kill.machines else ["--no-fetch"])]
    do.calls.reset()
    kill_at(do.calls, laptop.start(*command), kill)
    calls = list(do.calls)
    where = _newest_entry(laptop) if kill.machines else " ".join((calls[-1].method, calls[-1].path) if calls else "-")
    there = ", ".join(sorted(f"{bill.kind} {bill.what}" for bill in do.meter.billing()))
    quicken(do)
    began = time.monotonic()
    done = reap_once(laptop, seconds_later=HOUR if kill.machines else 0)
    if done.returncode == StillBillingError.exit_code and not do.droplets():
        # The API has refused the droplet, and nobody has read that: it may exist, until it is late enough.
        done = reap_once(laptop, seconds_later=UNCLEAR_SECONDS)
    seconds = time.monotonic() - began
    failures = [f"reap exits {done.returncode}: {done.stderr.strip()}"] if done.returncode else []
    return KillResult(
        kill=kill,
        calls=len(calls),
        where=where,
        there=there,
        reap_seconds=seconds,
        left=(*failures, *leftovers(do, laptop)),
    )


def write_job(laptop: Laptop, requirements: str = GPU) -> None:
    """Write the user's job."""
    laptop.write_job(JOB.format(requirements=requirements))


def slow_down(do: DigitalOceanBox) -> None:
    """Let droplets appear late and disappear late."""
    do.settings.not_found_seconds = do.settings.unlisted_seconds = _SLOW_SECONDS
    do.settings.activation_seconds = do.settings.deletion_seconds = _SLOW_SECONDS


def quicken(do: DigitalOceanBox) -> None:
    """Let a minute have as many calls as a reap needs whose waits take a twentieth of their time."""
    do.settings.requests_per_minute *= REAP_SPEED


def reap_once(laptop: Laptop, *words: str, seconds_later: float = 0) -> subprocess.CompletedProcess[str]:
    """Run `kedge reap --provider do --yes` as if it were later; its waits take a twentieth of their time."""
    return laptop.drive("reaping_later.py", str(seconds_later), "do", *words)


def leftovers(do: DigitalOceanBox, laptop: Laptop) -> list[str]:
    """List what should be gone: at DigitalOcean all but the kept volume, and what the ledger has as unfinished."""
    client = do.client()
    volumes = [volume["name"] for volume in client.volumes.list()["volumes"]]
    return [
        *(f"droplet {droplet.name}" for droplet in do.droplets()),
        *(f"volume {name}" for name in volumes if name not in KEPT),
        *(f"firewall {firewall['name']}" for firewall in client.firewalls.list()["firewalls"]),
        *unsettled(laptop),
    ]


def unsettled(laptop: Laptop) -> list[str]:
    """List what the ledger has as live or unclear."""
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
    """Launch a run, and return it when its command was started."""
    run: str = laptop.json("launch", "--yes", "--detach")["run"]
    return run


def launch_and_die(laptop: Laptop) -> str:
    """Launch a run, kill the command while the machine boots, and return the run."""
    process = laptop.start("launch", "--yes", "--detach")
    try:
        wait_until(lambda: _awaited(laptop) != "" or process.poll() is not None, seconds=240)
    finally:
        process.kill()
        _, errors = process.communicate()
    assert _awaited(laptop), errors
    return _awaited(laptop)


def _awaited(laptop: Laptop) -> str:
    """Return the run that waits for its machine; empty for none."""
    ledger = laptop.ledger()
    runs = [run.run_id for run in ledger.runs(live_only=True)]
    found = [run for run in runs if any(i.kind == AwaitMachine.__name__ for i in ledger.open_intents(run))]
    ledger.close()
    return found[0] if found else ""


def _newest_entry(laptop: Laptop) -> str:
    """Return the kind and the state of the ledger's newest intent."""
    ledger = laptop.ledger()
    intents = [intent for run in ledger.runs() for intent in ledger.intents(run.run_id)]
    ledger.close()
    newest = max(intents, key=lambda intent: intent.id, default=None)
    return f"{newest.kind} {newest.state}" if newest else "-"


def kill_at(arrived: CallBook, process: subprocess.Popen[str], kill: Kill) -> None:
    """Kill a command when so many of its calls have arrived, after a short delay."""
    seen, changed = 0, time.monotonic()
    while process.poll() is None and len(arrived) < kill.after_calls:
        if len(arrived) > seen:
            seen, changed = len(arrived), time.monotonic()
        if seen and time.monotonic() - changed > _PATIENCE_SECONDS:
            break
        time.sleep(0.0005)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.communicate(timeout=kill.later_seconds)
    process.kill()
    process.communicate()


@contextmanager
def make_laptop(environ: Mapping[str, str]) -> Iterator[Laptop]:
    """Make a laptop with an account at a box, given by the box's variables, and remove it at the end."""
    folder = Path(tempfile.mkdtemp(prefix="kedge-chaos-"))
    (folder / "home").mkdir()
    shutil.copy(TRAIN, folder / "home" / "train.py")
    laptop = Laptop(home=folder / "home", state=folder / "state", runtime=folder / "runtime")
    laptop.extra_env |= {**environ, "KEDGE_SSH_FROM": "127.0.0.1/32"}
    try:
        yield laptop
    finally:
        laptop.end()
        remove_runtime(folder)
