"""A self-test in this process, in which one thing at a time is broken."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest

from orchestrator.adapters.host.clock import SystemClock
from orchestrator.adapters.host.settings import read_settings
from orchestrator.adapters.providers.local.folder import MachineFolder
from orchestrator.app.acting import stop_plan
from orchestrator.app.root import App
from orchestrator.app.selftest.life import Selftest, selftest_spec
from orchestrator.app.selftest.probes import compare_code, give_notice, read_guard, try_pins
from orchestrator.core.errors import KedgeError
from orchestrator.core.ledger import RunRecord
from orchestrator.core.machine import Machine, MachineOrder
from orchestrator.core.sweep import Sweep
from tests.support.flags import given
from tests.support.laptop import Laptop


@pytest.fixture
def laptop(laptop: Laptop) -> Laptop:
    """A laptop whose self-test takes seconds."""
    laptop.extra_env["KEDGE_SELFTEST_SECONDS"] = "2"
    return laptop


@dataclass
class Stage:
    """Where a self-test runs: the bundled job's folder, and the app."""

    home: Path
    app: App

    def files(self, pattern: str) -> list[Path]:
        """Find files below this computer's local machines."""
        found = list((self.app.settings.state_dir / "machines").glob(pattern))
        assert found, pattern
        return found

    def break_agent(self) -> None:
        """Replace the machine's agent by one that only fails."""
        for path in self.files("*/bin/kedge-agent"):
            path.write_text("#!/bin/sh\necho broken >&2\nexit 9\n")

    @contextlib.contextmanager
    def changed(self, path: Path, change: Callable[[str], str]) -> Iterator[None]:
        """Change a file's content during the block."""
        before = path.read_text()
        path.write_text(change(before))
        yield
        path.write_text(before)

    def wrap_provider(self, wrapper: type[_Port]) -> None:
        """Make a method of the provider fail."""
        world = self.app.world("local")
        self.app._worlds["local"] = replace(world, provider=wrapper(world.provider))

    def lock_store(self) -> None:
        """Make every removal from the store fail."""
        world = self.app.world("local")
        self.app._worlds["local"] = replace(world, store=LockedStore(world.store))


class EagerClock(SystemClock):
    """Polls ten times a second, whatever the interval is."""

    def sleep(self, duration: timedelta) -> None:
        super().sleep(min(duration, timedelta(seconds=0.1)))


class _Port:
    """A provider or a store, of which a subclass overrides parts."""

    def __init__(self, real: Any) -> None:
        self._real = real

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


class RefusesToCreate(_Port):
    """Refuses to create machines."""

    def create(self, order: MachineOrder) -> Machine:
        raise KedgeError(f"machine {order.id} can't be created")


class RefusesToDestroy(_Port):
    """Refuses to end machines."""

    def destroy(self, machine_id: str) -> None:
        raise KedgeError(f"machine {machine_id} can't be ended")


class RefusesToSweep(_Port):
    """Refuses to be swept."""

    def sweep(self) -> Sweep:
        raise KedgeError("the provider doesn't answer")


class LockedStore(_Port):
    """Refuses to remove anything."""

    def remove(self, run_id: str) -> None:
        raise KedgeError(f"what the store has of {run_id} can't be removed")


def damage_data(stage: Stage) -> None:
    path = stage.home / "numbers" / "numbers.txt"
    path.write_text(path.read_text().replace("500\n", "501\n"))


def damage_end(stage: Stage) -> None:
    """Make the training fail after its last step."""
    (path,) = stage.files("*/code/train.py")
    path.write_text(path.read_text().replace("sys.exit(1 if stops else 0)", "sys.exit(1)"))


def damage_start(stage: Stage) -> None:
    """Make the training fail when it starts again."""
    (path,) = stage.files("*/code/train.py")
    path.write_text("raise SystemExit(9)\n")


def lose_results(stage: Stage) -> None:
    """Make both the machine and the store fail to return results."""
    stage.break_agent()
    # A watch that goes on would upload again.
    for machine in stage.files("*"):
        init = MachineFolder(machine).init()
        assert init is not None
        watches = [child for child in psutil.Process(init.pid).children() if is_watch(child)]
        for watch in watches:
            watch.kill()
        psutil.wait_procs(watches, timeout=10)
    for path in (stage.app.settings.state_dir / "store").glob("*/manifest.json"):
        path.unlink()


def is_watch(process: psutil.Process) -> bool:
    """Tell whether a child of init is the agent's watch; others come and go."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return "watch" in process.cmdline()
    return False


def lose_machine(stage: Stage) -> None:
    provider = stage.app.world("local").provider
    for machine in provider.machines():
        provider.destroy(machine.id)


def postpone_deadline(machine: str) -> str:
    """Give a machine's configuration a later deadline."""
    config = json.loads(machine)
    return json.dumps({**config, "deadline": config["deadline"] + 3600})


def stop(app: App, record: RunRecord) -> None:
    app.apply(record.spec, stop_plan(app, record), lambda _event: None)


def try_probes(stage: Stage) -> None:
    """Break what each probe of a running machine checks, once; afterwards everything is as before."""
    (record,) = stage.app.ledger.runs()
    (agent,), (machine,), (init,) = (
        stage.files(f"*/{name}") for name in ("bin/kedge-agent", "machine.json", "init.json")
    )
    dead = "#!/bin/sh\necho broken >&2\nexit 9\n"
    faults: tuple[tuple[Path, Callable[[str], str], Callable[[App, RunRecord], object], str], ...] = (
        (agent, lambda _text: dead, try_pins, "doesn't answer"),
        (machine, postpone_deadline, read_guard, "later than its deadline"),
        (init, lambda _text: '{"ident": [1, 0.0]}', read_guard, "init is dead"),
        (stage.home / "train.py", lambda text: f"{text}\n", compare_code, "the machine has code"),
        (agent, lambda _text: dead, give_notice, "doesn't take the notice"),
        (agent, lambda _text: dead, stop, "could not stop"),
    )
    for path, change, probe, said in faults:
        with stage.changed(path, change), pytest.raises(KedgeError, match=said):
            probe(stage.app, record)


def lose_hold(stage: Stage) -> None:
    stage.wrap_provider(RefusesToDestroy)


def sell_nothing(stage: Stage) -> None:
    stage.wrap_provider(RefusesToCreate)
    stage.wrap_provider(RefusesToSweep)
    stage.lock_store()


def play(laptop: Laptop, harms: Mapping[tuple[str, int], Callable[[Stage], object]]) -> Selftest:
    """Run a self-test, and do harm when a check starts for the nth time."""
    app = App(read_settings({**laptop.env, "PATH": os.environ["PATH"]}))
    app.clock = EagerClock()
    overrides = given(provider="local", env=("TRAINING_SECONDS=1",))
    with selftest_spec(app, overrides) as spec:
        stage = Stage(home=Path(spec.folder) if not spec.job.path else Path(spec.job.path).parent, app=app)
        seen: list[str] = []

        def began(name: str) -> None:
            seen.append(name)
            if harm := harms.get((name, seen.count(name))):
                harm(stage)

        test = Selftest(app=app, spec=spec, agree=lambda _plan: None, began=began, ended=lambda _line: None)
        test.run()
        app.ledger.close()
        return test
