"""`kedge selftest` on this computer: a run's whole life, each check failing once, and nothing left."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import IO, Any

import pytest

from orchestrator.adapters.clock import SystemClock
from orchestrator.adapters.jobfile.flags import Overrides
from orchestrator.adapters.settings import read_settings
from orchestrator.app.acting import stop_plan
from orchestrator.app.root import App
from orchestrator.app.selftest import CUT_OFF, Selftest, selftest_spec
from orchestrator.app.selftest_probes import check_results, compare_code, give_notice, read_guard, try_pins
from orchestrator.app.selftest_report import redact
from orchestrator.core.checkup import Verdict
from orchestrator.core.errors import KedgeError, StillBillingError
from orchestrator.core.ledger import RunRecord, RunStage
from orchestrator.core.machine import Machine, MachineOrder
from orchestrator.core.selftest import find_fault
from orchestrator.core.sweep import Sweep
from tests.json_schemas import require_documented
from tests.laptop import Laptop

LIFE = [
    *("permissions", "offer", "creation", "boot", "code", "data", "start", "SSH with pinned keys", "deadline guard"),
    *("code on the machine", "first steps", "stop", "data", "start", "resume", "notice"),
    *("training", "results", "teardown", "right results", "store", "sweep"),
]


@pytest.fixture
def laptop(laptop: Laptop) -> Laptop:
    """A laptop whose self-test takes seconds."""
    laptop.extra_env["KEDGE_SELFTEST_SECONDS"] = "2"
    return laptop


def read_to(stream: IO[str], words: str) -> None:
    while not (line := stream.readline()).startswith(words):
        assert line


def read_report(laptop: Laptop) -> dict[str, Any]:
    report = dict(json.loads((laptop.home / "kedge-selftest.json").read_text()))
    require_documented("selftest", report)
    return report


def test_a_selftest_goes_through_a_whole_life_and_leaves_nothing(laptop: Laptop) -> None:
    """Every check is ok; what it was is printed and written down; no process, no machine, no folder stays."""
    laptop.extra_env["MY_API_TOKEN"] = "selftest-1122"
    laptop.kedge("selftest", code=2)
    assert "--yes" in laptop.errors
    said = laptop.kedge("selftest", "--yes")
    assert re.search(r"ok  sweep +\d+\.\d s  nothing of it is left", said)
    report = read_report(laptop)
    assert [line["check"] for line in report["checks"]] == LIFE
    assert report["passed"]
    assert laptop.processes() == []
    assert list((laptop.state / "machines").iterdir()) == []
    assert not list(laptop.state.glob("store/*"))
    assert not (laptop.home / "kedge-results").exists()
    assert [record.stage for record in laptop.ledger().runs()] == [RunStage.ENDED]


def test_ctrl_c_leaves_nothing(laptop: Laptop) -> None:
    """The machine is ended and the sweep made before the command leaves; the report says where it broke off."""
    test = laptop.start("selftest", "--yes")
    assert test.stdout is not None
    read_to(test.stdout, "ok  creation")
    test.send_signal(signal.SIGINT)
    test.communicate(timeout=60)
    assert test.returncode == 130
    checks = {line["check"]: line for line in read_report(laptop)["checks"]}
    assert checks["sweep"]["found"] == "nothing of it is left"
    assert not read_report(laptop)["passed"]
    assert laptop.processes() == []


def test_interrupting_the_end_as_well_says_what_may_bill(laptop: Laptop) -> None:
    """Nobody is left in the belief that all is well: exit code 5, and the commands that end it."""
    test = laptop.start("selftest", "--yes")
    assert test.stdout is not None
    read_to(test.stdout, "ok  creation")
    test.send_signal(signal.SIGINT)
    read_to(test.stdout, "Ending the machine")
    test.send_signal(signal.SIGINT)
    _, errors = test.communicate(timeout=60)
    assert test.returncode == 5, errors
    (record,) = laptop.ledger().runs()
    assert f"kedge teardown {record.run_id}" in errors
    laptop.kedge("teardown", record.run_id, "--yes", "--no-fetch")


def test_a_reader_who_leaves_does_not_keep_the_machine(laptop: Laptop) -> None:
    """As in `kedge selftest | head`: the rest of what is printed goes nowhere, and everything is ended."""
    test = laptop.start("selftest", "--yes")
    assert test.stdout is not None
    read_to(test.stdout, "ok  creation")
    test.stdout.close()
    assert test.wait(timeout=60) in (0, 1, 141)
    assert laptop.processes() == []
    assert [record.stage for record in laptop.ledger().runs()] == [RunStage.ENDED]


def test_a_report_that_can_t_be_written_is_told_before_anything_is_made(laptop: Laptop) -> None:
    """A report that fails at the end would hide what the test has found."""
    (laptop.home / "kedge-selftest.json").mkdir()
    laptop.kedge("selftest", "--yes", code=2)
    assert "can't be written" in laptop.errors
    assert list(laptop.ledger().runs()) == []


def test_what_can_t_be_rented_is_told_by_the_exit_code(laptop: Laptop) -> None:
    """As a launch does: no such provider, nothing for sale."""
    laptop.kedge("selftest", "--yes", "--provider", "gcp", code=2)
    said = laptop.kedge("selftest", "--yes", "--gpu", "mi300x:8", code=3)
    assert "!!  offer" in said
    assert "mi300x:8" in laptop.errors
    assert laptop.processes() == []


def test_a_laptop_that_lacks_something_is_told_before_anything_is_made(laptop: Laptop) -> None:
    """The checks of `kedge doctor` come first."""
    programs = laptop.home / "bin"
    programs.mkdir()
    for name in ("ssh", "ssh-keygen", "git"):
        (programs / name).symlink_to(str(shutil.which(name)))
    said = laptop.kedge("selftest", "--yes", code=1, env={"PATH": str(programs)})
    assert "!!  permissions" in said
    assert "kedge doctor" in laptop.errors
    assert [line["check"] for line in read_report(laptop)["checks"]] == ["permissions"]


@dataclass
class Stage:
    """Where a self-test is being played: the bundled job's folder, and the app."""

    home: Path
    app: App

    def files(self, pattern: str) -> list[Path]:
        """Find files below the machines of this computer."""
        found = list((self.app.settings.state_dir / "machines").glob(pattern))
        assert found, pattern
        return found

    def break_agent(self) -> None:
        """The agent on the machine does nothing any more."""
        for path in self.files("*/bin/kedge-agent"):
            path.write_text("#!/bin/sh\necho broken >&2\nexit 9\n")

    @contextlib.contextmanager
    def changed(self, path: Path, change: Callable[[str], str]) -> Iterator[None]:
        """A file is another one for a while."""
        before = path.read_text()
        path.write_text(change(before))
        yield
        path.write_text(before)

    def wrap_provider(self, wrapper: type[_Port]) -> None:
        """Let something of the provider fail."""
        world = self.app.world("local")
        self.app._worlds["local"] = replace(world, provider=wrapper(world.provider))

    def lock_store(self) -> None:
        """Nothing can be removed from the store any more."""
        world = self.app.world("local")
        self.app._worlds["local"] = replace(world, store=LockedStore(world.store))


