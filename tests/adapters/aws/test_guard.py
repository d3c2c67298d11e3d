"""A machine's deadline as a schedule at AWS: the next command creates it if the first one died before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import cast

import pytest

from orchestrator.adapters.host.clock import SystemClock
from orchestrator.adapters.host.retry import poll_until
from orchestrator.adapters.ledger.sqlite import SqliteLedger
from orchestrator.adapters.providers import Context, look_at_guard
from orchestrator.core.actions import CreateMachine
from orchestrator.core.checkup import Verdict
from orchestrator.core.errors import KedgeError
from orchestrator.core.job import Job, LaunchSpec
from orchestrator.core.ports import Connector
from orchestrator.core.transfers import DataMover
from orchestrator.engine.observing.reconcile import reconcile
from orchestrator.engine.world import World
from tests.adapters.aws.killing import kill_when
from tests.adapters.aws.world import RUN, AwsWorld

M1 = f"{RUN}-m1"


@pytest.fixture
def ledger(aws: AwsWorld) -> Iterator[SqliteLedger]:
    """The laptop's ledger, with a launch that is about to create its machine."""
    opened = SqliteLedger(aws.folder, SystemClock())
    now = datetime.now(UTC)
    opened.open_run(LaunchSpec(run_id=RUN, provider="aws", job=Job(name="digits")), now)
    opened.intend(RUN, CreateMachine(machine_id=M1, offers=(), lifetime=timedelta(hours=1)), now)
    yield opened
    opened.close()


def look(aws: AwsWorld, ledger: SqliteLedger) -> tuple[str, ...]:
    """Reconcile the ledger with AWS, as every command does first."""
    world = World(
        clock=aws.clock,
        poll_until=poll_until,
        ledger=ledger,
        provider=aws.provider(),
        connector=cast("Connector", None),
        mover=cast("DataMover", None),
        store=None,
        stage=None,
        code_source=lambda _job: None,
        authorized_key="",
        agent_archive=lambda: b"",
        group_token=lambda _run: "",
        render_unit=lambda _job, _root: "",
        environ={},
    )
    return reconcile(world, RUN)


def fires_at(aws: AwsWorld) -> datetime:
    """Return when the machine's schedule fires."""
    said = aws.api.client("scheduler").get_schedule(Name=M1)["ScheduleExpression"]
    return datetime.strptime(said, "at(%Y-%m-%dT%H:%M:%S)").replace(tzinfo=UTC)


def die_before_the_schedule(aws: AwsWorld) -> None:
    """Kill a creation during its call for the schedule, before the call has an effect."""
    aws.api.drop_next("CreateSchedule", times=None, before_effect=True)
    kill_when(aws, "CreateSchedule")
    aws.api.clear_faults()
    assert len(aws.instances()) == 1
    assert aws.schedules() == []


def test_a_machine_whose_creator_died_gets_its_deadline_from_the_next_command(
    aws: AwsWorld, ledger: SqliteLedger
) -> None:
    """The first command dies between RunInstances and CreateSchedule. Reconciling is enough; no launch is needed."""
    die_before_the_schedule(aws)
    (finding,) = look(aws, ledger)
    assert "a command that died" in finding
    (machine,) = aws.provider().machines()
    assert timedelta(0) < fires_at(aws) - machine.deadline_at <= timedelta(minutes=10)
    assert ledger.open_intents(RUN) == ()
    assert [known.id for known in ledger.machines(RUN, live_only=True)] == [M1]


def test_a_schedule_that_aws_refuses_is_retried(aws: AwsWorld, ledger: SqliteLedger) -> None:
    """Until then the finding says that the machine has no schedule."""
    die_before_the_schedule(aws)
    aws.api.fail_next("CreateSchedule", "ServiceQuotaExceededException", status=402)
    assert any("could not be completed" in finding for finding in look(aws, ledger))
    assert aws.schedules() == []
    look(aws, ledger)
    assert aws.schedules() == [M1]


def test_another_laptop_guards_what_it_finds(aws: AwsWorld) -> None:
    """It reads the deadline from the tags."""
    machine = aws.provider().create(aws.order())
    aws.api.client("scheduler").delete_schedule(Name=M1)
    other = AwsWorld(api=aws.api, folder=aws.folder / "other")
    other.provider().guard(M1)
    assert timedelta(0) < fires_at(aws) - machine.deadline_at <= timedelta(minutes=10)


def test_the_self_test_checks_the_machine_and_the_time_of_the_schedule(aws: AwsWorld) -> None:
    """It fails if the schedule ends another instance, fires hours late, or is gone."""
    context = Context(
        state_dir=aws.folder, runtime_dir=aws.folder, clock=aws.clock, key_file=aws.folder / "key", environ={}
    )
    machine = aws.provider().create(aws.order())
    assert look_at_guard("aws", context, machine)[0] is Verdict.OK
    for other, said in (
        (replace(machine, provider_id="i-0123456789abcdef0"), "no schedule at AWS ends this machine"),
        (replace(machine, deadline_at=machine.deadline_at - timedelta(hours=1)), "its schedule ends it at"),
    ):
        verdict, found, fix = look_at_guard("aws", context, other)
        assert verdict is Verdict.FAILED
        assert said in found
        assert fix
    aws.api.client("scheduler").delete_schedule(Name=M1)
    assert look_at_guard("aws", context, machine)[0] is Verdict.FAILED


