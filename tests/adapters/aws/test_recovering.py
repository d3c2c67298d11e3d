"""Which runs get another machine, depending on how AWS says the first one ended. The box starts no machines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest

from orchestrator.adapters.host.settings import read_settings
from orchestrator.app.launch.recovering import (
    apply_until_done,
    is_lost,
    recoverable_runs,
    recovered_spec,
    recovery_plan,
)
from orchestrator.app.root import App
from orchestrator.core.errors import BadRequestError, NoCapacityError, UnreachableError
from orchestrator.core.job import Job, LaunchSpec, Resources
from orchestrator.core.ledger import RunStage
from orchestrator.core.plan import Plan
from orchestrator.core.task import Task
from orchestrator.engine.run_progress import RunProgress
from tests.adapters.aws.world import HOME, RUN, TYPE, AwsWorld, QuickClock
from tests.adapters.remote.sshd import short_folder

M1 = f"{RUN}-m1"
JOB = Job(name="digits", tasks=(Task(run="train"),), resources=Resources(instance_type=TYPE))
SPEC = LaunchSpec(run_id=RUN, provider="aws", job=JOB, recover=True, ssh_from=HOME)


@dataclass
class Desk:
    """A laptop with one recoverable run on a spot instance."""

    app: App
    aws: AwsWorld
    instance: str
    said: list[str] = field(default_factory=list)

    def is_lost(self) -> bool:
        """Tell whether `kedge recover` counts the run's machine as lost."""
        return is_lost(self.app, self.app.named_run(RUN), self.said.append)


@pytest.fixture
def desk(aws: AwsWorld, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    with short_folder() as runtime:
        monkeypatch.setenv("KEDGE_STATE_DIR", str(aws.folder))
        monkeypatch.setenv("KEDGE_RUNTIME_DIR", str(runtime))
        app = App(read_settings())
        app.clock = QuickClock()
        app.ledger.open_run(SPEC, datetime.now(UTC))
        machine = aws.provider().create(aws.order(spot=True))
        app.ledger.put_machine(machine)
        yield Desk(app=app, aws=aws, instance=machine.provider_id)
        app.ledger.close()


def test_a_reclaimed_machine_is_replaced(desk: Desk) -> None:
    """Its run stays live."""
    desk.aws.api.reclaim(desk.instance, notice_seconds=None)
    assert desk.is_lost()
    assert desk.app.named_run(RUN).stage is RunStage.LIVE
    assert desk.said == [
        f"machine {M1} is gone: aws took it away (Server.SpotInstanceTermination: Spot instance termination)"
    ]


def test_a_machine_ended_in_the_console_is_not_replaced(desk: Desk) -> None:
    """The run is closed with a message, nothing of it stays at AWS, and it is no longer a candidate."""
    desk.aws.api.client("ec2").terminate_instances(InstanceIds=[desk.instance])
    assert not desk.is_lost()
    record = desk.app.named_run(RUN)
    assert (record.stage, record.outcome) == (RunStage.ENDED, "stopped")
    assert "somebody ended it at aws (Client.UserInitiatedShutdown: User initiated shutdown)" in desk.said[0]
    assert f"run {RUN} is closed" in desk.said[1]
    assert recoverable_runs(desk.app) == ()
    assert desk.aws.schedules() == []


def test_a_machine_stopped_in_the_console_is_not_replaced(desk: Desk) -> None:
    """It still exists and its disks bill. The run stays live, for `teardown` or `resume`."""
    on_demand = desk.aws.provider().create(desk.aws.order(2))
    desk.aws.api.client("ec2").terminate_instances(InstanceIds=[desk.instance])
    desk.app.ledger.put_machine(on_demand)
    desk.aws.api.client("ec2").stop_instances(InstanceIds=[on_demand.provider_id])
    assert not desk.is_lost()
    assert desk.app.named_run(RUN).stage is RunStage.LIVE
    assert "is not replaced: somebody ended it" in desk.said[-1]


def test_a_run_that_was_told_not_to_recover_is_left_alone(desk: Desk) -> None:
    """Also by a command that has followed the run since before recovery was turned off."""
    desk.app.ledger.open_run(LaunchSpec(run_id=RUN, provider="aws", job=SPEC.job), datetime.now(UTC))
    desk.aws.api.reclaim(desk.instance, notice_seconds=None)
    assert not desk.is_lost()
    assert recoverable_runs(desk.app) == ()


def test_without_capacity_recovery_waits_longer_each_time(desk: Desk) -> None:
    """AWS may refuse every offer of a plan; the next attempt is not made at once."""
    outcomes = [UnreachableError("m1 is gone"), NoCapacityError("sold out"), NoCapacityError("sold out")]

    def apply_plan(plan: Plan) -> RunProgress:
        assert plan.run_id == RUN
        if outcomes:
            raise outcomes.pop(0)
        return RunProgress(finished=True)

    desk.aws.api.reclaim(desk.instance, notice_seconds=None)
    first = Plan(run_id=RUN, actions=())
    assert apply_until_done(desk.app, SPEC, first, apply_plan, desk.said.append).finished
    assert desk.said[1:] == [
        "m1 is gone; the machine is replaced",
        "sold out; looking again in 15 s",
        "sold out; looking again in 30 s",
    ]


@pytest.mark.parametrize("ssh_from", ["0.0.0.0/0", "::/0"])
def test_a_recovered_machine_is_not_planned_open_to_everybody(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, ssh_from: str
) -> None:
    """A recovery accepts a range as a launch does, and refuses this one without any request to AWS."""
    monkeypatch.setenv("KEDGE_SSH_FROM", ssh_from)
    desk.app.settings = read_settings()
    desk.aws.api.reset_calls()
    with pytest.raises(BadRequestError, match="admits everybody"):
        recovery_plan(desk.app, recovered_spec(desk.app, desk.app.named_run(RUN)))
    assert desk.aws.actions().total() == 0


def test_a_run_whose_time_is_over_is_no_candidate(desk: Desk) -> None:
    """Otherwise the timer would query AWS every minute for nothing."""
    assert [record.run_id for record in recoverable_runs(desk.app)] == [RUN]
    over = datetime.now(UTC) - timedelta(minutes=1)
    spec = LaunchSpec(run_id=RUN, provider="aws", job=SPEC.job, recover=True, until=over)
    desk.app.ledger.open_run(spec, datetime.now(UTC))
    assert recoverable_runs(desk.app) == ()