class EagerClock(SystemClock):
    """Asks again ten times a second, whatever the interval is."""

    def sleep(self, duration: timedelta) -> None:
        super().sleep(min(duration, timedelta(seconds=0.1)))


class _Port:
    """A provider, or a store, but for what a subclass overrides."""

    def __init__(self, real: Any) -> None:
        self._real = real

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


class Unwilling(_Port):
    """Creates nothing."""

    def create(self, order: MachineOrder) -> Machine:
        raise KedgeError(f"machine {order.id} can't be created")


class Undying(_Port):
    """Ends nothing."""

    def destroy(self, machine_id: str) -> None:
        raise KedgeError(f"machine {machine_id} can't be ended")


class Blind(_Port):
    """Can't be swept."""

    def sweep(self) -> Sweep:
        raise KedgeError("the provider doesn't answer")


class LockedStore(_Port):
    """Removes nothing."""

    def remove(self, run_id: str) -> None:
        raise KedgeError(f"what the store has of {run_id} can't be removed")


def damage_data(stage: Stage) -> None:
    path = stage.home / "numbers" / "numbers.txt"
    path.write_text(path.read_text().replace("500\n", "501\n"))


def damage_end(stage: Stage) -> None:
    """Let the training fail once it has done everything."""
    (path,) = stage.files("*/code/train.py")
    path.write_text(path.read_text().replace("sys.exit(1 if stops else 0)", "sys.exit(1)"))