def test_guarding_again_changes_nothing(aws: AwsWorld) -> None:
    """The existing schedule stays as it was."""
    aws.provider().create(aws.order())
    before = fires_at(aws)
    aws.provider().guard(M1)
    assert fires_at(aws) == before
    assert aws.schedules() == [M1]


def test_a_moved_schedule_is_changed_and_never_created_again(aws: AwsWorld) -> None:
    """Moved there and back, it has the first one's time again, for which a creation could be a repeated one.

    fact: aws-schedule-token. Its deadline is also in the tags, by which another computer knows it.
    """
    machine = aws.provider().create(aws.order())
    other = AwsWorld(api=aws.api, folder=aws.folder / "other")
    aws.api.reset_calls()
    for hours in (2, 0):
        deadline_at = machine.deadline_at + timedelta(hours=hours)
        aws.provider().move_deadline(M1, deadline_at)
        assert fires_at(aws) - deadline_at == timedelta(minutes=5) - timedelta(microseconds=deadline_at.microsecond)
        (seen,) = other.provider().machines()
        assert abs(seen.deadline_at - deadline_at) < timedelta(seconds=2)
    assert aws.actions()["UpdateSchedule"] == 2
    assert aws.actions()["CreateSchedule"] == 0


def test_a_machine_without_a_schedule_gets_one_when_its_deadline_is_moved(aws: AwsWorld) -> None:
    """Somebody has deleted it."""
    machine = aws.provider().create(aws.order())
    aws.api.client("scheduler").delete_schedule(Name=M1)
    aws.provider().move_deadline(M1, machine.deadline_at + timedelta(hours=2))
    assert fires_at(aws) > machine.deadline_at + timedelta(hours=2)


def test_a_machine_that_outlived_its_deadline_is_ended_in_minutes(aws: AwsWorld) -> None:
    """AWS may refuse a schedule in the past, or never fire it. fact: aws-past-schedules."""
    aws.provider().create(aws.order())
    aws.api.client("scheduler").delete_schedule(Name=M1)
    aws.clock.sleep(timedelta(hours=3))
    aws.provider().guard(M1)
    assert timedelta(0) < fires_at(aws) - aws.clock.now() < timedelta(minutes=5)


def destroyed(aws: AwsWorld) -> None:
    """Create a machine and destroy it."""
    aws.provider().create(aws.order())
    aws.provider().destroy(M1)


def ended_by_itself(aws: AwsWorld) -> None:
    """Create a machine that ends without a command, and delete its schedule."""
    machine = aws.provider().create(aws.order())
    aws.api.client("ec2").terminate_instances(InstanceIds=[machine.provider_id])
    aws.api.client("scheduler").delete_schedule(Name=M1)


def never_was(_aws: AwsWorld) -> None:
    """Create no machine."""


@pytest.mark.parametrize("happened", [destroyed, ended_by_itself, never_was])
def test_a_machine_that_is_gone_is_not_guarded(aws: AwsWorld, happened: Callable[[AwsWorld], None]) -> None:
    """The schedule would be a leftover."""
    happened(aws)
    aws.provider().guard(M1)
    assert aws.schedules() == []


def test_a_machine_that_aws_does_not_list_yet_cannot_be_guarded_yet(aws: AwsWorld) -> None:
    """Its instance id is unknown; the next command tries again."""
    aws.api.drop_next("RunInstances", times=None, before_effect=True)
    kill_when(aws, "RunInstances")
    with pytest.raises(KedgeError, match="yet"):
        aws.provider().guard(M1)


def test_a_machine_whose_creator_died_gets_its_volumes_from_the_next_command(
    aws: AwsWorld, ledger: SqliteLedger
) -> None:
    """The first command dies between RunInstances and AttachVolume. The machine waits for its disks."""
    aws.api.drop_next("AttachVolume", times=None, before_effect=True)
    kill_when(aws, "AttachVolume", "scans", "maps")
    aws.api.clear_faults()
    look(aws, ledger)
    client = aws.api.client("ec2")
    (machine,) = aws.instances()
    disks = client.describe_volumes(Filters=[{"Name": "tag-key", "Values": ["kedge-volume"]}])["Volumes"]
    had_by = [(each["InstanceId"], each["Device"]) for disk in disks for each in disk["Attachments"]]
    assert sorted(had_by) == [(machine["InstanceId"], "/dev/sdf"), (machine["InstanceId"], "/dev/sdg")]
    assert ledger.open_intents(RUN) == ()
    aws.api.reset_calls()
    aws.provider().guard(M1)
    assert aws.api.calls("ec2", "AttachVolume") == []