def damage_start(stage: Stage) -> None:
    """Let the training fail as soon as it begins again."""
    (path,) = stage.files("*/code/train.py")
    path.write_text("raise SystemExit(9)\n")


def lose_results(stage: Stage) -> None:
    """Neither the machine nor the store has them to give."""
    stage.break_agent()
    for path in (stage.app.settings.state_dir / "store").glob("*/manifest.json"):
        path.unlink()


def lose_machine(stage: Stage) -> None:
    provider = stage.app.world("local").provider
    for machine in provider.machines():
        provider.destroy(machine.id)


def put_off(machine: str) -> str:
    """Change a machine's configuration to a later deadline."""
    config = json.loads(machine)
    return json.dumps({**config, "deadline": config["deadline"] + 3600})


def stop(app: App, record: RunRecord) -> None:
    app.apply(record.spec, stop_plan(app, record), lambda _event: None)


def try_probes(stage: Stage) -> None:
    """Let each probe of a machine that runs find its own fault; after that everything is as it was."""
    (record,) = stage.app.ledger.runs()
    (agent,), (machine,), (init,) = (
        stage.files(f"*/{name}") for name in ("bin/kedge-agent", "machine.json", "init.json")
    )
    dead = "#!/bin/sh\necho broken >&2\nexit 9\n"
    faults: tuple[tuple[Path, Callable[[str], str], Callable[[App, RunRecord], object], str], ...] = (
        (agent, lambda _text: dead, try_pins, "doesn't answer"),
        (machine, put_off, read_guard, "later than its deadline"),
        (init, lambda _text: '{"ident": [1, 0.0]}', read_guard, "init is dead"),
        (stage.home / "train.py", lambda text: f"{text}\n", compare_code, "the machine has code"),
        (agent, lambda _text: dead, give_notice, "doesn't take the notice"),
        (agent, lambda _text: dead, stop, "could not stop"),
    )
    for path, change, probe, said in faults:
        with stage.changed(path, change), pytest.raises(KedgeError, match=said):
            probe(stage.app, record)


@pytest.mark.parametrize(
    ("moment", "harm", "failing"),
    [
        (("offer", 1), lambda stage: stage.wrap_provider(Unwilling), "creation"),
        (("boot", 1), lose_machine, "boot"),
        (("code", 1), Stage.break_agent, "code"),
        (("data", 1), lambda stage: shutil.rmtree(stage.home / "numbers"), "data"),
        (("start", 1), Stage.break_agent, "start"),
        (("offer", 1), damage_data, "first steps"),
        (("start", 2), damage_start, "resume"),
        (("results", 1), lose_results, "results"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_each_check_fails_for_its_own_reason_and_nothing_is_left(
    moment: tuple[str, int],
    harm: Callable[[Stage], object],
    failing: str,
    laptop: Laptop,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is harmed fails, with a reason; what comes after it isn't tried; the machine is ended and looked for."""
    monkeypatch.chdir(laptop.home)
    _assert_failed(play(laptop, {moment: harm}), failing, laptop)


def test_each_probe_of_a_machine_finds_its_own_fault_and_a_training_that_fails_is_one(
    laptop: Laptop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys, deadline, code, notice and stop, on one machine that goes on; then its training fails at its end."""
    monkeypatch.chdir(laptop.home)
    test = play(laptop, {("first steps", 1): try_probes, ("start", 2): damage_end})
    _assert_failed(test, "training", laptop)


def _assert_failed(test: Selftest, failing: str, laptop: Laptop) -> None:
    failed = [line for line in test.tried if line.verdict is Verdict.FAILED]
    assert failed[0].name == failing, test.tried
    assert failed[0].found
    assert test.tried[-1].name == "sweep"
    assert test.tried[-1].found == "nothing of it is left"
    assert test.error is not None
    assert test.error.exit_code in (1, 2)
    assert laptop.processes() == []


def lose_hold(stage: Stage) -> None:
    stage.wrap_provider(Undying)


def sell_nothing(stage: Stage) -> None:
    stage.wrap_provider(Unwilling)
    stage.wrap_provider(Blind)
    stage.lock_store()


@pytest.mark.parametrize(
    ("moment", "harm", "failing"),
    [
        ("notice", lose_hold, ["teardown", CUT_OFF, "sweep"]),
        ("offer", sell_nothing, ["creation", "store", "sweep"]),
    ],
    ids=["undying", "blind"],
)
def test_what_may_still_bill_is_said_with_exit_code_5(
    moment: str,
    harm: Callable[[Stage], object],
    failing: list[str],
    laptop: Laptop,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A machine that can't be ended, an account that can't be swept: the last word is what to do about it."""
    monkeypatch.chdir(laptop.home)
    test = play(laptop, {(moment, 1): harm})
    assert [line.name for line in test.tried if line.verdict is Verdict.FAILED] == failing
    assert isinstance(test.error, StillBillingError)
    assert "kedge reap" in test.error.fix


def play(laptop: Laptop, harms: Mapping[tuple[str, int], Callable[[Stage], object]]) -> Selftest:
    """Run a self-test, and do harm when a check begins for the nth time."""
    app = App(read_settings({**laptop.env, "PATH": os.environ["PATH"]}))
    app.clock = EagerClock()
    overrides = Overrides(provider="local", envs=("TRAINING_SECONDS=1",))
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


def test_results_are_right_only_if_each_step_was_done_once() -> None:
    """None is missing, none was done twice, over exactly one stop; and the notice was seen."""
    status = {"step": 12, "starts": 2, "noticed": True}
    steps = "".join(f"{step}\n" for step in range(1, 13))
    assert find_fault(steps, json.dumps(status)) == ""
    assert "steps are" in find_fault(steps + "12\n", json.dumps(status))
    assert "began 1 times" in find_fault(steps, json.dumps({**status, "starts": 1}))
    assert "notice" in find_fault(steps, json.dumps({**status, "noticed": False}))
    assert "can't be read" in find_fault(steps, "")


def test_results_that_are_missing_or_wrong_fail_their_check(tmp_path: Path) -> None:
    """They are read from the folder that came home."""
    output = tmp_path / "output"
    output.mkdir()
    (output / "status.json").write_text(json.dumps({"step": 12, "starts": 2, "noticed": True}))
    with pytest.raises(KedgeError, match=r"steps\.log is missing"):
        check_results(tmp_path)
    (output / "steps.log").write_text("")
    with pytest.raises(KedgeError, match="steps are"):
        check_results(tmp_path)
    (output / "steps.log").write_text("".join(f"{step}\n" for step in range(1, 13)))
    assert "each step was done once" in check_results(tmp_path)


def test_a_report_holds_nothing_secret() -> None:
    """Values of variables that hold secrets, account numbers, users, addresses, and the user's own folder."""
    environ = {"MY_API_TOKEN": "tok-123456", "AWS_SECRET_ACCESS_KEY": "s3cr3t/x", "HOME": "/home/ada", "LANG": "sweep"}
    text = "tok-123456 s3cr3t/x 123456789012 arn:aws:iam::123456789012:user/ada ada@example.org /home/ada/x"
    assert redact(text, environ) == "SECRET SECRET ACCOUNT ARN MAIL ~/x"
    assert redact("from 2001:db8::7/128 of kedge_123456789012_x at 07:15:33", environ) == (
        "from ADDRESS/128 of kedge_ACCOUNT_x at 07:15:33"
    )
